"""A finding: the exit code of several, where it stands, the list of codes, and its forms as one line and as JSON."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

from lumisite.findings.codes import CODES
from lumisite.findings.exit_code import exit_code
from lumisite.findings.finding import Finding, Place, Severity
from lumisite.findings.writers import as_json, line, sentences

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


# ---- their forms

GONE = Finding(
    "x", Severity.FAULT, "has 2 of a, b", "build it again", "/lib/l.so", nodes=("n1",), place=Place("job.sh", 3)
)


def test_a_line_has_place_subject_text_advice_and_code() -> None:
    assert line(GONE) == "job.sh:3: /lib/l.so: has 2 of a, b (build it again) [x]"
    assert line(Finding("x", Severity.FAULT, "gone")) == "gone [x]"
    assert sentences([GONE, GONE]) == "has 2 of a, b; has 2 of a, b"


def test_a_value_cannot_end_a_line_or_steer_a_terminal() -> None:
    found = Finding("x", Severity.FAULT, "has\n{count}", "\x1b[2J", subject="/lib/\nl.so")
    assert line(found) == r"'/lib/\nl.so': 'has\n{count}' ('\x1b[2J') [x]"


def test_json_has_what_is_known() -> None:
    found = as_json(GONE)
    assert (found["code"], found["severity"], found["line"], found["nodes"]) == ("x", "fault", 3, ["n1"])
    assert (found["message"], found["advice"]) == ("has 2 of a, b", "build it again")
    assert "column" not in found
    assert "cause" not in found
    json.dumps(found)
