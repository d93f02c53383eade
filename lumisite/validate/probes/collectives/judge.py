"""Judge `collectives`: is every result right, and how much do the links carry."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from lumisite.findings.catalogue import make_finding
from lumisite.findings.finding import Finding
from lumisite.validate.metric_names import size_text
from lumisite.validate.probes.definition import make_probe, options_of
from lumisite.validate.probes.outcome import judge_together
from lumisite.validate.probes.probe import Expected, Line, Probe, Record, Target, describe_ranks, each
from lumisite.validate.probes.records import numbers, rank_of, rows, slowest, text, whole

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter")
#: A row that nccl-tests print: size count type redop root, then time algbw busbw #wrong out of place, and in place.
_ROW = re.compile(r"^ *(\d+)(?: +\S+){4} +(.+)$", re.MULTILINE)
_RANK = re.compile(r"^#\s+Rank\s+\d+\b", re.MULTILINE)
_BOUNDS = re.compile(r"^#\s*Out of bounds values\s*:\s*0*([1-9]\d*)", re.MULTILINE)


def collectives(target: Target) -> Probe:
    """Return the probe."""
    tools = target.gpu.collectives.tests if target.gpu else ()
    options = options_of("collectives", target.plan.backend)
    srun = target.together("collectives.py", *options, *each("tools", tools))
    return make_probe("collectives", (srun,), judge_together(_judge))


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
    printed = {name: _printed(name, text(done[0], "tables", name), expected.ranks) for name in COLLECTIVES}
    wrong = [*_wrong(done), *(finding for _, findings in printed.values() for finding in findings)]
    if wrong:
        return [expected.gate(replace(wrong[0], nodes=_wrong_nodes(done)))]
    lines = [
        expected.sample(f"{name}_busbw/{size_text(size)}", busbw, "higher", "GB/s")
        for name, (by_size, _) in printed.items()
        for size, busbw in (by_size or _measured(name, done, expected)).items()
    ]
    if not lines:
        return [expected.gate(make_finding("nothing-measured"))]
    return [expected.gate(make_finding("results-right", ranks=len(done))), *lines]


def _measured(name: str, done: Sequence[Record], expected: Expected) -> dict[int, float]:
    """Return the bus bandwidth by size; a collective takes as long as its slowest rank."""
    found: dict[int, list[object]] = {}
    for row in (row for record in done for row in rows(record, "collectives")):
        if text(row, "collective") == name and numbers(row, "times_s"):
            found.setdefault(whole(row, "asked"), []).append(row)
    return {
        size: bus_bandwidth(
            name, whole(of_ranks[0], "bytes") or size, statistics.median(slowest(of_ranks, "times_s")), expected.ranks
        )
        for size, of_ranks in found.items()
        if expected.ranks > 1
    }


def _wrong_nodes(done: Sequence[Record]) -> tuple[str, ...]:
    """Return the nodes whose ranks have wrong results, where others have right ones."""
    bad = {
        str(record.get("host")) for record in done if any(whole(row, "wrong") for row in rows(record, "collectives"))
    }
    return tuple(sorted(bad)) if bad < {str(record.get("host")) for record in done} else ()


def _wrong(done: Sequence[Record]) -> Iterator[Finding]:
    for record in done:
        for row in rows(record, "collectives"):
            if count := whole(row, "wrong"):
                where = describe_ranks([rank_of(record)], [str(record.get("host"))])
                what, size = text(row, "collective"), size_text(whole(row, "asked"))
                yield make_finding("results-wrong", what, size=size, count=count, where=where)


def _printed(name: str, output: str, ranks: int) -> tuple[dict[int, float], list[Finding]]:
    r"""Parse what one of nccl-tests printed, if it ran over all ranks: GB/s by size in bytes, and what is wrong.

    Of out of place and in place the worse counts. Checks that are off print N/A.

    >>> text = "# Rank  0 Group  0\n 1048576 262144 float sum -1 80.1 13.09 24.54 0 79.9 13.12 24.60 N/A\n"
    >>> _printed("all_reduce", text + "# Out of bounds values : 0 OK\n", 1)
    ({1048576: 24.54}, [])
    """
    busbw: dict[int, float] = {}
    wrong: list[Finding] = []
    if len(_RANK.findall(output)) != ranks:
        return busbw, wrong
    for size, rest in _ROW.findall(output):
        words = rest.split()
        blocks = [words[first : first + 4] for first in range(0, len(words) - 3, 4)]
        with suppress(ValueError):
            busbw[int(size)] = min(float(block[2]) for block in blocks)
            if count := sum(int(block[3]) for block in blocks if block[3].isdecimal()):
                wrong.append(make_finding("results-wrong", f"{name}_perf", size=size_text(int(size)), count=count))
    if busbw and (bounds := _BOUNDS.search(output)):
        wrong.append(make_finding("results-out-of-bounds", f"{name}_perf", count=int(bounds[1])))
    return busbw, wrong
