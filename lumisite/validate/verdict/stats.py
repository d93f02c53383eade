"""The statistics of a verdict: robust noise, and the exact one-sided rank test of Mann and Whitney.

Where jobs differ by more than a few per cent, a median moves by chance. What can be said is which drop all jobs rule
out: the test of ranks, with the jobs before lowered by that drop.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from fractions import Fraction

from lumisite.findings.catalogue import make_finding
from lumisite.findings.finding import Finding
from lumisite.validate.lines import State

#: Chance of error of the rank test.
ALPHA = 0.01
#: Noise is taken to be at least this large.
NOISE_FLOOR = 0.005
#: Makes the median absolute deviation of normal noise its standard deviation.
NORMAL = 1.4826
#: What the rank test loses to the mean in normal noise (Lehmann, 1975, section 2.4), and quantiles of 0.99 and 0.9.
RANKS_LOSE, ALPHA_Z, POWER_Z = math.sqrt(math.pi / 3), 2.326, 1.282
#: A larger drop of the median than this is a failure whatever the test says, but in noise.
FLOOR_DROP = 0.20
#: The drop that noisy jobs must rule out at the least: faults of the network and of binds cost more than a half.
HALF_DROP = 0.50
#: More jobs than these are not asked for.
MOST_JOBS = 30


def spread(logarithms: Sequence[float], floor: float = NOISE_FLOOR) -> float:
    """Return the noise of one value, from the median absolute deviation of logarithms; at least `floor`."""
    middle = statistics.median(logarithms)
    return max(floor, NORMAL * statistics.median(abs(value - middle) for value in logarithms))


def lower_tail(lower: Sequence[float], higher: Sequence[float]) -> Fraction:
    """Return the chance that values like `lower` lie as low among all as they do, were both of one kind.

    One-sided Mann-Whitney test, exact: of all ways to choose `len(lower)` of the values, the part whose sum of ranks is
    no larger than the one seen. Equal values share the mean of their ranks, and the distribution is that of these very
    ranks, so that ties need no correction (Lehmann, Nonparametrics, 1975, section 1.4).
    """
    values = [*lower, *higher]
    ordered = sorted(values)
    # From 1 up, times two: the mean rank of ties is a half at most.
    ranks = [bisect_left(ordered, value) + bisect_right(ordered, value) + 1 for value in values]
    seen = sum(ranks[: len(lower)])
    return Fraction(_count_up_to(ranks, len(lower), seen), math.comb(len(values), len(lower)))


def least_chance(lower: int, higher: int) -> Fraction:
    """Return the smallest chance that `lower_tail` can give for so many values: all of one side below the other."""
    return Fraction(1, math.comb(lower + higher, lower))


def needed(lower: int, limit: float) -> int:
    """Return how many values the other side needs for `lower_tail` to come below `limit` at all."""
    other = 1
    while least_chance(lower, other) >= limit:
        other += 1
    return other


def jobs_to_exclude(drop: float, noise: float, before: int, most: int) -> int:
    """Return how many values show in nine of ten cases that nothing dropped by `drop`, by `judge_noisy`.

    0 where not even `most` do, against so few `before`. Normal approximation of the rank test; all in logarithms.
    """
    left = (drop / (noise * RANKS_LOSE * (ALPHA_Z + POWER_Z))) ** 2 - 1 / before
    return math.ceil(1 / left) if left * most >= 1 else 0


def judge_noisy(noise: float, before: Sequence[float], after: Sequence[float]) -> tuple[State, Finding, int] | None:
    """Return what all jobs (logarithms, higher is better) exclude; None where they exclude a drop of 20 %.

    That is the verdict, its reason, and how many more jobs it waits for: a warning where they exclude a halving.
    """
    after = after[:MOST_JOBS]
    middles = ((side, statistics.median(side)) for side in (before, after))
    noise = spread([value - middle for side, middle in middles for value in side], noise)

    def excluded(drop: float) -> bool:
        """Return whether `after` lies too high, had all dropped by so much."""
        return float(lower_tail([value - drop for value in before], after)) < ALPHA

    floor, half = (-math.log(1 - drop) for drop in (FLOOR_DROP, HALF_DROP))
    if excluded(floor):
        return None
    settles = {drop: jobs_to_exclude(drop, noise, len(before), MOST_JOBS) for drop in (floor, half)}
    if excluded(half):
        more = settles[floor] - len(after)
        found = make_finding("metric-noisy-not-halved", noise=noise, drop=FLOOR_DROP, more=more if more > 0 else None)
        return "warn", found, 0
    more = max(1, settles[half] - len(after)) if settles[half] else 0
    found = make_finding("metric-noisy", noise=noise, more=more or None, jobs_before=len(before))
    return "inconclusive", found, more


def _count_up_to(ranks: Sequence[int], size: int, limit: int) -> int:
    """Count the choices of `size` ranks with a sum of at most `limit`.

    `counts[n]` holds, in fields of so many bits of one large number, how many choices of n ranks have each sum: adding
    a rank to all of them is one shift.
    """
    width = math.comb(len(ranks), size).bit_length() + 1
    everything = (1 << (width * (limit + 1))) - 1
    counts = [1] + [0] * size
    for rank in ranks:
        for chosen in range(size, 0, -1):
            counts[chosen] += (counts[chosen - 1] << (width * rank)) & everything
    # Modulo one less than its base, a number is the sum of its digits; that is smaller still.
    return counts[size] % ((1 << width) - 1)
