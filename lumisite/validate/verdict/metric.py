"""Judge one metric: its jobs after a change against its jobs before it.

**The unit is one job.** Jobs repeat what a user meets; the steps of one job share its nodes, its hour and its
container. Each job is one number (`nodes.job_value`), and everything below is about logarithms of these numbers,
signed so that higher is better.

**What is compared.** The change is the median ratio of a job after to a job before (Hodges and Lehmann), the noise that
of one job, from the distances between jobs of one side. A drop counts beyond the site's threshold and beyond a multiple
of the noise. Four jobs before and three after are the least; fewer have no spread, however far apart they are.

**Two looks.** The first five jobs after the change can only raise a suspicion (a drop of 1.7 times the noise). Five
later jobs must confirm it, each without some node of the first, so that no one node can have slowed all of them. They
are pooled with the first, and then a drop fails if it exceeds `limit_in_noise(alpha)` times the noise and the exact
rank test gives less than `alpha`; or if it is more than a fifth, where noise is small. All of the chance of error is
spent on this second look: jobs after these ten change nothing.

**Noise.** In more than 5 % of noise a median moves by chance, so that no drop seen is no proof: to pass, the jobs have
to exclude that speed was halved (`_judge_noisy`).

**Nodes.** What changed for the system changed for all of it. Jobs on nodes that are known to be bad are left out where
enough others are there. A drop on some node sets, while the others are as fast as before, is a node to be found.

docs/explanation/verdict.md has the reasons, and how often this is wrong.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from lumisite.findings.finding import Finding, Severity
from lumisite.findings.writers import sentences
from lumisite.site.validation import MetricRule
from lumisite.text import counted, figure, listed, percent
from lumisite.validate.lines import Better, State
from lumisite.validate.samples import Series
from lumisite.validate.verdict.jobs_needed import FIRST_AFTER, GOOD_BEFORE, LEAST_AFTER, LEAST_BEFORE
from lumisite.validate.verdict.slow_nodes import is_per_node, job_value
from lumisite.validate.verdict.stats import (
    ALPHA,
    FLOOR_DROP,
    HALF_DROP,
    LOOKS,
    NOISE_LIMIT,
    WARN_ALPHA,
    excludes_drop,
    limit_in_noise,
    lower_tail,
    noise_of_jobs,
    shift,
)

#: At the first look a drop of so many times the noise is suspected.
SUSPECTED = 1.7
SEE_CHANGES = "see what changed with `lumisite changes`"
MORE_JOBS = "run more jobs"


@dataclass(frozen=True)
class MetricVerdict:
    """One metric, judged.

    `before` and `after` are medians over jobs; `change` is negative for worse, whatever `better` is (-0.1: a tenth less
    speed); `limit` is the drop that counts, `noise` that of one job, both as parts; `p` is that of all jobs that were
    compared. Without enough jobs there are neither. What does not decide is `shown`, and never judged.
    `jobs_compared` are the jobs after of the first look, or of both; `more_jobs` are missing for a decision.
    """

    metric: str
    better: Better
    verdict: State
    findings: tuple[Finding, ...]
    before: float | None = None
    after: float | None = None
    jobs_before: int = 0
    jobs_compared: int = 0
    change: float | None = None
    noise: float | None = None
    limit: float | None = None
    p: float | None = None
    on_slow_nodes: bool = False
    decides: bool = True
    spec: float | None = None
    below_spec: bool = False
    unit: str = ""
    more_jobs: int = 0

    @property
    def reason(self) -> str:
        """The findings in words."""
        return sentences(self.findings)


@dataclass(frozen=True)
class _Job:
    """One job's number; `score` is its logarithm, higher for better."""

    value: float
    score: float
    nodes: frozenset[str]


@dataclass(frozen=True)
class _Comparison:
    """Jobs after against jobs before: change, noise and limit are logarithms."""

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
    def counts(self) -> bool:
        """Whether the drop is beyond the limit."""
        return self.change < -self.limit

    @property
    def below_floor(self) -> bool:
        """Whether the drop is so large that no test is asked; in noise none is."""
        return self.change < math.log(1 - FLOOR_DROP) and not self.noisy


@dataclass(frozen=True)
class _Jobs:
    """The jobs of both sides by time, and how they are judged."""

    before: Sequence[_Job]
    after: Sequence[_Job]
    better: Better
    rule: MetricRule
    alpha: float

    @property
    def first(self) -> Sequence[_Job]:
        """The jobs of the first look."""
        return self.after[:FIRST_AFTER]

    @property
    def later(self) -> Sequence[_Job]:
        """The jobs that can confirm: later ones that share no node with some job of the first look."""
        fit = [job for job in self.after[FIRST_AFTER:] if any(job.nodes.isdisjoint(one.nodes) for one in self.first)]
        return fit[:FIRST_AFTER]

    @property
    def enough(self) -> bool:
        """Whether there are so many that they can be compared."""
        return len(self.before) >= LEAST_BEFORE and len(self.first) >= LEAST_AFTER

    @property
    def missing(self) -> int:
        """How many jobs the first look lacks; more of them help only where there is a baseline."""
        return FIRST_AFTER - len(self.first) if len(self.before) >= LEAST_BEFORE else 0

    def compare(self, after: Sequence[_Job], times_noise: float) -> _Comparison:
        """Compare these jobs with those before."""
        old, new = _scores(self.before), _scores(after)
        noise = noise_of_jobs(old, new)
        limit = max(self.rule.threshold, times_noise * noise)
        return _Comparison(shift(old, new), noise, limit, float(lower_tail(new, old)))

    def missed_spec(self, jobs: Sequence[_Job]) -> str:
        """Return that the median of jobs misses what the site expects; nothing where it does not."""
        spec, higher = self.rule.spec, self.better == "higher"
        if spec is None or len(jobs) < LEAST_AFTER:
            return ""
        value = statistics.median(job.value for job in jobs)
        bound = spec * self.rule.floor if higher else spec / self.rule.floor
        if value == bound or (value < bound) != higher:
            return ""
        where = "below" if higher else "above"
        return f"{figure(value)} is {where} {figure(bound)}, the limit for the {figure(spec)} that the site expects"


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
    missing = before if isinstance(before, Finding) else None
    old, new = _jobs_of(before) if isinstance(before, Series) else [], _jobs_of(after)
    per_node = is_per_node(after) or (isinstance(before, Series) and is_per_node(before))
    if not per_node:
        old, new = _without(old, slow_before), _without(new, slow_after)
    jobs = _Jobs(old, new, after.better, rule, alpha)
    verdict = MetricVerdict(after.metric, after.better, "inconclusive", (), spec=rule.spec, unit=after.unit)
    verdict = _first_look(jobs, replace(verdict, jobs_before=len(old)), missing)
    if per_node:
        return verdict if jobs.enough or not old else _judge_nodes_together(jobs, verdict)
    return verdict if missing and not verdict.below_spec else _judge_places(jobs, verdict, slow_after)


# ---- the two looks


def _first_look(jobs: _Jobs, verdict: MetricVerdict, missing: Finding | None) -> MetricVerdict:
    """Judge what these jobs show, whatever is known of their nodes."""
    found = jobs.compare(jobs.first, SUSPECTED) if jobs.enough else None
    missed = jobs.missed_spec(jobs.first)
    verdict = _with_numbers(verdict, jobs, jobs.first, found)
    if missed or (found and found.counts):
        return _second_look(jobs, replace(verdict, below_spec=bool(missed)), found, missed)
    if missing:
        return replace(verdict, findings=(missing,))
    if found:
        return _judge_quiet(jobs, verdict, found)
    return replace(verdict, findings=(_too_few(len(jobs.before), len(jobs.first)),), more_jobs=jobs.missing)


def _second_look(jobs: _Jobs, verdict: MetricVerdict, first: _Comparison | None, missed: str) -> MetricVerdict:
    """Judge what is suspected, with the jobs that confirm it where they are there."""
    suspicion = [missed] if missed else []
    if missed and jobs.missed_spec(jobs.before):
        suspicion.append("it missed that before the change too")
    elif first and first.counts:
        suspicion.append(f"slower by {percent(first.drop)}, p = {first.p:.2g}")
    slower = Finding("metric-slower", Severity.FAULT, "; ".join(suspicion), SEE_CHANGES)
    if (more := FIRST_AFTER - len(jobs.later)) > 0:
        message = f"{len(jobs.later)} of {FIRST_AFTER} jobs on other nodes are there to confirm it"
        waits = Finding("metric-unconfirmed", Severity.DOUBT, message, f"{MORE_JOBS}, on at least two sets of nodes")
        return replace(verdict, verdict="unconfirmed", findings=(slower, waits), more_jobs=more)
    pooled = [*jobs.first, *jobs.later]
    found = jobs.compare(pooled, limit_in_noise(jobs.alpha)) if first else None
    verdict = _with_numbers(verdict, jobs, pooled, found)
    missed_again = bool(missed) and bool(jobs.missed_spec(pooled))
    numbers = f": {percent(found.drop)}, p = {found.p:.2g}" if found and not missed_again else ""
    if missed_again or (found and found.counts and (found.below_floor or found.p < jobs.alpha)):
        again = Finding("metric-slower", Severity.FAULT, f"confirmed by {FIRST_AFTER} more jobs{numbers}", SEE_CHANGES)
        return replace(verdict, verdict="fail", findings=(slower, again))
    refuted = Finding("metric-fine", Severity.INFO, f"not confirmed by {FIRST_AFTER} more jobs{numbers}")
    warns = bool(missed)
    if first and found:
        # What is better over all jobs is not worth a look; a drop is that counts at the larger chance of a warning.
        limit = max(jobs.rule.threshold, limit_in_noise(jobs.alpha * WARN_ALPHA / ALPHA) * found.noise)
        warns = found.change < 0 and (warns or first.below_floor or found.change < -limit)
    verdict = replace(verdict, verdict="warn" if warns else "pass", findings=(slower, refuted))
    if found and found.noisy:
        # What is not confirmed is not excluded either, in noise.
        quiet = _judge_quiet(jobs, verdict, found)
        if quiet.verdict == "inconclusive":
            return replace(quiet, findings=(*verdict.findings, *quiet.findings))
    return verdict


def _judge_quiet(jobs: _Jobs, verdict: MetricVerdict, found: _Comparison) -> MetricVerdict:
    """Judge what is under no suspicion."""
    if found.noisy and not excludes_drop(FLOOR_DROP, _scores(jobs.before), _scores(jobs.after)):
        return _judge_noisy(jobs, verdict, found.noise)
    if found.change > found.limit:
        message = f"faster by {percent(math.expm1(found.change))}"
        faster = Finding("metric-faster", Severity.INFO, message, "make sure that the benchmark still does its work")
        return replace(verdict, verdict="pass", findings=(faster,))
    steady = f"no drop of {percent(FLOOR_DROP if found.noisy else -math.expm1(-found.limit))} or more"
    if found.noisy:
        steady += f", though jobs differ by {percent(found.noise)}"
    if len(jobs.before) < GOOD_BEFORE:
        steady += f"; the baseline has {counted(len(jobs.before), 'job')} ({GOOD_BEFORE} are recommended)"
    return replace(verdict, verdict="pass", findings=(Finding("metric-fine", Severity.INFO, steady),))


def _judge_noisy(jobs: _Jobs, verdict: MetricVerdict, noise: float) -> MetricVerdict:
    """Judge jobs that exclude no drop of a fifth: a halving has to be, now or at a later look."""
    noisy = f"too noisy (jobs differ by {percent(noise)}) to exclude a drop"
    if excludes_drop(HALF_DROP, _scores(jobs.before), _scores(jobs.after)):
        message = f"{noisy} of {percent(FLOOR_DROP)}, but it has not dropped by half"
        return replace(verdict, verdict="pass", findings=(Finding("metric-fine", Severity.INFO, message),))
    done = len(jobs.after)
    more = next((look - done for look in LOOKS if look > done), 0)
    outlook = f"the next look is after {counted(more, 'more job')}" if more else f"{done} jobs are the last look"
    advice = MORE_JOBS if more else "take a longer baseline before the next change (`lumisite validate --baseline`)"
    open_still = Finding("metric-few-jobs", Severity.DOUBT, f"{noisy} by half; {outlook}", advice)
    return replace(verdict, verdict="inconclusive", findings=(open_still,), more_jobs=more)


def _too_few(before: int, after: int) -> Finding:
    lacks = [(LEAST_BEFORE - before, "before"), (LEAST_AFTER - after, "after")]
    missing = " and ".join(f"{count} {side}" for count, side in lacks if count > 0)
    message = f"too few jobs: {before} before and {after} after; {missing} are missing"
    message += f" (best {GOOD_BEFORE} and {FIRST_AFTER})"
    return Finding("metric-few-jobs", Severity.DOUBT, message, MORE_JOBS)


# ---- nodes


def _judge_nodes_together(jobs: _Jobs, verdict: MetricVerdict) -> MetricVerdict:
    """Judge a metric of nodes with few jobs: one run shows slow nodes; only a drop of all leaves the system open."""
    drop = -(verdict.change or 0.0)
    if verdict.below_spec or drop <= jobs.rule.threshold:
        return verdict if verdict.below_spec else replace(verdict, decides=False)
    message = f"all nodes together are slower by {percent(drop)}: the system, not a node"
    return replace(verdict, findings=(Finding("metric-few-jobs", Severity.DOUBT, message), *verdict.findings))


def _judge_places(jobs: _Jobs, verdict: MetricVerdict, slow_nodes: frozenset[str]) -> MetricVerdict:
    """Leave a verdict open that is one on nodes: on those that are known to be slow, or on some sets of nodes only."""
    on_slow = sum(not job.nodes.isdisjoint(slow_nodes) for job in jobs.first)
    if on_slow and verdict.verdict != "pass":
        message, advice = f"{on_slow} of the deciding jobs ran on bad nodes", "run more jobs on other nodes"
        verdict = _left_open(verdict, Finding("metric-bad-nodes", Severity.DOUBT, message, advice))
        return replace(verdict, on_slow_nodes=True, more_jobs=FIRST_AFTER)
    if verdict.limit is None or (verdict.verdict == "inconclusive" and (verdict.noise or 0) <= NOISE_LIMIT):
        return verdict
    compared = [*jobs.first, *jobs.later] if verdict.verdict == "fail" else jobs.first
    slow, fine = _sides(jobs.before, compared, math.log1p(-verdict.limit))
    if not slow or not fine:
        return verdict
    message = f"only on {listed(sorted(slow))}, not on {listed(sorted(fine))}: a node, not the system"
    advice = "run the probe pairs on these nodes together to find the slow one"
    nodes = tuple(sorted(slow | fine))
    return _left_open(verdict, Finding("metric-bad-nodes", Severity.DOUBT, message, advice, nodes=nodes))


def _left_open(verdict: MetricVerdict, finding: Finding) -> MetricVerdict:
    return replace(verdict, verdict="inconclusive", findings=(*verdict.findings, finding), more_jobs=0)


def _sides(before: Sequence[_Job], after: Sequence[_Job], least: float) -> tuple[frozenset[str], frozenset[str]]:
    """Return the nodes of sets that are slower by the floor, and those that have not lost half of what counts.

    Both are empty where a set is neither. In a slow set all jobs are slow, and there is more than one: some run is
    always a stray.
    """
    middle = statistics.median(_scores(before))
    slow_limit = min(math.log(1 - FLOOR_DROP), least)
    if all(job.score - middle >= slow_limit for job in after):
        return frozenset(), frozenset()
    groups: list[tuple[frozenset[str], list[_Job]]] = []
    for job in after:
        joined = [group for group in groups if not group[0].isdisjoint(job.nodes)]
        groups = [group for group in groups if group not in joined]
        nodes = job.nodes.union(*(names for names, _ in joined))
        groups.append((nodes, [job, *(other for _, members in joined for other in members)]))
    slow, fine = frozenset[str](), frozenset[str]()
    for nodes, members in groups:
        changes = [job.score - middle for job in members]
        if max(changes) < slow_limit and len(members) > 1:
            slow |= nodes
        elif statistics.median(changes) > least / 2:
            fine |= nodes
        else:
            return frozenset(), frozenset()
    return slow, fine


# ---- jobs and their numbers


def _jobs_of(series: Series) -> list[_Job]:
    sign = 1 if series.better == "higher" else -1
    values = [(job_value(job, series.better), job.nodes) for job in series.jobs]
    return [_Job(value, sign * math.log(value), nodes) for value, nodes in values]


def _without(jobs: list[_Job], slow: frozenset[str]) -> list[_Job]:
    kept = [job for job in jobs if job.nodes.isdisjoint(slow)]
    return kept if len(kept) >= min(FIRST_AFTER, len(jobs)) else jobs


def _scores(jobs: Sequence[_Job]) -> list[float]:
    return [job.score for job in jobs]


def _with_numbers(
    verdict: MetricVerdict, jobs: _Jobs, compared: Sequence[_Job], found: _Comparison | None
) -> MetricVerdict:
    """Return the verdict with what was compared, in six digits, so that outputs can be compared."""
    after = statistics.median(job.value for job in compared)
    verdict = replace(verdict, after=after, jobs_compared=len(compared))
    if not jobs.before:
        return verdict
    before = statistics.median(job.value for job in jobs.before)
    change = found.change if found else shift(_scores(jobs.before), _scores(jobs.first))
    verdict = replace(verdict, before=before, change=_six_digits(math.expm1(change)))
    if found is None:
        return verdict
    limit = _six_digits(-math.expm1(-found.limit))
    return replace(verdict, noise=_six_digits(found.noise), limit=limit, p=_six_digits(found.p))


def _six_digits(value: float) -> float:
    return float(f"{value:.6g}")
