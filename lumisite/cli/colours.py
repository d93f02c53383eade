"""Lines on a terminal: their colours, and tables that fit its width. What is no terminal gets the lines alone."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence

from lumisite.cli.terminal import plain
from lumisite.text import columns

#: What lines of a diff begin with, and the colour of each: SGR parameters of ECMA-48.
DIFFERENCE = (
    (re.compile(r"^(?:(?:---|\+\+\+) [ab/]|release ).*"), "1"),
    (re.compile(r"^@@ .*"), "36"),
    (re.compile(r"^\+.*"), "32"),
    (re.compile(r"^-.*"), "31"),
)
_BEGIN = r"(?:^|(?<=  )|(?<=: ))"
#: The words that tell how something went, at the begin of a line or as a cell of a table, and the colour of each.
OUTCOMES = (
    (re.compile(rf"{_BEGIN}(?:pass|passed)\b", re.IGNORECASE), "32"),
    (re.compile(rf"{_BEGIN}(?:fail|failed|bad-nodes|missing|refused)\b", re.IGNORECASE), "31"),
    (re.compile(rf"{_BEGIN}(?:inconclusive|underpowered|warning)\b", re.IGNORECASE), "33"),
)
Colours = Sequence[tuple[re.Pattern[str], str]]


def print_lines(lines: Iterable[str], colours: Colours = OUTCOMES) -> None:
    """Print lines, on a terminal with colours unless NO_COLOR is set."""
    text = "\n".join(lines)
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        print(text)
        return
    coloured = "\n".join(_coloured(line, colours) for line in plain(text).split("\n"))
    sys.stdout.write("")  # prints what comes first on stderr
    getattr(sys.stdout, "_stream", sys.stdout).write(f"{coloured}\n")


def _coloured(line: str, colours: Colours) -> str:
    for pattern, colour in colours:
        if found := pattern.search(line):
            return f"{line[: found.start()]}\x1b[{colour}m{found[0]}\x1b[0m{line[found.end() :]}"
    return line


def table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of an aligned table; on a terminal the last column is wrapped where it is too narrow."""
    return columns(rows, shutil.get_terminal_size().columns if sys.stdout.isatty() else None)
