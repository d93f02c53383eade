"""How images differ from their lock, and what of the site each difference touches."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from lumisite.errors import shown
from lumisite.images.inventory import Image
from lumisite.images.lock import Lock, LockedImage, locked
from lumisite.images.versions import title_of
from lumisite.machine.tree import is_under
from lumisite.site.model import Site

Kind = Literal["moved", "changed", "broken", "vanished", "new"]
_ORDER: tuple[Kind, ...] = ("vanished", "broken", "moved", "changed", "new")


@dataclass(frozen=True)
class Change:
    """One name that is not as it was locked, `what` in words, and what of the site it touches.

    `families` are those before and after; `modules` bind for them; `plans` are stored ones for the image; `used_by`
    are keys of the site that name it.
    """

    path: str
    kind: Kind
    what: tuple[str, ...]
    before: LockedImage | None
    after: LockedImage | None
    families: tuple[str, ...]
    modules: tuple[str, ...]
    plans: tuple[str, ...]
    used_by: tuple[str, ...]


def compare_images(
    lock: Lock,
    images: Iterable[Image],
    site: Site,
    given: Sequence[str] = (),
    plans: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> tuple[Change, ...]:
    """Compare what is found with a lock, the worst first; with `given`, only what is named or is below it.

    `plans` maps the name of each stored plan to the shell patterns of the images that it is for.
    """
    now = {one.path: locked(one) for one in images}
    paths = {path for path in lock.images if not given or any(is_under(path, top) for top in given)}
    changes = []
    for path in paths | set(now):
        before, after = lock.images.get(path), now.get(path)
        kind, what = _judge(site, before, after)
        if kind is None:
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
        changes.append(Change(path, kind, what, before, after, families, modules, touched, used_by))
    return tuple(sorted(changes, key=lambda change: (_ORDER.index(change.kind), change.path)))


def _judge(site: Site, before: LockedImage | None, after: LockedImage | None) -> tuple[Kind | None, tuple[str, ...]]:
    """Say how two states differ, also in words; `None` where they do not."""
    if after is None:
        return "vanished", ("is no longer among the images",)
    if before is None:
        if after.fault:
            return "broken", (after.fault, "is not in the lock")
        return "new", (f"leads to {shown(after.target or '')}",)
    if after.fault and after.fault != before.fault:
        gone = after.target is None and before.target is not None
        return ("vanished" if gone else "broken"), (after.fault,)
    if _kept(before) == _kept(after):
        return None, ()
    versions = [
        f"{title_of(site, name)} {before.versions.get(name, '(none)')} -> {after.versions.get(name, '(none)')}"
        for name in dict.fromkeys((*before.versions, *after.versions))
        if before.versions.get(name) != after.versions.get(name)
    ]
    lines = [", ".join(versions)] if versions else []
    if before.fault and not after.fault:
        return "changed", (f"can be read again; it was: {before.fault}", *lines)
    if before.target != after.target:
        where = f"leads to {shown(after.target or 'nothing')}, not to {shown(before.target or 'nothing')}"
        if before.digest is not None and after.digest is not None:
            where += f"; the content is {'the same' if before.digest == after.digest else 'another'}"
        return "moved", (where, *lines)
    size = f" ({before.size} -> {after.size} bytes)" if before.size != after.size else ""
    return "changed", (f"has other content under the same name{size}", *lines)


def _kept(image: LockedImage) -> tuple[object, ...]:
    """Give what must stay; the versions speak for an unpacked image, which has no digest."""
    return image.target, image.digest, image.size, image.fault, image.versions if image.digest is None else None


def _modules(site: Site, families: Iterable[str]) -> tuple[str, ...]:
    """Give the modules that images of some families are run with, and those that load them."""
    touched = {name for family in families if family in site.families for name in site.families[family].modules}
    for _ in site.modules:  # no chain of loads is longer
        touched |= {name for name, module in site.modules.items() if touched.intersection(module.loads)}
    return tuple(name for name in site.modules if name in touched)


def _used_by(site: Site, names: set[str]) -> Iterator[str]:
    if site.images is not None:
        systems = site.images.cotainr.items()
        yield from sorted(f"images.cotainr.{name}" for name, system in systems if system.base_image in names)
    if site.validation is not None and site.validation.image in names:
        yield "validation.image"
