"""A finding: its severity from the catalogue, the exit code of several, and where it stands."""

from __future__ import annotations

import itertools

import pytest

from lumisite.findings.catalogue import load_group, make_finding
from lumisite.findings.exit_code import exit_code
from lumisite.findings.finding import Finding, Place, Severity


def test_the_worst_finding_decides_the_exit_code() -> None:
    codes = {Severity.INFO: 0, Severity.NODE: 5, Severity.DOUBT: 4, Severity.FAULT: 1}
    assert exit_code([]) == 0
    for worst, rest in itertools.combinations(reversed(codes), 2):
        assert exit_code([Finding("a", rest), Finding("b", worst)]) == codes[worst]


def test_the_catalogue_gives_the_severity_unless_it_is_known_better() -> None:
    assert make_finding("system-refused", "/x").severity is Severity.FAULT
    assert make_finding("system-refused", "/x", severity=Severity.NODE).severity is Severity.NODE


def test_a_code_that_the_catalogue_lacks_is_a_bug() -> None:
    with pytest.raises(KeyError, match="no-such-code"):
        make_finding("no-such-code")


def test_only_the_file_that_has_a_code_is_parsed() -> None:
    load_group.cache_clear()
    assert make_finding("system-refused").severity is Severity.FAULT
    assert load_group.cache_info().misses == 1


def test_a_place_has_what_is_known_of_it() -> None:
    places = [Place("a.yaml"), Place("a.yaml", 3), Place("a.yaml", 3, 5)]
    assert list(map(str, places)) == ["a.yaml", "a.yaml:3", "a.yaml:3:5"]
