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


def release_by_name(after: str, path: str) -> Version | None:
    """Read a release from a path, behind the longest part that fits the pattern `after`.

    Digits alone are read where they can be one release only: 70 is 7.0, and 100 is 10.0, as no release is called 1.00;
    714 may be 7.14, 7.1.4 or 71.4.

    >>> str(release_by_name("*-gpu-", "/images/base-gpu-gpu-6.2.4.sif")), str(release_by_name("*r", "a-r70f21.sif"))
    ('6.2.4', '7.0')
    """
    begin = next((at for at in range(len(path), -1, -1) if fnmatch.fnmatchcase(path[:at], after)), None)
    if begin is None:
        return None
    digits = re.match(r"[0-9.]*", path[begin:])
    text = digits[0].removesuffix(".") if digits else ""
    if re.fullmatch(r"[0-9]{2}|10[0-9]", text, re.ASCII):
        text = f"{text[:-1]}.{text[-1]}"
    number = r"(?:0|[1-9][0-9]{0,2})"
    return parse_version(text) if re.fullmatch(rf"{number}\.{number}(?:\.{number})?", text, re.ASCII) else None


def releases_by_name(site: Site, *paths: str) -> dict[str, Version]:
    """Return the releases that names of an image state, for advice alone: no setting goes by what is found here.

    The family says where in its names they stand, else they follow the stack: `NAME-6.2.4`, `NAME6.3`, `x:NAME6.3`.
    """
    found: dict[str, Version] = {}
    if (stack := site.gpu_stack) is not None:
        pattern = re.compile(rf"{re.escape(stack)}[-_]?(\d+\.\d+(?:\.\d+)?)(?!.*{re.escape(stack)}[-_]?\d)")
        matches = (pattern.search(path.rpartition("/")[2]) for path in paths)
        if match := next(filter(None, matches), None):
            found[stack] = parse_version(match[1])
    family = family_by_path(site, *paths)
    for name, after in (site.families[family].release_after if family else {}).items():
        if (version := release_by_name(after, paths[0])) is not None:
            found[name] = version
    return found
