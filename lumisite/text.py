"""Texts that several rooms write: aligned tables, and the command that takes nodes out of service."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence


def columns(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Give the lines of an aligned table: plain text, since short columns need no library and `awk` reads them."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(map(str.ljust, row, widths)).rstrip()


def counted(number: int, name: str) -> str:
    """Give a number of things in words.

    >>> counted(1, "image"), counted(2, "image"), counted(2, "family"), counted(2, "day")
    ('1 image', '2 images', '2 families', '2 days')
    """
    return f"{number} {name}" if number == 1 else f"{number} {re.sub(r'(?<![aeiou])y$', 'ie', name)}s"


def some(names: Sequence[str], most: int = 8, between: str = ",") -> str:
    """List the first few names, and count the others.

    >>> some(["a", "b", "c"], 2, ", ")
    'a, b and 1 more'
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return between.join(names[:most]) + more


def drain_command(nodes: Iterable[str], reason: str) -> str:
    """Give the command that drains nodes, which nothing here runs."""
    names = shlex.quote(",".join(nodes))
    return f"scontrol update nodename={names} state=drain reason={shlex.quote(f'lumisite: {reason}')}"
