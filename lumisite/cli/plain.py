"""What goes to a terminal or into a report: text and line breaks, nothing that a terminal or an eye takes for more.

Names, log lines and diffs come from files that anybody may have written. An escape sequence in one can retitle a
terminal or hide a line, and a bidirectional mark can turn a line of a diff around (CVE-2021-42574).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any


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

    def __init__(self, stream: Any, first: list[str]) -> None:
        self._stream, self._first = stream, first

    def write(self, text: str) -> int:
        while self._first:
            print(self._first.pop(), file=sys.stderr, flush=True)
        # A carriage return alone is the end that `print` was given for a line of progress.
        self._stream.write(text if text == "\r" else plain(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def plain_output() -> Iterator[list[str]]:
    """Let all that is printed go through `plain`; give a list of what is told on stderr before all else."""
    first: list[str] = []
    stdout: Any = _Plain(sys.stdout, first)
    stderr: Any = _Plain(sys.stderr, first)
    with redirect_stdout(stdout), redirect_stderr(stderr):
        yield first
