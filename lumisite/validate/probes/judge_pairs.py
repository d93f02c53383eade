"""Judge `pairs`: what each node does by itself, and what each pair of neighbours does together.

A number for every node or pair goes out; lumisite/validate/verdict_nodes.py tells from all of them which node is slow.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from lumisite.validate.probes.bandwidth import bus_bandwidth, size_name
from lumisite.validate.probes.probe import Backend, Ended, Expected, Line, Probe, Record
from lumisite.validate.probes.ranks import counted, finished, number, numbers, part, trouble


def arguments(backend: Backend) -> tuple[str, ...]:
    """Give the script's options: 256 MiB between GPUs."""
    if backend == "gloo":
        return ("--size", str(2 << 20), "--width", "128", "--products", "40", "--repeats", "3", "--limit", "30")
    return ("--size", str(256 << 20), "--width", "8192", "--products", "20", "--repeats", "3", "--limit", "120")


def judge(steps: Sequence[Ended], expected: Expected) -> list[Line]:
    """Give the gate, and a sample for each node and each pair."""
    failed = trouble(steps[0], expected)
    if failed is not None:
        return [failed]
    whole = finished(steps[0].records)
    lines = [*_nodes(whole, expected), *_pairs(whole, expected)]
    return [expected.gate("pass", f"{counted(len(expected.nodes), 'node')} measured alone and in pairs"), *lines]


def _nodes(whole: Sequence[Record], expected: Expected) -> Iterator[Line]:
    """A node is as good as its worst GPU."""
    by_node: dict[str, list[Record]] = {}
    for record in whole:
        by_node.setdefault(_name(record, whole, expected), []).append(part(record, "alone"))
    for node, own in sorted(by_node.items()):
        width, size = number(own[0], "width") or 0.0, number(own[0], "bytes") or 0.0
        for key, name, amount, unit in (
            ("product_s", "gemm", 2 * width**3 / 1e12, "TFLOP/s"),
            ("copy_s", "copy_bw", 2 * size / 1e9, "GB/s"),
            ("from_host_s", "from_host_bw", size / 1e9, "GB/s"),
        ):
            times = [statistics.median(numbers(each, key)) for each in own if numbers(each, key)]
            if times:
                yield expected.sample(name, amount / max(times), "higher", unit, nodes=(node,))


def _pairs(whole: Sequence[Record], expected: Expected) -> Iterator[Line]:
    names = {int(number(record, "node") or 0): _name(record, whole, expected) for record in whole}
    found: dict[tuple[int, int], list[Record]] = {}
    for record in whole:
        rows = record.get("pairs")
        for row in rows if isinstance(rows, list) else []:
            first, second = (int(each) for each in numbers(row, "pair"))
            found.setdefault((first, second), []).append(row)
    for pair, rows in found.items():
        nodes = (names[pair[0]], names[pair[1]])
        size = int(number(rows[0], "bytes") or 0)
        reduce_s, message_s = _slowest(rows, "all_reduce_s"), _slowest(rows, "there_and_back_s")
        busbw = bus_bandwidth("all_reduce", size, reduce_s, len(rows))
        yield expected.sample(f"all_reduce_busbw/{size_name(size)}", busbw, "higher", "GB/s", nodes=nodes)
        # Each rank of one node sends to one of the other, and the same comes back.
        message = size * (len(rows) / 2) * 2 / message_s / 1e9
        yield expected.sample(f"send_recv_bw/{size_name(size)}", message, "higher", "GB/s", nodes=nodes)


def _slowest(rows: Sequence[Record], key: str) -> float:
    """Give the middle repeat, each as long as its slowest rank took."""
    middle: float = statistics.median(max(each) for each in zip(*(numbers(row, key) for row in rows), strict=False))
    return middle


def _name(record: Record, whole: Sequence[Record], expected: Expected) -> str:
    """Give the node by Slurm's name: ranks go through the nodes in order."""
    rank = number(record, "rank") or 0.0
    return sorted(expected.nodes)[int(rank) // max(1, len(whole) // len(expected.nodes))]


PAIRS = Probe("pairs", "pairs.py", ("several",), judge, arguments)
