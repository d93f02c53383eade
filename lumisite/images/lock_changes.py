"""How images differ from their lock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from lumisite.images.inventory import NamedImage
from lumisite.images.lock import CHANGED_CONTENT, Lock, LockedImage
from lumisite.images.versions import title_of
from lumisite.machine.tree import is_under
from lumisite.site.model import Site
from lumisite.text import listed

Kind = Literal["moved", "changed", "broken", "vanished", "new"]
_ORDER: tuple[Kind, ...] = ("vanished", "broken", "moved", "changed", "new")


@dataclass(frozen=True)
class LockChange:
    """One name that is not as it was locked, and `what` is different, in sentences."""

    path: str
    kind: Kind
    what: tuple[str, ...]
    before: LockedImage | None
    after: LockedImage | None


def compare_images(
    lock: Lock, images: Iterable[NamedImage], site: Site, requested: Sequence[str] = ()
) -> tuple[LockChange, ...]:
    """Compare what is found with a lock, the worst first; with `requested`, only what is named or is below it."""
    now = {image.path: image for image in images}
    paths = {path for path in lock.images if not requested or any(is_under(path, top) for top in requested)}
    changes = (_compare(site, path, lock.images.get(path), now.get(path)) for path in paths | set(now))
    found = (change for change in changes if change is not None)
    return tuple(sorted(found, key=lambda change: (_ORDER.index(change.kind), change.path)))


def _compare(site: Site, path: str, before: LockedImage | None, image: NamedImage | None) -> LockChange | None:
    """Return how one name differs; `None` where it does not. What was broken and stays so is no difference."""
    if image is None:
        return LockChange(path, "vanished", ("not among the images any more",), before, None)
    after, fault = image.locked, () if image.fault is None else (image.fault.message,)
    if before is None:
        target = () if after.target is None else (f"not in the lock, leads to {after.target}",)
        return LockChange(path, "broken" if fault else "new", (*fault, *target), None, after)
    if fault and after.fault != before.fault:
        is_gone = after.target is None and before.target is not None
        return LockChange(path, "vanished" if is_gone else "broken", fault, before, after)
    if _kept(before) == _kept(after):
        return None
    kind: Kind = "changed"
    what = CHANGED_CONTENT
    if before.fault and not after.fault:
        what = f"can be read again (before: {before.fault})"
    elif before.target != after.target:
        kind = "moved"
        what = f"leads to {after.target or 'no file'}, before to {before.target or 'no file'}"
    elif before.size != after.size:
        what += f" ({before.size} -> {after.size} bytes)"
    return LockChange(path, kind, (what, *_versions(site, before, after)), before, after)


def _versions(site: Site, before: LockedImage, after: LockedImage) -> Iterator[str]:
    names = dict.fromkeys((*before.versions, *after.versions))
    rows = [(name, before.versions.get(name, "none"), after.versions.get(name, "none")) for name in names]
    if changed := [f"{title_of(site, name)} {was} -> {now}" for name, was, now in rows if was != now]:
        yield listed(changed)


def _kept(image: LockedImage) -> tuple[object, ...]:
    """Return what must stay; the versions speak for an unpacked image, which has no digest."""
    return image.target, image.digest, image.size, image.fault, image.versions if image.digest is None else None
