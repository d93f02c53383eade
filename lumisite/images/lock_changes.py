"""How images differ from their lock, and what of the site each difference touches."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from lumisite.findings.finding import Finding, Severity
from lumisite.findings.writers import message
from lumisite.images.inventory import NamedImage
from lumisite.images.lock import Lock, LockedImage, replaced_image
from lumisite.images.versions import title_of
from lumisite.machine.tree import is_under
from lumisite.site.model import Site
from lumisite.text import listed, printable

Kind = Literal["moved", "changed", "broken", "vanished", "new"]
_ORDER: tuple[Kind, ...] = ("vanished", "broken", "moved", "changed", "new")


@dataclass(frozen=True)
class LockChange:
    """One name that is not as it was locked, with findings, and what of the site it touches.

    `families` are those before and after; `modules` bind for them; `plans` are stored ones for the image; `used_by`
    are keys of the site that name it.
    """

    path: str
    kind: Kind
    findings: tuple[Finding, ...]
    before: LockedImage | None
    after: LockedImage | None
    families: tuple[str, ...]
    modules: tuple[str, ...]
    plans: tuple[str, ...]
    used_by: tuple[str, ...]


def compare_images(
    lock: Lock,
    images: Iterable[NamedImage],
    site: Site,
    requested: Sequence[str] = (),
    plans: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> tuple[LockChange, ...]:
    """Compare what is found with a lock, the worst first; with `requested`, only what is named or is below it.

    `plans` maps the name of each stored plan to the shell patterns of the images that it is for.
    """
    now = {image.path: image for image in images}
    paths = {path for path in lock.images if not requested or any(is_under(path, top) for top in requested)}
    changes = []
    for path in paths | set(now):
        before, after = lock.images.get(path), now[path].locked if path in now else None
        fault = now[path].fault if path in now else None
        unreadable = [] if fault is None else [_lost(path, message(fault), "restore it")]
        kind, findings = _judge(site, path, before, after, unreadable)
        if not findings:
            continue
        states = [state for state in (before, after) if state is not None]
        families = tuple(dict.fromkeys(state.family for state in states if state.family is not None))
        names = {path, *(state.target for state in states if state.target is not None)}
        touched = tuple(
            plan
            for plan, patterns in plans.items()
            if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns for name in names)
        )
        modules, used_by = _modules(site, families), tuple(_used_by(site, names))
        changes.append(LockChange(path, kind, tuple(findings), before, after, families, modules, touched, used_by))
    return tuple(sorted(changes, key=lambda change: (_ORDER.index(change.kind), change.path)))


def _judge(
    site: Site, path: str, before: LockedImage | None, after: LockedImage | None, unreadable: list[Finding]
) -> tuple[Kind, list[Finding]]:
    """Return how two states differ, with findings; none where they do not."""
    if after is None:
        return "vanished", [_lost(path, "not among the images any more", "restore it, or lock the images again")]
    if before is None:
        target = "" if after.target is None else f", leads to {printable(after.target)}"
        unlocked = _unlocked(path, f"not in the lock{target}", "lock the images again when it is right")
        return ("broken", [*unreadable, unlocked]) if after.fault else ("new", [unlocked])
    if after.fault and after.fault != before.fault:
        gone = after.target is None and before.target is not None
        return ("vanished" if gone else "broken"), unreadable
    if _kept(before) == _kept(after):
        return "changed", []
    findings = _versions(site, path, before, after)
    if before.fault and not after.fault:
        advice = "if it is the right file, lock the images again: lumisite images --lock FILE"
        return "changed", [_unlocked(path, f"can be read again (before: {before.fault})", advice), *findings]
    if before.target != after.target:
        known = before.digest is not None and after.digest is not None
        content = "" if not known else " (same content)" if before.digest == after.digest else " (other content)"
        was, now = ("no file" if state.target is None else printable(state.target) for state in (before, after))
        moved = f"leads to {now}, before to {was}{content}"
        advice = "tell users who need the old image its path, or lock the images again"
        return "moved", [_changed(path, moved, advice), *findings]
    return "changed", [replaced_image(path, _sizes(before, after)), *findings]


def _versions(site: Site, path: str, before: LockedImage, after: LockedImage) -> list[Finding]:
    versions = {
        name: tuple(state.versions.get(name, "none") for state in (before, after))
        for name in (*before.versions, *after.versions)
    }
    changed = tuple(f"{title_of(site, name)} {was} -> {now}" for name, (was, now) in versions.items() if was != now)
    return [_changed(path, listed(changed), "tell users which versions changed")] if changed else []


def _sizes(before: LockedImage, after: LockedImage) -> str:
    known = before.size is not None and after.size is not None
    return f" ({before.size} -> {after.size} bytes)" if known and before.size != after.size else ""


def _lost(path: str, message: str, advice: str) -> Finding:
    return Finding("locked-image-lost", Severity.FAULT, message, advice, path)


def _unlocked(path: str, message: str, advice: str) -> Finding:
    return Finding("image-not-locked", Severity.DOUBT, message, advice, path)


def _changed(path: str, message: str, advice: str) -> Finding:
    return Finding("locked-image-changed", Severity.DOUBT, message, advice, path)


def _kept(image: LockedImage) -> tuple[object, ...]:
    """Return what must stay; the versions speak for an unpacked image, which has no digest."""
    return image.target, image.digest, image.size, image.fault, image.versions if image.digest is None else None


def _modules(site: Site, families: Iterable[str]) -> tuple[str, ...]:
    """Return the modules that images of some families are run with, and those that load them."""
    touched = {name for family in families if family in site.families for name in site.families[family].modules}
    for _ in site.modules:  # no chain of loads is longer
        touched |= {name for name, module in site.modules.items() if touched.intersection(module.loads)}
    return tuple(name for name in site.modules if name in touched)


def _used_by(site: Site, names: set[str]) -> Iterator[str]:
    if site.validation is not None and site.validation.image in names:
        yield "validation.image"
