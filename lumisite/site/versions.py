"""Versions and version ranges, compared by `packaging` and printed as the admin typed them."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from packaging.version import InvalidVersion
from packaging.version import Version as Ordered

from lumisite.errors import UnfitError, wrong_type

#: No version is longer, in characters: names of files hold several, and Python refuses numbers of thousands of digits.
_LONGEST = 40


@dataclass(frozen=True, order=True)
class Version:
    """A version that keeps its spelling: `6.10` and `25.03` stay so, yet 6.10 comes after 6.9.

    Equality and order are PEP 440's (https://packaging.python.org), so 25.03 equals 25.3.
    """

    text: str = field(compare=False)
    order: Ordered = field(repr=False)

    def __str__(self) -> str:
        return self.text

    @property
    def minor(self) -> str:
        """The first two numbers: 6.2 for 6.2.4, as names of modules have it."""
        return ".".join([*self.text.split("."), "0"][:2])

    def within(self, prefix: Version) -> bool:
        """Return whether this release belongs to the series `prefix`: 6.2.4 is within 6.2 and 6, not within 6.20.

        >>> parse_version("6.2.4").within(parse_version("6.2")), parse_version("6.20").within(parse_version("6.2"))
        (True, False)
        """
        numbers = self.order.release
        expected = prefix.order.release
        return (*numbers, *[0] * len(expected))[: len(expected)] == expected


# `packaging.specifiers` would do the same, but importing it takes as long as reading the largest description.
_COMPARISONS = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "==": operator.eq,
    "!=": operator.ne,
}


@dataclass(frozen=True)
class VersionRange:
    """A set of versions such as `>=6.1,<7.1`: all comparisons must hold."""

    text: str
    bounds: tuple[tuple[str, Version], ...] = field(repr=False, compare=False)

    def __str__(self) -> str:
        return self.text

    def __contains__(self, version: Version) -> bool:
        return all(_COMPARISONS[sign](version, bound) for sign, bound in self.bounds)

    def overlaps(self, other: VersionRange) -> bool:
        """Return whether some version is in both ranges.

        >>> parse_version_range("<6.2").overlaps(parse_version_range(">=6.2"))
        False
        """
        # Between two bounds nothing changes, so one version at each, and one behind each, stand for all.
        bounds = [bound.text for _, bound in (*self.bounds, *other.bounds)]
        candidates = (parse_version(text) for bound in bounds for text in ("0.dev0", bound, f"{bound}.post1"))
        return any(version in self and version in other for version in candidates)


def parse_version(text: str) -> Version:
    """Read a version; raise `UnfitError` when it is none.

    >>> parse_version("6.10") > parse_version("6.9")
    True
    """
    try:
        if len(text) > _LONGEST:
            raise InvalidVersion
        return Version(text, Ordered(text))
    except InvalidVersion:
        raise wrong_type(text[:_LONGEST], "version", "6.2.4 or 25.03") from None


def parse_version_range(text: str) -> VersionRange:
    """Read a range of comparisons with `>=`, `<=`, `>`, `<`, `==` and `!=`; raise `UnfitError` when it is none.

    >>> parse_version("6.10") in parse_version_range(">=6.9,<7")
    True
    """
    bounds = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(>=|<=|==|!=|>|<)\s*(\S+)\s*", part)
        if match is None:
            raise wrong_type(text, "range of versions", ">=6.1,<7.1")
        try:
            bounds.append((match[1], parse_version(match[2])))
        except UnfitError:
            raise wrong_type(text, "range of versions", ">=6.1,<7.1") from None
    return VersionRange(text, tuple(bounds))


def nearest(version: Version, candidates: Iterable[Version]) -> Version | None:
    """Return the candidate whose numbers are closest to `version`, comparing part by part; the newer one of two."""

    def distance(other: Version) -> tuple[int, ...]:
        mine, theirs = ([*compared.order.release, 0, 0, 0][:4] for compared in (version, other))
        return tuple(abs(a - b) for a, b in zip(mine, theirs, strict=True))

    return min(sorted(candidates, reverse=True), key=distance, default=None)
