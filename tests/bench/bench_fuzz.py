"""Ten thousand damaged files of runs, releases, sites, images and nodes, one at a time, to the command that reads it.

`python -m tests.support.fuzz --case SEED` plays one of them again. What grows as a product or a square, wrong types at
any key, outputs that are full or closed, and signals have rows of their own.
"""

from __future__ import annotations

import time

from tests.bench.measure import Row
from tests.support import fuzz_edges, fuzz_growth
from tests.support.fuzz import MOST_CPU_S, MOST_MIB, played, summary

CASES = 10_000
EDGES = 2_000


def run() -> list[Row]:
    """Play them two at a time; the first bad one of each kind stands in the table."""
    start = time.perf_counter()
    cases = played(1, CASES, processes=2)
    detail = f"{summary(cases)}, {time.perf_counter() - start:.0f} s"
    bad = [case for case in cases if case.what]
    hangs = [case for case in bad if case.what.startswith("hangs")]
    large = [case for case in bad if case.what.startswith("has taken")]
    others = [case for case in bad if case not in hangs and case not in large]
    return [
        Row(name, len(found), 0, str(found[0]) if found else detail, unit="")
        for name, found in (
            ("tracebacks and bad answers on damaged input", others),
            (f"answers over {MOST_CPU_S:g} s", hangs),
            (f"cases over {MOST_MIB} MiB", large),
        )
    ] + [Row("cases that were not played", CASES - len(cases), 0, detail, unit=""), *_edges()]


def _edges() -> list[Row]:
    grown = fuzz_growth.played([])
    rows = [Row("products and squares", len(grown), 0, grown[0] if grown else f"{len(fuzz_growth.GROWTHS)} cases")]
    found = fuzz_edges.played(1, EDGES)
    return rows + [Row(name, len(bad), 0, bad[0] if bad else f"of {EDGES}", unit="") for name, bad in found.items()]
