"""Judge one metric: its jobs after a change against its jobs before it.

The unit is one job: jobs repeat what a user meets, steps of one job do not. The size of a change is the logarithm of
the ratio of medians, signed so that negative is worse. A metric has regressed where the drop is larger than
`max(threshold, k x noise)`, with the noise measured before, and the exact one-sided Mann-Whitney test gives p < 0.01,
or where the median dropped by more than 20 % or below a part of what the site expects, whatever p says. The first five
jobs after the change decide; five later ones on other nodes must confirm, pooled with the first.
docs/explanation/verdict.md says why, and how much this finds.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from lumisite.findings.catalogue import make_finding
from lumisite.findings.finding import Finding
from lumisite.findings.writers import sentences
from lumisite.site.model import MetricRule
from lumisite.validate.lines import Better, State
from lumisite.validate.probes.probe import rounded
from lumisite.validate.samples import Series
from lumisite.validate.verdict.nodes import is_per_node, job_value
from lumisite.validate.verdict.stats import (
    ALPHA,
    FLOOR_DROP,
    NOISE_FLOOR,
    judge_noisy,
    least_chance,
    lower_tail,
    needed,
    spread,
)

#: A metric with more noise decides nothing but large drops.
NOISE_LIMIT = 0.05
#: Jobs after the change that decide, and as many later ones that confirm.
DECIDING = 5
#: Fewer jobs than these decide nothing, even where the test could.
LEAST_AFTER = 3
LEAST_BEFORE = 4
#: Jobs before the change below which a verdict says that it stands on little.
GOOD_BEFORE = 10


@dataclass(frozen=True)
class MetricVerdict:
    """One metric, judged.

    `before` and `after` are medians over jobs; `change` is negative for worse, whatever `better` is (-0.1: a tenth less
    speed); `limit` is the drop that counts, `noise` that of one job, both as parts; `p` of the jobs that decided.
    `more_jobs` on other nodes than `avoid` are missing for a decision.
    """

    metric: str
    better: Better
    verdict: State
    findings: tuple[Finding, ...]
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
    decides: bool = True
    spec: float | None = None
    below_spec: bool = False
    unit: str = ""
    more_jobs: int = 0
    avoid: tuple[str, ...] = ()
    hunt: tuple[str, ...] = ()
    """Nodes among which a slow one is, where jobs on some of their sets are far slower than on the others."""

    @property
    def reason(self) -> str:
        """The findings in words."""
        return sentences(self.findings)


@dataclass(frozen=True)
class _Unit:
    """One job's number; `sign` is -1 where lower is better."""

    value: float
    sign: int
    nodes: frozenset[str]

    @cached_property
    def score(self) -> float:
        """Its logarithm, higher for better."""
        return self.sign * math.log(self.value)


@dataclass(frozen=True)
class _Comparison:
    """Jobs after against jobs before; `change` and `limit` are logarithms, `missed` is the expectation that it misses.

    In noise (`noisy`) a median moves by chance, however far. A drop is `large` beyond noise and threshold, `unlikely`
    where the order of values is no chance; beyond the `floor` no test is asked, but in noise. What has `regressed` is
    to be confirmed.
    """

    change: float
    limit: float
    p: float
    missed: Finding | None
    noisy: bool
    large: bool
    unlikely: bool
    floor: bool
    regressed: bool

    @property
    def drop(self) -> float:
        """The part by which it is worse."""
        return -math.expm1(self.change)


def judge_metric(
    before: Series | Finding,
    after: Series,
    rule: MetricRule,
    slow_before: frozenset[str] = frozenset(),
    slow_after: frozenset[str] = frozenset(),
) -> MetricVerdict:
    """Judge one metric; jobs on slow nodes are left out where enough others are there.

    `before` may be why there are no jobs to compare with: only the site's own expectation can fail it then.
    """
    missing, old = (before, []) if isinstance(before, Finding) else (None, _units(before))
    if is_per_node(after) or (isinstance(before, Series) and is_per_node(before)):
        return _judge_units(after, old, _units(after), rule, missing, per_node=True)
    units = _without(_units(after), slow_after)
    verdict = _judge_units(after, _without(old, slow_before), units, rule, missing)
    if missing and not verdict.below_spec:
        return verdict
    if (left_out := _on_slow(verdict, units, slow_after)).on_slow_nodes:
        return left_out
    noisy = verdict.noise is not None and verdict.noise > NOISE_LIMIT
    if (verdict.verdict != "inconclusive" or noisy) and verdict.limit is not None:
        counted = [*units[:DECIDING], *(_confirming(units) if verdict.confirmed else ())]
        slow, fine = _sides(old, counted, math.log1p(-verdict.limit))
        if slow and fine:
            only_slow = make_finding("metric-slow-nodes-only", slow=tuple(sorted(slow)), fine=tuple(sorted(fine)))
            return replace(_open(verdict, only_slow), hunt=tuple(sorted({*slow, *fine})))
    return replace(verdict, avoid=tuple(sorted({*verdict.avoid, *slow_after}))) if verdict.more_jobs else verdict


def _open(verdict: MetricVerdict, why: Finding) -> MetricVerdict:
    """Return the verdict without a decision."""
    findings = (*verdict.findings, why)
    return replace(verdict, verdict="inconclusive", findings=findings, confirmed=False, more_jobs=0, avoid=())


def _on_slow(verdict: MetricVerdict, units: Sequence[_Unit], slow: frozenset[str]) -> MetricVerdict:
    """Return the verdict without a decision where jobs ran on bad nodes and did not pass."""
    count = sum(not unit.nodes.isdisjoint(slow) for unit in units[:DECIDING])
    if not count or verdict.verdict == "pass":
        return verdict
    undecided = _open(verdict, make_finding("metric-on-bad-nodes", jobs=count))
    return replace(undecided, on_slow_nodes=True, more_jobs=DECIDING, avoid=tuple(sorted(slow)))


def _sides(before: Sequence[_Unit], after: Sequence[_Unit], least: float) -> tuple[frozenset[str], frozenset[str]]:
    """Return the nodes of sets that are slower by the floor, and those that have not lost half of what counts.

    What changed for the system changed for all of it. Both are empty where a set is neither. In a slow set all jobs
    are slow, and there is more than one: some run is always a stray.
    """
    groups: list[tuple[frozenset[str], list[_Unit]]] = []
    for unit in after:
        joined = [group for group in groups if not group[0].isdisjoint(unit.nodes)]
        nodes = unit.nodes.union(*(group[0] for group in joined))
        groups = [group for group in groups if group not in joined]
        groups.append((nodes, [unit, *(other for group in joined for other in group[1])]))
    middle = statistics.median(unit.score for unit in before)
    slow, fine = set[str](), set[str]()
    for nodes, units in groups:
        changes = [unit.score - middle for unit in units]
        if max(changes) < min(math.log(1 - FLOOR_DROP), least) and len(units) > 1:
            slow |= nodes
        elif statistics.median(changes) > least / 2:
            fine |= nodes
        else:
            return frozenset(), frozenset()
    return frozenset(slow), frozenset(fine)


def _units(series: Series) -> list[_Unit]:
    sign = 1 if series.better == "higher" else -1
    return [_Unit(job_value(job, series.better), sign, job.nodes) for job in series.jobs]


def _without(units: list[_Unit], slow: frozenset[str]) -> list[_Unit]:
    kept = [unit for unit in units if unit.nodes.isdisjoint(slow)]
    return kept if len(kept) >= min(DECIDING, len(units)) else units


def _judge_units(
    series: Series,
    before: Sequence[_Unit],
    after: Sequence[_Unit],
    rule: MetricRule,
    missing: Finding | None,
    *,
    per_node: bool = False,
) -> MetricVerdict:
    """Judge, with how many jobs are missing and which nodes they should not run on."""
    noise = spread([unit.score for unit in before]) if before else NOISE_FLOOR
    deciding, limit = after[:DECIDING], max(rule.threshold, rule.k * noise)
    first = _compare(before, deciding, limit, rule, noisy=noise > NOISE_LIMIT)
    state: State = "inconclusive"
    findings: tuple[Finding, ...]
    more, avoid = 0, set[str]()
    if missing and not first.missed:
        findings = (missing,)
    elif per_node and not _enough(before, deciding) and not first.missed:
        state, findings = _judge_few_node_runs(first)
    elif first.regressed and (first.floor or _enough(before, deciding)):
        state, findings = _confirm(before, after, first, rule)
    elif not _enough(before, deciding):
        findings = (_too_few(len(before), len(deciding)),)
    else:
        state, found, more = _judge_quiet(first, noise, before, after)
        findings = (found,)
    if state == "unconfirmed":
        more, avoid = DECIDING - len(_confirming(after)), avoid.union(*(unit.nodes for unit in deciding))
    elif state == "inconclusive" and len(before) >= LEAST_BEFORE:
        more = more or DECIDING - len(deciding)
    verdict = MetricVerdict(
        metric=series.metric,
        better=series.better,
        verdict=state,
        findings=findings,
        after=statistics.median(unit.value for unit in deciding),
        jobs_before=len(before),
        jobs_after=len(after),
        confirmed=state == "fail",
        decides=rule.decides,
        spec=rule.spec,
        below_spec=first.missed is not None,
        unit=series.unit,
        more_jobs=more,
        avoid=tuple(sorted(avoid)),
    )
    if not before:
        return verdict
    return replace(
        verdict,
        before=statistics.median(unit.value for unit in before),
        # In six digits, so that a comparison of outputs compares results.
        change=rounded(math.expm1(first.change), 6),
        noise=rounded(noise, 6),
        limit=rounded(-math.expm1(-limit), 6),
        p=rounded(first.p, 6),
        improved=first.change > limit,
    )


def _compare(
    before: Sequence[_Unit], after: Sequence[_Unit], limit: float, rule: MetricRule, *, noisy: bool
) -> _Comparison:
    """Compare medians of values, as they are reported; those of logarithms differ a little for an even number.

    Without jobs before, nothing has changed.
    """
    change, p = 0.0, 1.0
    if before:
        old, new = (statistics.median(unit.value for unit in units) for units in (before, after))
        change = before[0].sign * (math.log(new) - math.log(old))
        p = float(lower_tail([unit.score for unit in after], [unit.score for unit in before]))
    missed, large, unlikely = _missed_spec(after, rule), change < -limit, p < ALPHA
    floor = missed is not None or (change < math.log(1 - FLOOR_DROP) and (unlikely or not noisy))
    return _Comparison(change, limit, p, missed, noisy, large, unlikely, floor, regressed=floor or (large and unlikely))


def _missed_spec(units: Sequence[_Unit], rule: MetricRule) -> Finding | None:
    """Return that the median misses the site's expectation, if it does."""
    if rule.spec is None:
        return None
    value, higher = statistics.median(unit.value for unit in units), units[0].sign > 0
    bound = rule.spec * rule.floor if higher else rule.spec / rule.floor
    if higher == (value < bound) and value != bound:
        code = "metric-below-spec" if higher else "metric-above-spec"
        return make_finding(code, after=value, bound=bound, spec=rule.spec)
    return None


def _enough(before: Sequence[_Unit], after: Sequence[_Unit]) -> bool:
    few = len(after) < LEAST_AFTER or len(before) < LEAST_BEFORE
    return not few and least_chance(len(after), len(before)) < ALPHA


def _too_few(before: int, after: int) -> Finding:
    return make_finding(
        "metric-few-jobs",
        alpha=ALPHA,
        jobs_after=after,
        jobs_before=before,
        needed_after=max(LEAST_AFTER, needed(before, ALPHA)) if before >= LEAST_BEFORE else None,
        needed_before=max(LEAST_BEFORE, needed(after, ALPHA)) if after >= LEAST_AFTER else None,
        best_after=DECIDING,
        best_before=GOOD_BEFORE,
    )


def _judge_quiet(
    first: _Comparison, noise: float, before: Sequence[_Unit], after: Sequence[_Unit]
) -> tuple[State, Finding, int]:
    """Judge what is no regression, with how many more jobs would settle it."""
    if first.noisy:
        undecided = judge_noisy(noise, [unit.score for unit in before], [unit.score for unit in after])
        if undecided is not None:
            return undecided
    detectable = FLOOR_DROP if first.noisy else -math.expm1(-first.limit)
    if first.large and not first.noisy:
        return "warn", make_finding("metric-maybe-chance", drop=first.drop, p=first.p), 0
    if first.unlikely and first.change < 0:
        return "warn", make_finding("metric-small-drop", drop=first.drop, p=first.p, limit=detectable), 0
    if first.change > first.limit:
        return "pass", make_finding("metric-faster", gain=math.expm1(first.change)), 0
    steady = make_finding(
        "metric-steady",
        detectable=detectable,
        noise=noise if first.noisy else None,
        few=len(before) if len(before) < GOOD_BEFORE else None,
        recommended=GOOD_BEFORE,
    )
    return "pass", steady, 0


def _judge_few_node_runs(first: _Comparison) -> tuple[State, tuple[Finding, ...]]:
    """Judge a metric of nodes that was run too seldom for the test: what all nodes lose is no fault of one node."""
    if first.large:
        return "inconclusive", (make_finding("metric-nodes-slower", drop=first.drop),)
    return "pass", (make_finding("metric-nodes-steady", limit=-math.expm1(-first.limit)),)


def _confirm(
    before: Sequence[_Unit], after: Sequence[_Unit], first: _Comparison, rule: MetricRule
) -> tuple[State, tuple[Finding, ...]]:
    slower = make_finding("metric-slower", drop=first.drop, p=first.p)
    findings = [first.missed or slower]
    if first.missed and before and _missed_spec(before, rule):
        findings.append(make_finding("metric-spec-missed-before"))
    elif first.missed and first.large:
        findings.append(slower)
    confirming = _confirming(after)
    if len(confirming) < DECIDING:
        findings.append(make_finding("metric-unconfirmed", jobs=len(confirming), needed=DECIDING))
        return "unconfirmed", tuple(findings)
    pooled = _compare(before, [*after[:DECIDING], *confirming], first.limit, rule, noisy=first.noisy)
    drop = (pooled.drop, pooled.p) if before and not pooled.missed else (None, None)
    code = "metric-confirmed" if pooled.regressed else "metric-refuted"
    findings.append(make_finding(code, jobs=DECIDING, drop=drop[0], p=drop[1]))
    return "fail" if pooled.regressed else "warn", tuple(findings)


def _confirming(units: Sequence[_Unit]) -> list[_Unit]:
    """Pick the later jobs that share no node with some job that decided, so that no one node can have slowed both."""
    deciding, later = units[:DECIDING], units[DECIDING:]
    return [job for job in later if any(job.nodes.isdisjoint(first.nodes) for first in deciding)][:DECIDING]
