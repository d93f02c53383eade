"""Find which jobs before a change can be compared with those after it, and how large a baseline is.

The numbers are those of docs/explanation/verdict.md: ten jobs, on three days at least or as many as the site says, on
two node sets that share no node, all of them with one image and one suite. A metric of single nodes is measured on all
of them at once, and needs no second set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lumisite.findings.finding import Finding, Severity
from lumisite.text import some
from lumisite.validate.samples import JobValues, Recorded, Series
from lumisite.validate.verdict.jobs_needed import GOOD_BEFORE, NODE_SETS
from lumisite.validate.verdict.slow_nodes import is_per_node

DAY_S = 86400
#: By field of a job, what jobs did that differ in it, and what to do where no job before is like those after.
_UNLIKE = {
    "spec": ("measured another thing", "take a new baseline"),
    "image": ("used another image", "give `--allow-image-change` to compare all the same"),
}


def comparable(
    before: Series | None, after: Series, *, allow_image_change: bool = False
) -> tuple[Series | Finding, Finding | None]:
    """Return the jobs before that measured the same as those after, or why there are none; how many are left out."""
    if before is None:
        advice = "measure it before the next change (`lumisite validate --baseline`)"
        return Finding("metric-unmeasured", Severity.DOUBT, "not measured before", advice), None
    if before.better != after.better:
        message = f"{before.better} is better before and {after.better} after"
        return _unlike(message, "see which of the files is right"), None
    if before.unit and after.unit and before.unit != after.unit:
        return _unlike(f"in {before.unit} before and in {after.unit} after", "see which of the files is right"), None
    old_jobs = [(job.run, job.time, job.values) for job in before.jobs]
    if twice := [job.run for job in after.jobs if (job.run, job.time, job.values) in old_jobs]:
        message = f"run {min(twice)} is before and after the change: one of the files is wrong"
        return _unlike(message, "give the files of the right runs"), None
    doubt = None
    # A job that says nothing of it may be of any kind.
    for what in ("spec",) if allow_image_change else ("spec", "image"):
        did, advice = _UNLIKE[what]
        old, new = (sorted({getattr(job, what) for job in series.jobs} - {""}) for series in (before, after))
        if len(new) > 1:
            message = f"the jobs after the change are of several {what}s ({some(new, between=', ')})"
            return _unlike(message, f"give the files of one {what} only"), None
        kept = tuple(job for job in before.jobs if not new or getattr(job, what) in ("", *new))
        if not kept:
            message = f"{did}: {what} {some(old, between=', ')} before, {some(new, between=', ')} after"
            return _unlike(message, advice), None
        if left_out := len(before.jobs) - len(kept):
            message = f"{left_out} of {len(before.jobs)} jobs before the change {did} and are left out"
            doubt = Finding("baseline-poor", Severity.INFO, message)
        before = replace(before, jobs=kept)
    return before, doubt


def _unlike(message: str, advice: str) -> Finding:
    return Finding("metric-unlike", Severity.DOUBT, message, advice)


def baseline_size(recorded: Recorded, days_needed: int) -> Finding:
    """Return how many jobs, days and node sets a baseline has, and whether they are enough.

    A job counts where it has a value of the metric that fewest jobs have: only that many can be compared.
    """
    every = recorded.series.values()
    jobs = min((series.jobs for series in every), key=len, default=())
    sets_needed = 1 if all(map(is_per_node, every)) else NODE_SETS
    parts = (
        (len(jobs), GOOD_BEFORE, "jobs"),
        (len({job.time // DAY_S for job in jobs}), days_needed, "days"),
        (_disjoint(jobs), sets_needed, "disjoint node sets"),
    )
    size = ", ".join(f"{count} of {needed} {name}" for count, needed, name in parts)
    if all(count >= needed for count, needed, _ in parts):
        return Finding("baseline-size", Severity.INFO, size)
    return Finding("baseline-poor", Severity.INFO, f"incomplete: {size}", "run it again, on another day")


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
