"""A finding: the exit code of several, where it stands, and the list of codes."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

from lumisite.findings.codes import CODES
from lumisite.findings.exit_code import exit_code
from lumisite.findings.finding import Finding, Place, Severity

TOP = Path(__file__).parents[3]


def test_the_worst_finding_decides_the_exit_code() -> None:
    codes = {Severity.INFO: 0, Severity.NODE: 5, Severity.DOUBT: 4, Severity.FAULT: 1}
    assert exit_code([]) == 0
    for worst, rest in itertools.combinations(reversed(codes), 2):
        assert exit_code([Finding("a", rest, ""), Finding("b", worst, "")]) == codes[worst]


def test_a_place_has_what_is_known_of_it() -> None:
    places = [Place("a.yaml"), Place("a.yaml", 3), Place("a.yaml", 3, 5)]
    assert list(map(str, places)) == ["a.yaml", "a.yaml:3", "a.yaml:3:5"]


def test_a_code_stands_in_the_list_of_codes_once_and_is_used() -> None:
    calls = re.compile(r'\b(?:\w*Finding|_of_path)\(\s*"([a-z0-9-]+)"')
    used = {code for path in (TOP / "lumisite").rglob("*.py") for code in calls.findall(path.read_text())}
    assert used == set(CODES)
    assert all(meaning and "\n" not in meaning for meaning in CODES.values())
