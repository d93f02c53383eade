"""What goes to a terminal: text and line breaks, with anything else spelled out; and the line of progress.

Names, log lines and diffs come from files that anybody may have written. An escape sequence in one can retitle a
terminal or hide a line, and a bidirectional mark can turn a line of a diff around (CVE-2021-42574).
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from typing import Any

from lumisite.text import columns

#: How messages name what results are printed to.
STANDARD_OUTPUT = "standard output"
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


def plain(text: str) -> str:
    """Spell out what does not print, as Python does. Line breaks and tabs stay, and JSON has nothing to spell out."""
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or letter in "\n\t" else letter.encode("unicode_escape").decode()
        for letter in text
    )


class _Plain:
    """Standard output without what does not print; an error names it. What waits for `stderr` comes first."""

    def __init__(self, stream: Any, stderr: StandardError) -> None:
        self._stream, self._stderr = stream, stderr

    def write(self, text: str, *, coloured: bool = False) -> int:
        """Write a text, which is printable already where it is `coloured`."""
        self._stderr.write_first()
        self._stderr.line.clear()
        return self._named(self._stream.write, text if coloured else plain(text)) or len(text)

    def flush(self) -> None:
        """Write what waits."""
        self._named(self._stream.flush)

    def _named(self, call: Any, *values: str) -> Any:
        try:
            return call(*values)
        except OSError as error:
            error.filename = error.filename or STANDARD_OUTPUT
            raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class StandardError:
    """Standard error without what does not print; what cannot be written is lost, and all but errors where `quiet`.

    What was written to standard output is there before it, also where both go to one file. `first` is printed before
    anything else, unless the command ends with an error: that names what it is about.
    """

    def __init__(self, stream: Any, stdout: Any) -> None:
        self._stream, self._stdout = stream, stdout
        self.line, self.quiet = Line(stream), False
        self.first: list[str] = []

    def write(self, text: str) -> int:
        """Write a text."""
        self.write_first()
        if not self.quiet:
            self.line.clear()
            with suppress(OSError):  # what the other stream does not take is reported when the command ends
                self._stdout.flush()
            with suppress(OSError):
                self._stream.write(plain(text))
        return len(text)

    def flush(self) -> None:
        """Write what waits."""
        with suppress(OSError):
            self._stream.flush()

    def write_first(self) -> None:
        """Write the lines that come before all else."""
        while self.first:
            self.write(f"{self.first.pop(0)}\n")

    def write_error(self, message: str) -> None:
        """Write the error that a command ends with."""
        self.first.clear()
        self.quiet = False
        self.write(f"{message}\n")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class Line:
    """The line of a terminal that is drawn again and again while work goes on; whatever else is written clears it."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._length = stream, 0

    def draw(self, text: str) -> None:
        """Draw a text, cut to the width of the terminal: a line that wraps could not be cleared."""
        self.clear()
        text = plain(text)[: shutil.get_terminal_size().columns - 1]
        self._write(text, len(text))

    def clear(self) -> None:
        """Remove what is drawn."""
        if self._length:
            self._write(f"\r{' ' * self._length}\r", 0)

    def end(self) -> None:
        """Keep what is drawn, and begin a new line."""
        if self._length:
            self._write("\n", 0)

    def _write(self, text: str, length: int) -> None:
        self._length = length
        with suppress(OSError):  # the terminal has gone
            self._stream.write(text)
            self._stream.flush()


def let_go(stream: Any) -> None:
    """Flush a stream, or what waits in it is lost: the end of Python would fail on it once more, with 120."""
    try:
        stream.flush()
    except (OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@contextmanager
def plain_output() -> Iterator[StandardError]:
    """Send all output through the streams of this module, and yield that of errors."""
    stderr: Any = StandardError(sys.stderr, sys.stdout)
    stdout: Any = _Plain(sys.stdout, stderr)
    with redirect_stdout(stdout), redirect_stderr(stderr):
        try:
            yield stderr
        finally:
            stderr.line.clear()


def print_lines(lines: Iterable[str], colours: Sequence[tuple[str, str]] = OUTCOMES) -> None:
    """Print lines, on a terminal with colours unless NO_COLOR is set."""
    text = "\n".join(lines) + "\n"
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        sys.stdout.write(text)
    else:
        coloured: Any = sys.stdout  # a stream of this module: it alone knows what is a colour of ours
        coloured.write("\n".join(_coloured(line, colours) for line in plain(text).split("\n")), coloured=True)


def _coloured(line: str, colours: Sequence[tuple[str, str]]) -> str:
    for pattern, colour in colours:
        if found := re.search(pattern, line):
            return f"{line[: found.start()]}\x1b[{colour}m{found[0]}\x1b[0m{line[found.end() :]}"
    return line


def table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of an aligned table; on a terminal the last column is wrapped where it is too narrow."""
    return columns(rows, shutil.get_terminal_size().columns if sys.stdout.isatty() else None)
