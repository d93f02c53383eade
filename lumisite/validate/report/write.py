"""The forms of a report: terminal, Markdown, one HTML page, JUnit XML and JSON.

Text is plain and aligned, without colour, so that it can be sent on as it is. Markdown has GitHub's and GitLab's tables
and nothing else of theirs. The page fetches nothing and runs nothing, and its tables have the numbers of its plots.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from importlib.util import find_spec
from typing import get_args

from lumisite.findings.writers import Case, junit
from lumisite.text import figure, percent, some
from lumisite.validate.lines import State
from lumisite.validate.report.advice import advice
from lumisite.validate.report.gather import RunReport
from lumisite.validate.report.plots import lead, plots
from lumisite.validate.report.tables import report_tables, verdict_tables
from lumisite.validate.report.templates import fill
from lumisite.validate.verdict.system import SystemVerdict
from lumisite.validate.verdict.system import as_json as verdict_json

#: States that are a `failure` in JUnit, and those that are an `error`: a skipped test looks like a passed one.
FAILED = ("fail", "bad-nodes")
OPEN = ("inconclusive", "unconfirmed")


def verdict_text(verdict: SystemVerdict) -> str:
    """Return the verdict, what to do, and what was judged."""
    steps = tuple(advice(verdict, ())) if verdict.verdict == "fail" else verdict.next_runs
    values = {"headline": verdict.verdict.upper(), "summary": (), "advice": steps, "users": (), "verdict": verdict}
    return fill("report/report.txt.j2", report=values, tables=verdict_tables(verdict))


def _text(report: RunReport) -> str:
    return fill("report/report.txt.j2", report=report, tables=report_tables(report))


def _markdown(report: RunReport) -> str:
    return fill("report/report.md.j2", report=report, tables=report_tables(report))


def _html(report: RunReport) -> str:
    """Return the page; without matplotlib it has no plots."""
    drawn = plots(report) if find_spec("matplotlib") else None
    return fill(
        "report/report.html.j2",
        report=report,
        tables=report_tables(report),
        plots=drawn,
        lead=lead(report, drawn) if drawn else None,
        states=get_args(State),
    )


def _junit(report: RunReport) -> str:
    """Return JUnit's XML: a test case for each gate, metric and slow node."""
    return junit([*_gate_cases(report.verdict), *_metric_cases(report.verdict), *_node_cases(report.verdict)])


def _gate_cases(verdict: SystemVerdict) -> Iterator[Case]:
    for gate in verdict.gates:
        causes = [(f"{cause.cause} ({some(cause.nodes)})", cause.advice) for cause in gate.causes]
        details = "\n".join(": ".join(filter(None, texts)) for texts in causes)
        yield _case("gates", gate.gate, gate.verdict, gate.reason, details, decides=not gate.follows)


def _metric_cases(verdict: SystemVerdict) -> Iterator[Case]:
    for metric in verdict.metrics:
        sides = (("before", metric.before), ("after", metric.after))
        details = "\n".join(f"{name} {figure(value)}" for name, value in sides if value)
        yield _case("metrics", metric.metric, metric.verdict, metric.reason, details, decides=metric.decides)


def _node_cases(verdict: SystemVerdict) -> Iterator[Case]:
    for slow in verdict.slow_nodes:
        reason = f"-{percent(slow.below)}, z {slow.z:.1f}"
        yield _case("nodes", f"{slow.node} {slow.metric}", "bad-nodes", reason, verdict.drain or "")


def _case(group: str, name: str, state: State, reason: str, details: str, *, decides: bool = True) -> Case:
    """Return a test case; what cannot fail is skipped where it did not pass."""
    text = f"{state}: {reason}"
    if state not in (*FAILED, *OPEN):
        return Case(group, name, "passed", text, details)
    if not decides:
        return Case(group, name, "skipped", text, details)
    return Case(group, name, "failure" if state in FAILED else "error", text, details)


#: The forms of a report.
WRITERS: dict[str, Callable[[RunReport], str]] = {
    "text": _text,
    "markdown": _markdown,
    "html": _html,
    "junit": _junit,
    "json": lambda report: json.dumps(asdict(report) | {"verdict": verdict_json(report.verdict)}, indent=2) + "\n",
}
