"""Ten thousand damaged libraries and images: no crash, nothing that takes long, and little memory."""

from __future__ import annotations

import resource
import tempfile
import time
from pathlib import Path

from tests.bench.measure import Row
from tests.support.damage import outcomes

FILES = 10_000


def run() -> list[Row]:
    """Plan with each of them in this process."""
    start = time.perf_counter()
    crashes, refusals, slowest, what = [], 0, 0.0, ""
    with tempfile.TemporaryDirectory() as work:
        for one in outcomes(FILES, 2026, Path(work)):
            crashes += [f"{one.what}: {one.crash}"] if one.crash else []
            refusals += bool(one.error)
            if one.seconds > slowest:
                slowest, what = one.seconds, one.what
    took = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    detail = crashes[0] if crashes else f"{refusals} errors of one line, else a plan; {took:.0f} s in all"
    return [
        Row(f"crashes on {FILES} damaged files", len(crashes), 0, detail, unit=""),
        Row("the slowest of them", slowest, 1.0, what, unit="s"),
        Row("memory with damaged files", peak, 200, "peak of the process", unit="MiB"),
    ]
