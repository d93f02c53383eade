"""The tables of a report, in the order in which they are read: what failed comes first."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from lumisite.text import change, figure, percent
from lumisite.validate.lines import State
from lumisite.validate.report.gather import RunReport
from lumisite.validate.verdict.metric import MetricVerdict
from lumisite.validate.verdict.stats import SHIFT_ERROR
from lumisite.validate.verdict.system import SystemVerdict

WORST_FIRST: tuple[State, ...] = ("fail", "bad-nodes", "unconfirmed", "inconclusive", "warn", "pass", "shown")
#: The normal quantile of an interval that holds 95 % of cases.
QUANTILE_95 = 1.96
Row: TypeAlias = tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """A table of cells. `worst` is the worst state in it; `notes` say why a row is not fine, for a narrow terminal."""

    title: str
    head: Row
    rows: tuple[Row, ...]
    worst: State = "pass"
    notes: tuple[str, ...] = ()


def report_tables(report: RunReport) -> list[Table]:
    """Return all tables: what failed, what changed, then the rest."""
    judged = verdict_tables(report.verdict)
    bad = [table for table in judged if WORST_FIRST.index(table.worst) < WORST_FIRST.index("pass")]
    changed = [(one["what"], "; ".join(one["touches"]) or "-") for one in report.changes]
    about = [(name, old or "-", new or "-") for name, old, new in report.about if old or new]
    tables = [
        *sorted(bad, key=lambda table: WORST_FIRST.index(table.worst)),
        _table("What changed on the machine", ("change", "touches"), changed),
        *(table for table in judged if table not in bad),
        _table("What was run", ("", "before", "after"), about),
    ]
    return [table for table in tables if table.rows]


def verdict_tables(verdict: SystemVerdict) -> list[Table]:
    """Return what was judged; in each table what is worst comes first."""
    metrics = sorted(verdict.metrics, key=lambda metric: WORST_FIRST.index(metric.verdict))
    deciding, shown = ([metric for metric in metrics if metric.decides == decides] for decides in (True, False))
    slow = [(one.node, one.metric, percent(one.below), f"{one.z:.1f}") for one in verdict.slow_nodes]
    head = ("metric", "unit", "before", "after", "change (95 % interval)", "jobs")
    tables = [
        _gates(verdict),
        _table(
            "Metrics that decide",
            (*head, "verdict", "why"),
            [(*_numbers(metric), metric.verdict, metric.reason) for metric in deciding],
            [metric.verdict for metric in deciding],
            [f"{metric.metric}: {metric.reason}" for metric in deciding if metric.verdict != "pass"],
        ),
        _table("Slow nodes", ("node", "metric", "slower than the median of all nodes", "z"), slow, ["bad-nodes"]),
        _table("Other metrics, which do not decide", head, list(map(_numbers, shown))),
    ]
    return [table for table in tables if table.rows]


def _gates(verdict: SystemVerdict) -> Table:
    """Return the gates; those with one answer share a row."""
    alike: dict[Row, list[str]] = {}
    for gate in sorted(verdict.gates, key=lambda gate: (bool(gate.follows), WORST_FIRST.index(gate.verdict))):
        alike.setdefault((f"{gate.verdict} (follows)" if gate.follows else gate.verdict, gate.reason), []).append(
            gate.gate
        )
    rows = [(", ".join(names), *answer) for answer, names in alike.items()]
    return _table(
        "Gates", ("gate", "verdict", "why"), rows, [gate.verdict for gate in verdict.gates if not gate.follows]
    )


def _table(
    title: str, head: Row, rows: Sequence[Row], states: Iterable[State] = (), notes: Iterable[str] = ()
) -> Table:
    """Return a table without the columns that have nothing, as those of a baseline where there is none."""
    columns = [index for index, cells in enumerate(zip(*rows, strict=True)) if {*cells} != {"-"}]
    cells = tuple(tuple(row[index] for index in columns) for row in rows)
    worst: State = min(states, key=WORST_FIRST.index, default="pass")
    return Table(title, tuple(head[index] for index in columns), cells, worst, tuple(notes))


def _numbers(metric: MetricVerdict) -> Row:
    """Return what was compared; `jobs` are those before and after."""
    jobs = f"{metric.jobs_before}, {metric.jobs_compared}" if metric.jobs_before else str(metric.jobs_compared)
    numbers = (figure(metric.before), figure(metric.after), _change(metric), jobs)
    return (metric.metric, metric.unit or "-", *numbers)


def interval_95(metric: MetricVerdict) -> tuple[float, float] | None:
    """Return between what the change lies in 95 of 100 cases, by the error that the verdict reckons with."""
    if metric.change is None or metric.noise is None:
        return None
    error = QUANTILE_95 * SHIFT_ERROR * metric.noise
    middle = math.log1p(metric.change)
    return math.expm1(middle - error), math.expm1(middle + error)


def _change(metric: MetricVerdict) -> str:
    interval = interval_95(metric)
    if interval is None:
        return change(metric.change)
    low, high = (change(end).removesuffix(" %") for end in interval)
    return f"{change(metric.change)} ({low} to {high})"
