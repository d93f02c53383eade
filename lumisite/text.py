"""Texts that several rooms write or read: tables, lines, and the command that takes nodes out of service."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from textwrap import wrap
from typing import TypeVar

Item = TypeVar("Item")

_TIME = re.compile(r"(?:(\d{1,4})-)?(\d{1,6})(?::(\d{1,4}))?(?::(\d{1,4}))?")

#: No text is wrapped to fewer letters than this.
NARROWEST = 20

#: A list of what there is to choose from ends after so many.
MOST_NAMES = 15


def columns(rows: Sequence[Sequence[str]], width: int | None = None) -> Iterator[str]:
    """Yield the lines of an aligned table: plain text, since short columns need no library and `awk` reads them.

    Text of the last column that a `width` has no room for is continued below it.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    indent = sum(widths[:-1]) + 2 * len(widths[:-1])
    for row in rows:
        line = "  ".join(map(str.ljust, row, widths)).rstrip()
        if width is None or len(line) <= width or width - indent < NARROWEST:
            yield line
            continue
        first, *others = wrap(row[-1], width - indent, break_long_words=False, break_on_hyphens=False)
        yield line[:indent] + first
        yield from (" " * indent + other for other in others)


def counted(number: int, name: str) -> str:
    """Return a number of things as text.

    >>> counted(1, "image"), counted(2, "image"), counted(2, "family"), counted(2, "day")
    ('1 image', '2 images', '2 families', '2 days')
    """
    return f"{number} {name}" if number == 1 else f"{number} {re.sub(r'(?<![aeiou])y$', 'ie', name)}s"


def figure(value: float | None) -> str:
    """Write a measured number, always in five digits.

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


def listed(names: Iterable[object]) -> str:
    """Return names for a sentence, many of them counted.

    >>> listed(["a", 2])
    'a, 2'
    """
    return some([str(name) for name in names], between=", ")


def nearest_name(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the name that a word was probably meant to be.

    >>> nearest_name("twim", ["site", "twin"])
    'twin'
    """
    from difflib import get_close_matches  # slow to import, and only a fault needs it

    return next(iter(get_close_matches(word, list(known), 1, cutoff)), None)


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return what `word` may have been meant to be, or what there is to choose from, as text."""
    names = [str(name) for name in known]
    near = nearest_name(word, names)
    if near:
        return f"did you mean {near}?"
    return f"have {some(names, MOST_NAMES, ', ')}" if names else "there are none"


def first_repeated(items: Iterable[Item]) -> Item | None:
    """Return the first item that was there before; `None` where all differ.

    >>> first_repeated([3, 1, 2, 1, 3]), first_repeated("abc")
    (1, None)
    """
    seen: set[Item] = set()
    for item in items:
        if item in seen:
            return item
        seen.add(item)
    return None


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


def minutes_of(text: str) -> float:
    """Return a time limit as Slurm reads it: minutes, M:S, H:M:S, D-H, D-H:M or D-H:M:S; 0 for what is none.

    >>> minutes_of("90"), minutes_of("00:30:00"), minutes_of("1-0"), minutes_of("soon")
    (90.0, 30.0, 1440.0, 0.0)
    """
    found = _TIME.fullmatch(text)
    days, first, second, third = (int(part or 0) for part in found.groups()) if found else (0, 0, 0, 0)
    if found and found[1]:
        return days * 1440 + first * 60 + second + third / 60
    return first * 60 + second + third / 60 if found and found[4] else first + second / 60


def drain_command(nodes: Iterable[str], reason: str) -> str:
    """Return the command that drains nodes, which nothing here runs."""
    names = shlex.quote(",".join(nodes))
    return f"scontrol update nodename={names} state=drain reason={shlex.quote(f'lumisite: {reason}')}"


def whole_lines(blocks: Iterable[bytes], keep: Callable[[bytes], bytes]) -> Iterator[bytes]:
    """Cut the blocks of a file after a newline; the last one gets a newline if it has none.

    `keep` returns what is kept of a line that has no end yet; it may raise.
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
