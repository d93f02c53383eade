"""Versions keep their spelling and are ordered by number."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet

from lumisite.errors import UnfitError
from lumisite.site.versions import nearest, parse_version, parse_version_range

releases = st.lists(st.integers(0, 99), min_size=1, max_size=4).map(lambda parts: ".".join(map(str, parts)))


@given(releases, releases, releases)
def test_a_version_survives_and_order_is_total(a: str, b: str, c: str) -> None:
    assert str(parse_version(a)) == a
    one, two, three = sorted(map(parse_version, (a, b, c)))
    assert one <= two <= three
    assert one <= three
    assert (one < two) + (one == two) + (one > two) == 1


@given(releases, st.integers(1, 4))
def test_a_release_is_within_each_of_its_prefixes(text: str, length: int) -> None:
    prefix = ".".join(text.split(".")[:length])
    assert parse_version(text).within(parse_version(prefix))


@pytest.mark.parametrize(("text", "series"), [("6.20", "6.2"), ("6.1", "6.2"), ("6", "6.2"), ("7.0", "6")])
def test_another_series_is_not_within(text: str, series: str) -> None:
    assert not parse_version(text).within(parse_version(series))


@pytest.mark.parametrize(("text", "minor"), [("6.2.4", "6.2"), ("7.0", "7.0"), ("7", "7.0"), ("6.10.1", "6.10")])
def test_minor_has_two_numbers(text: str, minor: str) -> None:
    assert parse_version(text).minor == minor


@pytest.mark.parametrize("text", ["", "six", "6..2", "6.2.x", "-1", "6 2"])
def test_what_is_no_version_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(UnfitError, match="version") as caught:
        parse_version(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("text", ["", "6.2", "6.1-7.0", ">=", ">=six", ">=6,", "~=6.1", ">=6 <7"])
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(UnfitError, match="range of versions"):
        parse_version_range(text)


@pytest.mark.parametrize(
    ("asked", "have", "answer"),
    [
        ("6.0", ["5.7.3", "6.1.3", "6.2.4"], "6.1.3"),
        ("6.5", ["6.4.4", "7.0"], "6.4.4"),
        ("9", ["6.4.4", "7.0"], "7.0"),
        ("6.2.2", ["6.2.1", "6.2.3"], "6.2.3"),
    ],
)
def test_nearest_is_close_part_by_part_and_newer_of_two(asked: str, have: list[str], answer: str) -> None:
    found = nearest(parse_version(asked), map(parse_version, have))
    assert found is not None
    assert str(found) == answer


@given(releases, releases, st.sampled_from([">=", "<=", ">", "<", "==", "!="]))
def test_a_range_agrees_with_packaging(version: str, bound: str, sign: str) -> None:
    ours = parse_version(version) in parse_version_range(f"{sign}{bound}")
    assert ours == SpecifierSet(f"{sign}{bound}").contains(version)
