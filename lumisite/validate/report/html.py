"""Write a report as one HTML file with plots: nothing is fetched, nothing runs, and tables say what the plots show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from lumisite.errors import ToolError
from lumisite.validate.report.epochs import EpochTable, epoch_rows
from lumisite.validate.report.gather import Report
from lumisite.validate.report.text import METRIC_HEAD, SCALING_HEAD, metric_row, scaling_row
from lumisite.validate.report.words import SENTENCES, some

#: Heading, caption, head and rows.
Table: TypeAlias = tuple[str, str, Sequence[str], Sequence[Sequence[str]]]
STATES = ("pass", "warn", "fail", "unconfirmed", "inconclusive", "bad-nodes")


def report_html(report: Report) -> str:
    """Write the page. Raises `ToolError` where matplotlib is not installed."""
    import jinja2

    try:
        from lumisite.validate.report.plots import plots

        drawn = tuple(plots(report))
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        raise ToolError(
            "plots need matplotlib, which is not installed (pip install 'lumisite[report]', or --format markdown)"
        ) from None
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("lumisite.validate.report", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        comment_start_string="{##",
        comment_end_string="##}",
        trim_blocks=True,
    )
    title = f"{report.verdict.verdict.upper()}: {SENTENCES[report.verdict.verdict]}"
    page = environment.get_template("report.html.j2")
    return page.render(title=title, report=report, plots=drawn, tables=tuple(_tables(report)), states=STATES)


def _tables(report: Report) -> Iterator[Table]:
    """Give each table that has rows."""
    verdict = report.verdict
    gates = [(gate.gate, gate.verdict, gate.reason) for gate in verdict.gates]
    causes = [
        (gate.gate, cause.cause, cause.advice, some(cause.nodes)) for gate in verdict.gates for cause in gate.causes
    ]
    slow = [(one.node, one.metric, f"{one.below:.1%}", f"{one.z:.1f}") for one in verdict.slow_nodes]
    scalings = [scaling_row(scaling, bar) for scaling in report.scalings for bar in scaling.bars]
    changed = [(one.what, "; ".join(one.touches) or "-") for one in report.changes]
    about = [(name, old or "-", new or "-") for name, old, new in report.about]
    tables: list[Table] = [
        ("Gates", "Hard gates after the change", ("gate", "verdict", "why"), gates),
        ("Causes", "What gates found", ("gate", "cause", "what to do", "nodes"), causes),
        (
            "Metrics",
            "Metrics before and after; the number of jobs in brackets",
            METRIC_HEAD,
            [metric_row(metric) for metric in verdict.metrics],
        ),
        ("Slow nodes", "Nodes that are slower than the others", ("node", "metric", "below the median", "z"), slow),
        (
            "What changed on the machine",
            "Changes of the node, and what they touch",
            ("change", "touches"),
            changed,
        ),
        ("Scaling", "Rates by shape; efficiency against as many single nodes", SCALING_HEAD, scalings),
        *map(_epochs, report.epochs),
        ("What was run", "The runs", ("", "before", "after"), about),
    ]
    yield from (table for table in tables if table[3])


def _epochs(table: EpochTable) -> Table:
    head, *rows = epoch_rows(table)
    return f"Epochs, {table.shape}", "What each epoch took after the change", head, rows
