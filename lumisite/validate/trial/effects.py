"""What a setting changes in numbers: paired within the allocation, with allocations as what is repeated.

The score of a run is the logarithm of its value, signed so that more is better. In an allocation, a variant is compared
with the mean of the references and the placebo there, so that what the allocation itself adds cancels out. The spread
has two sources, which are pooled: runs of one arm in one allocation, and the differences between allocations. The
second stands alone where it is larger than chance explains, for then the effect changes from allocation to allocation,
and where runs differ so much that the limits for placebo and drift leave only allocations that look calm. Sizes are
judged in bands of like size, and each by itself beside that.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NamedTuple, TypeAlias

from lumisite.validate.metric_names import parse_name, size_text
from lumisite.validate.trial.design import PLACEBO, REFERENCE, Arm, Design, Thresholds
from lumisite.validate.trial.results import Measured, RunResult
from lumisite.validate.trial.stats import reach, seen_from, within

#: Where the bands of sizes begin, in bytes: what latency decides, what is between, and what bandwidth decides.
BANDS = (0, 1 << 20, 64 << 20)
#: The chance that the interval holds the effect.
LEVEL = 0.95
#: Allocations differ by more than their runs explain from this ratio of variances on: quantile 0.99 of F with 2 and 6
#: degrees of freedom, which three allocations have.
APART = 10.9
#: A limit is wide enough that it does not cut off the noise of runs, if it is so many times as large.
WIDE = 3.0


class Metric(NamedTuple):
    """What is judged as one: a quantity in a shape, over a band of sizes, or of `one_size` of a band with several.

    `first` and `last` size are in bytes, None where it has none; `names` are the metrics that it consists of.
    """

    name: str
    workload: bool
    first: int | None
    last: int | None
    one_size: bool
    names: tuple[str, ...]


class Spread(NamedTuple):
    """The standard error of an effect, in logarithms, from `allocations` of them; `alpha` is what it had to pass.

    Of its degrees of freedom, each allocation brings `inner`, and one beside that; all together bring one less.
    """

    error: float
    allocations: int
    inner: float
    alpha: float

    def mde(self, allocations: int) -> float:
        """Return the smallest effect that nine of ten trials of so many allocations would find, in logarithms."""
        freedom = math.floor(self.inner * allocations) + allocations - 1
        return seen_from(self.alpha, freedom) * self.error * math.sqrt(self.allocations / allocations)


@dataclass(frozen=True)
class Effect:
    """What a variant changes of one metric against the baseline, in parts (0.05: 5 % better).

    `low` and `high` are the 95 % interval, `mde` the smallest effect that would have been seen in nine of ten trials,
    were it the only one; `chance` is the false discovery rate at which the effect counts, among all that the trial
    measures. `each` has the effect by allocation; `alone` is true for one size of a band, which is judged too. `spread`
    says how the interval follows from what was measured.
    """

    metric: str
    workload: bool
    effect: float
    low: float
    high: float
    mde: float
    p: float
    each: Mapping[int, float]
    spread: Spread
    first: int | None = None
    last: int | None = None
    alone: bool = False
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
#: By metric, the scores of each arm of one allocation.
Scores: TypeAlias = Mapping[Metric, Mapping[str, ArmScores]]


def metrics_of(design: Design, results: Iterable[RunResult]) -> tuple[Metric, ...]:
    """Return what decides among the metrics of these results: bands, and behind each its sizes."""
    names = {name for result in results for name in result.values}
    bands: dict[tuple[str, str, int], dict[int | None, list[str]]] = {}
    for name in sorted(names):
        if _fits(name, design.metrics):
            parsed = parse_name(name)
            band = sum(parsed.size >= first for first in BANDS) if parsed.size is not None else 0
            sizes = bands.setdefault((parsed.quantity, parsed.shape, band), {})
            sizes.setdefault(parsed.size, []).append(name)
    found: list[Metric] = []
    for (quantity, shape, _), sizes in sorted(bands.items()):
        metric = "/".join(filter(None, (quantity, shape)))
        workload = _fits(metric, design.workload)
        known = sorted(size for size in sizes if size is not None)
        first, last = min(known, default=None), max(known, default=None)
        every = tuple(sorted(name for members in sizes.values() for name in members))
        found.append(Metric(metric, workload, first, last, False, every))
        if len(sizes) > 1:
            found += [Metric(metric, workload, size, size, True, tuple(sizes[size])) for size in known]
    return tuple(found)


def _fits(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def score_runs(metrics: Sequence[Metric], results: Sequence[RunResult]) -> Scores:
    """Return the scores of one allocation. Of a band, only the sizes count that all its runs measured."""
    used = {name for metric in metrics for name in metric.names}
    runs = []
    for result in results:
        if result.outcome == "done" and not result.run.check:
            scored = {name: _score(value) for name, value in result.values.items() if name in used and value.values}
            runs.append((result.run, scored))
    scores: dict[Metric, dict[str, dict[int, float]]] = {}
    for metric in metrics:
        measured = [(run, scored) for run, scored in runs if not scored.keys().isdisjoint(metric.names)]
        common = [name for name in metric.names if all(name in scored for _, scored in measured)]
        if measured and common:
            arms = scores[metric] = {}
            for run, scored in measured:
                arms.setdefault(run.arm, {})[run.position] = sum([scored[name] for name in common]) / len(common)
    return scores


def _score(measured: Measured) -> float:
    mean = sum(map(math.log, measured.values)) / len(measured.values)
    return mean if measured.better == "higher" else -mean


def contrast(scores: Mapping[str, ArmScores], arms: Sequence[str], others: Sequence[str]) -> float | None:
    """Return how far one side's mean is above the other's, in logarithms; None where a side has no scores."""
    side, base = _of(scores, arms), _of(scores, others)
    return _mean(side) - _mean(base) if side and base else None


def _of(scores: Mapping[str, ArmScores], arms: Sequence[str]) -> list[float]:
    return [score for arm in arms for score in scores.get(arm, {}).values()]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def estimate_effect(metric: Metric, allocations: Mapping[int, Scores], arm: Arm, limits: Thresholds) -> Effect | None:
    """Estimate what the setting of an arm changes; None where fewer than two allocations measured it and references.

    `limits` has the alpha that one effect has to pass.
    """
    sides: dict[int, tuple[list[float], list[float]]] = {}
    for number, scores in allocations.items():
        arms = scores.get(metric, {})
        variant, others = _of(arms, [arm.name]), _of(arms, [REFERENCE, PLACEBO])
        if variant and others:
            sides[number] = variant, others
    if len(sides) < 2:
        return None
    each = {number: _mean(variant) - _mean(others) for number, (variant, others) in sides.items()}
    noise = math.log1p(min(limits.sham, limits.drift)) / WIDE
    error, freedom = _error(list(each.values()), list(sides.values()), noise)
    mean = _mean(list(each.values()))
    half = reach(LEVEL, freedom) * error
    return Effect(
        metric=metric.name,
        workload=metric.workload,
        effect=as_part(mean),
        low=as_part(mean - half),
        high=as_part(mean + half),
        mde=as_part(seen_from(limits.alpha, freedom) * error),
        p=1 - within(mean / error, freedom) if error else float(mean == 0),
        each={number: as_part(value) for number, value in each.items()},
        spread=Spread(error, len(each), (freedom + 1 - len(each)) / len(each), limits.alpha),
        first=metric.first,
        last=metric.last,
        alone=metric.one_size,
    )


def _error(
    each: Sequence[float], sides: Sequence[tuple[Sequence[float], Sequence[float]]], most: float
) -> tuple[float, int]:
    """Return the standard error of the mean difference, and its degrees of freedom.

    The variance of a run is pooled from within and from between allocations. That from within counts up to a deviation
    of `most`.
    """
    count = len(each)
    inner = sum(_squares(values) for side in sides for values in side)
    inner_freedom = sum(len(values) - 1 for side in sides for values in side)
    # How much of a run's variance there is in the difference of two means.
    part = _mean([1 / len(variant) + 1 / len(others) for variant, others in sides])
    between = _squares(each) / (count - 1) / part
    freedom = inner_freedom + count - 1
    pooled = (inner + between * (count - 1)) / freedom
    variance = inner / inner_freedom if inner_freedom else 0.0
    if variance > most**2 or between > APART * variance:
        pooled, freedom = max(between, pooled), count - 1
    return math.sqrt(pooled * part / count), freedom


def _squares(values: Sequence[float]) -> float:
    """Return the sum of squares about the mean; `statistics` is exact for fractions, and a hundred times as slow."""
    mean = _mean(values)
    return math.fsum((value - mean) ** 2 for value in values)


def as_part(logarithm: float) -> float:
    """Return the part by which a value changes whose logarithm changes by so much; above -1, and at most a googol."""
    return math.expm1(max(-30.0, min(logarithm, 100 * math.log(10))))
