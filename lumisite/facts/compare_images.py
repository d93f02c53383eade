"""Compare images: which there are, and to which image their names lead."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping

from lumisite.facts.change import DOUBT, FAULT, INFO, Change
from lumisite.facts.facts import Facts, ImageFile
from lumisite.text import listed


def compare_images(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change for all images of a folder to which the same happened, where both captures looked.

    A name that leads to the same image elsewhere is none. Of an image that a name leads to, or led to, the name tells.
    """
    old, new = (_images(before, after), _images(after, before))
    differing = [path for path in sorted(old.keys() | new.keys()) if _content(path, old) != _content(path, new)]
    moved = {path for path in differing if path in old and path in new}
    told = {image.target for path in moved for image in (old[path], new[path])}
    groups: dict[tuple[str, str], list[str]] = {}
    for path in (path for path in differing if path not in told or path in moved):
        groups.setdefault((_happened(old.get(path), new.get(path)), posixpath.dirname(path)), []).append(path)
    for (how, _), paths in groups.items():
        yield _change(how, paths, old, new)


def _images(facts: Facts, other: Facts) -> dict[str, ImageFile]:
    """Return the images in the folders where both captures looked, by path."""
    folders = facts.paths.keys() & other.paths.keys()
    return {f"{top}/{name}": image for top in folders for name, image in facts.images.get(top, {}).items()}


def _content(path: str, images: Mapping[str, ImageFile]) -> tuple[object, ...]:
    """Return what two copies of one image share: the identity, or the name of the file, and the size."""
    image = images.get(path)
    return () if image is None else (image.size_bytes, image.id or posixpath.basename(image.target or path))


def _happened(old: ImageFile | None, new: ImageFile | None) -> str:
    if new is None:
        return "gone"
    if new.size_bytes is None:
        return "broken"
    if old is None or old.size_bytes is None:
        return "new"
    return "replaced" if old.target == new.target else "moved"


def _change(how: str, paths: list[str], old: Mapping[str, ImageFile], new: Mapping[str, ImageFile]) -> Change:
    first = paths[0]
    was, now = (side[first].target or first if first in side else None for side in (old, new))
    others = f", as are {listed(paths[1:])}" if paths[1:] else ""
    severity, advice = DOUBT, "plan the image again if it has a bind plan"
    if how == "new":
        message, severity, advice, users = "new image", INFO, "", ""
    elif how == "gone":
        message, advice, users = "image is gone", "restore it, or name another one to users", "{0} is gone."
    elif how == "broken":
        message, severity, advice = f"broken link to {now}", FAULT, "restore the image or correct the link"
        users = "{0} is a broken link."
    elif how == "replaced":
        message, users = "another image under the same name", "{0} was replaced by another image."
    else:
        message, users = f"{was} -> {now}", "{0} now leads to {2}."
        if was in new:
            users += " To stay with the image that it was, name {1} as long as it is there."
    targets = [tuple(side[path].target or path if path in side else "" for side in (old, new)) for path in paths]
    sentences = (users.format(path, *pair) for path, pair in zip(paths, targets, strict=True)) if users else ()
    names = dict.fromkeys((*paths, *(target for pair in targets for target in pair if target)))
    return Change(
        "image", first, was, now, message + others, severity, names=tuple(names), inside=tuple(paths),
        users=tuple(sentences), advice=advice,
    )  # fmt: skip
