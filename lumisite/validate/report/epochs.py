"""The table of the probe `wrapper`: what each epoch took in the container and in an environment of the wrapper."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lumisite.validate.metric_names import parse_name
from lumisite.validate.report.vectors import Vector

#: How the vectors are called: this, the environment, the shape.
SERIES = "wrapper/epoch_s/"


@dataclass(frozen=True)
class EpochTable:
    """Seconds of each epoch (the median over the jobs), one column for each environment, in alphabetical order."""

    shape: str
    environments: tuple[str, ...]
    epochs: tuple[tuple[float, ...], ...]


def epoch_tables(vectors: Iterable[Vector]) -> Iterator[EpochTable]:
    """Give a table for each shape that more than one environment was measured in."""
    shapes: dict[str, dict[str, list[Vector]]] = {}
    for vector in vectors:
        if vector.series.startswith(SERIES):
            name = parse_name(vector.series)
            environments = shapes.setdefault(name.shape, {})
            environments.setdefault(name.quantity.removeprefix(SERIES), []).append(vector)
    for shape, environments in sorted(shapes.items()):
        if len(environments) > 1:
            columns = [
                [statistics.median(epoch) for epoch in zip(*(one.values for one in own), strict=False)]
                for _, own in sorted(environments.items())
            ]
            yield EpochTable(shape, tuple(sorted(environments)), tuple(zip(*columns, strict=False)))


def epoch_rows(table: EpochTable) -> Iterator[tuple[str, ...]]:
    """Give the cells, heads first; the last column is the last environment against the first."""
    yield ("epoch", *(f"{name} s" for name in table.environments), "ratio")
    for number, seconds in enumerate(table.epochs, start=1):
        ratio = seconds[-1] / seconds[0] if seconds[0] else float("inf")
        yield (str(number), *(f"{value:.3f}" for value in seconds), f"{ratio:.2f}")
