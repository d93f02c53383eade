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
to exclude that speed was halved (`stats.judge_noisy`).

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
from lumisite.site.model import MetricRule
from lumisite.text import counted, figure, listed, percent
from lumisite.validate.lines import Better, State
from lumisite.validate.samples import Series
from lumisite.validate.verdict.jobs_needed import FIRST_AFTER, GOOD_BEFORE, LEAST_AFTER, LEAST_BEFORE
from lumisite.validate.verdict.nodes import is_per_node, job_value
from lumisite.validate.verdict.stats import (
    ALPHA,
    FLOOR_DROP,
    MORE_JOBS,
    NOISE_LIMIT,
    WARN_ALPHA,
    judge_noisy,
    limit_in_noise,
    lower_tail,
    noise_of_jobs,
    shift,
)

#: At the first look a drop of so many times the noise is suspected.
SUSPECTED = 1.7
SEE_CHANGES = "see what changed with `lumisite changes`"


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
    def pooled(self) -> Sequence[_Job]:
        """The jobs of the second look."""
        return [*self.first, *self.later]

    @property
    def enough(self) -> bool:
        """Whether there are so many that they can be compared."""
        return len(self.before) >= LEAST_BEFORE and len(self.first) >= LEAST_AFTER

    def compare(self, after: Sequence[_Job], times_noise: float) -> _Comparison:
        """Compare these jobs with those before."""
        old, new = _scores(self.before), _scores(after)
        noise = noise_of_jobs(old, new)
        limit = max(self.rule.threshold, times_noise * noise)
        return _Comparison(shift(old, new), noise, limit, float(lower_tail(new, old)))

    def missed_spec(self, jobs: Sequence[_Job], better: Better) -> str:
        """Return that the median of jobs misses what the site expects; nothing where it does not."""
        if self.rule.spec is None or len(jobs) < LEAST_AFTER:
            return ""
        value = statistics.median(job.value for job in jobs)
        bound = self.rule.spec * self.rule.floor if better == "higher" else self.rule.spec / self.rule.floor
        if value == bound or (value < bound) != (better == "higher"):
            return ""
        where = "below" if better == "higher" else "above"
        limit = f"{figure(bound)}, the limit for the {figure(self.rule.spec)} that the site expects"
        return f"{figure(value)} is {where} {limit}"


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
    if is_per_node(after) or (isinstance(before, Series) and is_per_node(before)):
        jobs = _Jobs(old, new, rule, alpha)
        verdict = _judge(jobs, after, missing)
        return verdict if jobs.enough or not old else _judge_nodes_together(jobs, verdict)
    jobs = _Jobs(_without(old, slow_before), _without(new, slow_after), rule, alpha)
    verdict = _judge(jobs, after, missing)
    if missing and not verdict.below_spec:
        return verdict
    on_slow = sum(not job.nodes.isdisjoint(slow_after) for job in jobs.first)
    if on_slow and verdict.verdict != "pass":
        message, advice = f"{on_slow} of the deciding jobs ran on bad nodes", "run more jobs on other nodes"
        verdict = _leave_open(verdict, Finding("metric-bad-nodes", Severity.DOUBT, message, advice))
        return replace(verdict, on_slow_nodes=True, more_jobs=FIRST_AFTER)
    if verdict.limit is not None and (verdict.verdict != "inconclusive" or (verdict.noise or 0) > NOISE_LIMIT):
        slow, fine = _sides(
            jobs.before, jobs.pooled if verdict.verdict == "fail" else jobs.first, math.log1p(-verdict.limit)
        )
        if slow and fine:
            message = f"only on {_names(slow)}, not on {_names(fine)}: a node, not the system"
            advice = "run the probe pairs on these nodes together to find the slow one"
            nodes = tuple(sorted(slow | fine))
            return _leave_open(verdict, Finding("metric-bad-nodes", Severity.DOUBT, message, advice, nodes=nodes))
    return verdict


# ---- the two looks


def _judge(jobs: _Jobs, series: Series, missing: Finding | None) -> MetricVerdict:
    """Judge what these jobs show, whatever is known of their nodes."""
    found = jobs.compare(jobs.first, SUSPECTED) if jobs.enough else None
    missed = jobs.missed_spec(jobs.first, series.better)
    verdict = _numbers(jobs, series, jobs.first, found)
    if missed or (found and found.counts):
        return _second_look(jobs, series, replace(verdict, below_spec=bool(missed)), found, missed)
    if missing:
        return replace(verdict, findings=(missing,))
    if found:
        return _judge_quiet(jobs, verdict, found)
    few = _too_few(len(jobs.before), len(jobs.first))
    return replace(verdict, findings=(few,), more_jobs=_missing_jobs(jobs))


def _second_look(
    jobs: _Jobs, series: Series, verdict: MetricVerdict, first: _Comparison | None, missed: str
) -> MetricVerdict:
    """Judge what is suspected, with the jobs that confirm it where they are there."""
    suspicion = [missed] if missed else []
    if missed and jobs.missed_spec(jobs.before, series.better):
        suspicion.append("it missed that before the change too")
    elif first and first.counts:
        suspicion.append(f"slower by {percent(first.drop)}, p = {first.p:.2g}")
    slower = Finding("metric-slower", Severity.FAULT, "; ".join(suspicion), SEE_CHANGES)
    if len(jobs.later) < FIRST_AFTER:
        message = f"{len(jobs.later)} of {FIRST_AFTER} jobs on other nodes are there to confirm it"
        waits = Finding("metric-unconfirmed", Severity.DOUBT, message, "run more jobs, on at least two sets of nodes")
        more = FIRST_AFTER - len(jobs.later)
        return replace(verdict, verdict="unconfirmed", findings=(slower, waits), more_jobs=more)
    found = jobs.compare(jobs.pooled, limit_in_noise(jobs.alpha)) if first else None
    verdict = replace(_numbers(jobs, series, jobs.pooled, found or first), below_spec=verdict.below_spec)
    missed_again = bool(jobs.missed_spec(jobs.pooled, series.better)) if missed else False
    confirmed = found is not None and found.counts and (found.below_floor or found.p < jobs.alpha)
    numbers = f": {percent(found.drop)}, p = {found.p:.2g}" if found and not missed_again else ""
    if missed_again or confirmed:
        again = Finding("metric-slower", Severity.FAULT, f"confirmed by {FIRST_AFTER} more jobs{numbers}", SEE_CHANGES)
        return replace(verdict, verdict="fail", findings=(slower, again))
    refuted = Finding("metric-fine", Severity.INFO, f"not confirmed by {FIRST_AFTER} more jobs{numbers}")
    look = bool(missed)
    if first and found:  # what is better over all jobs is not worth a look
        look = found.change < 0 and (look or first.below_floor or _would_warn(jobs, found))
    verdict = replace(verdict, verdict="warn" if look else "pass", findings=(slower, refuted))
    if found and found.noisy:
        # What is not confirmed is not excluded either, in noise.
        quiet = _judge_quiet(jobs, verdict, found)
        if quiet.verdict == "inconclusive":
            return replace(quiet, findings=(*verdict.findings, *quiet.findings))
    return verdict


def _would_warn(jobs: _Jobs, found: _Comparison) -> bool:
    """Whether a drop that is not confirmed would be at the larger chance of a warning."""
    limit = max(jobs.rule.threshold, limit_in_noise(jobs.alpha * WARN_ALPHA / ALPHA) * found.noise)
    return found.change < -limit


def _judge_quiet(jobs: _Jobs, verdict: MetricVerdict, found: _Comparison) -> MetricVerdict:
    """Judge what is under no suspicion; in noise, how many more jobs would settle it."""
    undecided = judge_noisy(found.noise, _scores(jobs.before), _scores(jobs.after)) if found.noisy else None
    if undecided:
        state, finding, more = undecided
        more = more or (_missing_jobs(jobs) if state == "inconclusive" else 0)
        return replace(verdict, verdict=state, findings=(finding,), more_jobs=more)
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


def _judge_nodes_together(jobs: _Jobs, verdict: MetricVerdict) -> MetricVerdict:
    """Judge a metric of nodes with few jobs: one run shows slow nodes; only a drop of all leaves the system open."""
    drop = -(verdict.change or 0.0)
    if verdict.below_spec or drop <= jobs.rule.threshold:
        return verdict if verdict.below_spec else replace(verdict, decides=False)
    message = f"all nodes together are slower by {percent(drop)}: the system, not a node"
    return replace(verdict, findings=(Finding("metric-few-jobs", Severity.DOUBT, message), *verdict.findings))


# ---- parts


def _numbers(jobs: _Jobs, series: Series, compared: Sequence[_Job], found: _Comparison | None) -> MetricVerdict:
    """Return the verdict without a decision: what was compared, in six digits, so that outputs can be compared."""
    verdict = MetricVerdict(
        metric=series.metric,
        better=series.better,
        verdict="inconclusive",
        findings=(),
        after=statistics.median(job.value for job in compared),
        jobs_before=len(jobs.before),
        jobs_compared=len(compared),
        spec=jobs.rule.spec,
        unit=series.unit,
    )
    if not jobs.before:
        return verdict
    change = found.change if found else shift(_scores(jobs.before), _scores(jobs.first))
    before = statistics.median(job.value for job in jobs.before)
    verdict = replace(verdict, before=before, change=_six_digits(math.expm1(change)))
    if found is None:
        return verdict
    return replace(
        verdict,
        noise=_six_digits(found.noise),
        limit=_six_digits(-math.expm1(-found.limit)),
        p=_six_digits(found.p),
    )


def _too_few(before: int, after: int) -> Finding:
    missing = [(LEAST_BEFORE - before, "before"), (LEAST_AFTER - after, "after")]
    lacks = " and ".join(f"{count} {side}" for count, side in missing if count > 0)
    message = (
        f"too few jobs: {before} before and {after} after; {lacks} are missing (best {GOOD_BEFORE} and {FIRST_AFTER})"
    )
    return Finding("metric-few-jobs", Severity.DOUBT, message, MORE_JOBS)


def _missing_jobs(jobs: _Jobs) -> int:
    """Return how many jobs after are missing for the first look; more of them help only where there is a baseline."""
    return FIRST_AFTER - len(jobs.first) if len(jobs.before) >= LEAST_BEFORE else 0


def _leave_open(verdict: MetricVerdict, finding: Finding) -> MetricVerdict:
    """Return the verdict without a decision, because of its nodes."""
    return replace(verdict, verdict="inconclusive", findings=(*verdict.findings, finding), more_jobs=0)


def _sides(before: Sequence[_Job], after: Sequence[_Job], least: float) -> tuple[frozenset[str], frozenset[str]]:
    """Return the nodes of sets that are slower by the floor, and those that have not lost half of what counts.

    Both are empty where a set is neither. In a slow set all jobs are slow, and there is more than one: some run is
    always a stray.
    """
    groups: list[tuple[frozenset[str], list[_Job]]] = []
    for job in after:
        joined = [group for group in groups if not group[0].isdisjoint(job.nodes)]
        nodes = job.nodes.union(*(group[0] for group in joined))
        groups = [group for group in groups if group not in joined]
        groups.append((nodes, [job, *(other for group in joined for other in group[1])]))
    middle = statistics.median(_scores(before))
    slow, fine = frozenset[str](), frozenset[str]()
    for nodes, members in groups:
        changes = [job.score - middle for job in members]
        if max(changes) < min(math.log(1 - FLOOR_DROP), least) and len(members) > 1:
            slow |= nodes
        elif statistics.median(changes) > least / 2:
            fine |= nodes
        else:
            return frozenset(), frozenset()
    return slow, fine


def _jobs_of(series: Series) -> list[_Job]:
    sign = 1 if series.better == "higher" else -1
    values = [(job_value(job, series.better), job.nodes) for job in series.jobs]
    return [_Job(value, sign * math.log(value), nodes) for value, nodes in values]


def _without(jobs: list[_Job], slow: frozenset[str]) -> list[_Job]:
    kept = [job for job in jobs if job.nodes.isdisjoint(slow)]
    return kept if len(kept) >= min(FIRST_AFTER, len(jobs)) else jobs


def _scores(jobs: Sequence[_Job]) -> list[float]:
    return [job.score for job in jobs]


def _names(nodes: frozenset[str]) -> str:
    return listed(sorted(nodes))


def _six_digits(value: float) -> float:
    return float(f"{value:.6g}")
