"""Say what noisy jobs leave possible, and how many more of them would settle it.

Where jobs differ by more than a few per cent, a median moves by chance. What can be said is which drop all jobs rule
out: the test of ranks, with the jobs before lowered by that drop.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Literal

from lumisite.validate.verdict.stats import ALPHA, chance_of_drop, jobs_to_exclude, spread

#: A larger drop of the median than this is a failure whatever the test says, but in noise.
FLOOR_DROP = 0.20
#: The drop that noisy jobs must rule out at the least: faults of the network and of binds cost more than a half.
HALF_DROP = 0.50
#: More jobs than these are not asked for.
MOST_JOBS = 30


def judge_noisy(
    noise: float, before: Sequence[float], after: Sequence[float]
) -> tuple[Literal["warn", "inconclusive"], str, int] | None:
    """Ask all jobs (logarithms, higher is better) whether they rule out a drop of 20 %; None if so.

    Else give the verdict, its reason, and how many more jobs it waits for: a warning where a halving is ruled out.
    """
    after = after[:MOST_JOBS]
    middles = [statistics.median(values) for values in (before, after)]
    noise = spread(
        [value - middle for values, middle in zip((before, after), middles, strict=True) for value in values], noise
    )
    floor, half = (-math.log(1 - drop) for drop in (FLOOR_DROP, HALF_DROP))
    if chance_of_drop(floor, before, after) < ALPHA:
        return None
    said = f"too noisy, jobs differ by {percent(noise)}, to"
    settles = {drop: jobs_to_exclude(drop, noise, len(before), MOST_JOBS) for drop in (floor, half)}
    if chance_of_drop(half, before, after) < ALPHA:
        more = settles[floor] - len(after)
        told = f"; {_jobs(more)} would tell" if more > 0 else ""
        return "warn", f"{said} tell a drop of {percent(FLOOR_DROP)}; it has not dropped by half{told}", 0
    if not settles[half]:
        return "inconclusive", f"{said} rule out a drop by half, and more jobs cannot, with {len(before)} before", 0
    more = max(1, settles[half] - len(after))
    return "inconclusive", f"{said} rule out a drop by half: {_jobs(more)} would tell", more


def percent(part: float) -> str:
    """Write a part, whatever its sign.

    >>> percent(-0.123)
    '12.3 %'
    """
    return f"{abs(part):.1%}".replace("%", " %")


def _jobs(count: int) -> str:
    return f"{count} more job{'s' * (count > 1)}"
