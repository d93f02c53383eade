"""Decide from samples and gates before and after a change whether the system still works as well as before.

A pure function: the same lines give the same verdict, in whatever order they come. Hard gates come first, then the
metrics that decide (`deciding`) by the method in `metric`, then single nodes among the others. All deciding metrics
share one chance of error, by the method of Holm. docs/explanation/verdict.md says why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from itertools import chain
from textwrap import shorten

from lumisite.findings import writers
from lumisite.findings.exit_code import verdict_exit_code
from lumisite.findings.finding import Finding, Severity
from lumisite.site.model import MetricRule, Validation
from lumisite.site.scalars import Line
from lumisite.text import drain_command, figure, some
from lumisite.validate.lines import State
from lumisite.validate.metric_names import metric_order
from lumisite.validate.probes.probe import NODE
from lumisite.validate.samples import Recorded
from lumisite.validate.verdict.baseline import comparable
from lumisite.validate.verdict.deciding import decides
from lumisite.validate.verdict.gates import GateVerdict, judge_gates, nodes_of_runs
from lumisite.validate.verdict.metric import MetricVerdict, judge_metric
from lumisite.validate.verdict.nodes import LEAST_VALUES, SlowNode, slow_nodes
from lumisite.validate.verdict.stats import ALPHA

#: Metrics that a finding names before it only counts them.
MOST_NAMES = 16
#: Letters of the reason of a drain, which ends with a word.
DRAIN_REASON_LENGTH = 120


@dataclass(frozen=True)
class Terms:
    """How metrics are judged: which decide, and by which of the site's rules, of which the first that fits counts."""

    rules: tuple[MetricRule, ...] = ()
    deciding: tuple[str, ...] = ()
    allow_image_change: bool = False

    @staticmethod
    def of(validation: Validation | None, *, allow_image_change: bool = False) -> Terms:
        """Return the terms of a site, or the usual ones where none is named."""
        if validation is None:
            return Terms(allow_image_change=allow_image_change)
        return Terms(validation.metrics, validation.deciding, allow_image_change)

    def rule(self, metric: str) -> MetricRule:
        """Return the rule for a metric."""
        usual = MetricRule(metric=Line(metric))
        return next((rule for rule in self.rules if fnmatchcase(metric, rule.metric)), usual)

    def least_below(self, metric: str) -> float:
        """Return how far below the others a node has to be."""
        return self.rule(metric).threshold


@dataclass(frozen=True)
class SystemVerdict:
    """All gates and metrics, the nodes that are not as the others, and what stands on little.

    `drain` are commands to read, never to run by themselves: one for nodes with the same reasons.
    """

    verdict: State
    gates: tuple[GateVerdict, ...]
    metrics: tuple[MetricVerdict, ...]
    slow_nodes: tuple[SlowNode, ...]
    drain: tuple[str, ...]
    doubts: tuple[Finding, ...] = ()

    @property
    def exit_code(self) -> int:
        """The exit code of the command that judges."""
        return verdict_exit_code(self.verdict)

    @property
    def notes(self) -> tuple[str, ...]:
        """What stands on little, in words."""
        return tuple(map(writers.sentence, self.doubts))

    @property
    def failed_nodes(self) -> list[str]:
        """The nodes that gates name, which have to be repaired."""
        return sorted({node for gate in self.gates for node in gate.nodes})

    @property
    def bad_nodes(self) -> list[str]:
        """The nodes that are slow, or that gates name."""
        return sorted({*self.failed_nodes, *(slow.node for slow in self.slow_nodes)})


def judge_system(before: Recorded | None, after: Recorded, terms: Terms) -> SystemVerdict:
    """Judge every gate and every metric that either side has. The order of lines does not matter.

    `before` is None where there is no baseline, by intent: gates and what the site expects decide then, and a run in
    which they pass passes.
    """
    alone = before is None
    before = before or Recorded({})
    gates = judge_gates(before.gates, after.gates)
    slow_before = frozenset(slow.node for slow in slow_nodes(before.series.values(), terms.least_below))
    failed = {node for gate in gates for node in gate.nodes}
    slow = slow_nodes(after.series.values(), terms.least_below, failed)
    bad = frozenset(failed.union(one.node for one in slow))
    runs = nodes_of_runs(chain(after.gates, *(series.jobs for series in after.series.values())))
    spoiled = bool(bad) and all(not nodes.isdisjoint(bad) for nodes in runs.values())
    doubts: dict[Finding, list[str]] = {}
    judges: dict[str, Callable[[float], MetricVerdict]] = {}
    for name in sorted({*before.series, *after.series}, key=metric_order):
        judges[name], doubt = _judge_of(name, before, after, terms, slow_before, bad, alone=alone)
        if doubt:
            doubts.setdefault(doubt, []).append(name)
    deciding = [
        name for name in judges if decides(name, terms.deciding) and (not alone or terms.rule(name).spec is not None)
    ]
    metrics = tuple(
        # What no job without a bad node has measured says nothing of the system.
        replace(metric, on_slow_nodes=True)
        if bad and (not before.series or (spoiled and metric.metric not in after.series))
        else metric
        for metric in _share_chance(judges, deciding)
    )
    return SystemVerdict(
        _overall(gates, metrics, slow, spoiled=spoiled, alone=alone),
        gates,
        metrics,
        slow,
        _drain(gates, slow),
        tuple(
            doubt if len(names) == len(metrics) else replace(doubt, subject=some(names, MOST_NAMES))
            for doubt, names in doubts.items()
        ),
    )


def as_json(verdict: SystemVerdict) -> dict[str, object]:
    """Return a verdict for JSON, with its findings in words."""
    found = {"verdict": verdict.verdict, "exit_code": verdict.exit_code} | asdict(verdict) | {"notes": verdict.notes}
    del found["doubts"]
    parts: list[GateVerdict | MetricVerdict] = [*verdict.gates, *verdict.metrics]
    for row, part in zip((*found["gates"], *found["metrics"]), parts, strict=True):
        row["reason"] = part.reason
        row["findings"] = [writers.as_json(finding) for finding in part.findings]
    return found


def _judge_of(
    name: str,
    before: Recorded,
    after: Recorded,
    terms: Terms,
    slow_before: frozenset[str],
    slow_after: frozenset[str],
    *,
    alone: bool,
) -> tuple[Callable[[float], MetricVerdict], Finding | None]:
    """Return what judges a metric at a chance of error, and a doubt about its baseline."""
    old, new, rule = before.series.get(name), after.series.get(name), terms.rule(name)
    if new is None:
        assert old is not None
        gone = Finding("metric-unmeasured", Severity.DOUBT, "not measured after", "run its probe (`--probe NAME`)")
        verdict = MetricVerdict(name, old.better, "inconclusive", (gone,))
        return (lambda _alpha: verdict), None
    baseline, doubt = comparable(old, new, allow_image_change=terms.allow_image_change)

    def judge(alpha: float) -> MetricVerdict:
        verdict = judge_metric(baseline, new, rule, slow_before, slow_after, alpha=alpha)
        return _by_spec(verdict, rule) if alone else verdict

    return judge, doubt


def _share_chance(
    judges: Mapping[str, Callable[[float], MetricVerdict]], deciding: Sequence[str]
) -> list[MetricVerdict]:
    """Judge all metrics so that one chance of error holds for all that decide (Holm, 1979).

    They share it; those that fail at their share are set aside, and the others share it among themselves.
    """
    found = {name: _shown(judge(ALPHA)) for name, judge in judges.items() if name not in deciding}
    left = list(deciding)
    failed = True
    while left and failed:
        found |= {name: judges[name](ALPHA / len(left)) for name in left}
        failed = any(found[name].verdict == "fail" for name in left)
        left = [name for name in left if found[name].verdict != "fail"]
    return [found[name] for name in judges]


def _shown(verdict: MetricVerdict) -> MetricVerdict:
    """Return the numbers of a metric that does not decide."""
    findings = tuple(finding for finding in verdict.findings if finding.code == "metric-shown")
    return replace(verdict, verdict="shown", decides=False, findings=findings, more_jobs=0)


def _by_spec(verdict: MetricVerdict, rule: MetricRule) -> MetricVerdict:
    """Return the verdict by what the site expects alone; a metric of which it expects nothing is only shown."""
    if verdict.below_spec:
        return verdict
    if rule.spec is None:
        shown = Finding("metric-shown", Severity.INFO, "no baseline, and the site expects no number")
        return replace(verdict, findings=(shown,))
    message = f"{figure(verdict.after)} is within what the site expects, {figure(rule.spec)}"
    return replace(verdict, verdict="pass", findings=(Finding("metric-fine", Severity.INFO, message),))


def _overall(
    gates: Sequence[GateVerdict],
    metrics: Sequence[MetricVerdict],
    slow: Sequence[SlowNode],
    *,
    spoiled: bool,
    alone: bool,
) -> State:
    """Return the worst of what bad nodes do not explain; `spoiled`: no job ran without them.

    Without a baseline by intent (`alone`), gates that passed are enough.
    """
    deciding = [metric.verdict for metric in metrics if metric.decides and not metric.on_slow_nodes]
    counted = [gate for gate in gates if not gate.follows and (gate.runs or not spoiled)]
    states = {*deciding, *(gate.verdict for gate in counted)}
    if "fail" in states:
        return "fail"
    if states & {"unconfirmed", "inconclusive"}:
        return "inconclusive"
    if slow or "bad-nodes" in states:
        return "bad-nodes"
    if not deciding and (not gates or (not metrics and not alone)):
        return "inconclusive"
    return "warn" if "warn" in states else "pass"


def _drain(gates: Sequence[GateVerdict], slow_nodes: Sequence[SlowNode]) -> tuple[str, ...]:
    """Return the commands that drain bad nodes; a node that only one value calls slow is to be measured again first."""
    reasons: dict[str, dict[str, None]] = {}
    for gate in gates:
        for cause in gate.causes:
            words = cause.cause if gate.gate == NODE else f"{gate.gate}: {cause.cause}"
            for node in {*cause.nodes} & {*gate.nodes}:
                reasons.setdefault(node, {})[words] = None
    for slow in slow_nodes:
        if slow.values >= LEAST_VALUES:
            reasons.setdefault(slow.node, {})[f"slow by {slow.metric}"] = None
    alike: dict[str, list[str]] = {}
    for node, words_of_node in sorted(reasons.items()):
        reason = shorten("; ".join(words_of_node), DRAIN_REASON_LENGTH, placeholder=" ...")
        alike.setdefault(reason, []).append(node)
    return tuple(drain_command(nodes, reason) for reason, nodes in alike.items())
