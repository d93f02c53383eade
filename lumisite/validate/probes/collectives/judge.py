"""Judge `collectives`: is every result right, and how much do the links carry."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from lumisite.findings.finding import Finding, Severity
from lumisite.validate.probes.failed_ranks import judge_together
from lumisite.validate.probes.outcome import WRONG_RESULTS, nothing_measured, passed
from lumisite.validate.probes.probe import Expected, Line, Probe, Record, Target, describe_ranks
from lumisite.validate.probes.records import rank_of, rows, slowest
from lumisite.validate.samples import size_text

#: Options of the script by back-end, sizes in bytes. All-reduce is what training does, so its curve is whole: a fault
#: may show at some sizes only.
OPTIONS = {
    "gloo": "--repeats 8 --limit 120 --sweep all_reduce:65536,1048576,4194304 --sweep all_gather:1048576,4194304 "
    "--sweep reduce_scatter:1048576,4194304",
    "nccl": f"--repeats 20 --limit 120 --sweep all_reduce:{','.join(str(1 << power) for power in range(20, 33))} "
    "--sweep all_gather:16777216,134217728,1073741824 --sweep reduce_scatter:16777216,134217728,1073741824",
}


def collectives(target: Target) -> Probe:
    """Return the probe."""
    srun = target.together("collectives.py", *OPTIONS[target.plan.backend].split())
    # Version 2 is without the programs of nccl-tests.
    return Probe("collectives", (srun,), judge_together(_judge), ("one-node", "several"), together=True, version=2)


def bus_bandwidth(collective: str, size: int, seconds: float, ranks: int) -> float:
    """Return GB/s (10^9) from the total size in bytes: what a link carries, whatever the number of ranks.

    Source: doc/PERFORMANCE.md of nccl-tests.

    >>> bus_bandwidth("all_reduce", 10**9, 1.0, 4)
    1.5
    >>> bus_bandwidth("all_gather", 10**9, 1.0, 4)
    0.75
    """
    return size / seconds / 1e9 * (ranks - 1) / ranks * (2 if collective == "all_reduce" else 1)


def _judge(done: Sequence[Record], expected: Expected) -> list[Line]:
    wrong = _wrong(done)
    if wrong is not None:
        return [expected.gate(wrong)]
    lines = list(_bandwidths(done, expected))
    if not lines:
        return [expected.gate(nothing_measured())]
    return [expected.gate(passed(f"every result is right on {len(done)} ranks")), *lines]


def _bandwidths(done: Sequence[Record], expected: Expected) -> Iterator[Line]:
    """Yield the bus bandwidth of each collective and size; a collective takes as long as its slowest rank."""
    found: dict[tuple[str, int], list[Record]] = {}
    for row in (row for record in done for row in rows(record, "collectives")):
        if "times_s" in row:
            found.setdefault((row["collective"], row["asked"]), []).append(row)
    for (name, size), of_ranks in found.items():
        seconds = statistics.median(slowest(of_ranks, "times_s"))
        busbw = bus_bandwidth(name, of_ranks[0]["bytes"], seconds, expected.ranks)
        if expected.ranks > 1:
            yield expected.sample(f"{name}_busbw/{size_text(size)}", busbw, "higher", "GB/s")


def _wrong(done: Sequence[Record]) -> Finding | None:
    """Return the first wrong result, with the nodes whose ranks have wrong ones where others have right ones."""
    wrong = [(record, row) for record in done for row in rows(record, "collectives") if row.get("wrong")]
    if not wrong:
        return None
    record, row = wrong[0]
    where = describe_ranks([rank_of(record)], [record["host"]])
    message = f"{row['wrong']} wrong values at {size_text(row['asked'])} on {where}"
    every, bad = {each["host"] for each in done}, {each["host"] for each, _ in wrong}
    nodes = tuple(sorted(bad)) if bad < every else ()
    return Finding("results-wrong", Severity.FAULT, message, WRONG_RESULTS, subject=row["collective"], nodes=nodes)
