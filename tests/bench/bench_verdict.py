"""`lumisite verdict`: the samples of 3,000 nodes (12 metrics, 20 runs), and how time grows with them.

Those after the change say unit, image and spec, with gates among them, as runs write them.

Elapsed time is what a user waits for; how it grows is told by processor time, which holds on a busy machine too.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from lumisite.validate.lines import Gate, line_json
from tests.bench.measure import Row

LUMISITE = str(Path(sys.executable).parent / "lumisite")
NODES, METRICS, RUNS = 3000, 12, 20


def run() -> list[Row]:
    """Measure everything of this module."""
    with tempfile.TemporaryDirectory() as scratch:
        top = Path(scratch)
        half = _verdict(_written(top, "half", RUNS // 2), metrics=METRICS // 2)
        timed = _verdict(_written(top, "timed", RUNS // 2, own_times=True), metrics=METRICS // 2)
        whole = _verdict(_written(top, "whole", RUNS), metrics=METRICS)
    count = NODES * METRICS * RUNS
    detail = f"{count:,} samples; {whole.cpu_s:.1f} s of processor time"
    own = f"{timed.cpu_s:.1f} s and {half.cpu_s:.1f} s for a quarter"
    return [
        Row("samples of 3,000 nodes", whole.elapsed_s, 30, detail, unit="s"),
        Row("4 x the samples", whole.cpu_s / half.cpu_s, 4.8, f"a quarter of the samples takes {half.cpu_s:.1f} s"),
        Row("each sample with its own time", timed.cpu_s / half.cpu_s, 1.5, own),
        Row("memory for all of them", whole.peak_mib, 600, "peak of the process", unit="MiB"),
    ]


def _written(top: Path, name: str, runs: int, *, own_times: bool = False) -> list[str]:
    """Write one file before and one after; give the arguments that name them."""
    chance = random.Random(1)
    values = [f"{100 * chance.lognormvariate(0, 0.02):.6f}" for _ in range(10_007)]
    metrics = METRICS if runs == RUNS else METRICS // 2
    arguments = []
    number = 0
    for side in ("before", "after"):
        path = top / f"{name}-{side}.jsonl"
        with path.open("w") as stream:
            for job in range(runs // 2):
                for metric in range(metrics):
                    said = ', "unit": "GB/s", "image": "sha256:5f", "spec": "0c1d"' if side == "after" else ""
                    tail = f'"better": "higher", "run": "{side}{job}", "nodes": ["nid{{:06}}"], '
                    tail += f'"time": {"{}" if own_times else 1000 + job}{said}}}\n'
                    head = f'{{{{"metric": "node.{metric}", "value": {{}}, '
                    form = (head + tail.replace("}\n", "}}\n")).format
                    for node in range(NODES):
                        number += 1
                        stream.write(form(values[number % 10_007], 5000 + node, 1000 + job + number / 1e8))
                        if side == "after" and metric == 0:
                            stream.write(
                                line_json(Gate("binds", "pass", "", "", f"{job}", (f"nid{5000 + node:06}",), 1))
                            )
                            stream.write("\n")
        arguments += [f"--{side}", str(path)]
    return arguments


@dataclass(frozen=True)
class _Cost:
    """What one call took: elapsed and processor time in s, and peak memory in MiB."""

    elapsed_s: float
    cpu_s: float
    peak_mib: float


def _verdict(arguments: list[str], *, metrics: int) -> _Cost:
    began = time.monotonic()
    process = subprocess.Popen([LUMISITE, "verdict", *arguments], stdout=subprocess.PIPE)
    assert process.stdout is not None
    output = process.stdout.read().decode()
    _, status, usage = os.wait4(process.pid, 0)
    elapsed = time.monotonic() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode or output.count("node.") != metrics:
        raise RuntimeError(f"lumisite verdict: exit code {process.returncode}:\n{output}")
    return _Cost(elapsed, usage.ru_utime + usage.ru_stime, float(usage.ru_maxrss) / 1024)
