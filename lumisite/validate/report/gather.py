"""Gather what a report shows: the verdict, what changed, what to do, and the numbers behind the plots.

Everything here is a pure function of what the two runs wrote; `write` writes it down.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from lumisite.facts.facts import Facts
from lumisite.site.load import LoadedSite
from lumisite.validate.metric_names import parse_name
from lumisite.validate.report.advice import Changed, advice, changes
from lumisite.validate.samples import Recorded, Series
from lumisite.validate.verdict.nodes import is_per_node, job_value, node_scores
from lumisite.validate.verdict.system import SystemVerdict, Terms, judge_system

#: What `run.json` says that a report repeats, and how it calls what it calls otherwise.
ABOUT = ("site", "platform", "partition", "backend", "image", "image_digest", "spec", "started", "lumisite")
CALLED = {"backend": "back-end", "image_digest": "image digest", "spec": "what is measured"}


@dataclass(frozen=True)
class Side:
    """What one run wrote; `facts` is what the machine was, `about` what its `run.json` says."""

    recorded: Recorded
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
    maps: tuple[NodeMap, ...]


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
        maps=tuple(_maps(after.recorded.series.values(), verdict)),
    )


def _about(before: Mapping[str, object], after: Mapping[str, object]) -> Iterator[tuple[str, str, str]]:
    for key in ABOUT:
        old, new = (str(side.get(key, "") or "") for side in (before, after))
        if old or new:
            yield CALLED.get(key, key), " ".join(old.split()), " ".join(new.split())


def _curves(before: Mapping[str, Series], after: Mapping[str, Series]) -> Iterator[Curve]:
    """Give the metrics of several sizes, one curve for all those that differ in nothing else."""
    curves: dict[str, dict[int, str]] = {}
    for metric in sorted({*before, *after}):
        name = parse_name(metric)
        if name.size is not None:
            curves.setdefault(f"{name.quantity}/{name.shape}".strip("/"), {})[name.size] = metric
    for family, sizes in sorted(curves.items()):
        if len(sizes) > 1:
            unit = next(side[one].unit for one in sizes.values() for side in (after, before) if one in side)
            yield Curve(family, unit, tuple(_points(before, sizes)), tuple(_points(after, sizes)))


def _points(series: Mapping[str, Series], sizes: Mapping[int, str]) -> Iterator[Point]:
    for size, metric in sorted(sizes.items()):
        if metric in series:
            values = [job_value(job, series[metric].better) for job in series[metric].jobs]
            yield Point(size, min(values), statistics.median(values), max(values))


def _maps(series: Iterable[Series], verdict: SystemVerdict) -> Iterator[NodeMap]:
    for one in series:
        if is_per_node(one):
            scores = node_scores(one)
            middle = statistics.median(scores.values())
            parts = tuple((node, math.exp(score - middle)) for node, score in sorted(scores.items()))
            slow = tuple(slow.node for slow in verdict.slow_nodes if slow.metric == one.metric)
            yield NodeMap(one.metric, parts, slow)
