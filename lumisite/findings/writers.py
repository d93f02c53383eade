"""The forms in which findings are written: a line, JSON, SARIF and JUnit. The words come from the catalogue."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from string import Formatter
from typing import Any, Literal
from urllib.parse import quote
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from lumisite.findings.catalogue import entry
from lumisite.findings.exit_code import EXIT_CODES
from lumisite.findings.finding import Finding, Severity, Value
from lumisite.text import figure, percent, printable, some

#: A list in a sentence ends after so many, and counts the rest.
MOST_NAMES = 8
#: SARIF has three levels (SARIF 2.1.0, 3.27.10).
_LEVELS = {Severity.FAULT: "error", Severity.NODE: "error", Severity.DOUBT: "warning", Severity.INFO: "note"}
_SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
#: What XML 1.0 cannot hold.
_ILLEGAL = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


#: Formats of numbers in templates, beside Python's own: a part as per cent, and a measured number.
_FORMATS: Mapping[str, Callable[[float], str]] = {"percent": percent, "figure": figure}


class _Words(Formatter):
    """Values as they stand in a sentence: a list with commas, a text on one line."""

    def format_field(self, value: Any, spec: str) -> str:
        if isinstance(value, tuple | list):
            return some([self.format_field(one, spec) for one in value], MOST_NAMES, ", ")
        if isinstance(value, str) and not spec:
            return printable(value)
        return _FORMATS[spec](value) if spec in _FORMATS else format(value, spec)


_WORDS = _Words()


def message(finding: Finding) -> str:
    """Return what is wrong, without the subject."""
    return fill(entry(finding.code).text, _values(finding))


def advice(finding: Finding) -> str:
    """Return what to do, empty where the catalogue has nothing for it."""
    return fill(entry(finding.code).advice, _values(finding))


def _values(finding: Finding) -> Mapping[str, Value]:
    return {"subject": finding.subject, "nodes": finding.nodes, **finding.values}


def fill(templates: Sequence[str], values: Mapping[str, Value]) -> str:
    """Return the first template whose values are all known, filled; the last one must need none that may lack."""
    for template in templates:
        names = {name.partition(".")[0] for _, name, _, _ in _WORDS.parse(template) if name}
        if all(values.get(name) not in (None, "", ()) for name in names):
            return _WORDS.vformat(template, (), values)
    return ""


def line(finding: Finding) -> str:
    """Return one line: place, subject, what is wrong, what to do, code."""
    text = f"{finding.place}: {sentence(finding)}" if finding.place else sentence(finding)
    return f"{text} [{finding.code}]"


def sentences(findings: Iterable[Finding]) -> str:
    """Return what is wrong with one thing on one line, without its name and advice."""
    return "; ".join(map(message, findings))


def sentence(finding: Finding) -> str:
    """Return subject, what is wrong, and what to do."""
    text = f"{printable(finding.subject)}: {message(finding)}" if finding.subject else message(finding)
    todo = advice(finding)
    return f"{text} ({todo})" if todo else text


def as_json(finding: Finding) -> dict[str, object]:
    """Return a finding for JSON; keys without a value are left out, but for code, severity, subject and message."""
    place = finding.place
    known: dict[str, object] = {
        "nodes": list(finding.nodes),
        "values": dict(finding.values),
        "cause": finding.cause,
        "file": place and place.file,
        "line": place and place.line,
        "column": place and place.column,
        "advice": advice(finding),
    }
    return {
        "code": finding.code,
        "severity": finding.severity.value,
        "subject": finding.subject,
        "message": message(finding),
        **{key: value for key, value in known.items() if value},
    }


def describe(code: str) -> str:
    """Return all that the catalogue has about a code; raises `KeyError`."""
    known = entry(code)
    lines = [
        f"{code}: {known.title}",
        f"severity   {known.severity.value} (exit code {EXIT_CODES[known.severity]})",
        f"message    {known.text[0]}",
        *(f"advice     {template}" for template in known.advice),
        *filter(None, (known.meaning,)),
    ]
    return "\n".join(lines)


def sarif(findings: Sequence[Finding], version: str) -> dict[str, object]:
    """Return findings as SARIF 2.1.0, which forges and editors show beside the lines that they are about."""
    codes = sorted({finding.code for finding in findings})
    driver = {
        "name": "lumisite",
        "version": version,
        "rules": [_sarif_rule(code) for code in codes],
    }
    results = [_sarif_result(finding) for finding in findings]
    return {"$schema": _SARIF_SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}


def _sarif_rule(code: str) -> dict[str, object]:
    known = entry(code)
    return {
        "id": code,
        "shortDescription": {"text": known.title},
        "fullDescription": {"text": known.meaning or known.title},
        "defaultConfiguration": {"level": _LEVELS[known.severity]},
    }


def _sarif_result(finding: Finding) -> dict[str, object]:
    todo = advice(finding)
    text = f"{message(finding)} ({todo})" if todo else message(finding)
    result: dict[str, object] = {
        "ruleId": finding.code,
        "level": _LEVELS[finding.severity],
        "message": {"text": f"{finding.subject}: {text}" if finding.subject else text},
    }
    if place := finding.place:
        numbers = {"startLine": place.line, "startColumn": place.column}
        region = {name: number for name, number in numbers.items() if number}
        location: dict[str, object] = {"artifactLocation": {"uri": quote(place.file, errors="surrogateescape")}}
        if region:
            location["region"] = region
        result["locations"] = [{"physicalLocation": location}]
    return result


@dataclass(frozen=True)
class Case:
    """A test case of JUnit: what was checked, how it ended, and why; those of one `group` are a suite."""

    group: str
    name: str
    outcome: Literal["passed", "failure", "error", "skipped"]
    message: str = ""
    details: str = ""


def junit(cases: Sequence[Case]) -> str:
    """Return test cases as JUnit's XML, as CI servers read it."""
    top = Element("testsuites", {"name": "lumisite", **_counts(cases)})
    for group in dict.fromkeys(case.group for case in cases):
        members = [case for case in cases if case.group == group]
        suite = SubElement(top, "testsuite", {"name": _xml(group), **_counts(members)})
        for case in members:
            _add_case(suite, case)
    indent(top)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(top, encoding="unicode")}\n'


def _counts(cases: Sequence[Case]) -> dict[str, str]:
    outcomes = [case.outcome for case in cases]
    counts = {
        "tests": len(cases),
        "failures": outcomes.count("failure"),
        "errors": outcomes.count("error"),
        "skipped": outcomes.count("skipped"),
        "time": 0,
    }
    return {name: str(count) for name, count in counts.items()}


def _add_case(suite: Element, case: Case) -> None:
    element = SubElement(
        suite, "testcase", {"classname": f"lumisite.{_xml(case.group)}", "name": _xml(case.name), "time": "0"}
    )
    if case.outcome == "passed":
        SubElement(element, "system-out").text = _xml("\n".join(filter(None, (case.message, case.details))))
    else:
        outcome = SubElement(element, case.outcome, {"message": _xml(case.message)})
        outcome.text = _xml(case.details) or None


def _xml(text: str) -> str:
    return _ILLEGAL.sub("?", text)
