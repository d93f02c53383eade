"""The forms in which findings are written: a line and JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from string import Formatter
from typing import Any

from lumisite.findings.catalogue import entry
from lumisite.findings.finding import Finding, Value
from lumisite.text import figure, percent, printable, some

#: A list in a sentence ends after so many, and counts the rest.
MOST_NAMES = 8
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
    if finding.message:
        return printable(finding.message)
    return fill(entry(finding.code).text, _values(finding))


def advice(finding: Finding) -> str:
    """Return what to do, empty where there is nothing."""
    if finding.message:
        return printable(finding.advice) if finding.advice else ""
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
