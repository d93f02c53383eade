"""Names of libraries, of their releases and of their symbol versions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable


def newest(versions: Iterable[str]) -> str:
    """Return the newest of some symbol versions: of the largest group with one name, the one with the highest number.

    >>> newest(["GLIBC_2.9", "GLIBC_2.34", "GLIBC_PRIVATE", "GLIBC_2.2.5"])
    'GLIBC_2.34'
    """
    kept = sorted(public_versions(versions) or set(versions))
    groups = Counter(_group(version) for version in kept)
    return max(kept, key=lambda version: (groups[_group(version)], numbers_in(version)), default="none")


def numbers_in(text: str) -> tuple[int, ...]:
    """Return the numbers in a text, to sort names as people do.

    >>> numbers_in("gnu/12.3"), numbers_in("GLIBC_2.34")
    ((12, 3), (2, 34))
    """
    return tuple(int(number) for number in re.findall(r"[0-9]{1,18}", text))


def in_order(names: Iterable[str]) -> list[str]:
    """Sort names by their numbers, and those with the same by their text.

    >>> in_order(["1.22", "lib", "1.9", "etc"])
    ['etc', 'lib', '1.9', '1.22']
    """
    return sorted(names, key=lambda name: (numbers_in(name), name))


def stem(name: str) -> str:
    """Return what all versions of a library share in their names.

    >>> stem("libjson-c.so.5"), stem("libx-net.so")
    ('libjson-c.so.', 'libx-net.so.')
    """
    return name.removesuffix(".so").partition(".so.")[0] + ".so."


def public_versions(versions: Iterable[str]) -> set[str]:
    """Return the symbol versions that other projects may use: those named PRIVATE are for a project's own parts."""
    return {version for version in versions if "PRIVATE" not in version}


def _group(version: str) -> str:
    return re.split(r"[0-9]", version, maxsplit=1)[0]
