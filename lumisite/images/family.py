"""The image family of an image, by path, labels or contents."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping

from lumisite.errors import ResolveError
from lumisite.findings.finding import Finding, Severity
from lumisite.images.contents import Contents
from lumisite.machine.tree import resolve
from lumisite.site.decode import unknown_name
from lumisite.site.images import family_by_path
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
        return request, _recognised(request, "as requested")
    recognised = recognise_family(site, paths, image)
    if recognised is not None:
        return recognised
    name = default_family(site, releases)
    stack = site.gpu_stack
    release = f" for {site.stacks[stack].title} {releases[stack]}" if stack is not None and stack in releases else ""
    message = f"image family {name} (the default of the site{release}; no family recognises the image)"
    advice = "describe images like this in `families`"
    return name, Finding("image-family-default", Severity.INFO, message, advice)


def recognise_family(site: Site, paths: tuple[str, ...], image: Contents) -> tuple[str, Finding] | None:
    """Return the image family that recognises an image and by what, `None` where none does.

    `paths` are the names of the image: as the user typed it, and where that leads, which counts more. A path that
    matches counts more than labels, and those more than contents; within each, the first family of the site wins.
    """
    for path in reversed(paths):
        name = family_by_path(site, path)
        if name is not None:
            pattern = next(pattern for pattern in site.families[name].paths if fnmatch.fnmatchcase(path, pattern))
            return name, _recognised(name, f"by its path, {pattern}")
    for name, family in site.families.items():
        matches = (_has_label(image, key, pattern) for key, pattern in family.labels.items())
        if family.labels and all(matches):
            return name, _recognised(name, f"by its labels, {', '.join(family.labels)}")
    for name, family in site.families.items():
        for path in family.contains:
            if resolve(image.tree, path).entry is not None:
                return name, _recognised(name, f"by {path} in it")
    return None


def _has_label(image: Contents, key: str, pattern: str) -> bool:
    return key in image.labels and fnmatch.fnmatchcase(image.labels[key], pattern)


def _recognised(family: str, by: str) -> Finding:
    return Finding("image-family", Severity.INFO, f"image family {family} ({by})")
