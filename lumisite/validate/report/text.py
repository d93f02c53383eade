"""Write a verdict for a terminal: plain text, aligned, no colour, so that it can be sent on as it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from lumisite.validate.report.epochs import epoch_rows
from lumisite.validate.report.gather import Bar, Report, Scaling
from lumisite.validate.report.words import SENTENCES, some
from lumisite.validate.verdict.gates import GateVerdict
from lumisite.validate.verdict.metric import MetricVerdict
from lumisite.validate.verdict.system import SystemVerdict

#: Causes of one gate that are told before they are only counted.
CAUSES_SHOWN = 5


def verdict_text(verdict: SystemVerdict) -> Iterator[str]:
    """Write the verdict, line by line: gates, metrics, nodes, what to run next, and what it stands on."""
    yield verdict.verdict.upper()
    yield from _tables(verdict)
    if verdict.drain:
        yield "" if not verdict.slow_nodes else "  to drain them:"
        yield f"  {verdict.drain}"
    if verdict.next_runs:
        yield ""
        yield from verdict.next_runs
    if verdict.notes:
        yield ""
        yield from (f"note: {note}" for note in verdict.notes)


def report_text(report: Report) -> Iterator[str]:
    """Write a report: the verdict in a sentence, what to do, what changed, then the tables."""
    verdict = report.verdict
    yield f"{verdict.verdict.upper()}: {SENTENCES[verdict.verdict]}"
    if report.advice:
        yield from ("", "what to do", *(f"  {number}. {text}" for number, text in enumerate(report.advice, start=1)))
    if verdict.drain:
        yield from ("", "to drain bad nodes (nothing runs it)", f"  {verdict.drain}")
    if report.changes:
        yield from ("", "what changed on the machine")
        for one in report.changes[:CHANGES_SHOWN]:
            yield f"  {one.what}"
            yield from (f"    {touched}" for touched in one.touches)
        if len(report.changes) > CHANGES_SHOWN:
            yield f"  … and {len(report.changes) - CHANGES_SHOWN} more"
    yield from _tables(verdict)
    scalings = [(scaling, bar) for scaling in report.scalings for bar in scaling.bars]
    if scalings:
        yield ""
        yield from aligned([SCALING_HEAD, *(scaling_row(scaling, bar) for scaling, bar in scalings)])
    for table in report.epochs:
        yield from ("", f"epochs, {table.shape}")
        yield from aligned(list(epoch_rows(table)))
    if report.about:
        yield ""
        yield from aligned(
            [("", "before", "after"), *((name, old or "-", new or "-") for name, old, new in report.about)]
        )
    if report.users:
        yield from ("", "to send to users, when you have read it", *(f"  {line}".rstrip() for line in report.users))
    if verdict.notes:
        yield ""
        yield from (f"note: {note}" for note in verdict.notes)


#: Changes that are told in a terminal before they are only counted.
CHANGES_SHOWN = 30

SCALING_HEAD = ("rate", "shape", "before", "after", "efficiency before", "efficiency after")


def scaling_row(scaling: Scaling, bar: Bar) -> tuple[str, ...]:
    """Give the cells of one shape, under `SCALING_HEAD`; the efficiency is against as many single nodes."""
    rates = ["-" if rate is None else f"{rate:.5g}" for rate in (bar.before, bar.after)]
    parts = ["-" if part is None else f"{part:.0%}" for part in (bar.efficiency_before, bar.efficiency_after)]
    return scaling.name, bar.shape, *rates, *parts


def _tables(verdict: SystemVerdict) -> Iterator[str]:
    if verdict.gates:
        yield ""
        rows = [(gate.gate, gate.verdict, gate.reason) for gate in verdict.gates]
        yield from aligned([("gate", "verdict", "why"), *rows])
        for gate in verdict.gates:
            yield from _causes(gate)
    if verdict.metrics:
        yield ""
        yield from aligned([METRIC_HEAD, *map(metric_row, verdict.metrics)])
    if verdict.slow_nodes:
        yield ""
        yield "slow nodes (measure them once more, then drain):"
        for slow in verdict.slow_nodes:
            yield f"  {slow.node}: {slow.metric} {slow.below:.1%} below the median of all nodes (z {slow.z:.1f})"


METRIC_HEAD = ("metric", "unit", "before", "after", "change", "noise", "p", "verdict", "why")


def metric_row(metric: MetricVerdict) -> tuple[str, ...]:
    """Give the cells of one metric, under `METRIC_HEAD`."""
    state = metric.verdict if metric.decides else f"{metric.verdict} (shown only)"
    before = "-" if metric.before is None else f"{metric.before:.5g} ({metric.jobs_before})"
    after = "-" if metric.after is None else f"{metric.after:.5g} ({metric.jobs_after})"
    if metric.change is None or metric.noise is None:
        return metric.metric, metric.unit or "-", before, after, "-", "-", "-", state, metric.reason
    change, noise = f"{metric.change:+.1%}".replace("-0.0%", "+0.0%"), f"{metric.noise:.1%}"
    return metric.metric, metric.unit or "-", before, after, change, noise, f"{metric.p:.2g}", state, metric.reason


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Write rows of cells with equal columns."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _causes(gate: GateVerdict) -> Iterable[str]:
    for cause in gate.causes[:CAUSES_SHOWN]:
        yield f"  {gate.gate}: {cause.cause} ({some(cause.nodes)})"
        if cause.advice:
            yield f"    {cause.advice}"
    if len(gate.causes) > CAUSES_SHOWN:
        yield f"  {gate.gate}: … and {len(gate.causes) - CAUSES_SHOWN} more causes"
