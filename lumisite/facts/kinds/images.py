"""Images: which there are, and where their names lead."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator

from lumisite.facts.change import Change, Touched
from lumisite.facts.context import Context, stored_plan
from lumisite.facts.facts import Facts, ImageFile
from lumisite.facts.kind import ChangeKind
from lumisite.site.images import family_by_path


def compare_images(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change for each image in a folder where both captures looked."""
    for folder in sorted((before.images.keys() | after.images.keys()) & before.paths.keys() & after.paths.keys()):
        old, new = before.images.get(folder, {}), after.images.get(folder, {})
        for name in sorted(old.keys() | new.keys()):
            if old.get(name) != new.get(name):
                yield _changed(f"{folder}/{name}", old.get(name), new.get(name))


def _changed(path: str, old: ImageFile | None, new: ImageFile | None) -> Change:
    was, now = (None if file is None else file.target or path for file in (old, new))
    if new is not None and new.size_bytes is None:
        return Change("image-link-broken", path, was, now)
    code = "image-new" if was is None else "image-gone" if now is None else "image-moved"
    return Change("image-replaced" if was == now else code, path, was, now)


def image_touches(change: Change, context: Context) -> Iterator[Touched]:
    """Yield the family that recognises the image, its modules and plans, and where the site names the image."""
    site = context.site
    paths = dict.fromkeys(path for path in (change.subject, change.before, change.after) if path is not None)
    for path in dict.fromkeys(path for path in (change.before, change.after) if path is not None):
        family = family_by_path(site, path, change.subject)
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
    if site.validation is not None and site.validation.image in (change.subject, change.before):
        yield Touched("site", "validation.image", "affected-key", {"path": site.validation.image})


KINDS = (ChangeKind("image", compare_images, image_touches),)
