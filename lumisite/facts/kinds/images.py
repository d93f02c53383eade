"""Images: which there are, and where their names lead."""

from __future__ import annotations

import fnmatch
import posixpath
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from lumisite.facts.change import Change, Touched
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
    for (code, was, now), paths in _grouped(found).items():
        subject = next((path for path in paths if path in (was, now)), paths[0])
        values: dict[str, Value] = {"aliases": tuple(path for path in paths if path != subject)}
        if code == "image-moved":
            values["kept"] = None if was in old and was not in new else was
        if code == "image-link-broken" and (image := old.get(paths[0])):
            values["now_at"] = places.get(_content(paths[0], image))
        yield Change(code, subject, was, now, values, tuple(paths))


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


def _grouped(found: list[Change]) -> dict[tuple[str, str | None, str | None], list[str]]:
    """Return the paths of each change of a real file, without those that a link to the file reports."""
    left = {change.before for change in found if change.code in ("image-moved", "image-link-broken")}
    led = {change.after for change in found if change.code in ("image-moved", "image-relocated")}
    groups: dict[tuple[str, str | None, str | None], list[str]] = {}
    for change in found:
        is_left = change.code in ("image-gone", "image-relocated") and change.before in left
        if not is_left and not (change.code == "image-new" and change.after in led):
            groups.setdefault((change.code, change.before, change.after), []).append(change.subject)
    return groups


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
    paths = dict.fromkeys(path for path in (*change.paths, change.before, change.after) if path is not None)
    for path in dict.fromkeys(path for path in (change.before, change.after) if path is not None):
        family = family_by_path(site, path, *change.paths)
        if family is not None:
            yield Touched("family", family, "affected-family-image", {"path": path})
            for module in site.families[family].modules:
                yield Touched("module", module, "affected-module-image", {"family": family})
            if libraries := tuple(map(str, site.families[family].libraries)):
                yield Touched("plan", family, "affected-plan-family", {"libraries": libraries})
    for stored in context.plans:
        patterns = stored.plan.paths
        if any(fnmatch.fnmatchcase(path, pattern) for path in paths for pattern in patterns):
            yield stored_plan(stored, "affected-plan-image")
    if site.validation is not None and site.validation.image in (*change.paths, change.before):
        yield Touched("site", "validation.image", "affected-key", {"path": site.validation.image})


KINDS = (ChangeKind("image", compare_images, image_touches, image_follows),)
