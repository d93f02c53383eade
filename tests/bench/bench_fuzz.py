"""Ten thousand damaged files of runs, releases, sites and more, given to every command that reads them."""

from __future__ import annotations

import time

from tests.bench.measure import Row
from tests.support.fuzz import MOST_MIB, PATIENCE_S, played

CASES = 10_000


def run() -> list[Row]:
    """Play them two at a time; bad cases are printed in the table's words, the first one."""
    start = time.perf_counter()
    bad, done = played(1, CASES, processes=2)
    detail = f"{done} cases in {time.perf_counter() - start:.0f} s"
    hangs = [one for one in bad if one.what.startswith("hangs")]
    large = [one for one in bad if one.what.startswith("has taken")]
    crashes = [one for one in bad if one not in hangs and one not in large]
    return [
        Row(name, len(found), 0, str(found[0]) if found else detail, unit="")
        for name, found in (
            ("tracebacks on damaged input", crashes),
            (f"answers over {PATIENCE_S} s", hangs),
            (f"cases over {MOST_MIB} MiB", large),
        )
    ] + [Row("cases that were not played", CASES - done, 0, detail, unit="")]
