"""The exit codes of commands that report findings or a verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lumisite.findings.finding import Finding, Severity

#: The exit code of the worst finding, from the worst: a system that is at fault, in doubt, or fine but for some nodes.
EXIT_CODES: Mapping[Severity, int] = {Severity.FAULT: 1, Severity.DOUBT: 4, Severity.NODE: 5, Severity.INFO: 0}
#: The severity of a verdict; one of any other name is no finding.
OF_VERDICTS: Mapping[str, Severity] = {
    "fail": Severity.FAULT,
    "inconclusive": Severity.DOUBT,
    "bad-nodes": Severity.NODE,
}


def exit_code(findings: Iterable[Finding]) -> int:
    """Return the exit code of findings: that of the worst one, 0 without findings."""
    severities = {finding.severity for finding in findings}
    return next((code for severity, code in EXIT_CODES.items() if severity in severities), 0)


def verdict_exit_code(verdict: str) -> int:
    """Return the exit code of a verdict.

    >>> verdict_exit_code("bad-nodes"), verdict_exit_code("warn")
    (5, 0)
    """
    return EXIT_CODES[OF_VERDICTS.get(verdict, Severity.INFO)]
