"""Find which jobs before a change can be compared with those after it, and how well they represent the system.

The numbers are those of docs/explanation/verdict.md: ten jobs, on three days at least or as many as the site says, on
two node sets that share no node, all of them with one image and one suite. A metric of single nodes is measured on all
of them at once, and needs no second set.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from lumisite.findings.catalogue import make_finding
from lumisite.findings.finding import Finding
from lumisite.site.model import LEAST_DAYS
from lumisite.validate.samples import JobValues, Recorded, Series
from lumisite.validate.verdict.metric import GOOD_BEFORE
from lumisite.validate.verdict.nodes import is_per_node

DAY_S = 86400
#: A baseline of older jobs, of fewer days, or without so many disjoint sets of nodes stands on little.
OLDEST_DAYS = 30
LEAST_SETS = 2
#: By field of a job, the codes for jobs after that differ in it, for no job before like them, and for some unlike them.
_UNLIKE = {
    "spec": ("metric-mixed-specs", "metric-other-spec", "baseline-other-spec"),
    "image": ("metric-mixed-images", "metric-other-image", "baseline-other-image"),
}


def comparable(
    before: Series | None, after: Series, *, allow_image_change: bool = False, least_days: int = LEAST_DAYS
) -> tuple[Series | Finding, tuple[Finding, ...]]:
    """Return the jobs before that measured the same as those after, or why there are none; and doubts about them."""
    if before is None:
        return make_finding("metric-not-before"), ()
    if before.better != after.better:
        return make_finding("metric-direction-changed", before=before.better, after=after.better), ()
    if before.unit and after.unit and before.unit != after.unit:
        return make_finding("metric-unit-changed", before=before.unit, after=after.unit), ()
    jobs = [{(job.run, job.time, repr(sorted(job.values.items()))) for job in side.jobs} for side in (before, after)]
    if twice := set.intersection(*jobs):
        return make_finding("metric-run-twice", run=min(twice)[0]), ()
    doubts = []
    # A job that says nothing of it may be of any kind.
    for what in ("spec",) if allow_image_change else ("spec", "image"):
        mixed, other, left_over = _UNLIKE[what]
        old, new = (sorted({getattr(job, what) for job in series.jobs} - {""}) for series in (before, after))
        if len(new) > 1:
            return make_finding(mixed, names=tuple(new)), ()
        kept = tuple(job for job in before.jobs if not new or getattr(job, what) in ("", *new))
        if not kept:
            return make_finding(other, before=tuple(old), after=tuple(new)), ()
        if left_out := len(before.jobs) - len(kept):
            doubts.append(make_finding(left_over, count=left_out, jobs=len(before.jobs)))
        before = replace(before, jobs=kept)
    return before, (*doubts, *_doubts(before, after, least_days))


def _doubts(before: Series, after: Series, least_days: int) -> Iterator[Finding]:
    change = min(job.time for job in after.jobs)
    old = sum(job.time < change - OLDEST_DAYS * DAY_S for job in before.jobs)
    late = sum(job.time > change for job in before.jobs)
    days = len({job.time // DAY_S for job in before.jobs})
    if old:
        yield make_finding("baseline-old", count=old, jobs=len(before.jobs), days=OLDEST_DAYS)
    if late:
        yield make_finding("baseline-late", count=late, jobs=len(before.jobs))
    if days < least_days:
        yield make_finding("baseline-few-days", days=days, recommended=least_days)
    if not is_per_node(before) and _disjoint(before.jobs) < LEAST_SETS:
        yield make_finding("baseline-one-node-set", recommended=LEAST_SETS)


def baseline_size(recorded: Recorded, days_needed: int = LEAST_DAYS) -> Finding:
    """Return how many jobs, days and node sets a baseline has, and whether they are enough.

    A job counts where it has a value of the metric that fewest jobs have: only that many can be compared.
    """
    every = recorded.series.values()
    jobs = min((series.jobs for series in every), key=len, default=())
    count, days, node_sets = len(jobs), len({job.time // DAY_S for job in jobs}), _disjoint(jobs)
    sets_needed = 1 if all(map(is_per_node, every)) else LEAST_SETS
    enough = count >= GOOD_BEFORE and days >= days_needed and node_sets >= sets_needed
    return make_finding(
        "baseline-size" if enough else "baseline-incomplete",
        jobs=count,
        jobs_needed=GOOD_BEFORE,
        days=days,
        days_needed=days_needed,
        node_sets=node_sets,
        node_sets_needed=sets_needed,
    )


def mixed_images(recorded: Recorded) -> Finding | None:
    """Return that the jobs of a baseline used several images."""
    images = {job.image for series in recorded.series.values() for job in series.jobs if job.image}
    return make_finding("baseline-mixed-images", images=len(images)) if len(images) > 1 else None


def _disjoint(jobs: Sequence[JobValues]) -> int:
    """Return how many node sets there are of which no two share a node, as many as a greedy choice finds."""
    sets = list(dict.fromkeys(job.nodes for job in jobs))
    most = 0
    for first in sets:
        used, count = set(first), 1
        for nodes in sets:
            if used.isdisjoint(nodes):
                used |= nodes
                count += 1
        most = max(most, count)
    return most
