"""The forms of findings: one line, JSON, SARIF and JUnit."""

from __future__ import annotations

import json
from typing import Any

import pytest
from junitparser import JUnitXml

from lumisite.findings import catalogue
from lumisite.findings.catalogue import CatalogueEntry
from lumisite.findings.finding import Finding, Place, Severity
from lumisite.findings.writers import Case, as_json, junit, line, sarif

ENTRY = CatalogueEntry(
    code="x",
    group="test",
    title="an x",
    text=("has {count} of {names}",),
    severity=Severity.FAULT,
    advice=("did you mean {near}?", "know {known}"),
)


@pytest.fixture(autouse=True)
def one_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "find_entry", {"x": ENTRY}.get)


def an_x(**values: object) -> Finding:
    known = {"count": 2, "names": ("a", "b"), "known": ("c",), **values}
    return Finding("x", Severity.FAULT, "/lib/l.so", ("n1",), known, place=Place("job.sh", 3))  # type: ignore[arg-type]


def test_a_line_has_place_subject_text_advice_and_code() -> None:
    assert line(an_x()) == "job.sh:3: /lib/l.so: has 2 of a, b (know c) [x]"


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


def test_sarif_names_the_rule_and_the_line() -> None:
    log: Any = sarif([an_x()], "1.0")
    (run,) = log["runs"]
    (rule,), (result,) = run["tool"]["driver"]["rules"], run["results"]
    assert rule["id"] == result["ruleId"] == "x"
    assert result["level"] == "error"
    (location,) = result["locations"]
    assert location["physicalLocation"]["artifactLocation"]["uri"] == "job.sh"
    assert location["physicalLocation"]["region"] == {"startLine": 3}


def test_junit_counts_what_failed_by_suite() -> None:
    cases = [
        Case("gates", "a", "passed", "fine"),
        Case("gates", "b", "failure", "no\x00", "more"),
        Case("metrics", "c", "error"),
        Case("metrics", "d", "skipped"),
    ]
    parsed = JUnitXml.fromstring(junit(cases).encode())
    assert (parsed.tests, parsed.failures, parsed.errors, parsed.skipped) == (4, 1, 1, 1)
    suites = {suite.name: (suite.tests, suite.failures, suite.errors, suite.skipped) for suite in parsed}
    assert suites == {"gates": (2, 1, 0, 0), "metrics": (2, 0, 1, 1)}
