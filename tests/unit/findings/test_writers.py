"""The forms of findings: one line and JSON."""

from __future__ import annotations

import json

from lumisite.findings.finding import Finding, Place, Severity
from lumisite.findings.writers import as_json, line, sentences

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
