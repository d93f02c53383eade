"""Long work, told on stderr: on a terminal one line with n of N, the rate and the time left; in a log a line a step."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from lumisite.cli.parser import say
from lumisite.cli.plain import Line

#: Work that is over before this tells nothing; a terminal's line is drawn anew so often.
QUIET_S, DRAW_S = 2.0, 0.2


class Progress:
    """Told what is done, of how much, and what of it was done last; parts of a step count on a terminal only.

    `unit` is what is counted, in the plural. Work that tells of its steps by itself needs no `lines` in a log.
    """

    def __init__(self, unit: str, *, lines: bool = True, clock: Callable[[], float] = time.monotonic) -> None:
        self._unit, self._lines, self._clock = unit, lines, clock
        self._began = self._drawn = clock()
        self._first: float | None = None
        self._told = 0
        self._on_terminal = sys.stderr.isatty()

    def __call__(self, done: float, total: float, name: str = "") -> None:
        """Tell it."""
        now = self._clock()
        if self._first is None:
            self._first = done  # what an earlier run has done says nothing of the rate
        step, self._told = int(done) > self._told, int(done)
        if now - self._began < QUIET_S:
            return
        if not self._on_terminal:
            if step and self._lines:
                say(self._words(done, total, name, now))
        elif now - self._drawn >= DRAW_S:
            self._drawn = now
            sys.stderr.write("")  # what waits to be told first
            line_of_stderr().draw(self._words(done, total, name, now))

    def _words(self, done: float, total: float, name: str, now: float) -> str:
        words = f"{int(done)} of {int(total)} {self._unit}"
        own = done - (self._first or 0.0)
        if own > 0:
            rate = own / (now - self._began)
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
    """Give the line that all writing clears."""
    line = getattr(sys.stderr, "line", None)
    return line if isinstance(line, Line) else Line(sys.stderr)
