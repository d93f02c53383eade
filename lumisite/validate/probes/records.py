"""Read the records that ranks left. What a record lacks is empty; what has another form than its script's raises."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from lumisite.validate.probes.probe import Record

_Value = TypeVar("_Value")


def finished(records: Iterable[Record]) -> list[Record]:
    """Return the records of ranks that came to their end, by rank; of the others there is only where they were."""
    return sorted((record for record in records if "local_rank" in record), key=rank_of)


def rank_of(record: Record) -> int:
    """Return the number of a rank, -1 where it did not know it."""
    rank: int = record.get("rank", -1)
    return rank


def value_at(record: Record, *keys: str) -> Any:
    """Return the value below some keys, None where one is missing."""
    value: Any = record
    for key in keys:
        value = value.get(key) if value else None
    return value


def text(record: Record, *keys: str) -> str:
    """Return a text, empty where there is none."""
    value: str | None = value_at(record, *keys)
    return value or ""


def table(record: Record, *keys: str) -> dict[str, Any]:
    """Return a mapping, empty where there is none."""
    value: dict[str, Any] | None = value_at(record, *keys)
    return value or {}


def rows(record: Record, *keys: str) -> Sequence[Any]:
    """Return a list, empty where there is none."""
    value: Sequence[Any] | None = value_at(record, *keys)
    return value or ()


def slowest(records: Iterable[Record], key: str) -> list[float]:
    """Return the largest of all ranks at each place of a list of times: they wait for each other."""
    return [max(times) for times in zip(*(rows(record, key) for record in records), strict=False)]


def usual(values: Iterable[_Value]) -> _Value | None:
    """Return what more than half have, if there is such a value."""
    counts = Counter(values)
    value, count = counts.most_common(1)[0] if counts else (None, 0)
    return value if 2 * count > counts.total() else None
