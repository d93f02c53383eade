"""Bandwidth as nccl-tests define it, and the tables that nccl-tests and rccl-tests print.

Sources: doc/PERFORMANCE.md of both, for the definitions; the header that the programs print, for the columns.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass

#: One row: size count type redop root, then time algbw busbw #wrong out of place, and the same in place.
_ROW = re.compile(r"^ *(\d+)(?: +\S+){4} +(.+)$", re.MULTILINE)
_RANK = re.compile(r"^#\s+Rank\s+\d+\b", re.MULTILINE)
_BOUNDS = re.compile(r"^#\s*Out of bounds values\s*:\s*(\d+)", re.MULTILINE)


def bus_bandwidth(collective: str, size: int, seconds: float, ranks: int) -> float:
    """Give GB/s (10^9) from the total size in bytes: what a link carries, whatever the number of ranks.

    >>> bus_bandwidth("all_reduce", 10**9, 1.0, 4)
    1.5
    >>> bus_bandwidth("all_gather", 10**9, 1.0, 4)
    0.75
    """
    factor = {"all_reduce": 2 * (ranks - 1) / ranks, "all_gather": (ranks - 1) / ranks}
    factor["reduce_scatter"] = factor["all_gather"]
    return size / seconds / 1e9 * factor[collective]


@dataclass(frozen=True)
class Row:
    """One size in bytes: the worse of out of place and in place, and the values that were wrong, if it was checked."""

    size: int
    busbw: float
    wrong: int


@dataclass(frozen=True)
class Table:
    """What one program printed; `ranks` as it lists them."""

    rows: tuple[Row, ...]
    ranks: int
    out_of_bounds: int


def parse_table(text: str) -> Table:
    r"""Read what a program printed; lines that are no rows are left out.

    >>> text = "# Rank  0 Group  0\n 1048576 262144 float sum -1 80.1 13.09 24.54 0 79.9 13.12 24.60 N/A\n"
    >>> parse_table(text + "# Out of bounds values : 0 OK\n")
    Table(rows=(Row(size=1048576, busbw=24.54, wrong=0),), ranks=1, out_of_bounds=0)
    """
    rows = []
    for size, rest in _ROW.findall(text):
        words = rest.split()
        places = [words[first : first + 4] for first in range(0, len(words) - 3, 4)]
        with suppress(ValueError):
            busbw = min(float(place[2]) for place in places)
            rows.append(Row(int(size), busbw, sum(int(place[3]) for place in places if place[3].isdigit())))
    bounds = _BOUNDS.search(text)
    return Table(tuple(rows), len(_RANK.findall(text)), int(bounds[1]) if bounds else 0)
