"""What an image is taken for: its family, by path, labels or contents, and what it holds that settings depend on."""

from __future__ import annotations

import fnmatch
import os.path
from collections.abc import Mapping

from lumisite.errors import LumisiteError, ResolveError
from lumisite.findings.finding import Finding
from lumisite.images.contents import Contents
from lumisite.images.remarks import remarks
from lumisite.images.sif import open_image
from lumisite.images.versions import ReadImage
from lumisite.machine.tree import resolve
from lumisite.site.decode import suggestion
from lumisite.site.images import Holds, family_by_path, holds_by_name
from lumisite.site.ledger import default_family
from lumisite.site.model import Site
from lumisite.site.versions import Version


def recognise_family(
    site: Site, paths: tuple[str, ...], image: Contents, releases: Mapping[str, Version], asked: str | None = None
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
    if found is not None:
        return found
    known = [f"{site.stacks[stack].title} {releases[stack]}" for stack in site.gpu_stacks if stack in releases]
    said = f" for {' and '.join(known)}" if known else ""
    return default_family(site, releases), f"as the site's default{said}; no family recognises it"


def recognised(site: Site, paths: tuple[str, ...], image: Contents) -> tuple[str, str] | None:
    """Give the family that recognises an image, and by what; `None` where no family does."""
    for path in reversed(paths):
        name = family_by_path(site, path)
        if name is not None:
            pattern = next(one for one in site.families[name].paths if fnmatch.fnmatchcase(path, one))
            return name, f"by its path, {pattern}"
    for name, family in site.families.items():
        if family.labels and all(
            fnmatch.fnmatchcase(image.labels.get(key, ""), one) for key, one in family.labels.items()
        ):
            return name, f"by its labels, {', '.join(family.labels)}"
    for name, family in site.families.items():
        for path in family.contains:
            if resolve(image.tree, path).entry is not None:
                return name, f"by {path} in it"
    return None


def holds_of_image(site: Site, path: str) -> tuple[Holds, str]:
    """Read an image, or take what its name tells where it cannot be read; with a note that says why."""
    if "\0" in path:
        return Holds(), f"{path!r}: is no name of an image"
    typed = os.path.abspath(path)  # noqa: PTH100 - a Path would drop what the user typed
    real = os.path.realpath(typed)
    try:
        image = ReadImage(site, open_image(real).tree)
        found = recognised(site, (typed, real), image)
        return image.holds(None if found is None else found[0]), ""
    except LumisiteError as error:
        note = f"{path}: taken for what its name says, since it cannot be read: {error}"
    return holds_by_name(site, real, typed), note


def remarks_of_image(site: Site, path: str) -> tuple[Finding, ...]:
    """Return what is known by the contents of an image alone; nothing of one that cannot be read."""
    try:
        return remarks(ReadImage(site, open_image(os.path.realpath(path)).tree), ())
    except LumisiteError:
        return ()
