"""`lumisite validate` on all nodes of a machine of 3,000: what the driver takes and leaves, and whom it names.

Slurm and the ranks are played (tests/support/played_machine.py), the records are read and judged for real.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from typing import Any

from lumisite.validate.run.runner import MOST_JOBS
from tests.bench.measure import Row

NODES, FEW, STEP = 3000, 750, 16


def run() -> list[Row]:
    """Measure everything of this module."""
    few, whole = _validated(FEW), _validated(NODES)
    nodes = f"{NODES:,} nodes in {whole['jobs']} jobs"
    slow, link, lost = whole["bad"]
    named = {("node-interface", (link,)), ("job-node-lost", (lost,))}
    found = {(code, tuple(nodes)) for code, nodes in whole["codes"] if code != "step-skipped"}
    wrong = len(found ^ named) + len({*whole["slow"]} ^ {slow}) + (not whole["same"])
    memory = f"peak of the process, with what is played; {few['peak_mib']:.0f} MiB for a quarter of the nodes"
    return [
        Row("validate: all nodes, files", whole["files"], 75_000, nodes, unit=""),
        Row("validate: all nodes, most records of a step", whole["most_records"], 2 * STEP, "two a node", unit=""),
        Row("validate: all nodes, jobs at once", whole["most_jobs"], MOST_JOBS, "by what is played", unit=""),
        Row("validate: all nodes, driver", whole["driver_s"], 120, "processor time, verdict too", unit="s"),
        Row("validate: all nodes, 4 x the nodes", whole["driver_s"] / few["driver_s"], 5.2, f"{few['driver_s']:.1f} s"),
        Row("validate: all nodes, resume", whole["resume_s"], 120, "all judged again, nothing submitted", unit="s"),
        Row("validate: all nodes, memory", whole["peak_mib"], 300, memory, unit="MiB"),
        Row("validate: all nodes, lines", whole["lines_mib"], 32, "samples", unit="MiB"),
        Row("validate: all nodes, findings that are wrong", wrong, 0, "3 bad nodes, stragglers, late marks", unit=""),
    ]


def _validated(nodes: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "tests.support.played_machine", *map(str, (nodes, STEP)), f"{folder}/run"]
        done = subprocess.run(words, check=True, stdout=subprocess.PIPE)
        found: dict[str, Any] = json.loads(done.stdout)
        return found
