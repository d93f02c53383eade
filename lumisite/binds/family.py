"""Recognise the family of an image: by its path, by its labels, or by what it contains."""

from __future__ import annotations

import fnmatch

from lumisite.binds.contents import read_labels
from lumisite.binds.tree import Tree, resolve
from lumisite.errors import ResolveError
from lumisite.site.decode import suggestion
from lumisite.site.images import family_by_path
from lumisite.site.model import Site
from lumisite.site.settings import default_family
from lumisite.site.versions import Version


def recognise_family(
    site: Site, paths: tuple[str, ...], image: Tree, rocm: Version, asked: str | None = None
) -> tuple[str, str]:
    """Give the name of an image's family and what it was recognised by; raises `ResolveError` for an unknown `asked`.

    `paths` are the names under which the image is known: as the user typed it, and where that leads, which counts
    more. A path that matches counts more than labels, and those more than contents; within each, the first family of
    the site wins.
    """
    if asked is not None:
        if asked not in site.families:
            raise ResolveError(
                f"--family: {site.name} has no image family {asked!r} ({suggestion(asked, site.families)})"
            )
        return asked, "as asked for"
    found = recognised(site, paths, image)
    return found or (default_family(site, rocm), f"as the site's default for ROCm {rocm}; no family recognises it")


def recognised(site: Site, paths: tuple[str, ...], image: Tree) -> tuple[str, str] | None:
    """Give the family that recognises an image, and by what; `None` where no family does."""
    for path in reversed(paths):
        name = family_by_path(site, path)
        if name is not None:
            pattern = next(one for one in site.families[name].paths if fnmatch.fnmatchcase(path, one))
            return name, f"by its path, {pattern}"
    labels = read_labels(image)
    for name, family in site.families.items():
        if family.labels and all(fnmatch.fnmatchcase(labels.get(key, ""), one) for key, one in family.labels.items()):
            return name, f"by its labels, {', '.join(family.labels)}"
    for name, family in site.families.items():
        for path in family.contains:
            if resolve(image, path).entry is not None:
                return name, f"by {path} in it"
    return None
