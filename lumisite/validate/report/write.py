"""The forms of a report: terminal, one HTML page and JSON.

Text is plain and aligned, without colour, so that it can be sent on as it is. The page fetches nothing and runs
nothing, and its tables have the numbers of its plots.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from importlib.util import find_spec
from typing import get_args

from lumisite.findings import writers
from lumisite.findings.finding import Finding
from lumisite.text import change, columns, counted, figure, percent, some
from lumisite.validate.lines import State
from lumisite.validate.report.advice import advice
from lumisite.validate.report.gather import RunReport
from lumisite.validate.report.plots import lead, plots
from lumisite.validate.report.tables import report_tables, verdict_tables
from lumisite.validate.verdict.system import SystemVerdict
from lumisite.validate.verdict.system import as_json as verdict_json


def verdict_text(verdict: SystemVerdict) -> str:
    """Return the verdict, what to do, and what was judged."""
    steps = tuple(advice(verdict, ())) if verdict.verdict == "fail" else verdict.next_runs
    values = {"headline": verdict.verdict.upper(), "summary": (), "advice": steps, "users": (), "verdict": verdict}
    return _fill("report/report.txt.j2", report=values, tables=verdict_tables(verdict))


def _text(report: RunReport) -> str:
    return _fill("report/report.txt.j2", report=report, tables=report_tables(report))


def _html(report: RunReport) -> str:
    """Return the page; without matplotlib it has no plots."""
    drawn = plots(report) if find_spec("matplotlib") else None
    return _fill(
        "report/report.html.j2",
        report=report,
        tables=report_tables(report),
        plots=drawn,
        lead=lead(report, drawn) if drawn else None,
        states=get_args(State),
    )


def _fill(name: str, **values: object) -> str:
    """Return a template of this package, `FOLDER/NAME`, filled with values."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("lumisite.validate", "."),
        autoescape=name.endswith(".html.j2"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=not name.endswith(".html.j2"),
    )
    environment.filters |= {
        "advice": writers.advice,
        "aligned": _aligned,
        "change": change,
        "counted": counted,
        "figure": figure,
        "message": writers.message,
        "messages": _messages,
        "nodes": some,
        "percent": percent,
        "trim_end": str.rstrip,
    }
    return environment.get_template(name).render(values)


def _aligned(text: str) -> str:
    """Align the cells of lines, which tabs separate, as columns."""
    rows = [line.split("\t") for line in text.split("\n") if line]
    return "".join(f"{line}\n" for line in columns(rows)) if rows else ""


def _messages(findings: Iterable[Finding]) -> str:
    """Return what findings say, each with its advice in brackets."""
    return "; ".join(writers.sentence(replace(finding, subject="")) for finding in findings)


#: The forms of a report.
WRITERS: dict[str, Callable[[RunReport], str]] = {
    "text": _text,
    "html": _html,
    "json": lambda report: json.dumps(asdict(report) | {"verdict": verdict_json(report.verdict)}, indent=2) + "\n",
}
