"""Images: which there are, and where their names lead."""

from __future__ import annotations

import fnmatch
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

from lumisite.facts.change import Change, Touched, borrows, listed
from lumisite.facts.context import Context, stored_plan
from lumisite.facts.facts import Facts, ImageFile
from lumisite.facts.kind import DOUBT, FAULT, INFO, ChangeKind, Differences
from lumisite.site.images import family_by_path

_Content: TypeAlias = tuple[str, int | None]


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
        image = old.get(first.path)
        still = None if image is None else places.get(_content(first.path, image))
        yield _change(first, group, still, still or (None if first.before in old else first.before))


class _Difference(NamedTuple):
    """What is another one at a path: new, gone, relocated, moved, replaced or broken, with the real files."""

    how: Literal["new", "gone", "relocated", "moved", "replaced", "broken"]
    path: str
    before: str | None
    after: str | None


def _change(first: _Difference, group: list[_Difference], still: str | None, kept: str | None) -> Change:
    """Return the change of files of one folder with the links to them; `still` is where the image before is now."""
    paths = tuple(one.path for one in group)
    others = [path for path in paths if path != first.path]
    files = {one.before or one.after for one in group}
    # Of several files their folder counts.
    was, now = (path if len(files) == 1 else _folder(path) for path in (first.before, first.after))
    now = first.after if first.how == "broken" else now
    too = f", as for {listed(others)}" if others else ""
    severity, advice, subject = DOUBT, "plan the image again if it has a bind plan", first.path
    users: list[tuple[str, str]] = []
    if first.how == "new":
        message, severity, advice = f"new image{too or f' {now}'}", INFO, ""
    elif first.how == "gone":
        message, advice = f"image is gone{too or f', it was {was}'}", "restore it, or name another one to users"
        users = [("changed", f"{subject} is gone{_and_all(others)}.")]
    elif first.how == "relocated":
        message = f"the same image is at {now} now{too or f', it was {was}'}"
        advice = f"leave a link at {was}, and plan the image again if it has a bind plan"
        users = [("changed", f"{subject}: the same image is at {now} now.")]
    elif first.how == "moved":
        message = f"{was} -> {now}{too}"
        advice = "the old image is gone: restore it if users need it"
        users = [("changed", f"{subject} now leads to {now}{_and_all(others, 'do')}.")]
        if kept:
            advice = f"tell users who need the old image its path: {kept}"
            users.append(
                ("scripts", f"To stay with the image that {subject} was: name {kept}, as long as it is there.")
            )
    elif first.how == "replaced":
        message = f"another image under the same name{too}"
        users = [("changed", f"{subject} was replaced by another image{_and_all(others, 'were')}.")]
    else:
        message = f"broken link to {now}" + (f"; the same image is at {still} now" if still else too)
        severity, advice = FAULT, f"lead the link to {still}" if still else "restore the image or correct the link"
        users = [("changed", f"{subject} leads to nothing.")]
    known = {"files": tuple(sorted(filter(None, files)))}
    return Change(subject, was, now, message, known, paths, severity, advice, tuple(users))


def _and_all(others: Sequence[str], verb: str = "are") -> str:
    return f", as {verb} {', '.join(others)}" if others else ""


def _folder(path: str | None) -> str | None:
    return None if path is None else posixpath.dirname(path)


def _content(path: str, image: ImageFile) -> _Content:
    """Return what two copies of one image share: the identity, or the name of the file, and the size."""
    return image.id or posixpath.basename(image.target or path), image.size_bytes


def _changed(
    path: str, old: ImageFile | None, new: ImageFile | None, places: Mapping[_Content, str]
) -> _Difference | None:
    """Return the change at one path, with the real files before and after."""
    old = None if old is not None and old.size_bytes is None and new is not None else old
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


def image_follows(change: Change, differences: Differences) -> bool:
    """Follow from a folder of images that is elsewhere now, with a link in its old place."""
    for moved in differences.by_kind.get("path", ()):
        old, new = (f"{moved.values[key]}/" for key in ("real_before", "real_after"))
        if change.before and change.after and change.before.startswith(old) and change.after.startswith(new):
            return change.before.removeprefix(old) == change.after.removeprefix(new)
    return False


def image_touches(change: Change, context: Context) -> Iterator[Touched]:
    """Yield the family that recognises the image, its modules and plans, and where the site names the image."""
    site = context.site
    paths = dict.fromkeys((*change.names("files"), *filter(None, (change.before, change.after)), *change.paths))
    for path in paths:
        family = family_by_path(site, path, *change.paths)
        if family is not None:
            yield Touched("family", family, f"recognises {path}")
            for module in site.families[family].modules:
                yield Touched("module", module, f"images of {family} are run with it")
            if libraries := tuple(map(str, site.families[family].libraries)):
                yield Touched("plan", family, borrows(libraries))
    for stored in context.plans:
        patterns = stored.plan.paths
        if any(fnmatch.fnmatchcase(path, pattern) for path in paths for pattern in patterns):
            yield stored_plan(stored, "was made for another file")
    if site.validation is not None and site.validation.image in (*change.paths, change.before):
        yield Touched("site", "validation.image", f"names {site.validation.image}")


KINDS = (ChangeKind("image", compare_images, image_touches, "", follows=image_follows),)
