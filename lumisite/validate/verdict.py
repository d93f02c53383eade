"""Decide from samples before and after a change whether the system became slower: a pure function of the samples.

The unit is one job: jobs repeat what a user meets, steps of one job do not. The size of a change is the logarithm of
the ratio of medians, signed so that negative is worse. A metric has regressed where the drop is larger than
`max(threshold, k x noise)`, with the noise measured before, and the exact one-sided Mann-Whitney test gives p < 0.01,
or where the median dropped by more than 20 % whatever p says. The first five jobs after the change decide; five later
ones on other nodes must confirm, pooled with the first. docs/explanation/verdict.md says why, and how much this finds.
"""

from __future__ import annotations

import math
import shlex
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from lumisite.validate.samples import Series
from lumisite.validate.verdict_nodes import SlowNode, is_per_node, job_value, slow_nodes
from lumisite.validate.verdict_stats import least_chance, lower_tail, needed, spread

if TYPE_CHECKING:
    from typing import TypeAlias

State: TypeAlias = Literal["pass", "warn", "fail", "unconfirmed", "inconclusive"]
Overall: TypeAlias = Literal["pass", "warn", "fail", "inconclusive", "slow-nodes"]

#: Chance of error of the rank test.
ALPHA = 0.01
#: A larger drop of the median than this is a failure whatever the test says.
FLOOR_DROP = 0.20
#: Noise is taken to be at least this large, and a metric with more than NOISE_LIMIT decides nothing but large drops.
NOISE_FLOOR = 0.005
NOISE_LIMIT = 0.05
#: Jobs after the change that decide, and as many later ones that confirm.
DECIDING = 5
#: Fewer jobs than these decide nothing, even where the test could.
LEAST_AFTER = 3
LEAST_BEFORE = 4
#: Jobs before the change below which a verdict says that it stands on little.
GOOD_BEFORE = 10


@dataclass(frozen=True)
class Method:
    """What may be set: `k` times the noise, or `threshold`, must be exceeded; both in logarithms (0.05: 5 %)."""

    k: float = 3.0
    threshold: float = 0.05


@dataclass(frozen=True)
class MetricVerdict:
    """One metric, judged.

    `before` and `after` are medians over jobs; `change` is negative for worse, whatever `better` is (-0.1: a tenth less
    speed); `limit` is the drop that counts, `noise` that of one job, both as parts; `p` of the jobs that decided.
    """

    metric: str
    better: str
    verdict: State
    reason: str
    before: float | None = None
    after: float | None = None
    jobs_before: int = 0
    jobs_after: int = 0
    change: float | None = None
    noise: float | None = None
    limit: float | None = None
    p: float | None = None
    improved: bool = False
    confirmed: bool = False
    on_slow_nodes: bool = False


@dataclass(frozen=True)
class SystemVerdict:
    """All metrics, the slow nodes, and what to run next; `drain` is a command to read, never to run by itself."""

    verdict: Overall
    exit_code: int
    metrics: tuple[MetricVerdict, ...]
    slow_nodes: tuple[SlowNode, ...]
    drain: str | None
    next_runs: tuple[str, ...]


@dataclass(frozen=True)
class _Unit:
    """One job's number; `sign` is -1 where lower is better."""

    value: float
    sign: int
    nodes: frozenset[str]

    @property
    def score(self) -> float:
        """Its logarithm, higher for better."""
        return self.sign * math.log(self.value)


@dataclass(frozen=True)
class _Comparison:
    """Jobs after against jobs before; `change` and `limit` are logarithms."""

    change: float
    limit: float
    p: float

    @property
    def large(self) -> bool:
        """Whether the drop is larger than noise and threshold."""
        return self.change < -self.limit

    @property
    def unlikely(self) -> bool:
        """Whether the order of values is no chance."""
        return self.p < ALPHA

    @property
    def floor(self) -> bool:
        """Whether the drop is so large that no test is asked."""
        return self.change < math.log(1 - FLOOR_DROP)

    @property
    def regressed(self) -> bool:
        """Whether this is a regression, to be confirmed."""
        return self.floor or (self.large and self.unlikely)


def judge_system(before: Mapping[str, Series], after: Mapping[str, Series], method: Method) -> SystemVerdict:
    """Judge every metric that either side has. The order of samples does not matter."""
    slow_before = frozenset(slow.node for slow in slow_nodes(before.values()))
    slow = slow_nodes(after.values())
    slow_after = frozenset(one.node for one in slow)
    metrics = []
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        if old and new and old.better == new.better:
            metrics.append(judge_metric(old, new, method, slow_before, slow_after))
        elif old and new:
            reason = f"{old.better} is better before and {new.better} after"
            metrics.append(MetricVerdict(name, new.better, "inconclusive", reason))
        else:
            have = old or new
            assert have is not None
            reason = f"not measured {'after' if old else 'before'}"
            metrics.append(MetricVerdict(name, have.better, "inconclusive", reason))
    overall, code = _overall(metrics, slow)
    return SystemVerdict(
        overall, code, tuple(metrics), slow, _drain(slow), tuple(_next_runs(metrics, after, slow_after))
    )


def judge_metric(
    before: Series,
    after: Series,
    method: Method,
    slow_before: frozenset[str] = frozenset(),
    slow_after: frozenset[str] = frozenset(),
) -> MetricVerdict:
    """Judge one metric; jobs on slow nodes are left out where enough others are there."""
    if is_per_node(before) or is_per_node(after):
        return _judge_units(after, _units(before), _units(after), method, per_node=True)
    units = _without(_units(after), slow_after)
    verdict = _judge_units(after, _without(_units(before), slow_before), units, method)
    on_slow = sum(not unit.nodes.isdisjoint(slow_after) for unit in units[:DECIDING])
    if on_slow and verdict.verdict in ("fail", "unconfirmed", "warn"):
        reason = f"{verdict.reason}; but {on_slow} of the deciding jobs ran on slow nodes"
        return replace(verdict, verdict="inconclusive", reason=reason, confirmed=False, on_slow_nodes=True)
    return verdict


def _units(series: Series) -> list[_Unit]:
    sign = 1 if series.better == "higher" else -1
    return [_Unit(job_value(job), sign, job.nodes) for job in series.jobs]


def _without(units: list[_Unit], slow: frozenset[str]) -> list[_Unit]:
    kept = [unit for unit in units if unit.nodes.isdisjoint(slow)]
    return kept if len(kept) >= min(DECIDING, len(units)) else units


def _judge_units(
    series: Series, before: Sequence[_Unit], after: Sequence[_Unit], method: Method, *, per_node: bool = False
) -> MetricVerdict:
    deciding, later = after[:DECIDING], after[DECIDING:]
    noise = spread([unit.score for unit in before], NOISE_FLOOR)
    limit = max(method.threshold, method.k * noise)
    first = _compare(before, deciding, limit)
    confirmed = False
    if per_node and not _enough(before, deciding):
        state, reason = _judge_few_node_runs(first)
    elif first.regressed and (first.floor or _enough(before, deciding)):
        state, reason = _confirm(before, deciding, later, first)
        confirmed = state == "fail"
    elif not _enough(before, deciding):
        state, reason = "inconclusive", _too_few(len(before), len(deciding))
    else:
        state, reason = _judge_quiet(first, noise, len(before))
    return MetricVerdict(
        metric=series.metric,
        better=series.better,
        verdict=state,
        reason=reason,
        before=statistics.median(unit.value for unit in before),
        after=statistics.median(unit.value for unit in deciding),
        jobs_before=len(before),
        jobs_after=len(after),
        change=_rounded(math.expm1(first.change)),
        noise=_rounded(noise),
        limit=_rounded(-math.expm1(-limit)),
        p=_rounded(first.p),
        improved=first.change > limit,
        confirmed=confirmed,
    )


def _compare(before: Sequence[_Unit], after: Sequence[_Unit], limit: float) -> _Comparison:
    """Compare medians of values, as they are reported; those of logarithms differ a little for an even number."""
    old, new = (statistics.median(unit.value for unit in units) for units in (before, after))
    p = lower_tail([unit.score for unit in after], [unit.score for unit in before])
    return _Comparison(before[0].sign * (math.log(new) - math.log(old)), limit, float(p))


def _enough(before: Sequence[_Unit], after: Sequence[_Unit]) -> bool:
    few = len(after) < LEAST_AFTER or len(before) < LEAST_BEFORE
    return not few and least_chance(len(after), len(before)) < ALPHA


def _too_few(before: int, after: int) -> str:
    ways = []
    if before >= LEAST_BEFORE:
        ways.append(f"{max(LEAST_AFTER, needed(before, ALPHA))} jobs after")
    if after >= LEAST_AFTER:
        ways.append(f"{max(LEAST_BEFORE, needed(after, ALPHA))} jobs before")
    ways.append(f"best {DECIDING} after and {GOOD_BEFORE} before")
    return f"too few jobs, {after} after and {before} before, to reach p < {ALPHA:g}: needs {' or '.join(ways)}"


def _judge_quiet(first: _Comparison, noise: float, before: int) -> tuple[State, str]:
    """Judge what is no regression."""
    detectable = _percent(math.expm1(-first.limit))
    if noise > NOISE_LIMIT:
        return "inconclusive", f"too noisy, {_percent(noise)} from job to job, to see a drop below {detectable}"
    drop = _percent(math.expm1(first.change))
    if first.large:
        return "warn", f"slower by {drop}, but p = {first.p:.2g} may be chance"
    if first.unlikely and first.change < 0:
        return "warn", f"slower by {drop} with p = {first.p:.2g}, but a drop counts from {detectable}"
    if first.change > first.limit:
        return "pass", f"faster by {drop}: a better system, or a broken benchmark"
    few = f"; {before} jobs before are few, {GOOD_BEFORE} are right" if before < GOOD_BEFORE else ""
    return "pass", f"no drop of {detectable} or more{few}"


def _judge_few_node_runs(first: _Comparison) -> tuple[State, str]:
    """Judge a metric of nodes that was run too seldom for the test: what all nodes lose is no fault of one node."""
    if first.large:
        drop = _percent(math.expm1(first.change))
        return "inconclusive", f"all nodes together are slower by {drop}: the system, not a node; needs more runs"
    return "pass", f"the median of all nodes has not dropped by {_percent(math.expm1(-first.limit))}"


def _confirm(
    before: Sequence[_Unit], deciding: Sequence[_Unit], later: Sequence[_Unit], first: _Comparison
) -> tuple[State, str]:
    what = f"slower by {_percent(math.expm1(first.change))}, p = {first.p:.2g}"
    confirming = _confirming(deciding, later)
    if len(confirming) < DECIDING:
        return "unconfirmed", f"{what}; {len(confirming)} of {DECIDING} jobs on other nodes are there to confirm it"
    pooled = _compare(before, [*deciding, *confirming], first.limit)
    again = f"{_percent(math.expm1(pooled.change))}, p = {pooled.p:.2g} with {DECIDING} more jobs"
    if pooled.regressed:
        return "fail", f"{what}; confirmed: {again}"
    return "warn", f"{what}; not confirmed: {again}"


def _confirming(deciding: Sequence[_Unit], later: Sequence[_Unit]) -> list[_Unit]:
    """Pick the later jobs that share no node with some job that decided, so that no one node can have slowed both."""
    return [job for job in later if any(job.nodes.isdisjoint(first.nodes) for first in deciding)][:DECIDING]


def _overall(metrics: Sequence[MetricVerdict], slow: Sequence[SlowNode]) -> tuple[Overall, int]:
    states = {metric.verdict for metric in metrics}
    if "fail" in states:
        return "fail", 1
    if not states or states & {"unconfirmed", "inconclusive"}:
        return "inconclusive", 4
    if slow:
        return "slow-nodes", 5
    return ("warn" if "warn" in states else "pass"), 0


def _drain(slow: Sequence[SlowNode]) -> str | None:
    if not slow:
        return None
    nodes = ",".join(sorted({one.node for one in slow}))
    reason = f"lumisite: slow by {', '.join(sorted({one.metric for one in slow}))}"
    return f"scontrol update nodename={nodes} state=drain reason={shlex.quote(reason)}"


def _next_runs(metrics: Sequence[MetricVerdict], after: Mapping[str, Series], slow: frozenset[str]) -> Iterator[str]:
    """Say which jobs are missing, metrics with the same need together."""
    wanted: dict[tuple[int, tuple[str, ...]], list[str]] = {}
    for metric in metrics:
        if metric.verdict == "unconfirmed":
            units = _without(_units(after[metric.metric]), slow)
            avoid = frozenset(node for unit in units[:DECIDING] for node in unit.nodes) | slow
            count = DECIDING - len(_confirming(units[:DECIDING], units[DECIDING:]))
        elif metric.verdict == "inconclusive" and metric.jobs_before >= LEAST_BEFORE and metric.jobs_after < DECIDING:
            avoid, count = slow, DECIDING - metric.jobs_after
        elif metric.on_slow_nodes:
            avoid, count = slow, DECIDING
        else:
            continue
        wanted.setdefault((count, tuple(sorted(avoid))), []).append(metric.metric)
    for (count, avoid_names), names in sorted(wanted.items()):
        others = f" on nodes other than {_some(avoid_names)}" if avoid_names else ""
        yield f"run {count} more job{'s' if count > 1 else ''} of {', '.join(names)}{others}"


def _some(names: Sequence[str]) -> str:
    return ",".join(names) if len(names) <= 16 else f"{','.join(names[:16])} and {len(names) - 16} more"


def _percent(part: float) -> str:
    return f"{abs(part):.1%}".replace("%", " %")


def _rounded(number: float) -> float:
    """Round to six digits, so that a comparison of outputs compares results."""
    return float(f"{number:.6g}")
