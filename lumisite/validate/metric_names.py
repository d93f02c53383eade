"""The parts of a metric's name: `<probe>/<quantity>[/<size>]/<shape>`, as `collectives/all_reduce_busbw/128MiB/2n`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

_SIZE = re.compile(r"([0-9]{1,15})(B|KiB|MiB|GiB|TiB)", re.ASCII)
_SHAPE = re.compile(r"[1-9][0-9]{0,8}[gn]", re.ASCII)
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True)
class Name:
    """The parts of a name; `quantity` is all that is neither size (in bytes) nor shape (`1g`, `1n`, `2n`)."""

    quantity: str
    size: int | None
    shape: str

    @property
    def probe(self) -> str:
        """The first part of the name."""
        return self.quantity.partition("/")[0]


@lru_cache(maxsize=4096)
def parse_name(metric: str) -> Name:
    """Parse a name. A name of another form is all quantity.

    >>> parse_name("collectives/all_reduce_busbw/128MiB/2n")
    Name(quantity='collectives/all_reduce_busbw', size=134217728, shape='2n')
    """
    parts = metric.split("/")
    shape = parts.pop() if len(parts) > 1 and _SHAPE.fullmatch(parts[-1]) else ""
    found = _SIZE.fullmatch(parts[-1]) if len(parts) > 1 else None
    if found is None:
        return Name("/".join(parts), None, shape)
    return Name("/".join(parts[:-1]), int(found[1]) << (10 * _UNITS.index(found[2])), shape)


def metric_order(metric: str) -> tuple[str, str, int, str]:
    """Return the key that orders metrics for people: those of one quantity and shape together, by size."""
    name = parse_name(metric)
    return name.quantity, name.shape, name.size or 0, metric


def size_text(size: int) -> str:
    """Return a size as names have it.

    >>> size_text(134217728)
    '128MiB'
    """
    for power in range(len(_UNITS) - 1, 0, -1):
        if size and not size % (1 << (10 * power)):
            return f"{size >> (10 * power)}{_UNITS[power]}"
    return f"{size}B"


def shape_order(shape: str) -> tuple[bool, int]:
    """Return the key that orders shapes by size: GPUs, then nodes."""
    return shape.endswith("n"), int(shape[:-1])
