"""The tables of a report, in the order in which they are read: what failed comes first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from lumisite.text import change, figure, percent
from lumisite.validate.lines import State
from lumisite.validate.report.gather import RunReport
from lumisite.validate.verdict.gates import next_step
from lumisite.validate.verdict.metric import MetricVerdict
from lumisite.validate.verdict.system import SystemVerdict

WORST_FIRST: tuple[State, ...] = ("fail", "bad-nodes", "unconfirmed", "inconclusive", "warn", "pass", "shown")
Row: TypeAlias = tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """A table of cells; its words are in the templates.

    `columns` are the indexes of the columns that it has; `rank` is the place of its worst state among `WORST_FIRST`.
    """

    name: str
    columns: tuple[int, ...]
    rows: tuple[Row, ...]
    rank: int


def report_tables(report: RunReport) -> list[Table]:
    """Return all tables: what failed, what changed, then the rest."""
    judged = verdict_tables(report.verdict)
    bad = sorted((table for table in judged if table.rank < WORST_FIRST.index("pass")), key=lambda table: table.rank)
    good = [table for table in judged if table not in bad]
    changed = [(change["what"], "; ".join(change["touches"]) or "-") for change in report.changes]
    about = [(name, old or "-", new or "-") for name, old, new in report.about]
    rest = [_table("changes", changed), *good, _table("scaling", _scaling_rows(report)), _table("runs", about)]
    return [table for table in (*bad, *rest) if table.rows]


def verdict_tables(verdict: SystemVerdict) -> list[Table]:
    """Return what was judged; in each table what is worst comes first."""
    gates = sorted(verdict.gates, key=lambda gate: (bool(gate.follows), WORST_FIRST.index(gate.verdict)))
    metrics = sorted(verdict.metrics, key=lambda metric: (not metric.decides, WORST_FIRST.index(metric.verdict)))
    tables = (
        _table(
            "gates",
            [(gate.gate, f"{gate.verdict} (follows)" if gate.follows else gate.verdict, gate.reason) for gate in gates],
            [gate.verdict for gate in gates if not gate.follows],
        ),
        _table("causes", list(_cause_rows(verdict)), ["fail"]),
        _table("metrics", list(map(_metric_row, metrics)), [metric.verdict for metric in metrics if metric.decides]),
        _table(
            "slow-nodes",
            [(slow.node, slow.metric, percent(slow.below), f"{slow.z:.1f}") for slow in verdict.slow_nodes],
            ["fail"],
        ),
    )
    return [table for table in tables if table.rows]


def _table(name: str, rows: Sequence[Row], states: Iterable[State] = ()) -> Table:
    """Return a table without the columns that have nothing, as those of a baseline where there is none."""
    columns = tuple(index for index, cells in enumerate(zip(*rows, strict=True)) if {*cells} != {"-"})
    cells = tuple(tuple(row[index] for index in columns) for row in rows)
    return Table(name, columns, cells, min(map(WORST_FIRST.index, states), default=len(WORST_FIRST)))


def _cause_rows(verdict: SystemVerdict) -> Iterator[Row]:
    """Yield what is at fault; what follows from it stands at its gate."""
    for gate in verdict.gates:
        for cause in gate.causes:
            if not cause.follows:
                yield gate.gate, cause.cause, next_step(cause), ",".join(cause.nodes)


def _metric_row(metric: MetricVerdict) -> Row:
    before = after = noise = chance = "-"
    if metric.before is not None:
        before = f"{figure(metric.before)} ({metric.jobs_before})"
    if metric.after is not None:
        jobs = f" of {metric.jobs_after}" if metric.jobs_after > metric.jobs_compared else ""
        after = f"{figure(metric.after)} ({metric.jobs_compared}{jobs})"
    if metric.change is not None and metric.noise is not None:
        noise, chance = percent(metric.noise), f"{metric.p:.2g}"
    row = (metric.metric, metric.unit or "-", before, after, change(metric.change), noise, chance)
    return (*row, metric.verdict, metric.reason)


def _scaling_rows(report: RunReport) -> list[Row]:
    rows = []
    for scaling in report.scalings:
        for bar in scaling.bars:
            parts = (
                "-" if part is None else percent(part, 0) for part in (bar.efficiency_before, bar.efficiency_after)
            )
            rows.append((scaling.name, bar.shape, figure(bar.before), figure(bar.after), *parts))
    return rows
