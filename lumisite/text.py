"""Texts that several rooms write or read: tables, lines, and the command that takes nodes out of service."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence


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


def figure(value: float | None) -> str:
    """Write a measured number, the same wherever it stands: in five digits.

    >>> figure(6532.04), figure(0.123456), figure(1234567.0), figure(None)
    ('6532', '0.12346', '1234600', '-')
    """
    if value is None:
        return "-"
    text = f"{value:.5g}"
    return f"{float(text):.0f}" if "e+" in text and value < 1e15 else text


def percent(part: float, digits: int = 1) -> str:
    """Write a part, whatever its sign.

    >>> percent(-0.123), percent(0.148, 0)
    ('12.3 %', '15 %')
    """
    return f"{abs(part):.{digits}%}".replace("%", " %")


def change(part: float | None) -> str:
    """Write a change with its sign, one that is too small for the digits as none.

    >>> change(-0.1351), change(-0.0001), change(None)
    ('-13.5 %', '+0.0 %', '-')
    """
    if part is None:
        return "-"
    return ("-" if round(part, 3) < 0 else "+") + percent(part)


def some(names: Sequence[str], most: int = 8, between: str = ",") -> str:
    """List the first few names, and count the others.

    >>> some(["a", "b", "c"], 2, ", ")
    'a, b and 1 more'
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return between.join(names[:most]) + more


def printable(name: str) -> str:
    """Return a text as it is when it prints on one line, else quoted with odd characters spelled out.

    >>> printable("a b"), printable("")
    ('a b', "''")
    """
    return name if name.isprintable() and name else ascii(name)


def natural(name: str) -> list[int | str]:
    """Return what sorts names as people count: text and numbers by turns.

    >>> sorted(["nic10", "nic9", "eth0"], key=natural)
    ['eth0', 'nic9', 'nic10']
    """
    return [int(part) if at % 2 else part for at, part in enumerate(re.split(r"(\d{1,9})", name))]


def drain_command(nodes: Iterable[str], reason: str) -> str:
    """Give the command that drains nodes, which nothing here runs."""
    names = shlex.quote(",".join(nodes))
    return f"scontrol update nodename={names} state=drain reason={shlex.quote(f'lumisite: {reason}')}"


def whole_lines(blocks: Iterable[bytes], keep: Callable[[bytes], bytes]) -> Iterator[bytes]:
    """Cut the blocks of a file after a newline; the last one gets a newline if it has none.

    `keep` is asked, while a line has no end yet, what of it is kept; it may raise.
    """
    rest = b""
    for block in blocks:
        end = block.rfind(b"\n") + 1
        if end:
            yield rest + memoryview(block)[:end]
            rest = block[end:]
        else:
            rest = keep(rest + block)
    if rest:
        yield rest + b"\n"
