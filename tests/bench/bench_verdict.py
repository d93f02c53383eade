"""`lumisite verdict`: the samples of 3,000 nodes (12 metrics, 20 runs), and how time grows with them.

Those after the change say unit, image and spec, with gates among them, as runs write them.

Elapsed time is what a user waits for; how it grows is told by processor time, which holds on a busy machine too.
"""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path

from lumisite.validate.lines import Gate, line_json
from tests.bench.measure import Cost, Row, cost

LUMISITE = str(Path(sys.executable).parent / "lumisite")
NODES, METRICS, RUNS = 3000, 12, 20


def run() -> list[Row]:
    """Measure everything of this module."""
    with tempfile.TemporaryDirectory() as scratch:
        top = Path(scratch)
        half = _verdict(top, "half", runs=RUNS // 2, metrics=METRICS // 2)
        whole = _verdict(top, "whole", runs=RUNS, metrics=METRICS)
    count = NODES * METRICS * RUNS
    detail = f"{count:,} samples; {whole.cpu_s:.1f} s of processor time"
    return [
        Row("verdict: samples of 3,000 nodes", whole.elapsed_s, 30, detail, unit="s"),
        Row("verdict: 4 x the samples", whole.cpu_s / half.cpu_s, 4.8, f"a quarter takes {half.cpu_s:.1f} s"),
        Row("verdict: memory for all of them", whole.peak_mib, 600, "peak of the process", unit="MiB"),
    ]


def _written(top: Path, name: str, runs: int, metrics: int) -> list[str]:
    """Write one file before and one after; give the arguments that name them."""
    chance = random.Random(1)
    values = [f"{100 * chance.lognormvariate(0, 0.02):.6f}" for _ in range(10_007)]
    arguments = []
    number = 0
    for side in ("before", "after"):
        path = top / f"{name}-{side}.jsonl"
        with path.open("w") as stream:
            for job in range(runs // 2):
                for metric in range(metrics):
                    said = ', "unit": "GB/s", "image": "sha256:5f", "spec": "0c1d"' if side == "after" else ""
                    tail = f'"better": "higher", "run": "{side}{job}", "nodes": ["nid{{:06}}"], '
                    tail += f'"time": {1000 + job}{said}}}\n'
                    head = f'{{{{"metric": "node.{metric}", "value": {{}}, '
                    form = (head + tail.replace("}\n", "}}\n")).format
                    for node in range(NODES):
                        number += 1
                        stream.write(form(values[number % 10_007], 5000 + node))
                        if side == "after" and metric == 0:
                            stream.write(
                                line_json(Gate("binds", "pass", "", "", f"{job}", (f"nid{5000 + node:06}",), 1))
                            )
                            stream.write("\n")
        arguments += [f"--{side}", str(path)]
    return arguments


def _verdict(top: Path, name: str, *, runs: int, metrics: int) -> Cost:
    """Judge samples that are written for it, and return what that took."""
    output = top / f"{name}.txt"
    found = cost([LUMISITE, "verdict", *_written(top, name, runs, metrics)], output=str(output))
    assert output.read_text().count("node.") == metrics
    return found
