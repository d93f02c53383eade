"""Gather what a report shows: the verdict, what changed, what to do, and the numbers behind the plots.

Everything here is a pure function of what the two runs wrote; `write` writes it down.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from lumisite import __version__
from lumisite.facts.facts import Facts
from lumisite.site.load import LoadedSite
from lumisite.text import counted
from lumisite.validate.metric_names import Name, parse_name, shape_order
from lumisite.validate.probes.probe import Vector
from lumisite.validate.report.advice import Changed, advice, changes
from lumisite.validate.report.headline import day, headline, since, times
from lumisite.validate.samples import Recorded, Series
from lumisite.validate.verdict.gates import nodes_of_runs
from lumisite.validate.verdict.metric import MetricVerdict
from lumisite.validate.verdict.nodes import job_value
from lumisite.validate.verdict.system import SystemVerdict, Terms, judge_system

#: A file of series with so many lines that cannot be read is some other file.
LEFT_OUT = 1000
#: A distribution is shown by so many quantiles.
QUANTILES = 101
#: The sides of a verdict on a metric, by the name of its number.
SIDES = ("before", "after")
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
class Report:
    """Everything that a report shows; `users` is the text on the changes that can be sent to users, line by line.

    `headline` is the verdict and the finding, `summary` says when, on what, and how much was measured.
    """

    headline: str
    summary: tuple[str, ...]
    verdict: SystemVerdict
    about: tuple[tuple[str, str, str], ...]
    changes: tuple[Changed, ...]
    users: tuple[str, ...]
    advice: tuple[str, ...]
    curves: tuple[Curve, ...]
    distributions: tuple[Distribution, ...]
    scalings: tuple[Scaling, ...]


def make_report(before: Side, after: Side, terms: Terms, loaded: LoadedSite | None = None) -> Report:
    """Judge `after` against `before` and gather what is shown; the site tells what changes touch."""
    verdict = judge_system(before.recorded, after.recorded, terms)
    changed, users = changes(before.facts, after.facts, loaded)
    when = since(before.recorded, after.recorded, after.about, loaded)
    return Report(
        headline=headline(verdict, changed, when, with_baseline=not terms.alone),
        summary=tuple(_summary(before, after)),
        verdict=verdict,
        about=tuple(_about(before, after)),
        changes=changed,
        users=users,
        advice=tuple(advice(verdict, changed)),
        curves=tuple(_curves(before.recorded.series, after.recorded.series, verdict.metrics)),
        distributions=tuple(_distributions(before.vectors, after.vectors)),
        scalings=tuple(_scalings(verdict.metrics)),
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


def _summary(before: Side, after: Side) -> Iterator[str]:
    """Say when and on what was measured, how much, and what wrote this."""
    said = [" ".join(str(after.about.get(key) or "").split()) for key in ("site", "platform")]
    if any(said):
        yield f"{said[0]}{', platform ' * bool(said[1])}{said[1]}"
    for side, name in ((after, "measured"), (before, "compared with")):
        measured = _measured(side)
        if all(measured):
            yield f"{name} {' on '.join(measured[1:])}, {measured[0]}"
    yield f"lumisite {__version__}"


def _measured(side: Side) -> tuple[str, str, str]:
    """Give the days, the jobs and the nodes of a run; nothing of what was not run."""
    runs = nodes_of_runs([*side.recorded.gates, *(job for one in side.recorded.series.values() for job in one.jobs)])
    if not runs:
        return "", "", ""
    when, nodes = times(side.recorded), set[str]().union(*runs.values())
    days = dict.fromkeys(filter(None, (day(when[0]), day(when[-1]))))
    return " to ".join(days), counted(len(runs), "job"), counted(len(nodes), "node")


def _about(before: Side, after: Side) -> Iterator[tuple[str, str, str]]:
    for key in ABOUT:
        old, new = (" ".join(str(side.about.get(key, "") or "").split()) for side in (before, after))
        if old or new:
            yield CALLED.get(key, key), old, new
    earlier, later = _measured(before), _measured(after)
    yield "days", earlier[0], later[0]
    for name, was, now in zip(("jobs", "nodes"), earlier[1:], later[1:], strict=True):
        yield name, was.partition(" ")[0], now.partition(" ")[0]


def _families(
    metrics: Iterable[MetricVerdict], family_of: Callable[[Name], str]
) -> Iterator[tuple[str, str, dict[Name, MetricVerdict]]]:
    """Give metrics of one family, by their names, with its name and unit; `family_of` gives none for what has none."""
    families: dict[str, dict[Name, MetricVerdict]] = {}
    for one in metrics:
        name = parse_name(one.metric)
        families.setdefault(family_of(name), {})[name] = one
    for family, own in sorted(families.items()):
        if family and len(own) > 1:
            yield family, next((one.unit for one in own.values() if one.unit), ""), own


def _curves(
    before: Mapping[str, Series], after: Mapping[str, Series], metrics: Iterable[MetricVerdict]
) -> Iterator[Curve]:
    """Give curves through the numbers that were judged; the lowest and the highest are of all jobs."""

    def points(sizes: Mapping[int, MetricVerdict], which: str, side: Mapping[str, Series]) -> Iterator[Point]:
        for size, one in sorted(sizes.items()):
            if (middle := getattr(one, which)) is not None:
                values = [job_value(job, side[one.metric].better) for job in side[one.metric].jobs]
                yield Point(size, min(values), middle, max(values))

    def family_of(name: Name) -> str:
        return "" if name.size is None else f"{name.quantity}/{name.shape}".strip("/")

    for family, unit, own in _families(metrics, family_of):
        sizes = {name.size or 0: one for name, one in own.items()}
        yield Curve(family, unit, tuple(points(sizes, "before", before)), tuple(points(sizes, "after", after)))


def _distributions(before: Sequence[Vector], after: Sequence[Vector]) -> Iterator[Distribution]:
    for name in sorted({vector.series for vector in (*before, *after)}):
        unit = next(vector.unit for vector in (*after, *before) if vector.series == name)
        old, new = ([v for vector in side if vector.series == name for v in vector.values] for side in (before, after))
        yield Distribution(name, unit, quantiles(old), quantiles(new))


def quantiles(values: Sequence[float]) -> tuple[float, ...]:
    """Give `QUANTILES` quantiles in equal steps from the least to the largest value; none for no values."""
    ranked, last = sorted(values), len(values) - 1
    return tuple(ranked[round(last * step / (QUANTILES - 1))] for step in range(QUANTILES)) if ranked else ()


def _scalings(metrics: Iterable[MetricVerdict]) -> Iterator[Scaling]:
    def family_of(name: Name) -> str:
        return name.quantity if name.shape and name.size is None and name.quantity.endswith("_per_s") else ""

    def efficiency(rates: Mapping[str, float | None], shape: str) -> float | None:
        rate, one = rates.get(shape), rates.get("1n")
        return rate / one / int(shape[:-1]) if rate and one and shape.endswith("n") else None

    for family, unit, own in _families(metrics, family_of):
        old, new = ({name.shape: getattr(one, which) for name, one in own.items()} for which in SIDES)
        shapes = [shape for shape in sorted(old, key=shape_order) if old[shape] or new[shape]]
        bars = (Bar(one, old[one], new[one], efficiency(old, one), efficiency(new, one)) for one in shapes)
        if shapes:
            yield Scaling(family, unit, tuple(bars))
