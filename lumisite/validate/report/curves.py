"""Which plots a report has: curves through what was judged, by message size or by shape; `plots` draws them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from lumisite.text import figure
from lumisite.validate.samples import Name, Series, parse_name, shape_order, size_text
from lumisite.validate.verdict.metric import MetricVerdict
from lumisite.validate.verdict.slow_nodes import job_value

#: The lowest, the middle and the highest of the jobs of one side.
Spread: TypeAlias = tuple[float, float, float]


@dataclass(frozen=True)
class Point:
    """A message size or a shape of a curve; a side that was not measured has nothing."""

    label: str
    before: Spread | None
    after: Spread | None


@dataclass(frozen=True)
class Curve:
    """A quantity that was measured `by` message size or by shape (one GPU, one node, several)."""

    name: str
    unit: str
    by: str
    points: tuple[Point, ...]

    @property
    def title(self) -> str:
        """What it shows."""
        return f"{self.name} by {self.by}"

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """Its numbers: what the middle job of each side measured."""
        return [
            (point.label, *(figure(side[1] if side else None) for side in (point.before, point.after)))
            for point in self.points
        ]

    @property
    def sentence(self) -> str:
        """The plot for those who do not see it."""
        return f"{self.title}. {self.by}, before, after: {'; '.join(map(' '.join, self.rows))}."


def curves_of(
    before: Mapping[str, Series], after: Mapping[str, Series], metrics: Iterable[MetricVerdict]
) -> Iterator[Curve]:
    """Yield curves through the numbers that were judged: those by message size first."""
    families: dict[tuple[bool, str], list[tuple[Name, MetricVerdict]]] = {}
    for metric in metrics:
        name = parse_name(metric.metric)
        if name.size is not None:
            families.setdefault((False, f"{name.quantity}/{name.shape}".strip("/")), []).append((name, metric))
        elif name.shape and "_per_s" in name.quantity:
            families.setdefault((True, name.quantity), []).append((name, metric))
    for (by_shape, family), members in sorted(families.items()):
        members.sort(key=lambda member: (member[0].size or 0, shape_order(member[0].shape) if by_shape else ()))
        points = [
            Point(
                name.shape if name.size is None else size_text(name.size),
                _spread(metric.before, before.get(metric.metric)),
                _spread(metric.after, after.get(metric.metric)),
            )
            for name, metric in members
        ]
        points = [point for point in points if point.before or point.after]
        if len(points) > 1:
            unit = next((metric.unit for _, metric in members if metric.unit), "")
            yield Curve(family, unit, "shape" if by_shape else "message size", tuple(points))


def _spread(middle: float | None, series: Series | None) -> Spread | None:
    if middle is None or series is None:
        return None
    values = [job_value(job, series.better) for job in series.jobs]
    return min(values), middle, max(values)
