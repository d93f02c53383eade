"""How large a trial would have to be to decide what one did not, in nine of ten trials, by the tests that judge it."""

from __future__ import annotations

from collections.abc import Callable
from math import log1p

from lumisite.findings.catalogue import make_finding
from lumisite.findings.finding import Finding
from lumisite.validate.trial.design import Design
from lumisite.validate.trial.effects import Spread
from lumisite.validate.trial.stats import fisher_power

#: The part of trials that would decide, which is what the smallest effect that is seen (MDE) means too.
POWER = 0.9
#: No trial is advised in which a setting has more runs, or which has more allocations.
MOST_RUNS = 150
MOST_ALLOCATIONS = 30


def size_for_rates(design: Design, variant: tuple[int, int], baseline: tuple[int, int]) -> Finding:
    """Return the attempts or allocations with which Fisher's test would decide at the rates that were seen.

    Each side is how many runs failed, of how many.
    """
    # What the false discovery rate demands of one setting where no other one fails.
    alpha = design.thresholds.alpha / len(design.variants)
    first, second = sorted((variant, baseline), key=lambda side: side[0] / side[1], reverse=True)
    rates = first[0] / first[1], second[0] / second[1]

    def decides(allocations: int, attempts: int) -> bool:
        tried, references = allocations * attempts, allocations * max(3, attempts)
        runs = (tried, references) if first is variant else (references, tried)
        return fisher_power(runs, rates, alpha) >= POWER

    attempts = _first(
        lambda count: decides(design.allocations, count), design.attempts + 1, MOST_RUNS // design.allocations
    )
    most = min(MOST_ALLOCATIONS, MOST_RUNS // design.attempts)
    allocations = _first(lambda count: decides(count, design.attempts), design.allocations + 1, most)
    return _finding(attempts, allocations, MOST_RUNS)


def size_for_effect(spread: Spread, smallest: float) -> Finding:
    """Return the allocations from which on the smallest effect of interest would be seen, were runs as noisy."""
    found = _first(lambda count: spread.mde(count) <= log1p(smallest), spread.allocations + 1, MOST_ALLOCATIONS)
    return _finding(None, found, MOST_ALLOCATIONS)


def _finding(attempts: int | None, allocations: int | None, most: int) -> Finding:
    if attempts is None and allocations is None:
        return make_finding("size-beyond", power=POWER, most_runs=most if most == MOST_RUNS else None, most=most)
    return make_finding("size-needed", attempts=attempts, allocations=allocations, power=POWER)


def _first(decides: Callable[[int], bool], low: int, high: int) -> int | None:
    """Return a number from which on it decides, by halves; None where the largest does not."""
    if high < low or not decides(high):
        return None
    while low < high:
        middle = (low + high) // 2
        if decides(middle):
            high = middle
        else:
            low = middle + 1
    return high
