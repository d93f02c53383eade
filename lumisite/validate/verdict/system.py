"""Decide from samples and gates before and after a change whether the system still works as well as before.

A pure function: the same lines give the same verdict, in whatever order they come. Hard gates come first, then the
metrics that decide (`deciding`) by the method in `metric`, then single nodes among the others. All deciding metrics
share one chance of error, by the method of Holm. docs/explanation/verdict.md says why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from itertools import chain
from textwrap import shorten

from lumisite.findings import writers
from lumisite.findings.exit_code import verdict_exit_code
from lumisite.findings.finding import Finding, Severity
from lumisite.site.scalars import Line
from lumisite.site.validation import MetricRule, Validation
from lumisite.text import drain_command, figure, some
from lumisite.validate.lines import State
from lumisite.validate.probes.probe import NODE
from lumisite.validate.samples import Recorded, metric_order
from lumisite.validate.verdict.baseline import comparable
from lumisite.validate.verdict.deciding_metrics import decides
from lumisite.validate.verdict.gates import GateVerdict, judge_gates, nodes_of_runs
from lumisite.validate.verdict.metric import MetricVerdict, judge_metric
from lumisite.validate.verdict.slow_nodes import LEAST_VALUES, SlowNode, slow_nodes
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
    """All gates and metrics, the nodes that are not as the others, and doubts about what was compared.

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
        """The doubts in words."""
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
    names = sorted({*before.series, *after.series}, key=metric_order)
    compared = {
        name: comparable(before.series.get(name), series, allow_image_change=terms.allow_image_change)
        for name, series in after.series.items()
    }

    def judge(name: str, alpha: float) -> MetricVerdict:
        if name not in compared:
            gone = Finding("metric-unmeasured", Severity.DOUBT, "not measured after", "run its probe (`--probe NAME`)")
            return MetricVerdict(name, before.series[name].better, "inconclusive", (gone,))
        rule = terms.rule(name)
        verdict = judge_metric(compared[name][0], after.series[name], rule, slow_before, bad, alpha=alpha)
        return _by_spec(verdict, rule) if alone else verdict

    deciding = [
        name for name in names if decides(name, terms.deciding) and not (alone and terms.rule(name).spec is None)
    ]
    judged = _share_chance(deciding, judge)
    judged |= {name: _shown(judge(name, ALPHA)) for name in names if name not in judged}
    runs = nodes_of_runs(chain(after.gates, *(series.jobs for series in after.series.values())))
    spoiled = bool(bad) and all(not nodes.isdisjoint(bad) for nodes in runs.values())
    if bad:
        # What no job without a bad node has measured says nothing of the system.
        unknown = [name for name in names if not before.series or (spoiled and name not in after.series)]
        judged |= {name: replace(judged[name], on_slow_nodes=True) for name in unknown}
    metrics = tuple(judged[name] for name in names)
    verdict = _overall(gates, metrics, slow, spoiled=spoiled, alone=alone)
    doubts: dict[Finding, list[str]] = {}
    for name in names:
        if name in compared and (doubt := compared[name][1]):
            doubts.setdefault(doubt, []).append(name)
    of_whom = ("" if len(of) == len(names) else some(of, MOST_NAMES) for of in doubts.values())
    notes = tuple(replace(doubt, subject=subject) for doubt, subject in zip(doubts, of_whom, strict=True))
    return SystemVerdict(verdict, gates, metrics, slow, _drain(gates, slow), notes)


def as_json(verdict: SystemVerdict) -> dict[str, object]:
    """Return a verdict for JSON, with its findings in words."""
    found = {"verdict": verdict.verdict, "exit_code": verdict.exit_code} | asdict(verdict) | {"notes": verdict.notes}
    del found["doubts"]
    parts: list[GateVerdict | MetricVerdict] = [*verdict.gates, *verdict.metrics]
    for row, part in zip((*found["gates"], *found["metrics"]), parts, strict=True):
        row["reason"] = part.reason
        row["findings"] = [writers.as_json(finding) for finding in part.findings]
    return found


def _share_chance(names: Sequence[str], judge: Callable[[str, float], MetricVerdict]) -> dict[str, MetricVerdict]:
    """Judge the metrics that decide so that one chance of error holds for all of them (Holm, 1979).

    They share it; those that fail at their share are set aside, and the others share it among themselves.
    """
    found: dict[str, MetricVerdict] = {}
    left = list(names)
    while left:
        found |= {name: judge(name, ALPHA / len(left)) for name in left}
        others = [name for name in left if found[name].verdict != "fail"]
        if others == left:
            break
        left = others
    return found


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
