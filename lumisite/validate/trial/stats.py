"""The statistics of a trial: Student's t, Fisher's exact test, Clopper and Pearson's interval, false discoveries.

They are finite sums and a bisection, exact for the whole numbers of runs that a trial has: scipy, against which they
are tested, would be by far the largest dependency of an admin's node.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache

from lumisite.validate.verdict.stats import POWER_Z


def within(t: float, freedom: int) -> float:
    """Return the chance that Student's t with so many degrees of freedom is at most `t` away from 0.

    Source: Abramowitz and Stegun, 26.7.3 and 26.7.4, finite sums for whole degrees of freedom.
    """
    angle = math.atan(abs(t) / math.sqrt(freedom))
    square, odd = math.cos(angle) ** 2, freedom % 2
    total = 0.0
    term = math.cos(angle) if odd else 1.0
    for step in range(1 + odd, freedom, 2):
        total += term
        term *= square * step / (step + 1)
    return min(1.0, (angle + math.sin(angle) * total) * 2 / math.pi if odd else math.sin(angle) * total)


@cache
def reach(chance: float, freedom: int) -> float:
    """Return how far from 0 Student's t is with so much chance, `chance` below 1: the inverse of `within`."""
    most = 1.0
    while within(most, freedom) < chance:
        most *= 2
    return _bisect(lambda t: within(t, freedom) < chance, 0.0, most)


def seen_from(alpha: float, freedom: int) -> float:
    """Return how many standard errors an effect has that nine of ten trials find at `alpha`, two-sided.

    Normal approximation of noncentral t, whose spread counts where there are few degrees of freedom.
    """
    least = reach(1 - alpha, freedom)
    return least * (1 - 1 / (4 * freedom)) + POWER_Z * math.sqrt(1 + least**2 / (2 * freedom))


def fisher(bad: int, runs: int, bad_others: int, others: int) -> float:
    """Return the chance of at least `bad` of `runs`, with so many bad ones in all, were both sides of one kind.

    >>> round(fisher(3, 3, 0, 9), 5)
    0.00455
    """
    every, wrong = runs + others, bad + bad_others
    ways = sum(math.comb(runs, count) * math.comb(others, wrong - count) for count in range(bad, min(runs, wrong) + 1))
    return ways / math.comb(every, wrong)


@cache
def fisher_power(runs: tuple[int, int], rates: tuple[float, float], alpha: float) -> float:
    """Return the chance that Fisher's test finds more bad runs on the first side than on the second, at `alpha`.

    >>> round(fisher_power((9, 9), (0.9, 0.0), 0.005), 2)
    0.99
    """
    count, others = runs
    power, least = 0.0, 0
    for bad_others in range(others + 1):
        # The more there are on the other side, the more it takes.
        while least <= count and fisher(least, count, bad_others, others) > alpha:
            least += 1
        if least > count:
            break
        power += _exactly(bad_others, others, rates[1]) * _at_least(least, count, rates[0])
    return power


def _exactly(bad: int, runs: int, rate: float) -> float:
    return math.comb(runs, bad) * rate**bad * (1 - rate) ** (runs - bad)


@cache
def rate_interval(bad: int, runs: int, chance: float = 0.95) -> tuple[float, float]:
    """Return the interval of Clopper and Pearson for the rate of which `bad` of `runs` were seen.

    >>> [round(limit, 3) for limit in rate_interval(21, 23)]
    [0.72, 0.989]
    """
    tail = (1 - chance) / 2
    low = _bisect(lambda rate: _at_least(bad, runs, rate) < tail, 0.0, 1.0) if bad else 0.0
    high = _bisect(lambda rate: 1 - _at_least(bad + 1, runs, rate) > tail, 0.0, 1.0) if bad < runs else 1.0
    return low, high


def adjusted(chances: Sequence[float]) -> list[float]:
    """Return for each p the least false discovery rate at which it counts (Benjamini and Hochberg, 1995).

    >>> adjusted([0.01, 0.5, 0.02])
    [0.03, 0.5, 0.03]
    """
    found = [1.0] * len(chances)
    order = sorted(range(len(chances)), key=chances.__getitem__)
    least = 1.0
    for rank in range(len(order), 0, -1):
        index = order[rank - 1]
        found[index] = least = min(least, chances[index] * (len(chances) / rank))
    return found


def _at_least(bad: int, runs: int, rate: float) -> float:
    """Return the chance of at least `bad` of `runs` at a rate."""
    if rate in (0.0, 1.0):
        return float(bad <= runs * rate)
    up, down, fixed = math.log(rate), math.log1p(-rate), math.lgamma(runs + 1)

    def chance(count: int) -> float:
        ways = fixed - math.lgamma(count + 1) - math.lgamma(runs - count + 1)
        return math.exp(ways + count * up + (runs - count) * down)

    if 2 * bad > runs:
        return math.fsum(map(chance, range(bad, runs + 1)))
    return 1 - math.fsum(map(chance, range(bad)))


def _bisect(below: Callable[[float], bool], low: float, high: float) -> float:
    """Return where `below`, true from `low` on, ends."""
    for _ in range(64):
        middle = (low + high) / 2
        if below(middle):
            low = middle
        else:
            high = middle
    return (low + high) / 2
