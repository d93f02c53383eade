"""How commands are compared: in turn, so that a machine that slows down slows both."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


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


#: Runs the command behind the name of a file for its output, and prints its exit code and the values of a `Cost`. A
#: process that is started counts what its parent held as its own memory, so a small one starts it.
_RUN = """
import json, os, sys, time
start = time.perf_counter()
to = [(os.POSIX_SPAWN_OPEN, 1, sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)]
to += [(os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)]
_, status, usage = os.wait4(os.posix_spawnp(sys.argv[2], sys.argv[2:], os.environ, file_actions=to), 0)
took = time.perf_counter() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024
print(json.dumps([os.waitstatus_to_exitcode(status), *took]))
"""


def cost(command: Sequence[str], environment: Mapping[str, str] | None = None, output: str = os.devnull) -> Cost:
    """Run a command and return what it took; `output` is the file for what it prints, a failure is an error."""
    run = [sys.executable, "-I", "-S", "-c", _RUN, output, *command]
    done = subprocess.run(run, env=environment, check=True, capture_output=True, text=True)
    code, *values = json.loads(done.stdout)
    if code:
        raise subprocess.CalledProcessError(code, command)
    return Cost(*values)


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
