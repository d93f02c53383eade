"""How commands are compared: in turn, so that a machine that slows down slows both."""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Row:
    """One line of the table: `value` must stay at or below `limit` (at or above it when `at_least`)."""

    name: str
    value: float
    limit: float
    detail: str
    unit: str = "x"
    at_least: bool = False

    @property
    def holds(self) -> bool:
        """Whether the limit is kept."""
        return self.value >= self.limit if self.at_least else self.value <= self.limit


@dataclass(frozen=True)
class Cost:
    """What a command took: elapsed and processor time in s, and the peak of its resident memory in MiB."""

    elapsed_s: float
    cpu_s: float
    peak_mib: float


def cost(command: Sequence[str], environment: Mapping[str, str] | None = None, output: str = os.devnull) -> Cost:
    """Run a command and return what it took; `output` is the file for what it prints, a failure is an error."""
    start = time.perf_counter()
    with Path(output).open("wb") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=subprocess.DEVNULL, env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    elapsed = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return Cost(elapsed, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def seconds(command: Sequence[str], environment: Mapping[str, str] | None = None) -> float:
    """Run a command and return its wall time."""
    return cost(command, environment).elapsed_s


def in_turn(one: Callable[[], float], other: Callable[[], float], runs: int) -> tuple[float, float, float]:
    """Measure two things in turn after one warm-up each; the median ratio of pairs, and both medians."""
    one(), other()
    pairs = [(one(), other()) for _ in range(runs)]
    ratio = statistics.median(a / b for a, b in pairs)
    return ratio, statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs)


def table(rows: Sequence[Row]) -> str:
    """Write the rows for a terminal."""
    width = max(len(row.name) for row in rows)
    lines = []
    for row in rows:
        sign = ">=" if row.at_least else "<="
        mark = "ok  " if row.holds else "OVER"
        lines.append(f"{mark} {row.name:{width}}  {row.value:8.2f} {row.unit:3} ({sign} {row.limit:g})  {row.detail}")
    return "\n".join(lines)
