"""Bandwidth as nccl-tests define it, and the tables that nccl-tests and rccl-tests print.

Sources: doc/PERFORMANCE.md of both, for the definitions; the header that the programs print, for the columns.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

#: One row: size count type redop root, then time algbw busbw #wrong out of place, and the same in place.
COLUMNS_BEFORE, COLUMNS_EACH = 5, 4
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
    """One size: out of place and in place; `wrong` is None where the program did not check."""

    size: int
    busbw: tuple[float, ...]
    wrong: int | None


@dataclass(frozen=True)
class Table:
    """What one program printed; `ranks` as it lists them."""

    rows: tuple[Row, ...]
    ranks: int
    out_of_bounds: int | None


def parse_table(text: str) -> Table:
    r"""Read what a program printed; lines that are no rows are left out.

    >>> text = "# Rank  0 Group  0\n 1048576 262144 float sum -1 80.1 13.09 24.54 0 79.9 13.12 24.60 N/A\n"
    >>> parse_table(text + "# Out of bounds values : 0 OK\n")
    Table(rows=(Row(size=1048576, busbw=(24.54, 24.6), wrong=0),), ranks=1, out_of_bounds=0)
    """
    rows = [row for row in map(_row, text.splitlines()) if row is not None]
    bounds = _BOUNDS.search(text)
    return Table(tuple(rows), len(_RANK.findall(text)), int(bounds[1]) if bounds else None)


def _row(line: str) -> Row | None:
    words = line.split()
    if len(words) < COLUMNS_BEFORE + COLUMNS_EACH or not words[0].isdigit() or line.lstrip().startswith("#"):
        return None
    busbw, wrong = [], []
    for first in range(COLUMNS_BEFORE, len(words) - COLUMNS_EACH + 1, COLUMNS_EACH):
        try:
            busbw.append(float(words[first + 2]))
        except ValueError:
            return None
        if words[first + 3].isdigit():
            wrong.append(int(words[first + 3]))
    return Row(int(words[0]), tuple(busbw), sum(wrong) if wrong else None)
