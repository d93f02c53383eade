"""The forms of a report: terminal, one HTML page and JSON.

Text is plain and aligned, without colour, so that it can be sent on as it is. The page fetches nothing and runs
nothing, and its tables have the numbers of its plots.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from typing import get_args

from lumisite.text import columns
from lumisite.validate.lines import State
from lumisite.validate.report.gather import RunReport
from lumisite.validate.report.plots import lead, svg
from lumisite.validate.report.tables import Table, report_tables
from lumisite.validate.verdict.system import as_json as verdict_json


def _text(report: RunReport) -> str:
    parts: list[Sequence[str]] = [
        [report.headline, "; ".join(report.summary)],
        _to_do(report.advice, report.verdict.drain),
        *map(_table_lines, report_tables(report)),
        [f"note: {note}" for note in report.verdict.notes],
    ]
    return "\n\n".join("\n".join(lines) for lines in parts if lines) + "\n"


def _to_do(steps: Sequence[str], drain: Sequence[str]) -> list[str]:
    lines = ["what to do", *(f"  {number}. {step}" for number, step in enumerate(steps, start=1))] if steps else []
    if drain:
        lines += ["", "drain the bad nodes (commands are not executed)", *(f"  {command}" for command in drain)]
    return lines


def _table_lines(table: Table) -> list[str]:
    """Return a table as lines; why a metric is not fine stands below the numbers, and changes are a list."""
    title = table.title[0].lower() + table.title[1:]
    if table.head == ("change", "touches"):
        parts = (
            [f"  {what}", *(f"    {part}" for part in touches.split("; ") if part != "-")]
            for what, touches in table.rows
        )
        return [title, *(line for lines in parts for line in lines)]
    rows = [table.head, *table.rows]
    if table.head[0] == "metric" and table.head[-1] == "why":
        rows = [row[:-1] for row in rows]
    return [title, *(f"  {line}" for line in columns(rows)), *(f"  {note}" for note in table.notes)]


def _html(report: RunReport) -> str:
    """Return the page; without matplotlib it has no plots."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("lumisite.validate.report", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.j2").render(
        report=report,
        tables=report_tables(report),
        plots=report.curves if find_spec("matplotlib") else None,
        lead=lead(report),
        svg=svg,
        states=get_args(State),
    )


#: The forms of a report.
WRITERS: dict[str, Callable[[RunReport], str]] = {
    "text": _text,
    "html": _html,
    "json": lambda report: json.dumps(asdict(report) | {"verdict": verdict_json(report.verdict)}, indent=2) + "\n",
}
