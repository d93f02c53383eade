"""Say what of the jobs before a change may be compared with those after it, and how well they stand for the system.

The numbers are those of docs/explanation/verdict.md: ten jobs, on three days at least or as many as the site says, on
two node sets that share no node, all of them with one image and one suite. A metric of single nodes is measured on all
of them at once, and needs no second set.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from lumisite.text import counted
from lumisite.validate.samples import Job, Recorded, Series
from lumisite.validate.verdict.metric import GOOD_BEFORE
from lumisite.validate.verdict.nodes import is_per_node

DAY_S = 86400
#: A baseline of older jobs, of fewer days, or without so many disjoint sets of nodes stands on little.
OLDEST_DAYS = 30
LEAST_DAYS = 3
LEAST_SETS = 2
#: Jobs whose sets of nodes are compared; those of a baseline are few.
SETS_COMPARED = 200


def comparable(
    before: Series | None, after: Series, *, allow_image_change: bool = False, least_days: int = LEAST_DAYS
) -> tuple[Series | str, tuple[str, ...]]:
    """Give the jobs before that measured the same as those after, or why there are none; and what is odd about them."""
    if before is None:
        return "not measured before", ()
    if before.better != after.better:
        return f"{before.better} is better before and {after.better} after", ()
    if before.unit and after.unit and before.unit != after.unit:
        return f"in {before.unit} before and in {after.unit} after", ()
    jobs = [{(job.run, job.time, repr(sorted(job.values.items()))) for job in side.jobs} for side in (before, after)]
    if twice := set.intersection(*jobs):
        return f"run {min(twice)[0]} stands before and after the change: one of the files is wrong", ()
    notes = []
    # A job that says nothing of it may be of any kind.
    for what, thing in (("spec", "spec of what is measured"), ("image", "image"))[: 1 if allow_image_change else 2]:
        old, new = ({getattr(job, what) for job in series.jobs} - {""} for series in (before, after))
        if len(new) > 1:
            return f"the jobs after differ in the {thing} ({', '.join(sorted(new))})", ()
        kept = tuple(job for job in before.jobs if not new or getattr(job, what) in ("", *new))
        if not kept:
            return f"another {thing}: {', '.join(sorted(old))} before, {', '.join(new)} after", ()
        if left_out := len(before.jobs) - len(kept):
            notes.append(f"{left_out} of {len(before.jobs)} jobs before had another {thing} and are left out")
        before = replace(before, jobs=kept)
    return before, (*notes, *_standing(before, after, least_days))


def _standing(before: Series, after: Series, least_days: int) -> Iterator[str]:
    change = min(job.time for job in after.jobs)
    old = sum(job.time < change - OLDEST_DAYS * DAY_S for job in before.jobs)
    late = sum(job.time > change for job in before.jobs)
    days = len({job.time // DAY_S for job in before.jobs})
    if old:
        yield f"{old} of {len(before.jobs)} jobs before are more than {OLDEST_DAYS} days older than the first after"
    if late:
        yield f"{late} of {len(before.jobs)} jobs before are later than the first after"
    if days < least_days:
        yield f"the jobs before are of {counted(days, 'day')}, {least_days} are right"
    if not is_per_node(before) and _disjoint(before.jobs) < LEAST_SETS:
        yield f"no two jobs before ran on wholly different nodes, {LEAST_SETS} disjoint sets are right"


def has_and_lacks(recorded: Recorded, days_wanted: int = LEAST_DAYS) -> tuple[str, str]:
    """Give what a baseline has, and what it lacks (empty if nothing), each in words.

    A job counts where it has a value of the metric that fewest jobs have: only that many can be compared.
    """
    every = recorded.series.values()
    if not every:
        return "no samples", f"{GOOD_BEFORE} jobs"
    jobs = min((series.jobs for series in every), key=len)
    sets_wanted = 1 if all(map(is_per_node, every)) else LEAST_SETS
    days = {job.time // DAY_S for job in jobs}
    had = ((len(jobs), GOOD_BEFORE, "job"), (len(days), days_wanted, "day"), (_disjoint(jobs), sets_wanted, "node set"))
    lacks = [f"{counted(wanted - number, thing)} more" for number, wanted, thing in had if number < wanted]
    images = {job.image for series in every for job in series.jobs if job.image}
    if len(images) > 1:
        lacks.append(f"a single image (it mixes {len(images)})")
    return ", ".join(counted(number, thing) for number, _, thing in had), ", ".join(lacks)


def _disjoint(jobs: Sequence[Job]) -> int:
    """Count node sets of which no two share a node, the first come first after whichever gives most of them."""
    sets = list(dict.fromkeys(job.nodes for job in jobs))[:SETS_COMPARED]
    most = 0
    for first in sets:
        taken, count = set(first), 1
        for nodes in sets:
            if taken.isdisjoint(nodes):
                taken |= nodes
                count += 1
        most = max(most, count)
    return most
