"""Gather what a report shows: the verdict, what changed, what to do, and the numbers behind the plots.

Everything here is a pure function of what the two runs wrote; `report_text`, `report_markdown`, `report_html`,
`report_junit` and `json.dumps` write it down.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lumisite.validate.metric_names import Name, parse_name, shape_order
from lumisite.validate.report.advice import advice
from lumisite.validate.report.changes import Changed, changes
from lumisite.validate.report.epochs import SERIES as EPOCHS
from lumisite.validate.report.epochs import EpochTable, epoch_tables
from lumisite.validate.report.vectors import Vector, quantiles
from lumisite.validate.samples import Recorded, Series
from lumisite.validate.verdict.nodes import is_per_node, job_value, node_scores
from lumisite.validate.verdict.system import SystemVerdict, Terms, judge_system

if TYPE_CHECKING:
    from lumisite.facts.facts import Facts
    from lumisite.site.model import Site
    from lumisite.site.plans import LoadedPlan

#: What `run.json` says that a report repeats, and how it calls it.
ABOUT = {
    "site": "site",
    "platform": "platform",
    "partition": "partition",
    "backend": "back-end",
    "image": "image",
    "image_digest": "image digest",
    "spec": "what is measured",
    "started": "started",
    "lumisite": "lumisite",
}


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


def make_report(
    before: Side, after: Side, terms: Terms, site: Site | None = None, plans: Sequence[LoadedPlan] = ()
) -> Report:
    """Judge `after` against `before` and gather what is shown; `site` and its plans tell what changes touch."""
    verdict = judge_system(before.recorded, after.recorded, terms)
    found = changes(before.facts, after.facts, site, plans)
    return Report(
        verdict=verdict,
        about=tuple(_about(before.about, after.about)),
        changes=found.changed,
        users=found.users,
        advice=tuple(advice(verdict, found.changed)),
        curves=tuple(_curves(before.recorded.series, after.recorded.series)),
        distributions=tuple(_distributions(before.vectors, after.vectors)),
        scalings=tuple(_scalings(before.recorded.series, after.recorded.series)),
        maps=tuple(_maps(after.recorded.series.values(), verdict)),
        epochs=tuple(epoch_tables(after.vectors)),
    )


def _about(before: Mapping[str, object], after: Mapping[str, object]) -> Iterator[tuple[str, str, str]]:
    for key, name in ABOUT.items():
        old, new = (str(side.get(key, "") or "") for side in (before, after))
        if old or new:
            yield name, " ".join(old.split()), " ".join(new.split())


def _named(series: Iterable[str]) -> Iterator[tuple[Name, str]]:
    for metric in series:
        yield parse_name(metric), metric


def _curves(before: Mapping[str, Series], after: Mapping[str, Series]) -> Iterator[Curve]:
    families: dict[str, dict[int, str]] = {}
    for name, metric in _named(sorted({*before, *after})):
        if name.size is not None:
            families.setdefault(f"{name.quantity}/{name.shape}".strip("/"), {})[name.size] = metric
    for family, sizes in sorted(families.items()):
        if len(sizes) > 1:
            unit = next((have[m].unit for m in sizes.values() for have in (after, before) if m in have), "")
            yield Curve(family, unit, tuple(_points(before, sizes)), tuple(_points(after, sizes)))


def _points(series: Mapping[str, Series], sizes: Mapping[int, str]) -> Iterator[Point]:
    for size, metric in sorted(sizes.items()):
        if metric in series:
            values = [job_value(job, series[metric].better) for job in series[metric].jobs]
            yield Point(size, min(values), statistics.median(values), max(values))


def _distributions(before: Sequence[Vector], after: Sequence[Vector]) -> Iterator[Distribution]:
    for name in sorted({vector.series for vector in (*before, *after) if not vector.series.startswith(EPOCHS)}):
        own = [vector for vector in (*after, *before) if vector.series == name]
        old, new = ([v for vector in side if vector.series == name for v in vector.values] for side in (before, after))
        yield Distribution(name, own[0].unit, quantiles(old), quantiles(new))


def _scalings(before: Mapping[str, Series], after: Mapping[str, Series]) -> Iterator[Scaling]:
    families: dict[str, dict[str, str]] = {}
    for name, metric in _named(sorted({*before, *after})):
        if name.shape and name.size is None and name.quantity.endswith("_per_s"):
            families.setdefault(name.quantity, {})[name.shape] = metric
    for family, shapes in sorted(families.items()):
        if len(shapes) > 1:
            unit = next((have[m].unit for m in shapes.values() for have in (after, before) if m in have), "")
            yield Scaling(family, unit, tuple(_bars(before, after, shapes)))


def _bars(before: Mapping[str, Series], after: Mapping[str, Series], shapes: Mapping[str, str]) -> Iterator[Bar]:
    def middle(side: Mapping[str, Series], shape: str) -> float | None:
        series = side.get(shapes.get(shape, ""))
        return statistics.median(job_value(job, series.better) for job in series.jobs) if series else None

    def efficiency(side: Mapping[str, Series], shape: str) -> float | None:
        rate, one = middle(side, shape), middle(side, "1n")
        return rate / one / int(shape[:-1]) if rate and one and shape.endswith("n") else None

    for shape in sorted(shapes, key=shape_order):
        yield Bar(
            shape, middle(before, shape), middle(after, shape), efficiency(before, shape), efficiency(after, shape)
        )


def _maps(series: Iterable[Series], verdict: SystemVerdict) -> Iterator[NodeMap]:
    for one in series:
        if is_per_node(one):
            scores = node_scores(one)
            middle = statistics.median(scores.values())
            parts = tuple((node, math.exp(score - middle)) for node, score in sorted(scores.items()))
            slow = tuple(slow.node for slow in verdict.slow_nodes if slow.metric == one.metric)
            yield NodeMap(one.metric, parts, slow)
