"""Images: which there are, and where their names lead."""

from __future__ import annotations

import fnmatch
import posixpath
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from lumisite.facts.change import Change, Touched, borrows
from lumisite.facts.context import Context, stored_plan
from lumisite.facts.facts import Facts, ImageFile
from lumisite.facts.kind import ChangeKind, Differences
from lumisite.findings.finding import Value
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
        paths, files = [change.subject for change in group], {*(change.before or change.after for change in group)}
        first = next((change for change in group if change.subject in (change.before, change.after)), group[0])
        # Of several files their folder counts.
        was, now = (path if len(files) == 1 else _folder(path) for path in (first.before, first.after))
        image = old.get(first.subject)
        still = None if image is None else places.get(_content(first.subject, image))
        others = tuple(path for path in paths if path != first.subject)
        values: dict[str, Value] = {"aliases": others, "files": tuple(sorted(filter(None, files)))}
        if first.code == "image-moved":
            values["kept"] = still or (None if first.before in old else first.before)
        elif first.code == "image-link-broken":
            values["now_at"], now = still, first.after
        yield Change(first.code, first.subject, was, now, values, tuple(paths))


def _folder(path: str | None) -> str | None:
    return None if path is None else posixpath.dirname(path)


def _content(path: str, image: ImageFile) -> _Content:
    """Return what two copies of one image share: the identity, or the name of the file, and the size."""
    return image.id or posixpath.basename(image.target or path), image.size_bytes


def _changed(path: str, old: ImageFile | None, new: ImageFile | None, places: Mapping[_Content, str]) -> Change | None:
    """Return the change at one path, with the real files before and after."""
    old = None if old is not None and old.size_bytes is None and new is not None else old
    was, now = (None if image is None else image.target or path for image in (old, new))
    if new is not None and new.size_bytes is None:
        return Change("image-link-broken", path, was, now)
    mark = None if old is None else _content(path, old)
    there = None if mark is None else places.get(mark)
    if new is None and there not in (None, was):
        return Change("image-relocated", path, was, there)
    if new is not None and mark == _content(path, new):
        return None if was == now else Change("image-relocated", path, was, now)
    code = "image-new" if was is None else "image-gone" if now is None else "image-moved"
    return Change("image-replaced" if was == now else code, path, was, now)


def _grouped(found: list[Change], old: set[str | None], new: set[str | None]) -> Iterator[list[Change]]:
    """Yield the changes that are one: those of the files of one folder, with the links to them.

    `old` and `new` are the folders that had, and have, images. Left out is what a link that leads elsewhere reports:
    the file that it leads to, the one that it led to, and the others of a folder that came or went with them.
    """
    moved = [change for change in found if change.code in ("image-moved", "image-relocated")]
    left = {change.before for change in found if change.code in ("image-moved", "image-link-broken")}
    led = {change.after for change in moved} | ({_folder(change.after) for change in moved} - old)
    emptied = {_folder(change.before) for change in moved} - new
    groups: dict[tuple[str, str | None, str | None], list[Change]] = {}
    for change in found:
        folders = _folder(change.before), _folder(change.after)
        is_left = change.code in ("image-gone", "image-relocated") and change.before in left
        is_left |= change.code == "image-gone" and folders[0] in emptied
        if not is_left and not (change.code == "image-new" and not led.isdisjoint((change.after, folders[1]))):
            groups.setdefault((change.code, *folders), []).append(change)
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


KINDS = (ChangeKind("image", compare_images, image_touches, image_follows),)
