"""Gather what a report shows: the verdict, what changed, what to do, and the numbers behind the plots.

Everything here is a pure function of what the two runs wrote; `write` writes it down.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from lumisite.facts.facts import Facts
from lumisite.site.load import LoadedSite
from lumisite.validate.metric_names import Name, parse_name, shape_order
from lumisite.validate.probes.probe import Vector
from lumisite.validate.report.advice import Changed, advice, changes
from lumisite.validate.samples import Recorded, Series
from lumisite.validate.verdict.nodes import is_per_node, job_value, node_scores
from lumisite.validate.verdict.system import SystemVerdict, Terms, judge_system

_Part = TypeVar("_Part")

#: How vectors of the probe `wrapper` are called: this, the environment, the shape.
EPOCHS = "wrapper/epoch_s/"
#: A file of series with so many lines that cannot be read is some other file.
LEFT_OUT = 1000
#: A distribution is shown by so many quantiles.
QUANTILES = 101
#: What `run.json` says that a report repeats, and how it calls what it calls otherwise.
ABOUT = ("site", "platform", "partition", "backend", "image", "image_digest", "spec", "started", "lumisite")
CALLED = {"backend": "back-end", "image_digest": "image digest", "spec": "what is measured"}


@dataclass(frozen=True)
class Side:
    """What one run wrote; `facts` is what the machine was, `about` what its `run.json` says."""

    recorded: Recorded
    vectors: tuple[Vector, ...] = ()
    facts: Facts | None = None
    about: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Point:
    """One size of a bandwidth curve: the lowest, middle and highest job; sizes in bytes."""

    size: int
    low: float
    middle: float
    high: float


@dataclass(frozen=True)
class Curve:
    """A metric that was measured at several sizes."""

    name: str
    unit: str
    before: tuple[Point, ...]
    after: tuple[Point, ...]


@dataclass(frozen=True)
class Distribution:
    """How all values of a series are spread: quantiles from 0 to 1 in equal steps."""

    name: str
    unit: str
    before: tuple[float, ...]
    after: tuple[float, ...]


@dataclass(frozen=True)
class Bar:
    """A rate on one shape; an efficiency is the part of what as many single nodes (or GPUs) would reach."""

    shape: str
    before: float | None
    after: float | None
    efficiency_before: float | None
    efficiency_after: float | None


@dataclass(frozen=True)
class Scaling:
    """A rate on one GPU, one node, several nodes."""

    name: str
    unit: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class NodeMap:
    """How fast each node is against the median of all (1.0), higher is better, by name; `slow` are the outliers."""

    metric: str
    nodes: tuple[tuple[str, float], ...]
    slow: tuple[str, ...]


@dataclass(frozen=True)
class EpochTable:
    """Seconds of each epoch (the median over the jobs), one column for each environment, in alphabetical order."""

    shape: str
    environments: tuple[str, ...]
    epochs: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Report:
    """Everything that a report shows; `users` is the text on the changes that can be sent to users, line by line."""

    verdict: SystemVerdict
    about: tuple[tuple[str, str, str], ...]
    changes: tuple[Changed, ...]
    users: tuple[str, ...]
    advice: tuple[str, ...]
    curves: tuple[Curve, ...]
    distributions: tuple[Distribution, ...]
    scalings: tuple[Scaling, ...]
    maps: tuple[NodeMap, ...]
    epochs: tuple[EpochTable, ...]


def make_report(before: Side, after: Side, terms: Terms, loaded: LoadedSite | None = None) -> Report:
    """Judge `after` against `before` and gather what is shown; the site tells what changes touch."""
    verdict = judge_system(before.recorded, after.recorded, terms)
    changed, users = changes(before.facts, after.facts, loaded)
    return Report(
        verdict=verdict,
        about=tuple(_about(before.about, after.about)),
        changes=changed,
        users=users,
        advice=tuple(advice(verdict, changed)),
        curves=tuple(_curves(before.recorded.series, after.recorded.series)),
        distributions=tuple(_distributions(before.vectors, after.vectors)),
        scalings=tuple(_scalings(before.recorded.series, after.recorded.series)),
        maps=tuple(_maps(after.recorded.series.values(), verdict)),
        epochs=tuple(_epochs(after.vectors)),
    )


def parse_vectors(lines: Iterable[bytes]) -> tuple[tuple[Vector, ...], int]:
    """Read vectors; give them with the number of lines that were left out.

    They are one JSON line each, of which plots show series, values and unit. No verdict depends on them, so a line that
    cannot be read (the last one of a run that was killed) is left out. What is behind `LEFT_OUT` of them is not read.
    """
    found: list[Vector] = []
    left_out = 0
    for line in lines:
        if line.strip():
            if (vector := _vector(line)) is not None:
                found.append(vector)
            elif (left_out := left_out + 1) == LEFT_OUT:
                break
    return tuple(found), left_out


def _vector(line: bytes) -> Vector | None:
    try:
        raw = json.loads(line)
        values = tuple(float(value) for value in raw["values"])
        vector = Vector(raw["series"], raw.get("run"), raw.get("nodes"), raw.get("rank"), values, raw.get("unit") or "")
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None
    sound = isinstance(vector.series, str) and isinstance(vector.unit, str) and all(map(math.isfinite, vector.values))
    return vector if sound and vector.values else None


def _about(before: Mapping[str, object], after: Mapping[str, object]) -> Iterator[tuple[str, str, str]]:
    for key in ABOUT:
        old, new = (str(side.get(key, "") or "") for side in (before, after))
        if old or new:
            yield CALLED.get(key, key), " ".join(old.split()), " ".join(new.split())


def _families(
    before: Mapping[str, Series], after: Mapping[str, Series], split: Callable[[Name], tuple[str, _Part] | None]
) -> Iterator[tuple[str, str, dict[_Part, list[float]], dict[_Part, list[float]]]]:
    """Give metrics that differ in one part of their name only: what they share, their unit, and the values of jobs.

    `split` takes a name apart so; None for one that belongs to no family. Values are by that part, before and after.
    """
    families: dict[str, dict[_Part, str]] = {}
    for metric in sorted({*before, *after}):
        if (found := split(parse_name(metric))) is not None:
            families.setdefault(found[0], {})[found[1]] = metric
    for family, parts in sorted(families.items()):
        if len(parts) > 1:
            old = {part: before[one] for part, one in parts.items() if one in before}
            new = {part: after[one] for part, one in parts.items() if one in after}
            yield family, [*new.values(), *old.values()][0].unit, _values(old), _values(new)


def _values(side: Mapping[_Part, Series]) -> dict[_Part, list[float]]:
    return {part: [job_value(job, series.better) for job in series.jobs] for part, series in side.items()}


def _curves(before: Mapping[str, Series], after: Mapping[str, Series]) -> Iterator[Curve]:
    def by_size(name: Name) -> tuple[str, int] | None:
        return None if name.size is None else (f"{name.quantity}/{name.shape}".strip("/"), name.size)

    def points(side: Mapping[int, list[float]]) -> tuple[Point, ...]:
        return tuple(Point(size, min(own), statistics.median(own), max(own)) for size, own in sorted(side.items()))

    for family, unit, old, new in _families(before, after, by_size):
        yield Curve(family, unit, points(old), points(new))


def _distributions(before: Sequence[Vector], after: Sequence[Vector]) -> Iterator[Distribution]:
    for name in sorted({vector.series for vector in (*before, *after) if not vector.series.startswith(EPOCHS)}):
        unit = next(vector.unit for vector in (*after, *before) if vector.series == name)
        old, new = ([v for vector in side if vector.series == name for v in vector.values] for side in (before, after))
        yield Distribution(name, unit, quantiles(old), quantiles(new))


def quantiles(values: Sequence[float]) -> tuple[float, ...]:
    """Give `QUANTILES` quantiles in equal steps from the least to the largest value; none for no values."""
    ranked, last = sorted(values), len(values) - 1
    return tuple(ranked[round(last * step / (QUANTILES - 1))] for step in range(QUANTILES)) if ranked else ()


def _scalings(before: Mapping[str, Series], after: Mapping[str, Series]) -> Iterator[Scaling]:
    def by_shape(name: Name) -> tuple[str, str] | None:
        rate = name.shape and name.size is None and name.quantity.endswith("_per_s")
        return (name.quantity, name.shape) if rate else None

    def efficiency(rates: Mapping[str, float], shape: str) -> float | None:
        rate, one = rates.get(shape), rates.get("1n")
        return rate / one / int(shape[:-1]) if rate and one and shape.endswith("n") else None

    for family, unit, *sides in _families(before, after, by_shape):
        old, new = ({shape: statistics.median(own) for shape, own in side.items()} for side in sides)
        yield Scaling(
            family,
            unit,
            tuple(
                Bar(shape, old.get(shape), new.get(shape), efficiency(old, shape), efficiency(new, shape))
                for shape in sorted({*old, *new}, key=shape_order)
            ),
        )


def _maps(series: Iterable[Series], verdict: SystemVerdict) -> Iterator[NodeMap]:
    for one in series:
        if is_per_node(one):
            scores = node_scores(one)
            middle = statistics.median(scores.values())
            parts = tuple((node, math.exp(score - middle)) for node, score in sorted(scores.items()))
            slow = tuple(slow.node for slow in verdict.slow_nodes if slow.metric == one.metric)
            yield NodeMap(one.metric, parts, slow)


def _epochs(vectors: Iterable[Vector]) -> Iterator[EpochTable]:
    """Give a table for each shape that more than one environment was measured in."""
    shapes: dict[str, dict[str, list[tuple[float, ...]]]] = {}
    for vector in vectors:
        if vector.series.startswith(EPOCHS):
            name = parse_name(vector.series)
            environments = shapes.setdefault(name.shape, {})
            environments.setdefault(name.quantity.removeprefix(EPOCHS), []).append(vector.values)
    for shape, environments in sorted(shapes.items()):
        if len(environments) > 1:
            names = sorted(environments)
            columns = [map(statistics.median, zip(*environments[name], strict=False)) for name in names]
            yield EpochTable(shape, tuple(names), tuple(zip(*columns, strict=False)))
