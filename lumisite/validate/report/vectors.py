"""Read vectors for plots: `{"series", "run", "nodes", "rank", "values", "unit"}`, one JSON line each.

They serve plots only and no verdict depends on them, so a line that cannot be read (the last one of a run that was
killed) is left out and counted.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

#: A distribution is shown by so many quantiles.
QUANTILES = 101


@dataclass(frozen=True)
class Vector:
    """What one rank of one run measured, step by step."""

    series: str
    unit: str
    values: tuple[float, ...]


def parse_vectors(lines: Iterable[bytes]) -> tuple[tuple[Vector, ...], int]:
    """Read vectors; give them with the number of lines that were left out."""
    found, left_out = [], 0
    for line in lines:
        if line.strip():
            vector = _vector(line)
            found += [vector] if vector else []
            left_out += vector is None
    return tuple(found), left_out


def _vector(line: bytes) -> Vector | None:
    try:
        raw = json.loads(line)
        values = tuple(float(value) for value in raw["values"])
        name, unit = raw["series"], raw.get("unit") or ""
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None
    if not isinstance(name, str) or not isinstance(unit, str) or not values or not all(map(math.isfinite, values)):
        return None
    return Vector(name, unit, values)


def quantiles(values: Sequence[float]) -> tuple[float, ...]:
    """Give `QUANTILES` quantiles in equal steps from the least to the largest value; none for no values."""
    ranked = sorted(values)
    if not ranked:
        return ()
    last = len(ranked) - 1
    return tuple(ranked[round(last * step / (QUANTILES - 1))] for step in range(QUANTILES))
