"""What is known of an image by its name, where nobody has read the image itself."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from lumisite.errors import UnfitError
from lumisite.site.model import Site
from lumisite.site.versions import Version, parse_version


@dataclass(frozen=True)
class Holds:
    """What is known of the inside of an image; `None` means that it is not known.

    `plugin` is whether it has an OFI plugin that finds a libfabric which it can load, `libfabric` the release of that.
    Else `lacking` is a folder of the container where it looks in vain, or `too_old` a sentence about what it finds.
    `sets` are the variables of the ledger that the image sets itself.
    """

    family: str | None = None
    stacks: Mapping[str, Version] = field(default_factory=dict)
    plugin: bool | None = None
    libfabric: Version | None = None
    lacking: str = ""
    too_old: str = ""
    sets: Mapping[str, str] = field(default_factory=dict)


def family_by_path(site: Site, *paths: str) -> str | None:
    """Return the family of the first path that matches a pattern of one; callers pass the target of a link first."""
    return next(
        (
            name
            for path in paths
            for name, family in site.families.items()
            if any(fnmatch.fnmatchcase(path, pattern) for pattern in family.paths)
        ),
        None,
    )


def holds_by_name(site: Site, *paths: str) -> Holds:
    """Return what the wrapper knows of an image by its names alone: first the file that they lead to, then as typed.

    That is its family, and what its family tells: what else is in it only those know who read it.
    """
    family = family_by_path(site, *paths)
    return Holds() if family is None else Holds(family, plugin=plugin_by_name(site, family))


def has_plugin(site: Site, family: str) -> bool | None:
    """Return whether images of a family hold the OFI plugin themselves; `None` where their recipe does not say."""
    where = site.families[family].plugin
    return None if where is None else where == "in-image"


def plugin_by_name(site: Site, family: str) -> bool | None:
    """Return whether an image that nobody read has a plugin that finds a libfabric: no, or not known."""
    return False if has_plugin(site, family) is False else None


def parse_release(text: str | None) -> Version | None:
    """Parse a release as an image states it; return `None` for what is no version."""
    try:
        return None if text is None else parse_version(text)
    except UnfitError:
        return None


def releases_by_name(site: Site, *paths: str) -> dict[str, Version]:
    """Return the releases that names of an image state, for advice alone: `NAME-6.2.4`, `NAME6.3`, `NAME/x:NAME6.3`.

    NAME is the stack; no setting goes by what is found here.
    """
    if (stack := site.gpu_stack) is not None:
        pattern = re.compile(rf"{re.escape(stack)}[-_]?(\d+\.\d+(?:\.\d+)?)(?!.*{re.escape(stack)}[-_]?\d)")
        matches = (pattern.search(path.rpartition("/")[2]) for path in paths)
        if match := next(filter(None, matches), None):
            return {stack: parse_version(match[1])}
    return {}
