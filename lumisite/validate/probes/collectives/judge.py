"""Judge `collectives`: is every result right, and how much do the links carry."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from lumisite.validate.metric_names import size_text
from lumisite.validate.probes.collectives.tables import Table, parse_table
from lumisite.validate.probes.probe import Backend, Expected, Line, Probe, Record
from lumisite.validate.probes.ranks import counted, judge_together
from lumisite.validate.probes.records import numbers, rank_of, rows, slowest, table, text, whole
from lumisite.validate.probes.target import Target, each

MIB = 1 << 20
#: Sizes that are measured, in bytes; all-reduce is what training does, so its curve is whole. A fault may show at some
#: sizes only; the site says which of them decide.
SIZES: Mapping[Backend, Mapping[str, tuple[int, ...]]] = {
    "nccl": {
        "all_reduce": tuple(MIB << power for power in range(13)),
        "all_gather": (16 * MIB, 128 * MIB, 1024 * MIB),
        "reduce_scatter": (16 * MIB, 128 * MIB, 1024 * MIB),
    },
    "gloo": {
        "all_reduce": (65536, MIB, 4 * MIB),
        "all_gather": (MIB, 4 * MIB),
        "reduce_scatter": (MIB, 4 * MIB),
    },
}
REPEATS: Mapping[Backend, int] = {"nccl": 20, "gloo": 8}
ADVICE = "wrong results make training wrong without an error: run the probe again, then drain the node that differs"


def collectives(target: Target) -> Probe:
    """Give the probe."""
    backend = target.plan.backend
    sweeps = (f"{name}:{','.join(map(str, sizes))}" for name, sizes in SIZES[backend].items())
    limits = ("--repeats", str(REPEATS[backend]), "--limit", "120")
    return Probe(
        "collectives",
        "Collectives are right, and how fast they are.",
        (target.together("collectives.py", *limits, *each("sweep", sweeps)),),
        judge_together(_judge),
        ("one-node", "several"),
        together=True,
    )


def bus_bandwidth(collective: str, size: int, seconds: float, ranks: int) -> float:
    """Give GB/s (10^9) from the total size in bytes: what a link carries, whatever the number of ranks.

    Source: doc/PERFORMANCE.md of nccl-tests and rccl-tests.

    >>> bus_bandwidth("all_reduce", 10**9, 1.0, 4)
    1.5
    >>> bus_bandwidth("all_gather", 10**9, 1.0, 4)
    0.75
    """
    return size / seconds / 1e9 * (ranks - 1) / ranks * (2 if collective == "all_reduce" else 1)


def _judge(done: Sequence[Record], expected: Expected) -> list[Line]:
    tables = _tables(done[0], expected)
    wrong = _wrong(done) or _wrong_in_tables(tables)
    if wrong:
        return [expected.gate("fail", wrong, ADVICE)]
    lines = [
        expected.sample(f"{name}_busbw/{size_text(size)}", busbw, "higher", "GB/s")
        for name in SIZES["nccl"]
        for size, busbw in (tables[name].busbw if name in tables else _measured(name, done, expected)).items()
    ]
    if not lines:
        advice = "look at the image: has its PyTorch collectives?"
        return [expected.gate("inconclusive", "nothing was measured", advice)]
    return [expected.gate("pass", f"every result is right on {counted(len(done), 'rank')}"), *lines]


def _measured(name: str, done: Sequence[Record], expected: Expected) -> dict[int, float]:
    """Give the bus bandwidth by size; a collective takes as long as its slowest rank."""
    found: dict[int, list[object]] = {}
    for row in (row for record in done for row in rows(record, "collectives")):
        if text(row, "collective") == name and numbers(row, "times_s"):
            found.setdefault(whole(row, "asked"), []).append(row)
    return {
        size: bus_bandwidth(
            name, whole(own[0], "bytes") or size, statistics.median(slowest(own, "times_s")), expected.ranks
        )
        for size, own in found.items()
        if expected.ranks > 1
    }


def _wrong(done: Sequence[Record]) -> str:
    for record in done:
        for row in rows(record, "collectives"):
            count = whole(row, "wrong")
            if count:
                what = f"{text(row, 'collective')} of {size_text(whole(row, 'asked'))}"
                return f"{what} gave {count} wrong values on rank {rank_of(record)} ({record.get('host')})"
    return ""


def _tables(record: Record, expected: Expected) -> dict[str, Table]:
    """Give what rccl-tests printed, where they ran over all ranks and have rows."""
    tables = {name: parse_table(said) for name, said in table(record, "tables").items() if isinstance(said, str)}
    return {name: one for name, one in tables.items() if one.busbw and one.ranks == expected.ranks}


def _wrong_in_tables(tables: Mapping[str, Table]) -> str:
    for name, one in tables.items():
        for size, count in one.wrong.items():
            return f"{name}_perf gave {count} wrong values at {size_text(size)}"
        if one.out_of_bounds:
            return f"{name}_perf found {one.out_of_bounds} values out of bounds"
    return ""
