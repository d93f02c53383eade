"""The forms in which findings are written: a line and JSON."""

from __future__ import annotations

from collections.abc import Iterable

from lumisite.findings.finding import Finding
from lumisite.text import printable


def message(finding: Finding) -> str:
    """Return what is wrong, without the subject, on one line."""
    return printable(finding.message)


def advice(finding: Finding) -> str:
    """Return what to do on one line, empty where there is nothing."""
    return printable(finding.advice) if finding.advice else ""


def subject_and_message(finding: Finding) -> str:
    """Return one line with the subject and what is wrong with it."""
    return f"{printable(finding.subject)}: {message(finding)}"


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
