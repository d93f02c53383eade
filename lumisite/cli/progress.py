"""Progress of long work on stderr: on a terminal one line with n of N, rate and time left; in a log a line a step."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from lumisite.cli.output import print_note
from lumisite.cli.terminal import Line

#: Work that ends before this prints nothing; the line of a terminal is drawn this often.
QUIET_S, DRAW_S = 2.0, 0.2


class Progress:
    """Prints what is done, of how much, and what of it was done last; parts of a step count on a terminal only.

    `unit` is what is counted, in the plural. Work that prints its steps itself needs no `lines` in a log.
    """

    def __init__(self, unit: str, *, lines: bool = True, clock: Callable[[], float] = time.monotonic) -> None:
        self._unit, self._lines, self._clock = unit, lines, clock
        self._began = self._drawn = clock()
        self._first: float | None = None
        self._printed = 0
        self._on_terminal = sys.stderr.isatty() and not getattr(sys.stderr, "quiet", False)

    def __call__(self, done: float, total: float, name: str = "") -> None:
        """Print the progress."""
        now = self._clock()
        if self._first is None:
            self._first = done  # what an earlier run has done says nothing of the rate
        step, self._printed = int(done) > self._printed, int(done)
        if now - self._began < QUIET_S:
            return
        if not self._on_terminal:
            if step and self._lines:
                print_note(self._words(done, total, name, now))
        elif now - self._drawn >= DRAW_S:
            self._drawn = now
            sys.stderr.write("")  # prints what comes first on stderr
            line_of_stderr().draw(self._words(done, total, name, now))

    def _words(self, done: float, total: float, name: str, now: float) -> str:
        words = f"{int(done)} of {int(total)} {self._unit}"
        new = done - (self._first or 0.0)
        if new > 0:
            rate = new / (now - self._began)
            words += f", {_rate(rate)}, {span((total - done) / rate)} left"
        return f"{words}: {name}" if name else words


def _rate(per_second: float) -> str:
    """Write a rate by the unit of time in which it is at least one, if there is such a unit."""
    unit, rate = "s", per_second
    for longer, factor in (("min", 60), ("h", 60)):
        if rate < 1:
            unit, rate = longer, rate * factor
    return f"{rate:.1f}/{unit}"


def span(seconds: float) -> str:
    """Write how long something takes.

    >>> span(7.4), span(200), span(7500)
    ('7 s', '3 min 20 s', '2 h 5 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"


def line_of_stderr() -> Line:
    """Return the line that all other output clears."""
    line = getattr(sys.stderr, "line", None)
    return line if isinstance(line, Line) else Line(sys.stderr)
