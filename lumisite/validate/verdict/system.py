"""Decide from samples and gates before and after a change whether the system still works as well as before.

A pure function: the same lines give the same verdict, in whatever order they come. Hard gates come first, then the
metrics by the method in `metric`, then single nodes among the others. docs/explanation/verdict.md says why.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import chain

from lumisite.site.model import MetricRule, Validation
from lumisite.site.scalars import Line
from lumisite.text import counted, drain_command, figure, some
from lumisite.validate.lines import State
from lumisite.validate.metric_names import metric_order
from lumisite.validate.probes.communicators import SHOWN_ONLY
from lumisite.validate.samples import Recorded, Series
from lumisite.validate.verdict.baseline import LEAST_DAYS, comparable
from lumisite.validate.verdict.gates import NODE, GateVerdict, judge_gates, nodes_of_runs
from lumisite.validate.verdict.metric import MetricVerdict, judge_metric
from lumisite.validate.verdict.nodes import SlowNode, slow_nodes

#: Names that are listed before they are only counted.
NAMES_SHOWN = 16
#: Letters of a cause that a drain's reason holds.
CAUSE_SHOWN = 120


@dataclass(frozen=True)
class Terms:
    """What is asked of metrics: the site's rules, of which the first that fits counts."""

    rules: tuple[MetricRule, ...] = ()
    allow_image_change: bool = False
    baseline_days: int = LEAST_DAYS
    alone: bool = False
    """Whether there is no baseline, by intent: gates and what the site expects decide."""

    @staticmethod
    def of(validation: Validation | None, *, allow_image_change: bool = False, alone: bool = False) -> Terms:
        """Give what a site asks, or what is asked where none is named."""
        if validation is None:
            return Terms(allow_image_change=allow_image_change, alone=alone)
        return Terms(validation.metrics, allow_image_change, validation.baseline_days, alone)

    def rule(self, metric: str) -> MetricRule:
        """Give the rule for a metric."""
        shown_only = any(fnmatchcase(metric, pattern) for pattern in SHOWN_ONLY)
        usual = MetricRule(metric=Line(metric), decides=not shown_only)
        return next((rule for rule in self.rules if fnmatchcase(metric, rule.metric)), usual)


@dataclass(frozen=True)
class SystemVerdict:
    """All gates and metrics, the nodes that are not as the others, what stands on little, and what to run next.

    `drain` is a command to read, never to run by itself.
    """

    verdict: State
    exit_code: int
    gates: tuple[GateVerdict, ...]
    metrics: tuple[MetricVerdict, ...]
    slow_nodes: tuple[SlowNode, ...]
    drain: str | None
    next_runs: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def bad_nodes(self) -> list[str]:
        """The nodes that are slow, or that gates name."""
        return _bad(self.gates, self.slow_nodes)


def judge_system(before: Recorded, after: Recorded, terms: Terms) -> SystemVerdict:
    """Judge every gate and every metric that either side has. The order of lines does not matter."""
    gates = judge_gates(before.gates, after.gates)
    slow_before = frozenset(slow.node for slow in slow_nodes(_deciding(before, terms)))
    slow = slow_nodes(_deciding(after, terms))
    bad = frozenset(_bad(gates, slow))
    runs = nodes_of_runs(chain(after.gates, *(series.jobs for series in after.series.values())))
    spoiled = all(not nodes.isdisjoint(bad) for nodes in runs.values())
    metrics = []
    notes: dict[str, list[str]] = {}
    for name in sorted({*before.series, *after.series}, key=metric_order):
        verdict, said = _judge(before.series.get(name), after.series.get(name), terms, slow_before, bad)
        if bad and (not before.series or (spoiled and name not in after.series)):
            verdict = replace(verdict, on_slow_nodes=True)
        metrics.append(verdict)
        for note in said:
            notes.setdefault(note, []).append(name)
    overall, code = _overall(gates, metrics, slow, spoiled=bool(bad) and spoiled)
    return SystemVerdict(
        overall,
        code,
        gates,
        tuple(metrics),
        slow,
        _drain(gates, slow),
        tuple(_next_runs(gates, metrics)),
        tuple(_notes(notes, metrics)),
    )


def _deciding(recorded: Recorded, terms: Terms) -> Iterator[Series]:
    """Give what may blame a node: a metric that is shown only decides nothing of nodes either."""
    return (series for name, series in recorded.series.items() if terms.rule(name).decides)


def _judge(
    old: Series | None, new: Series | None, terms: Terms, slow_before: frozenset[str], slow_after: frozenset[str]
) -> tuple[MetricVerdict, tuple[str, ...]]:
    if new is None:
        assert old is not None
        decides = terms.rule(old.metric).decides
        return MetricVerdict(old.metric, old.better, "inconclusive", "not measured after", decides=decides), ()
    rule = terms.rule(new.metric)
    baseline, notes = comparable(old, new, allow_image_change=terms.allow_image_change, least_days=terms.baseline_days)
    verdict = judge_metric(baseline, new, rule, slow_before, slow_after)
    return (_by_spec(verdict, rule) if terms.alone and old is None else verdict), notes


def _by_spec(verdict: MetricVerdict, rule: MetricRule) -> MetricVerdict:
    """Let what the site expects decide by itself; a metric of which it expects nothing is only shown."""
    if verdict.below_spec:
        return verdict
    if rule.spec is None:
        return replace(verdict, decides=False, reason="no baseline, and the site expects no number")
    told = f"{figure(verdict.after)} is within what the site expects, {figure(rule.spec)}"
    return replace(verdict, verdict="pass", reason=told)


def _overall(
    gates: Sequence[GateVerdict], metrics: Sequence[MetricVerdict], slow: Sequence[SlowNode], *, spoiled: bool
) -> tuple[State, int]:
    """Let the worst decide, of what bad nodes do not explain; `spoiled`: no job ran without them."""
    deciding = [metric.verdict for metric in metrics if metric.decides and not metric.on_slow_nodes]
    shown = [gate for gate in gates if not gate.follows and (gate.runs or not spoiled)]
    states = {*deciding, *(gate.verdict for gate in shown)}
    if "fail" in states:
        return "fail", 1
    if states & {"unconfirmed", "inconclusive"}:
        return "inconclusive", 4
    if slow or "bad-nodes" in states:
        return "bad-nodes", 5
    if not deciding and (not gates or not metrics):
        return "inconclusive", 4
    return ("warn" if "warn" in states else "pass"), 0


def _bad(gates: Sequence[GateVerdict], slow: Sequence[SlowNode]) -> list[str]:
    return sorted({one.node for one in slow} | {node for gate in gates for node in gate.nodes})


def _drain(gates: Sequence[GateVerdict], slow: Sequence[SlowNode]) -> str | None:
    nodes = _bad(gates, slow)
    if not nodes:
        return None
    reasons = [f"slow by {', '.join(sorted({one.metric for one in slow}))}"] if slow else []
    if failed := [gate for gate in gates if gate.nodes]:
        told = [cause.cause for gate in failed if gate.gate == NODE for cause in gate.causes]
        words = f": {'; '.join(told)}" if told else ""
        reasons.append(f"failed {', '.join(gate.gate for gate in failed)}{words}"[:CAUSE_SHOWN])
    return drain_command(nodes, "; ".join(reasons))


def _next_runs(gates: Sequence[GateVerdict], metrics: Sequence[MetricVerdict]) -> Iterator[str]:
    """Say which jobs are missing, metrics with the same need together."""
    unasked = [gate.gate for gate in gates if not gate.runs]
    if unasked:
        yield f"run {', '.join(unasked)}, which passed before the change"
    behind = [gate for gate in gates if gate.follows]
    if behind:
        nodes = some(sorted({node for gate in behind for node in gate.follows}), NAMES_SHOWN)
        told = ", ".join(gate.gate for gate in behind)
        yield f"run {told} on nodes other than {nodes}: what failed there follows from them"
    wanted: dict[tuple[int, tuple[str, ...]], list[str]] = {}
    for metric in metrics:
        if metric.more_jobs and metric.decides:
            wanted.setdefault((metric.more_jobs, metric.avoid), []).append(metric.metric)
    for (count, avoid), names in sorted(wanted.items()):
        others = f" on nodes other than {some(avoid, NAMES_SHOWN)}" if avoid else ""
        yield f"run {counted(count, 'more job')} of {', '.join(names)}{others}"
    stuck = [
        one.metric
        for one in metrics
        if one.decides and one.verdict == "inconclusive" and one.jobs_before and not one.more_jobs
    ]
    hunt = sorted({node for metric in metrics if metric.decides for node in metric.hunt})
    if hunt:
        yield f"run one job of pairs on {some(hunt, NAMES_SHOWN)} together: it tells which node is slow"
    elif stuck:
        yield (
            f"no more jobs settle {some(stuck, NAMES_SHOWN)}: take a longer or newer baseline before the next change "
            "(`lumisite baseline --into`), or say what the site expects (`spec`, or `decides: no`)"
        )


def _notes(notes: Mapping[str, Sequence[str]], metrics: Sequence[MetricVerdict]) -> Iterator[str]:
    """Say each note once, with the metrics that it holds for where these are not all."""
    for note, names in notes.items():
        yield note if len(names) == len(metrics) else f"{some(names, NAMES_SHOWN)}: {note}"
