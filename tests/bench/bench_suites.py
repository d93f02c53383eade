"""Untouched full suites on the twin, one after the other against one baseline: how many are not a PASS, and why.

Nothing has changed between them, so none may FAIL. Half of them run on the machine as it is, half beside a program that
takes one of its cores.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter

from tests.bench.measure import Row, table
from tests.twin.cluster import Cluster, ClusterPlan
from tests.twin.login_node import LUMISITE, ready_cluster

SUITES = 10
#: An hour for each suite: the machine may be busy with other things.
LIMIT_S = 3600
VERDICTS = {0: "PASS", 1: "FAIL", 4: "INCONCLUSIVE", 5: "BAD-NODES"}


def run() -> list[Row]:
    """Measure everything of this module. What is no PASS is printed."""
    with ready_cluster(ClusterPlan(nodes=4, images=("torch",))) as cluster:
        if (told := _suite(cluster, "--baseline --jobs 10 --into /scratch/before")) != "PASS":
            return [Row("validate: an untouched baseline that is no PASS", 1, 0, told, unit="")]
        words = "--before /scratch/before --out /scratch/suite-{}"
        quiet = Counter(_suite(cluster, words.format(number)) for number in range(SUITES))
        with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as loop:
            try:
                busy = Counter(_suite(cluster, words.format(f"busy-{number}")) for number in range(SUITES))
            finally:
                loop.kill()
    return [*_rows("untouched", quiet), *_rows("untouched, beside a busy loop,", busy)]


def _rows(name: str, told: Counter[str]) -> list[Row]:
    detail = ", ".join(f"{count} {verdict}" for verdict, count in told.most_common())
    alarms = SUITES - told["PASS"] - told["INCONCLUSIVE"]
    return [
        Row(f"validate: suites {name} that FAIL, or blame a node", alarms, 0, detail, unit=""),
        Row(f"validate: suites {name} that are INCONCLUSIVE", told["INCONCLUSIVE"], 1, detail, unit=""),
    ]


def _suite(cluster: Cluster, words: str) -> str:
    began, loads = time.monotonic(), [os.getloadavg()[0]]
    done = cluster.run(f"cd /scratch && {LUMISITE} validate --site twin {words}", timeout_s=LIMIT_S)
    loads.append(os.getloadavg()[0])
    verdict = VERDICTS.get(done.code, f"exit {done.code}")
    print(
        f"{verdict} after {time.monotonic() - began:.0f} s, load {min(loads):.1f} to {max(loads):.1f}", file=sys.stderr
    )
    if verdict != "PASS":
        print(done.stdout, done.stderr, file=sys.stderr)
    return verdict


if __name__ == "__main__":
    print(table(run()))
