"""Lines on a terminal: their colours, and tables that fit its width. Pipes and files get the lines unchanged."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence

from lumisite.cli.terminal import plain
from lumisite.text import columns

#: Patterns of the lines of a diff, and the colour of each: SGR parameters of ECMA-48.
DIFFERENCE = (
    (r"^(?:(?:---|\+\+\+) [ab/]|release ).*", "1"),
    (r"^@@ .*", "36"),
    (r"^\+.*", "32"),
    (r"^-.*", "31"),
)
_START = r"(?:^|(?<=  )|(?<=: ))"
#: Patterns of words for an outcome, at the start of a line or of a cell of a table, and the colour of each.
OUTCOMES = (
    (rf"(?i){_START}(?:pass|passed)\b", "32"),
    (rf"(?i){_START}(?:fail|failed|bad-nodes|missing|refused)\b", "31"),
    (rf"(?i){_START}(?:inconclusive|underpowered|warning)\b", "33"),
)
Colours = Sequence[tuple[str, str]]  # compiled where there is a terminal


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
        if found := re.search(pattern, line):
            return f"{line[: found.start()]}\x1b[{colour}m{found[0]}\x1b[0m{line[found.end() :]}"
    return line


def table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of an aligned table; on a terminal the last column is wrapped where it is too narrow."""
    return columns(rows, shutil.get_terminal_size().columns if sys.stdout.isatty() else None)
