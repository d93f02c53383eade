"""Which allocations of a trial count: each carries the proof that it measured what it claims.

Thrown out, and run again with the next order of the design, is one in which the placebo differs from the references,
the last reference differs from the first, the positive control does not show, something was left on a node or a plain
reference did not pass after a hang, or runs were lost. A reference that hung or failed is no such fault but evidence,
if another arm ended well there: the allocation counts then, and has no numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log1p
from typing import Literal, TypeAlias

from lumisite.findings.catalogue import make_finding
from lumisite.findings.finding import Finding
from lumisite.text import change
from lumisite.validate.trial.design import CONTROL, PLACEBO, REFERENCE, Design, PlannedRun
from lumisite.validate.trial.effects import Metric, Scores, as_part, contrast, metrics_of, score_runs
from lumisite.validate.trial.results import RunResult

#: `open`: runs of it are still to come.
Standing: TypeAlias = Literal["valid", "thrown out", "open"]
BAD = ("hung", "failed")


@dataclass(frozen=True)
class Allocation:
    """One allocation, judged: why it was thrown out, its scores where it has numbers, and its runs that are clean.

    `clean` are the results up to the first after which something was left on a node: those count for hangs, whatever
    the numbers are.
    """

    number: int
    standing: Standing
    reasons: tuple[Finding, ...]
    scores: Scores
    clean: tuple[RunResult, ...]
    nodes: tuple[str, ...]
    jobs: tuple[str, ...]


def judge_allocations(design: Design, results: Sequence[RunResult]) -> tuple[Allocation, ...]:
    """Judge every allocation of which there are results.

    Of two results of one run the first counts; one of a run that is not in the design does not.
    """
    planned, by_run = set(design.slots), dict[PlannedRun, RunResult]()
    for result in results:
        if result.run in planned or (result.run.check and result.run.allocation <= design.most_allocations):
            by_run.setdefault(result.run, result)
    by_allocation: dict[int, list[RunResult]] = {}
    for run in sorted(by_run, key=lambda run: (run.allocation, run.position, run.check)):
        by_allocation.setdefault(run.allocation, []).append(by_run[run])
    metrics = metrics_of(design, by_run.values())
    return tuple(_judge(design, metrics, number, found) for number, found in by_allocation.items())


def next_allocation(design: Design, allocations: Sequence[Allocation]) -> int | None:
    """Return the allocation to run or to finish, by the design's stopping rule; None where the trial is over."""
    standing = {allocation.number: allocation.standing for allocation in allocations}
    valid = 0
    for number in range(1, design.most_allocations + 1):
        if valid == design.allocations:
            return None
        if standing.get(number, "open") == "open":
            return number
        valid += standing[number] == "valid"
    return None


def _judge(design: Design, metrics: Sequence[Metric], number: int, results: Sequence[RunResult]) -> Allocation:
    missing = {*design.runs_of(number)} - {result.run for result in results}
    scores = score_runs(metrics, results)
    reasons = tuple(_unclean(results))
    references = [result for result in results if result.run.arm == REFERENCE and not result.run.check]
    if not reasons and not missing:
        reasons = tuple(_lost(design, results, references))
    if not reasons and not missing:
        if not any(result.outcome == "done" for result in results):
            reasons = (make_finding("no-run-ended"),)
        elif any(result.outcome in BAD for result in (references[0], references[-1])):
            scores = {}
        else:
            reasons = tuple(_untrue(design, metrics, scores, results, references))
    return Allocation(
        number,
        "thrown out" if reasons else "open" if missing else "valid",
        reasons,
        scores,
        tuple(_clean(results)),
        tuple(sorted({node for result in results for node in result.nodes})),
        tuple(dict.fromkeys(result.job for result in results if result.job)),
    )


def _clean(results: Sequence[RunResult]) -> Iterator[RunResult]:
    """Yield the results up to the first that left something, without the checks."""
    for result in results:
        if result.run.check and result.outcome in BAD:
            return
        if not result.run.check:
            yield result
        if result.leftovers:
            return


def _unclean(results: Sequence[RunResult]) -> Iterator[Finding]:
    for result in results:
        run = result.run
        if result.leftovers:
            yield make_finding("run-left-processes", nodes=result.leftovers, position=run.position, arm=label(run.arm))
        if run.check and result.outcome in BAD:
            yield make_finding("plain-reference-bad", outcome=result.outcome, position=run.position)


def _lost(design: Design, results: Sequence[RunResult], references: Sequence[RunResult]) -> Iterator[Finding]:
    """Yield what was lost: the first or last reference, the placebo, the control, or all runs of a variant."""
    for result in (references[0], references[-1]):
        if result.outcome == "lost":
            yield make_finding("run-lost", position=result.run.position, arm=label(REFERENCE))
    kept = {result.run.arm for result in results if result.outcome != "lost" and not result.run.check}
    for arm in design.arms:
        if arm.name not in kept and arm.role != "reference":
            yield make_finding("run-lost", arm=label(arm.name))


def _untrue(
    design: Design,
    metrics: Sequence[Metric],
    scores: Scores,
    results: Sequence[RunResult],
    references: Sequence[RunResult],
) -> Iterator[Finding]:
    """Yield which of its proofs an allocation lacks, where first and last reference ended well."""
    limits = design.thresholds
    # A band decides, not each of its sizes: of many comparisons some is beyond any limit.
    bands = {metric: arms for metric, arms in scores.items() if not metric.one_size}
    if not bands and metrics:
        yield make_finding("nothing-decides")
        return
    first, last = references[0].run.position, references[-1].run.position
    drift = {}
    for metric, arms in bands.items():
        of_references = arms.get(REFERENCE, {})
        if first in of_references and last in of_references:
            drift[metric] = of_references[last] - of_references[first]
    yield from _beyond("reference-drifts", drift, limits.drift)
    if any(result.run.arm == PLACEBO and result.outcome in BAD for result in results):
        # Part of the rate of hangs, as any reference between the first and the last.
        return
    placebo = {metric: contrast(arms, [PLACEBO], [REFERENCE]) for metric, arms in bands.items()}
    yield from _beyond("placebo-differs", placebo, limits.sham)
    control = [result for result in results if result.run.arm == CONTROL]
    if control and bands and all(result.outcome == "done" for result in control):
        costs = [contrast(arms, [CONTROL], [REFERENCE, PLACEBO]) for arms in bands.values()]
        worst = min((cost for cost in costs if cost is not None), default=0.0)
        if worst > log1p(-limits.control):
            yield make_finding("control-not-seen", change=change(as_part(worst)))


def _beyond(code: str, differences: Mapping[Metric, float | None], limit: float) -> Iterator[Finding]:
    """Yield a finding if metrics differ by more than a limit: how many, and the one that differs most."""
    found = {metric: value for metric, value in differences.items() if value is not None and abs(value) > log1p(limit)}
    if found:
        metric = max(found, key=lambda metric: abs(found[metric]))
        yield make_finding(code, count=len(found), metric=metric.name, change=change(as_part(found[metric])))


def label(arm: str) -> str:
    """Return the name of an arm as people read it."""
    return "placebo" if arm == PLACEBO else arm
