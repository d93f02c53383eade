"""What goes to a terminal: text and line breaks, with anything else spelled out; and the line of progress.

Names, log lines and diffs come from files that anybody may have written. An escape sequence in one can retitle a
terminal or hide a line, and a bidirectional mark can turn a line of a diff around (CVE-2021-42574).
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from typing import Any

#: How messages name what results are printed to.
STANDARD_OUTPUT = "standard output"


def plain(text: str) -> str:
    """Spell out what does not print, as Python does. Line breaks and tabs stay, and JSON has nothing to spell out."""
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or letter in "\n\t" else letter.encode("unicode_escape").decode()
        for letter in text
    )


class _Plain:
    """A stream that is as another, but for what is written to it, and for what comes `first` on stderr."""

    def __init__(self, stream: Any, first: list[str], line: Line) -> None:
        self._stream, self._first, self.line = stream, first, line

    def write(self, text: str) -> int:
        self.line.clear()
        while self._first:
            print(self._first.pop(), file=sys.stderr, flush=True)
        try:
            self._stream.write(plain(text))
        except OSError as error:
            error.filename = error.filename or STANDARD_OUTPUT
            raise
        return len(text)

    def flush(self) -> None:
        """Write what waits; an error has the name of standard output."""
        try:
            self._stream.flush()
        except OSError as error:
            error.filename = error.filename or STANDARD_OUTPUT
            raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _StandardError(_Plain):
    """Standard error, where what cannot be written is lost. `quiet` is for `print_note`.

    What was written to the stream `before` is there first, also where both go to one file.
    """

    def __init__(self, stream: Any, first: list[str], line: Line, before: Any) -> None:
        super().__init__(stream, first, line)
        self._before, self.quiet = before, False

    def write(self, text: str) -> int:
        with suppress(OSError):  # what the other stream does not take is reported when the command ends
            self._before.flush()
        with suppress(OSError):
            return super().write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()


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
def plain_output() -> Iterator[list[str]]:
    """Send all output through `_Plain`; yield a list of lines that are printed on stderr before all else."""
    first: list[str] = []
    line = Line(sys.stderr)
    stdout: Any = _Plain(sys.stdout, first, line)
    stderr: Any = _StandardError(sys.stderr, first, line, before=sys.stdout)
    with redirect_stdout(stdout), redirect_stderr(stderr):
        try:
            yield first
        finally:
            line.clear()
