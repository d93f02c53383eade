"""The statistics of a verdict: shift and noise of jobs, and the exact one-sided rank test of Mann and Whitney.

Where jobs differ by more than a few per cent, a median moves by chance. What can be said is which drop all jobs rule
out: the test of ranks, with the jobs before lowered by that drop.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations
from statistics import NormalDist

#: Chances that an unchanged system fails, or warns, in a whole maintenance: all deciding metrics share them.
ALPHA, WARN_ALPHA = 0.01, 0.05
#: The standard deviation of the shift at the second look in units of the noise, with the error of the noise itself:
#: half of the variance is common to the jobs of a day or of a set of nodes, and no number of jobs takes that away.
#: From simulation (docs/explanation/verdict.md).
SHIFT_ERROR = 0.78
#: A metric with more noise decides nothing but large drops.
NOISE_LIMIT = 0.05
#: Noise is taken to be at least this large.
NOISE_FLOOR = 0.005
#: Makes the median absolute deviation of normal noise its standard deviation, and the median distance of two values.
NORMAL, NORMAL_PAIRS = 1.4826, 1.0483
#: A larger drop of the median than this is a failure whatever the test says, but in noise.
FLOOR_DROP = 0.20
#: The drop that noisy jobs must rule out at the least: faults of the network and of binds cost more than a half.
HALF_DROP = 0.50
#: How many jobs after are looked at, one look after the other, until a noisy metric is settled. Each look has its share
#: of the chance of error, so that adding jobs until it passes keeps that chance.
LOOKS = (5, 10, 20, 30)
LOOK_ALPHA = ALPHA / len(LOOKS)


def spread(logarithms: Sequence[float]) -> float:
    """Return the noise of one value, from the median absolute deviation of logarithms; at least `NOISE_FLOOR`."""
    middle = statistics.median(logarithms)
    return max(NOISE_FLOOR, NORMAL * statistics.median(abs(value - middle) for value in logarithms))


def shift(before: Sequence[float], after: Sequence[float]) -> float:
    """Return how far `after` lies above `before`: the median over all pairs (Hodges and Lehmann, 1963)."""
    return statistics.median(new - old for new in after for old in before)


def noise_of_jobs(*sides: Sequence[float]) -> float:
    """Return the noise of one job, from the median distance between two jobs of one side; at least `NOISE_FLOOR`.

    As robust as the median absolute deviation to a few stray jobs, and twice as exact for so few.
    """
    distances = [abs(one - other) for side in sides for one, other in combinations(side, 2)]
    return max(NOISE_FLOOR, NORMAL_PAIRS * statistics.median(distances))


def limit_in_noise(alpha: float) -> float:
    """Return how many times the noise a shift by chance exceeds in a part `alpha` of cases, at the second look.

    >>> [round(limit_in_noise(0.01 / metrics), 2) for metrics in (1, 8, 20)]
    [1.81, 2.36, 2.57]
    """
    return -SHIFT_ERROR * NormalDist().inv_cdf(alpha)


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


def excludes_drop(drop: float, before: Sequence[float], after: Sequence[float]) -> bool:
    """Return whether `after` lies too high at some look, had all jobs dropped by this part.

    Both are logarithms, higher for better.
    """
    lowered = [value + math.log(1 - drop) for value in before]
    return any(float(lower_tail(lowered, after[:look])) < LOOK_ALPHA for look in LOOKS if look <= len(after))


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
