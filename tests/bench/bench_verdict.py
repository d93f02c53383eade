"""`lumisite verdict`: the samples of 24,000 GPUs (3,000 nodes x 8, 12 metrics, 20 runs), and how time grows with them.

Those after the change say unit, image and spec, with gates among them, as runs write them.

Time is the process's own (user and system), so that it holds on a busy machine too.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from lumisite.validate.lines import Gate, gate_json
from tests.bench.measure import Row

LUMISITE = str(Path(sys.executable).parent / "lumisite")
NODES, GPUS, METRICS, RUNS = 3000, 8, 12, 20


def run() -> list[Row]:
    """Measure everything of this module."""
    with tempfile.TemporaryDirectory() as scratch:
        top = Path(scratch)
        half, _ = _verdict(_written(top, "half", RUNS // 2), metrics=METRICS // 2)
        timed, _ = _verdict(_written(top, "timed", RUNS // 2, own_times=True), metrics=METRICS // 2)
        whole, peak = _verdict(_written(top, "whole", RUNS), metrics=METRICS)
    count = NODES * GPUS * METRICS * RUNS
    quarter = f"a quarter of the samples takes {half:.1f} s"
    return [
        Row("samples of 24,000 GPUs", whole, 10, f"{count:,} samples, one of each GPU", unit="s"),
        Row("4 x the samples", whole / half, 4.8, quarter),
        Row("each sample with its own time", timed / half, 1.5, f"{timed:.1f} s and {half:.1f} s for a quarter"),
        Row("memory for all of them", peak, 600, "peak of the process", unit="MiB"),
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
                        number += GPUS
                        for one in range(number, number + GPUS):
                            stream.write(form(values[one % 10_007], 5000 + node, 1000 + job + one / 1e8))
                        if side == "after" and metric == 0:
                            stream.write(
                                gate_json(Gate("binds", "pass", "", "", f"{job}", (f"nid{5000 + node:06}",), 1))
                            )
                            stream.write("\n")
        arguments += [f"--{side}", str(path)]
    return arguments


def _verdict(arguments: list[str], *, metrics: int) -> tuple[float, float]:
    """Give processor time in s and peak memory in MiB of one call."""
    process = subprocess.Popen([LUMISITE, "verdict", *arguments], stdout=subprocess.PIPE)
    assert process.stdout is not None
    output = process.stdout.read().decode()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode or output.count("node.") != metrics:
        raise RuntimeError(f"lumisite verdict: exit code {process.returncode}:\n{output}")
    return usage.ru_utime + usage.ru_stime, float(usage.ru_maxrss) / 1024
