"""Compare images: which there are, and where their names lead."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from lumisite.facts.change import DOUBT, FAULT, INFO, Change
from lumisite.facts.facts import Facts, ImageFile
from lumisite.text import listed


class _Difference(NamedTuple):
    """What is another one at a path: new, gone, relocated, moved, replaced or broken, with the real files."""

    how: Literal["new", "gone", "relocated", "moved", "replaced", "broken"]
    path: str
    before: str | None
    after: str | None


def compare_images(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change for each image in a folder where both captures looked: a file with all links to it is one."""
    folders = before.paths.keys() & after.paths.keys()
    old, new = (
        {f"{top}/{name}": image for top in folders for name, image in facts.images.get(top, {}).items()}
        for facts in (before, after)
    )
    places = {_content(path, image): image.target or path for path, image in sorted(new.items()) if image.size_bytes}
    differing = (path for path in sorted(old.keys() | new.keys()) if old.get(path) != new.get(path))
    found = [change for path in differing if (change := _changed(path, old.get(path), new.get(path), places))]
    for group in _grouped(found, {*map(_folder, old)}, {*map(_folder, new)}):
        first = next((one for one in group if one.path in (one.before, one.after)), group[0])
        still = places.get(_content(first.path, old[first.path])) if first.path in old else None
        yield _change(first, group, still, still or (None if first.before in old else first.before))


def _content(path: str, image: ImageFile) -> tuple[str, int | None]:
    """Return what two copies of one image share: the identity, or the name of the file, and the size."""
    return image.id or posixpath.basename(image.target or path), image.size_bytes


def _folder(path: str | None) -> str | None:
    return None if path is None else posixpath.dirname(path)


def _changed(
    path: str, old: ImageFile | None, new: ImageFile | None, places: Mapping[tuple[str, int | None], str]
) -> _Difference | None:
    """Return the change at one path, with the real files before and after."""
    if old is not None and old.size_bytes is None and new is not None:
        old = None  # a broken link that leads to something now
    was, now = (None if image is None else image.target or path for image in (old, new))
    if new is not None and new.size_bytes is None:
        return _Difference("broken", path, was, now)
    mark = None if old is None else _content(path, old)
    there = None if mark is None else places.get(mark)
    if new is None and there not in (None, was):
        return _Difference("relocated", path, was, there)
    if new is not None and mark == _content(path, new):
        return None if was == now else _Difference("relocated", path, was, now)
    if was == now:
        return _Difference("replaced", path, was, now)
    return _Difference("new" if was is None else "gone" if now is None else "moved", path, was, now)


def _grouped(found: list[_Difference], old: set[str | None], new: set[str | None]) -> Iterator[list[_Difference]]:
    """Yield the changes that are one: those of the files of one folder, with the links to them.

    `old` and `new` are the folders that had, and have, images. Left out is what a link that leads elsewhere reports:
    the file that it leads to, the one that it led to, and the others of a folder that came or went with them.
    """
    moved = [change for change in found if change.how in ("moved", "relocated")]
    left = {change.before for change in found if change.how in ("moved", "broken")}
    led = {change.after for change in moved} | ({_folder(change.after) for change in moved} - old)
    emptied = {_folder(change.before) for change in moved} - new
    groups: dict[tuple[str, str | None, str | None], list[_Difference]] = {}
    for change in found:
        folders = _folder(change.before), _folder(change.after)
        is_left = change.how in ("gone", "relocated") and change.before in left
        is_left |= change.how == "gone" and folders[0] in emptied
        if not is_left and not (change.how == "new" and not led.isdisjoint((change.after, folders[1]))):
            groups.setdefault((change.how, *folders), []).append(change)
    yield from groups.values()


def _change(first: _Difference, group: list[_Difference], still: str | None, kept: str | None) -> Change:
    """Return the change of files of one folder with the links to them.

    `still` is where the image before is now, `kept` a path by which users can stay with it.
    """
    paths = tuple(one.path for one in group)
    others = [path for path in paths if path != first.path]
    files = {one.before or one.after for one in group}
    # Of several files their folder counts.
    was, now = (path if len(files) == 1 else _folder(path) for path in (first.before, first.after))
    now = first.after if first.how == "broken" else now
    too = f", as for {listed(others)}" if others else ""
    and_others = f", as for {', '.join(others)}" if others else ""
    severity, advice, subject = DOUBT, "plan the image again if it has a bind plan", first.path
    users: tuple[str, ...] = ()
    if first.how == "new":
        message, severity, advice = f"new image{too or f' {now}'}", INFO, ""
    elif first.how == "gone":
        message, advice = f"image is gone{too or f', it was {was}'}", "restore it, or name another one to users"
        users = (f"{subject} is gone{and_others}.",)
    elif first.how == "relocated":
        message = f"the same image is at {now} now{too or f', it was {was}'}"
        advice = f"leave a link at {was}, and plan the image again if it has a bind plan"
        users = (f"{subject}: the same image is at {now} now.",)
    elif first.how == "moved":
        message = f"{was} -> {now}{too}"
        users = (f"{subject} now leads to {now}{and_others}.",)
        advice = "the old image is gone: restore it if users need it"
        if kept:
            advice = f"tell users who need the old image its path: {kept}"
            users += (f"To stay with the image that {subject} was, name {kept} as long as it is there.",)
    elif first.how == "replaced":
        message = f"another image under the same name{too}"
        users = (f"{subject} was replaced by another image{and_others}.",)
    else:
        message = f"broken link to {now}" + (f"; the same image is at {still} now" if still else too)
        severity, advice = FAULT, f"lead the link to {still}" if still else "restore the image or correct the link"
        users = (f"{subject} is a broken link.",)
    known = {"files": tuple(sorted(filter(None, files)))}
    return Change(subject, was, now, message, known, paths, severity, advice, users)
