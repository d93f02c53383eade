"""The forms of findings: one line and JSON."""

from __future__ import annotations

import json

import pytest

from lumisite.findings import catalogue
from lumisite.findings.catalogue import CatalogueEntry
from lumisite.findings.finding import Finding, Place, Severity
from lumisite.findings.writers import as_json, line

ENTRY = CatalogueEntry(
    code="x",
    text=("has {count} of {names}",),
    severity=Severity.FAULT,
    advice=("did you mean {near}?", "know {known}"),
)


@pytest.fixture(autouse=True)
def one_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "find_entry", {"x": ENTRY}.get)


def an_x(**values: object) -> Finding:
    known = {"count": 2, "names": ("a", "b"), "known": ("c",), **values}
    return Finding("x", Severity.FAULT, subject="/lib/l.so", nodes=("n1",), values=known, place=Place("job.sh", 3))  # type: ignore[arg-type]


def test_a_line_has_place_subject_text_advice_and_code() -> None:
    assert line(an_x()) == "job.sh:3: /lib/l.so: has 2 of a, b (know c) [x]"


def test_what_a_finding_says_itself_stands_as_it_is() -> None:
    found = Finding("x", Severity.FAULT, "has\n{count}", "build it again", subject="/lib/l.so")
    assert line(found) == "/lib/l.so: 'has\\n{count}' (build it again) [x]"
    assert as_json(found)["advice"] == "build it again"
    assert line(Finding("x", Severity.FAULT, "gone")) == "gone [x]"


def test_the_first_template_counts_whose_values_are_known() -> None:
    assert "did you mean a?" in line(an_x(near="a"))
    assert "(know c)" in line(an_x(near=""))
    assert line(an_x(known=())) == "job.sh:3: /lib/l.so: has 2 of a, b [x]"


def test_a_value_cannot_end_a_line_or_steer_a_terminal() -> None:
    text = line(an_x(names=("a\nb", "\x1b[2J")))
    assert "\n" not in text
    assert "\x1b" not in text


def test_a_long_list_is_counted() -> None:
    assert "n7 and 92 more" in line(an_x(names=tuple(f"n{number}" for number in range(100))))


def test_json_has_what_is_known() -> None:
    found = as_json(an_x())
    assert (found["code"], found["severity"], found["line"], found["nodes"]) == ("x", "fault", 3, ["n1"])
    assert "column" not in found
    assert "cause" not in found
    json.dumps(found)
