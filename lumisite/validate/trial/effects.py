"""What a setting changes in numbers: paired within the allocation, with allocations as what is repeated.

A slot's score of a metric is the logarithm of its value, signed so that more is better. In an allocation, a variant is
compared with the mean of the references and the sham there, so that what an allocation has of its own cancels out. The
spread has two sources, which are pooled: slots of one arm in one allocation, and the differences between allocations.
The second stands alone where it is larger than chance explains, for then the setting's worth changes from allocation to
allocation, and where slots differ so much that the limits for sham and drift leave only allocations that look calm.
Sizes are judged in bands of like size, and each by itself beside that.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import chain
from typing import NamedTuple, TypeAlias

from lumisite.validate.metric_names import parse_name, size_text
from lumisite.validate.trial.design import Design, Measured, SlotResult, Thresholds
from lumisite.validate.trial.stats import reach, seen_from, within

#: Where the bands of sizes begin, in bytes: what latency decides, what is between, and what bandwidth decides.
BANDS = (0, 1 << 20, 64 << 20)
#: The chance that the interval holds the effect.
LEVEL = 0.95
#: Allocations differ by more than their slots explain from this ratio of variances on: quantile 0.99 of F with 2 and 6
#: degrees of freedom, which three allocations have.
APART = 10.9
#: A limit is wide enough that it does not cut off the noise of slots, if it is so many times as large.
WIDE = 3.0


class Key(NamedTuple):
    """What is judged as one: a quantity in a shape, in a band of sizes or, with a `size` from 0, of that size alone."""

    quantity: str
    shape: str
    band: int
    size: int = -1


@dataclass(frozen=True)
class Effect:
    """What a setting changes of one key, with it against without it, in parts (0.05: 5 % better, whatever is better).

    `low` and `high` are the 95 % interval, `mde` the smallest effect that would have been seen in nine of ten trials,
    were it the only one; `chance` is the false discovery rate at which the effect counts, among all that the trial
    asked. `each` has the effect by allocation. `first` and `last` size are in bytes, None where the metric has none.
    """

    metric: str
    workload: bool
    effect: float
    low: float
    high: float
    mde: float
    p: float
    each: Mapping[int, float]
    first: int | None = None
    last: int | None = None
    alone: bool = False
    """Whether it is one size of a band, which is judged too."""
    chance: float = 1.0

    @property
    def name(self) -> str:
        """The metric, and its sizes."""
        if self.first is None or self.last is None:
            return self.metric
        last = "" if self.last == self.first else f" to {size_text(self.last)}"
        return f"{self.metric}, {size_text(self.first)}{last}"


#: The scores of one arm in one allocation, by position.
ArmScores: TypeAlias = Mapping[int, float]
#: By key, the scores of each arm of one allocation.
Scores: TypeAlias = Mapping[Key, Mapping[str, ArmScores]]


#: A metric, whether it is a workload, and its first and last size.
About: TypeAlias = tuple[str, bool, int | None, int | None]


class Metrics:
    """Which metrics of a design's slots decide, and by which keys."""

    def __init__(self, patterns: Sequence[str], workload: Sequence[str], names: Iterable[str]) -> None:
        self._patterns, self._workload = patterns, workload
        self._abouts: dict[Key, About] = {}
        bands: dict[Key, set[int]] = {}
        parsed = {}
        for name in sorted(filter(self._decides, names)):
            own = parse_name(name)
            band = sum(own.size >= first for first in BANDS) if own.size is not None else 0
            key = Key(own.quantity, own.shape, band)
            parsed[name] = key, own.size or 0
            bands.setdefault(key, set()).add(-1 if own.size is None else own.size)
        self.sizes: Mapping[Key, Sequence[int]] = {key: sorted(sizes) for key, sizes in bands.items()}
        #: By key, the metrics that it stands for.
        self.keys: dict[Key, list[str]] = {}
        for name, (key, size) in parsed.items():
            for one in (key, key._replace(size=size)) if len(bands[key]) > 1 else (key,):
                self.keys.setdefault(one, []).append(name)
        self._names = {*parsed}

    def _decides(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self._patterns)

    def about(self, key: Key) -> About:
        """Give the metric of a key, whether it is a workload, and its first and last size."""
        if key not in self._abouts:
            self._abouts[key] = self._about(key)
        return self._abouts[key]

    def _about(self, key: Key) -> About:
        sizes = [size for size in self.sizes.get(key, [key.size]) if size >= 0]
        metric = "/".join(filter(None, (key.quantity, key.shape)))
        workload = any(fnmatchcase(metric, pattern) for pattern in self._workload)
        return metric, workload, min(sizes, default=None), max(sizes, default=None)

    def scores(self, results: Sequence[SlotResult]) -> Scores:
        """Give the scores of one allocation. Of a band, only the metrics count that all its slots measured."""
        slots = [
            (result.slot, self._of_slot(result))
            for result in results
            if result.outcome == "done" and not result.slot.check
        ]
        # Nearly always all slots measured the same; then no key has to look for what they have in common.
        same = {*slots[0][1]} if slots and all(own.keys() == slots[0][1].keys() for _, own in slots) else set()
        scores: dict[Key, dict[str, dict[int, float]]] = {}
        for key, names in self.keys.items():
            measured, common = slots, names
            if not same.issuperset(names):
                measured = [(slot, own) for slot, own in slots if not own.keys().isdisjoint(names)]
                common = [name for name in names if all(name in own for _, own in measured)]
            if common:
                arms = scores[key] = {}
                count = len(common)
                for slot, own in measured:
                    mean = own[common[0]] if count == 1 else sum([own[name] for name in common]) / count
                    arms.setdefault(slot.arm, {})[slot.position] = mean
        return scores

    def _of_slot(self, result: SlotResult) -> dict[str, float]:
        return {name: _score(one) for name, one in result.values.items() if name in self._names and one.values}


# The judges of allocations and of the trial ask about the same metrics, and so does the next trial.
_metrics = lru_cache(maxsize=16)(Metrics)


def metrics_of(design: Design, results: Iterable[SlotResult]) -> Metrics:
    """Give what decides among the metrics of these results."""
    names = frozenset(chain.from_iterable(result.values for result in results))
    return _metrics(design.metrics, design.workload, names)


def _score(measured: Measured) -> float:
    values = measured.values
    mean = math.log(values[0]) if len(values) == 1 else sum(map(math.log, values)) / len(values)
    return mean if measured.better == "higher" else -mean


def contrast(scores: Mapping[str, ArmScores], arms: Sequence[str], others: Sequence[str]) -> float | None:
    """Give how far one side's mean is above the other's, in logarithms; None where one side has none."""
    own, base = (_of(scores, names) for names in (arms, others))
    return _mean(own) - _mean(base) if own and base else None


def _of(scores: Mapping[str, ArmScores], arms: Sequence[str]) -> list[float]:
    return [score for arm in arms for score in scores.get(arm, {}).values()]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


@dataclass(frozen=True)
class _Estimate:
    """A mean in logarithms, the standard error of it, and the degrees of freedom of that."""

    mean: float
    error: float
    freedom: int


def estimate_effect(
    metrics: Metrics,
    key: Key,
    allocations: Mapping[int, Scores],
    arm: str,
    base: Sequence[str],
    sign: int,
    limits: Thresholds,
) -> Effect | None:
    """Estimate what an arm changes against those of `base`; None where fewer than two allocations measured both.

    `sign` is -1 where the arm is without the setting that is tried; `limits` has the alpha that one effect has to pass.
    """
    sides = {
        number: (own, others)
        for number, scores in allocations.items()
        if (own := _of(scores.get(key, {}), [arm])) and (others := _of(scores.get(key, {}), base))
    }
    if len(sides) < 2:
        return None
    each = {number: _mean(own) - _mean(base) for number, (own, base) in sides.items()}
    found = _estimate(list(each.values()), list(sides.values()), math.log1p(min(limits.sham, limits.drift)) / WIDE)
    half = reach(LEVEL, found.freedom) * found.error
    low, high = sorted((sign * found.mean - half, sign * found.mean + half))
    metric, workload, first, last = metrics.about(key)
    return Effect(
        metric,
        workload,
        as_part(sign * found.mean),
        as_part(low),
        as_part(high),
        as_part(seen_from(limits.alpha, found.freedom) * found.error),
        1 - within(found.mean / found.error, found.freedom) if found.error else float(found.mean == 0),
        {number: as_part(sign * value) for number, value in each.items()},
        first,
        last,
        alone=key.size >= 0,
    )


def _estimate(
    each: Sequence[float], sides: Sequence[tuple[Sequence[float], Sequence[float]]], most: float
) -> _Estimate:
    """Estimate the mean difference; a slot's variance is pooled from within and from between allocations.

    That from within is believed up to a deviation of `most`.
    """
    count = len(each)
    groups = [group for both in sides for group in both]
    inner = sum(map(_squares, groups))
    inner_freedom = sum(len(group) - 1 for group in groups)
    # How much of a slot's variance there is in the difference of two means.
    part = _mean([1 / len(own) + 1 / len(base) for own, base in sides])
    between = _squares(each) / (count - 1) / part
    freedom = inner_freedom + count - 1
    pooled = (inner + between * (count - 1)) / freedom
    own = inner / inner_freedom if inner_freedom else 0.0
    if own > most**2 or between > APART * own:
        pooled, freedom = max(between, pooled), count - 1
    return _Estimate(_mean(each), math.sqrt(pooled * part / count), freedom)


def _squares(values: Sequence[float]) -> float:
    """Give the sum of squares about the mean; `statistics` is exact for fractions, and a hundred times as slow."""
    mean = _mean(values)
    return math.fsum((value - mean) ** 2 for value in values)


def as_part(logarithm: float) -> float:
    """Give the part by which a value changes whose logarithm changes by so much; above -1, and at most a googol."""
    return math.expm1(max(-30.0, min(logarithm, 100 * math.log(10))))
