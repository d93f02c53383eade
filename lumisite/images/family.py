"""The image family of an image, by path, labels or contents, and what the image holds that settings depend on."""

from __future__ import annotations

import fnmatch
import os.path
from collections.abc import Mapping

from lumisite.errors import LumisiteError, ResolveError
from lumisite.findings.catalogue import make_finding
from lumisite.findings.finding import Finding
from lumisite.images.contents import Contents
from lumisite.images.remarks import remarks
from lumisite.images.sif import open_image
from lumisite.images.versions import ReadImage
from lumisite.machine.tree import resolve
from lumisite.site.decode import unknown_name
from lumisite.site.images import Holds, family_by_path, holds_by_name
from lumisite.site.ledger import default_family
from lumisite.site.model import Site
from lumisite.site.versions import Version


def choose_family(
    site: Site, paths: tuple[str, ...], image: Contents, releases: Mapping[str, Version], request: str | None = None
) -> tuple[str, Finding]:
    """Return the image family and what it follows from; raises `ResolveError` for an unknown `request`.

    Where no family recognises the image, it is the site's default for `releases`, and the code `image-family-default`.
    """
    if request is not None:
        if request not in site.families:
            raise ResolveError(unknown_name("--family", request, "image family", site.name, site.families))
        return request, make_finding("image-family", family=request)
    recognised = recognise_family(site, paths, image)
    if recognised is not None:
        return recognised
    name = default_family(site, releases)
    stack = site.gpu_stack
    release = f"{site.stacks[stack].title} {releases[stack]}" if stack is not None and stack in releases else None
    return name, make_finding("image-family-default", family=name, release=release)


def recognise_family(site: Site, paths: tuple[str, ...], image: Contents) -> tuple[str, Finding] | None:
    """Return the image family that recognises an image and by what, `None` where none does.

    `paths` are the names of the image: as the user typed it, and where that leads, which counts more. A path that
    matches counts more than labels, and those more than contents; within each, the first family of the site wins.
    """
    for path in reversed(paths):
        name = family_by_path(site, path)
        if name is not None:
            pattern = next(pattern for pattern in site.families[name].paths if fnmatch.fnmatchcase(path, pattern))
            return name, make_finding("image-family", family=name, path=pattern)
    for name, family in site.families.items():
        matches = (fnmatch.fnmatchcase(image.labels.get(key, ""), value) for key, value in family.labels.items())
        if family.labels and all(matches):
            return name, make_finding("image-family", family=name, labels=tuple(family.labels))
    for name, family in site.families.items():
        for path in family.contains:
            if resolve(image.tree, path).entry is not None:
                return name, make_finding("image-family", family=name, content=path)
    return None


def holds_of_image(site: Site, path: str) -> tuple[Holds, Finding | None]:
    """Read an image; where it cannot be read, return what its name states, with a finding that has the reason."""
    if "\0" in path:
        return Holds(), make_finding("image-unread", path)
    typed = os.path.abspath(path)  # noqa: PTH100 - a Path would drop what the user typed
    real = os.path.realpath(typed)
    try:
        image = ReadImage(site, open_image(real).tree)
        recognised = recognise_family(site, (typed, real), image)
        return image.holds(None if recognised is None else recognised[0]), None
    except LumisiteError as error:
        return holds_by_name(site, real, typed), make_finding("image-unread", path, reason=str(error))


def remarks_of_image(site: Site, path: str) -> tuple[Finding, ...]:
    """Return what is known by the contents of an image alone; nothing of one that cannot be read."""
    try:
        return remarks(ReadImage(site, open_image(os.path.realpath(path)).tree), ())
    except LumisiteError:
        return ()
