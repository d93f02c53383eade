"""What a report says, in the order in which it is read; a terminal, Markdown and HTML print its blocks in their way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from lumisite.text import columns, some
from lumisite.validate.report.gather import EpochTable, Report
from lumisite.validate.verdict.gates import LOOK, Cause, GateVerdict
from lumisite.validate.verdict.metric import MetricVerdict
from lumisite.validate.verdict.system import SystemVerdict

#: Changes, and causes of one gate, that are told in a terminal before they are only counted.
CHANGES_SHOWN, CAUSES_SHOWN = 30, 5
#: What each verdict means, for whoever reads only one line.
SENTENCES = {
    "pass": "every gate passed and nothing is slower than before",
    "warn": "nothing failed, but something below is worth a look",
    "fail": "the system does not work as it did before",
    "inconclusive": "what was measured does not decide it",
    "bad-nodes": "the system is fine, some nodes are not",
}
METRIC_HEAD = ("metric", "unit", "before", "after", "change", "noise", "p", "verdict", "why")
Row: TypeAlias = tuple[str, ...]


@dataclass(frozen=True)
class Block:
    """Steps in their order, lines to be copied as they are, a table, notes, or the place of plots.

    The `lines` of a table are what a terminal prints instead, where columns would be too wide for it.
    """

    kind: Literal["steps", "verbatim", "table", "plots", "notes"]
    title: str
    lines: Sequence[str] = ()
    caption: str = ""
    head: Row = ()
    rows: Sequence[Row] = ()


def headline(verdict: SystemVerdict) -> str:
    """Give the verdict in a sentence; nothing is said of the system where bad nodes leave that open."""
    sentence = SENTENCES[verdict.verdict]
    if verdict.verdict == "bad-nodes" and any(one.decides and one.on_slow_nodes for one in verdict.metrics):
        sentence = "some nodes are bad; how the system is, jobs without them tell"
    return f"{verdict.verdict.upper()}: {sentence}"


def report_blocks(report: Report) -> Iterator[Block]:
    """Give what there is below the headline."""
    verdict = report.verdict
    if report.advice:
        yield Block("steps", "What to do", report.advice)
    if verdict.drain:
        yield Block("verbatim", "To drain bad nodes (nothing runs it)", (verdict.drain,))
    if report.changes:
        yield _changes(report)
    yield from verdict_blocks(verdict)
    if report.scalings:
        yield _scalings(report)
    for table in report.epochs:
        yield _epochs(table)
    if report.about:
        sides = [(name, old or "-", new or "-") for name, old, new in report.about]
        yield Block("table", "What was run", (), "The runs", ("", "before", "after"), sides)
    yield Block("plots", "Plots")
    if report.users:
        yield Block("verbatim", "To send to users, when you have read it", report.users)
    if verdict.notes:
        yield Block("notes", "Notes", verdict.notes)


def verdict_blocks(verdict: SystemVerdict) -> Iterator[Block]:
    """Give what was judged: gates, metrics, nodes."""
    if verdict.gates:
        gates = [(gate.gate, gate.verdict + " (follows)" * bool(gate.follows), gate.reason) for gate in verdict.gates]
        yield Block("table", "Gates", (), "Hard gates after the change", ("gate", "verdict", "why"), gates)
    # First what is at fault, then what follows from it.
    parts = [
        replace(gate, causes=own)
        for follows in (False, True)
        for gate in verdict.gates
        if (own := tuple(one for one in gate.causes if bool(one.follows) == follows))
    ]
    causes = [(gate.gate, one.cause, _to_do(one), some(one.nodes)) for gate in parts for one in gate.causes]
    if causes:
        lines = [line for gate in parts for line in _cause_lines(gate)]
        yield Block("table", "Causes", lines, "What gates found", ("gate", "cause", "what to do", "nodes"), causes)
    if verdict.metrics:
        caption = "Metrics before and after; the number of jobs in brackets"
        yield Block("table", "Metrics", (), caption, METRIC_HEAD, [_metric_row(metric) for metric in verdict.metrics])
    if verdict.slow_nodes:
        slow = [(one.node, one.metric, f"{one.below:.1%}", f"{one.z:.1f}") for one in verdict.slow_nodes]
        lines = [f"  {node}: {metric} {below} below the median of all nodes (z {z})" for node, metric, below, z in slow]
        lines = ["slow nodes (measure them once more, then drain):", *lines]
        head = ("node", "metric", "below the median", "z")
        yield Block("table", "Slow nodes", lines, "Nodes that are slower than the others", head, slow)


def _to_do(cause: Cause) -> str:
    return f"nothing: it follows from {some(cause.follows)}" if cause.follows else cause.advice or LOOK


def _changes(report: Report) -> Block:
    lines = ["what changed on the machine"]
    for one in report.changes[:CHANGES_SHOWN]:
        lines += [f"  {one.what}", *(f"    {touched}" for touched in one.touches)]
    if len(report.changes) > CHANGES_SHOWN:
        lines.append(f"  … and {len(report.changes) - CHANGES_SHOWN} more")
    rows = [(one.what, "; ".join(one.touches) or "-") for one in report.changes]
    caption = "Changes of the node, and what they touch"
    return Block("table", "What changed on the machine", lines, caption, ("change", "touches"), rows)


def _scalings(report: Report) -> Block:
    rows = [
        (
            *(scaling.name, bar.shape, _rate(bar.before), _rate(bar.after)),
            *("-" if part is None else f"{part:.0%}" for part in (bar.efficiency_before, bar.efficiency_after)),
        )
        for scaling in report.scalings
        for bar in scaling.bars
    ]
    head = ("rate", "shape", "before", "after", "efficiency before", "efficiency after")
    return Block("table", "Scaling", (), "Rates by shape; efficiency against as many single nodes", head, rows)


def _epochs(table: EpochTable) -> Block:
    """Give a column for each environment, and what the last took against the first."""
    title, head = f"Epochs, {table.shape}", ("epoch", *(f"{name} s" for name in table.environments), "ratio")
    rows = []
    for number, seconds in enumerate(table.epochs, start=1):
        ratio = seconds[-1] / seconds[0] if seconds[0] else float("inf")
        rows.append((str(number), *(f"{value:.3f}" for value in seconds), f"{ratio:.2f}"))
    lines = [title.lower(), *columns([head, *rows])]
    return Block("table", title, lines, "What each epoch took after the change", head, rows)


def _cause_lines(gate: GateVerdict) -> Iterator[str]:
    for cause in gate.causes[:CAUSES_SHOWN]:
        yield f"  {gate.gate}: {cause.cause} ({some(cause.nodes)})"
        if told := _to_do(cause):
            yield f"    {told}"
    if len(gate.causes) > CAUSES_SHOWN:
        yield f"  {gate.gate}: … and {len(gate.causes) - CAUSES_SHOWN} more causes"


def _metric_row(metric: MetricVerdict) -> Row:
    before = "-" if metric.before is None else f"{_rate(metric.before)} ({metric.jobs_before})"
    after = "-" if metric.after is None else f"{_rate(metric.after)} ({metric.jobs_after})"
    change = noise = chance = "-"
    if metric.change is not None and metric.noise is not None:
        change = f"{metric.change:+.1%}".replace("-0.0%", "+0.0%")
        noise, chance = f"{metric.noise:.1%}", f"{metric.p:.2g}"
    state = metric.verdict if metric.decides else f"{metric.verdict} (shown only)"
    return metric.metric, metric.unit or "-", before, after, change, noise, chance, state, metric.reason


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:.5g}"
