"""Say what a baseline has and what it lacks, before it can be judged against.

The numbers are those of docs/explanation/verdict.md: ten jobs, on three days at least or as many as the site says, on
two node sets that share no node, all of them with one image and one suite. A metric of single nodes is measured on all
of them at once, and needs no second set.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone

from lumisite.validate.probes.ranks import counted
from lumisite.validate.samples import Job, Recorded
from lumisite.validate.verdict.alike import LEAST_DAYS
from lumisite.validate.verdict.nodes import is_per_node

JOBS, NODE_SETS = 10, 2


def has_and_lacks(recorded: Recorded, days_wanted: int = LEAST_DAYS) -> tuple[str, str]:
    """Give what a baseline has, and what it lacks (empty if nothing), each in words.

    A job counts where it has a value of the metric that fewest jobs have: only that many can be compared.
    """
    series = [one.jobs for one in recorded.series.values()]
    if not series:
        return "no samples", f"{JOBS} jobs"
    jobs = min(series, key=len)
    sets_wanted = 1 if all(is_per_node(one) for one in recorded.series.values()) else NODE_SETS
    days = {datetime.fromtimestamp(job.time, timezone.utc).date() for job in jobs}
    sets = _disjoint(jobs)
    had = ((len(jobs), JOBS, "job"), (len(days), days_wanted, "day"), (sets, sets_wanted, "node set"))
    lacks = [f"{counted(wanted - number, thing)} more" for number, wanted, thing in had if number < wanted]
    images = {job.image for own in series for job in own if job.image}
    if len(images) > 1:
        lacks.append(f"a single image (it mixes {len(images)})")
    return ", ".join(counted(number, thing) for number, _, thing in had), ", ".join(lacks)


def _disjoint(jobs: Sequence[Job]) -> int:
    """Count node sets of which no two share a node, the first come first."""
    taken: set[str] = set()
    count = 0
    for job in jobs:
        if not taken & job.nodes:
            taken |= job.nodes
            count += 1
    return count
