"""Judge `collectives`: is every result right, and how much do the links carry."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence

from lumisite.validate.probes.bandwidth import Table, bus_bandwidth, parse_table, size_name
from lumisite.validate.probes.probe import Backend, Ended, Expected, Line, Probe, Record
from lumisite.validate.probes.ranks import counted, finished, number, numbers, part, rank_of, trouble

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter")
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


def arguments(backend: Backend) -> tuple[str, ...]:
    """Give the script's options."""
    words = ["--repeats", str(REPEATS[backend]), "--limit", "120" if backend == "nccl" else "30"]
    for name in COLLECTIVES:
        words += ["--sweep", f"{name}:{','.join(str(size) for size in SIZES[backend][name])}"]
    return tuple(words)


def judge(steps: Sequence[Ended], expected: Expected) -> list[Line]:
    """Give the gate and the samples of one step."""
    failed = trouble(steps[0], expected)
    if failed is not None:
        return [failed]
    whole = finished(steps[0].records)
    tables = _tables(whole[0], expected)
    wrong = _wrong(whole) or _wrong_in_tables(tables)
    if wrong:
        return [expected.gate("fail", wrong, ADVICE)]
    lines: list[Line] = []
    for name in COLLECTIVES:
        measured = _from_table(tables[name]) if name in tables else _measured(name, whole, expected)
        lines += _lines(name, measured, expected)
    if not lines:
        return [
            expected.gate("inconclusive", "nothing was measured", "look at the image: has its PyTorch collectives?")
        ]
    return [expected.gate("pass", f"every result is right on {counted(len(whole), 'rank')}"), *lines]


def _lines(name: str, measured: Mapping[int, float], expected: Expected) -> Iterator[Line]:
    for size, busbw in measured.items():
        yield expected.sample(f"{name}_busbw/{size_name(size)}", busbw, "higher", "GB/s")


def _rows(record: Record) -> list[Record]:
    rows = record.get("collectives")
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _measured(name: str, whole: Sequence[Record], expected: Expected) -> dict[int, float]:
    """Give the bus bandwidth by size; a collective takes as long as its slowest rank."""
    found: dict[int, list[list[float]]] = {}
    totals: dict[int, int] = {}
    for record in whole:
        for row in _rows(record):
            if row.get("collective") == name and numbers(row, "times_s"):
                size = int(number(row, "asked") or 0)
                found.setdefault(size, []).append(numbers(row, "times_s"))
                totals[size] = int(number(row, "bytes") or size)
    return {
        size: bus_bandwidth(
            name, totals[size], statistics.median(max(each) for each in zip(*times, strict=False)), expected.ranks
        )
        for size, times in found.items()
        if expected.ranks > 1
    }


def _wrong(whole: Sequence[Record]) -> str:
    for record in whole:
        for row in _rows(record):
            count = int(number(row, "wrong") or 0)
            if count:
                what = f"{row.get('collective')} of {size_name(int(number(row, 'asked') or 0))}"
                return f"{what} gave {count} wrong values on rank {rank_of(record)} ({record.get('host')})"
    return ""


def _tables(record: Record, expected: Expected) -> dict[str, Table]:
    """Give what rccl-tests printed, where they ran over all ranks and have rows."""
    texts = part(record, "tables")
    tables = {name: parse_table(text) for name, text in texts.items() if isinstance(text, str)}
    return {name: table for name, table in tables.items() if table.rows and table.ranks == expected.ranks}


def _wrong_in_tables(tables: Mapping[str, Table]) -> str:
    for name, table in tables.items():
        wrong = [row for row in table.rows if row.wrong]
        if wrong:
            return f"{name}_perf gave {wrong[0].wrong} wrong values at {size_name(wrong[0].size)}"
        if table.out_of_bounds:
            return f"{name}_perf found {table.out_of_bounds} values out of bounds"
    return ""


def _from_table(table: Table) -> dict[int, float]:
    """Give the worse of out of place and in place."""
    return {row.size: min(row.busbw) for row in table.rows}


COLLECTIVE = Probe("collectives", "collectives.py", ("one-node", "several"), judge, arguments, least_ranks=2)
