"""Read the records that ranks left, of which anything may be missing or of another type."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from lumisite.validate.lines import LARGEST
from lumisite.validate.probes.probe import Record

_Value = TypeVar("_Value")


def finished(records: Iterable[Record]) -> list[Record]:
    """Return the records of ranks that came to their end, by rank; of the others there is only where they were."""
    return sorted((record for record in records if "local_rank" in record), key=rank_of)


def rank_of(record: Record) -> int:
    """Return the number of a rank."""
    rank = record.get("rank")
    return rank if isinstance(rank, int) else -1


def value_at(record: object, *keys: str) -> object:
    """Return the value below some keys, `None` where one is missing."""
    for key in keys:
        record = record.get(key) if isinstance(record, Mapping) else None
    return record


def text(record: object, *keys: str) -> str:
    """Return a text, empty where there is none."""
    value = value_at(record, *keys)
    return value if isinstance(value, str) else ""


def whole(record: object, *keys: str) -> int:
    """Return a whole number, 0 where there is none."""
    value = value_at(record, *keys)
    return value if isinstance(value, int) and abs(value) <= LARGEST else 0


def count_in(text: str) -> int | None:
    """Return the number that a text is, as the kernel writes it; `None` for anything else."""
    return int(text) if re.fullmatch(r"[0-9]{1,20}", text) else None


def number(record: object, *keys: str) -> float | None:
    """Return a number, if it is one that can be measured."""
    value = value_at(record, *keys)
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > LARGEST:
        return None
    return float(value)


def numbers(record: object, *keys: str) -> list[float]:
    """Return a list of numbers; anything else is left out."""
    return [value for each in rows(record, *keys) if (value := number(each)) is not None]


def slowest(records: Iterable[object], key: str) -> list[float]:
    """Return the largest of all ranks at each place of a list of times: they wait for each other."""
    return [max(times) for times in zip(*(numbers(record, key) for record in records), strict=False)]


def table(record: object, *keys: str) -> Mapping[str, object]:
    """Return a mapping, empty where there is none."""
    value = value_at(record, *keys)
    return value if isinstance(value, Mapping) else {}


def rows(record: object, *keys: str) -> Sequence[object]:
    """Return a list, empty where there is none."""
    value = value_at(record, *keys)
    return value if isinstance(value, list) else ()


def texts(record: object, *keys: str) -> list[str]:
    """Return a list of texts in a record of a job, empty where there is none."""
    return [str(each) for each in rows(record, *keys)]


def usual(values: Iterable[_Value]) -> _Value | None:
    """Return what more than half have, if there is such a value."""
    return more_than_half(Counter(values))


def more_than_half(counts: Counter[_Value]) -> _Value | None:
    """Return what has more than half of all counts, if there is such a value."""
    value, count = counts.most_common(1)[0] if counts else (None, 0)
    return value if 2 * count > counts.total() else None


def in_image(mount: object) -> bool:
    """Return whether what is on a mount is the image's own, not the host's: the root, or part of a squashfs file.

    Without overlay a runtime mounts parts of its squashfs one by one ("underlay" of SingularityCE's admin guide).
    """
    return text(mount, "point") in ("", "/") or "squash" in text(mount, "type")
