"""The tables that nccl-tests and rccl-tests print; the header that the programs print names the columns."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

#: One row: size count type redop root, then time algbw busbw #wrong out of place, and the same in place.
_ROW = re.compile(r"^ *(\d+)(?: +\S+){4} +(.+)$", re.MULTILINE)
_RANK = re.compile(r"^#\s+Rank\s+\d+\b", re.MULTILINE)
_BOUNDS = re.compile(r"^#\s*Out of bounds values\s*:\s*(\d+)", re.MULTILINE)


@dataclass(frozen=True)
class Table:
    """What one program printed: GB/s, and the wrong values where there are any, by size in bytes."""

    busbw: Mapping[int, float]
    wrong: Mapping[int, int]
    ranks: int
    out_of_bounds: int


def parse_table(text: str) -> Table:
    r"""Read what a program printed, the worse of out of place and in place; lines that are no rows are left out.

    >>> text = "# Rank  0 Group  0\n 1048576 262144 float sum -1 80.1 13.09 24.54 0 79.9 13.12 24.60 N/A\n"
    >>> parse_table(text + "# Out of bounds values : 0 OK\n")
    Table(busbw={1048576: 24.54}, wrong={}, ranks=1, out_of_bounds=0)
    """
    busbw, wrong = {}, {}
    for size, rest in _ROW.findall(text):
        words = rest.split()
        places = [words[first : first + 4] for first in range(0, len(words) - 3, 4)]
        with suppress(ValueError):
            busbw[int(size)] = min(float(place[2]) for place in places)
            wrong[int(size)] = sum(int(place[3]) for place in places if place[3].isdecimal())
    bounds = _BOUNDS.search(text)
    bad = {size: count for size, count in wrong.items() if count}
    return Table(busbw, bad, len(_RANK.findall(text)), int(bounds[1]) if bounds else 0)
