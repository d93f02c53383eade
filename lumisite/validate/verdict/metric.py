"""Judge one metric: its jobs after a change against its jobs before it.

The unit is one job: jobs repeat what a user meets, steps of one job do not. The size of a change is the median ratio of
a job after to a job before, signed so that negative is worse; the noise is that of jobs of one side. There are two
looks. The first five jobs after the change can only raise a suspicion; five later ones on other nodes must confirm it,
pooled with the first. All of the metric's chance of error is spent on that second look, and later jobs change nothing.
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
    WARN_ALPHA,
    judge_noisy,
    limit_in_noise,
    lower_tail,
    noise_of_jobs,
    shift,
)

#: A metric with more noise decides nothing but large drops.
NOISE_LIMIT = 0.05
#: Jobs after the change that decide, and as many later ones that confirm.
DECIDING = 5
#: Fewer jobs than these decide nothing, however far apart they are: the spread of fewer is none.
LEAST_AFTER = 3
LEAST_BEFORE = 4
#: At the first look a drop of so many times the noise is suspected.
SUSPECTED = 1.7
#: Jobs before the change below which a verdict says that it stands on little.
GOOD_BEFORE = 10


@dataclass(frozen=True)
class MetricVerdict:
    """One metric, judged.

    `before` and `after` are medians over jobs; `change` is negative for worse, whatever `better` is (-0.1: a tenth less
    speed); `limit` is the drop that counts, `noise` that of one job, both as parts; `p` is that of all jobs that were
    compared. Without enough jobs there are neither. What does not decide is `shown`, and never judged.
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
    jobs_compared: int = 0
    """Jobs after that were compared: those of the first look, or of both."""
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
    """Jobs after against jobs before: change, noise and limit are logarithms.

    In noise (`noisy`) a median moves by chance, however far. A drop is `large` beyond the limit.
    """

    change: float
    noise: float
    limit: float
    p: float

    @property
    def drop(self) -> float:
        """The part by which it is worse."""
        return -math.expm1(self.change)

    @property
    def noisy(self) -> bool:
        """Whether jobs differ too much for a small drop to be seen."""
        return self.noise > NOISE_LIMIT

    @property
    def large(self) -> bool:
        """Whether the drop counts."""
        return self.change < -self.limit

    @property
    def below_floor(self) -> bool:
        """Whether the drop is so large that no test is asked, but in noise."""
        return self.change < math.log(1 - FLOOR_DROP) and not self.noisy

    def regressed(self, alpha: float) -> bool:
        """Return whether the drop counts and is no chance."""
        return self.large and (self.below_floor or self.p < alpha)


def judge_metric(
    before: Series | Finding,
    after: Series,
    rule: MetricRule,
    slow_before: frozenset[str] = frozenset(),
    slow_after: frozenset[str] = frozenset(),
    *,
    alpha: float = ALPHA,
) -> MetricVerdict:
    """Judge one metric at its chance of error; jobs on slow nodes are left out where enough others are there.

    `before` may be why there are no jobs to compare with: only the site's own expectation can fail it then.
    """
    missing, old = (before, []) if isinstance(before, Finding) else (None, _units(before))
    if is_per_node(after) or (isinstance(before, Series) and is_per_node(before)):
        return _judge_units(after, old, _units(after), rule, missing, alpha, per_node=True)
    units = _without(_units(after), slow_after)
    verdict = _judge_units(after, _without(old, slow_before), units, rule, missing, alpha)
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
    alpha: float,
    *,
    per_node: bool = False,
) -> MetricVerdict:
    """Judge, with how many jobs are missing and which nodes they should not run on."""
    deciding, confirming = after[:DECIDING], _confirming(after)
    missed = _missed_spec(deciding, rule)
    compared = deciding
    found: _Comparison | None = None
    state: State = "inconclusive"
    findings: tuple[Finding, ...]
    decides, more, avoid = True, 0, set[str]()
    if _enough(before, deciding):
        found = _compare(before, deciding, rule, SUSPECTED)
    if missing and not missed:
        findings = (missing,)
    elif missed or (found and found.large):
        state, findings, pooled = _confirm(before, deciding, confirming, found, missed, rule, alpha)
        if state != "unconfirmed":
            compared = [*deciding, *confirming]
        found = pooled or found
        if pooled and pooled.noisy and state in ("pass", "warn"):
            # What is not confirmed is not excluded either, in noise.
            left_open, quiet, more = _judge_quiet(pooled, before, after)
            if left_open == "inconclusive":
                state, findings = left_open, (*findings, quiet)
    elif found is None:
        decides, findings = _judge_few_jobs(before, deciding, rule, per_node=per_node)
    else:
        state, quiet, more = _judge_quiet(found, before, after)
        findings = (quiet,)
    if state == "unconfirmed":
        more, avoid = DECIDING - len(confirming), avoid.union(*(unit.nodes for unit in deciding))
    elif state == "inconclusive" and len(before) >= LEAST_BEFORE:
        more = more or DECIDING - len(deciding)
    verdict = MetricVerdict(
        metric=series.metric,
        better=series.better,
        verdict=state,
        findings=findings,
        after=statistics.median(unit.value for unit in compared),
        jobs_before=len(before),
        jobs_after=len(after),
        jobs_compared=len(compared),
        confirmed=state == "fail",
        decides=decides,
        spec=rule.spec,
        below_spec=missed is not None,
        unit=series.unit,
        more_jobs=more,
        avoid=tuple(sorted(avoid)),
    )
    return _with_numbers(verdict, before, deciding, found) if before else verdict


def _judge_few_jobs(
    before: Sequence[_Unit], after: Sequence[_Unit], rule: MetricRule, *, per_node: bool
) -> tuple[bool, tuple[Finding, ...]]:
    """Return whether a metric with too few jobs leaves the system open, and why.

    A metric of nodes tells slow nodes in one run: only a drop of all of them leaves the system open.
    """
    few = _too_few(len(before), len(after))
    if not (per_node and before):
        return True, (few,)
    drop = -math.expm1(_change(before, after))
    if drop > rule.threshold:
        return True, (make_finding("metric-nodes-slower", drop=drop), few)
    return False, (few,)


def _with_numbers(
    verdict: MetricVerdict, before: Sequence[_Unit], after: Sequence[_Unit], found: _Comparison | None
) -> MetricVerdict:
    """Return the verdict with what was compared, in six digits, so that a comparison of outputs compares results."""
    change = rounded(math.expm1(found.change if found else _change(before, after)), 6)
    verdict = replace(verdict, before=statistics.median(unit.value for unit in before), change=change)
    if found is None:
        return verdict
    return replace(
        verdict,
        noise=rounded(found.noise, 6),
        limit=rounded(-math.expm1(-found.limit), 6),
        p=rounded(found.p, 6),
        improved=found.change > found.limit,
    )


def _change(before: Sequence[_Unit], after: Sequence[_Unit]) -> float:
    return shift([unit.score for unit in before], [unit.score for unit in after])


def _compare(before: Sequence[_Unit], after: Sequence[_Unit], rule: MetricRule, k: float) -> _Comparison:
    """Compare jobs of both sides; a drop counts beyond `k` times the noise, and beyond the site's threshold."""
    old, new = ([unit.score for unit in units] for units in (before, after))
    noise = noise_of_jobs(old, new)
    return _Comparison(shift(old, new), noise, max(rule.threshold, k * noise), float(lower_tail(new, old)))


def _missed_spec(units: Sequence[_Unit], rule: MetricRule) -> Finding | None:
    """Return that the median misses the site's expectation, if it does."""
    if rule.spec is None or len(units) < LEAST_AFTER:
        return None
    value, higher = statistics.median(unit.value for unit in units), units[0].sign > 0
    bound = rule.spec * rule.floor if higher else rule.spec / rule.floor
    if higher == (value < bound) and value != bound:
        code = "metric-below-spec" if higher else "metric-above-spec"
        return make_finding(code, after=value, bound=bound, spec=rule.spec)
    return None


def _enough(before: Sequence[_Unit], after: Sequence[_Unit]) -> bool:
    return len(after) >= LEAST_AFTER and len(before) >= LEAST_BEFORE


def _too_few(before: int, after: int) -> Finding:
    return make_finding(
        "metric-few-jobs",
        jobs_before=before,
        jobs_after=after,
        more_before=max(0, LEAST_BEFORE - before) or None,
        more_after=max(0, LEAST_AFTER - after) or None,
        best_before=GOOD_BEFORE,
        best_after=DECIDING,
    )


def _judge_quiet(found: _Comparison, before: Sequence[_Unit], after: Sequence[_Unit]) -> tuple[State, Finding, int]:
    """Judge what is under no suspicion, with how many more jobs would settle it."""
    if found.noisy:
        undecided = judge_noisy(found.noise, [unit.score for unit in before], [unit.score for unit in after])
        if undecided is not None:
            return undecided
    if found.change > found.limit:
        return "pass", make_finding("metric-faster", gain=math.expm1(found.change)), 0
    steady = make_finding(
        "metric-steady",
        detectable=FLOOR_DROP if found.noisy else -math.expm1(-found.limit),
        noise=found.noise if found.noisy else None,
        few=len(before) if len(before) < GOOD_BEFORE else None,
        recommended=GOOD_BEFORE,
    )
    return "pass", steady, 0


def _confirm(
    before: Sequence[_Unit],
    deciding: Sequence[_Unit],
    confirming: Sequence[_Unit],
    first: _Comparison | None,
    missed: Finding | None,
    rule: MetricRule,
    alpha: float,
) -> tuple[State, tuple[Finding, ...], _Comparison | None]:
    """Take the second look, where its jobs are there: what it finds, and what it compared.

    What is suspected is a failure if it counts at `alpha`, and a warning if at five times that; or if five jobs were
    slower by more than the floor, though the later ones are not.
    """
    findings = [missed] if missed else []
    if missed and _missed_spec(before, rule):
        findings.append(make_finding("metric-spec-missed-before"))
    elif first and first.large:
        findings.append(make_finding("metric-slower", drop=first.drop, p=first.p))
    if len(confirming) < DECIDING:
        findings.append(make_finding("metric-unconfirmed", jobs=len(confirming), needed=DECIDING))
        return "unconfirmed", tuple(findings), None
    all_jobs = [*deciding, *confirming]
    pooled = _compare(before, all_jobs, rule, limit_in_noise(alpha)) if first else None
    missed_again = bool(missed and _missed_spec(all_jobs, rule))
    failed = missed_again or bool(pooled and pooled.regressed(alpha))
    drop, p = (pooled.drop, pooled.p) if pooled and not missed_again else (None, None)
    findings.append(make_finding("metric-confirmed" if failed else "metric-refuted", jobs=DECIDING, drop=drop, p=p))
    state: State = "fail" if failed else "pass"
    if not failed and (missed or (first and pooled and _worth_a_look(first, pooled, rule, alpha))):
        state = "warn"
    return state, tuple(findings), pooled


def _worth_a_look(first: _Comparison, pooled: _Comparison, rule: MetricRule, alpha: float) -> bool:
    limit = max(rule.threshold, limit_in_noise(alpha * WARN_ALPHA / ALPHA) * pooled.noise)
    return pooled.change < 0 and (first.below_floor or pooled.change < -limit)


def _confirming(units: Sequence[_Unit]) -> list[_Unit]:
    """Pick the later jobs that share no node with some job that decided, so that no one node can have slowed both."""
    deciding, later = units[:DECIDING], units[DECIDING:]
    return [job for job in later if any(job.nodes.isdisjoint(first.nodes) for first in deciding)][:DECIDING]
