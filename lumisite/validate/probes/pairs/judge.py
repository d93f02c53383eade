"""Judge `pairs`: what each node does by itself, and what each pair of neighbours does together.

Each node and each pair has a number; lumisite/validate/verdict/slow_nodes.py finds the slow node in all of them.
The best of the repeats counts, as in STREAM: what disturbs a node only ever takes time, and a slow node is never fast.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lumisite.validate.probes.collectives.judge import bus_bandwidth
from lumisite.validate.probes.failed_ranks import judge_together
from lumisite.validate.probes.outcome import passed
from lumisite.validate.probes.probe import Expected, Line, Probe, Record, Target
from lumisite.validate.probes.records import rows, slowest
from lumisite.validate.samples import size_text

#: Options of the script by back-end; sizes are in bytes.
OPTIONS = {
    "gloo": "--size 2097152 --width 128 --products 40 --repeats 5 --limit 120",
    "nccl": "--size 268435456 --width 8192 --products 20 --repeats 5 --limit 120",
}


def pairs(target: Target) -> Probe:
    """Return the probe."""
    srun = target.together("pairs.py", *OPTIONS[target.plan.backend].split())
    return Probe("pairs", (srun,), judge_together(_judge), together=True)


def _judge(done: Sequence[Record], expected: Expected) -> list[Line]:
    """Return the gate, and a sample for each node and each pair."""
    measured = passed(f"{len(expected.nodes)} nodes measured alone and in pairs")
    return [expected.gate(measured), *_nodes(done, expected), *_pairs(done, expected)]


def _nodes(done: Sequence[Record], expected: Expected) -> Iterator[Line]:
    """A node is as good as its worst GPU."""
    by_node: dict[str, list[Record]] = {}
    for record in done:
        by_node.setdefault(record["host"], []).append(record["alone"])
    for node, ranks in sorted(by_node.items()):
        width, size = ranks[0]["width"], ranks[0]["bytes"]
        for key, name, amount, unit in (
            ("product_s", "gemm", 2 * width**3 / 1e12, "TFLOP/s"),
            ("copy_s", "copy_bw", 2 * size / 1e9, "GB/s"),
            ("from_host_s", "from_host_bw", size / 1e9, "GB/s"),
        ):
            times = [min(rank[key]) for rank in ranks if key in rank]
            if times:
                yield expected.sample(name, amount / max(times), "higher", unit, nodes=(node,))


def _pairs(done: Sequence[Record], expected: Expected) -> Iterator[Line]:
    names = {record["node"]: record["host"] for record in done}
    found: dict[tuple[int, ...], list[Record]] = {}
    for row in (row for record in done for row in rows(record, "pairs")):
        found.setdefault(tuple(row["pair"]), []).append(row)
    for pair, of_ranks in found.items():
        nodes = tuple(names[number] for number in pair)
        size = of_ranks[0]["bytes"]
        reduce_s, message_s = (min(slowest(of_ranks, key)) for key in ("all_reduce_s", "there_and_back_s"))
        busbw = bus_bandwidth("all_reduce", size, reduce_s, len(of_ranks))
        yield expected.sample(f"all_reduce_busbw/{size_text(size)}", busbw, "higher", "GB/s", nodes=nodes)
        # Each rank of one node sends to one of the other, and the same comes back.
        message = size * (len(of_ranks) / 2) * 2 / message_s / 1e9
        yield expected.sample(f"send_recv_bw/{size_text(size)}", message, "higher", "GB/s", nodes=nodes)
