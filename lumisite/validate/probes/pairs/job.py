"""Look for slow nodes: each node by itself, then every node with one neighbour, then with the other.

The nodes stand in a ring. Round 1 has the pairs (0,1), (2,3)…, round 2 is shifted by one, and with an odd number of
nodes round 3 closes the ring: a good node with a bad neighbour has a good one as well.

A repeat goes through everything once more. What disturbs a node for a second then spoils one repeat of each of its
measurements, and not all repeats of one.
"""

from __future__ import annotations

import os
import time
from typing import Any

from rank import Rank, run  # the modules beside this one

# mypy: disable-error-code="import-not-found"

ITEM_BYTES = 4


def measure(rank: Rank) -> None:
    """Measure this rank's GPU and its pairs, as often as requested."""
    rank.connect()
    tasks = max(1, rank.ranks // int(os.environ.get("SLURM_STEP_NUM_NODES", "1")))
    node = rank.rank // tasks
    rank.phase = "making its pairs"
    node_pairs = [node_pair(rank, pairing, tasks) for pairing in rounds(rank.ranks // tasks)]
    works, times = alone(rank)
    rank.record.update(node=node, alone=times, pairs=[pair.times for pair in node_pairs if pair])
    for _ in range(rank.number("repeats")):
        rank.phase = "measuring its GPU"
        rank.dist.barrier()
        for name, work in works.items():
            times[name].append(timed(rank, work) / rank.number("products"))
        for number, pair in enumerate(node_pairs, start=1):
            rank.phase = f"measuring round {number}"
            rank.dist.barrier()
            if pair:
                pair.measure()


def alone(rank: Rank) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what each GPU does alone (products of matrices, copies here and from the host), warm, and its record."""
    torch, width = rank.torch, rank.number("width")
    first, second = torch.randn(2, width, width, device=rank.device)
    large = torch.zeros(rank.number("size") // ITEM_BYTES, device=rank.device)
    copy = torch.empty_like(large)
    works: dict[str, Any] = {"product_s": lambda: first @ second, "copy_s": lambda: copy.copy_(large)}
    if rank.kind != "cpu":
        host = torch.zeros(large.numel(), pin_memory=True)
        works["from_host_s"] = lambda: large.copy_(host, non_blocking=True)
    for work in works.values():
        work()
    rank.wait()
    return works, {"width": width, "bytes": large.numel() * ITEM_BYTES, **{name: [] for name in works}}


def timed(rank: Rank, work: Any) -> float:
    """Return the seconds of one repeat."""
    began = time.perf_counter()
    for _ in range(rank.number("products")):
        work()
    rank.wait()
    return time.perf_counter() - began


def rounds(nodes: int) -> list[list[tuple[int, int]]]:
    """Return the pairs of each round."""
    if nodes < 3:
        return [[(0, 1)]] if nodes == 2 else []
    first = [(node, node + 1) for node in range(0, nodes - 1, 2)]
    second = [(node, (node + 1) % nodes) for node in range(1, nodes - (nodes % 2), 2)]
    return [first, second] + ([[(nodes - 1, 0)]] if nodes % 2 else [])


def node_pair(rank: Rank, pairing: list[tuple[int, int]], tasks: int) -> NodePair | None:
    """Make the groups of one round; give the pair that this rank is in."""
    found = None
    for pair in pairing:
        # Every rank has to make every group, its own or not.
        group = rank.dist.new_group([node * tasks + local for node in pair for local in range(tasks)])
        if rank.rank // tasks in pair:
            found = NodePair(rank, group, pair, tasks)
    return found


class NodePair:
    """One pair of nodes, this rank's among them: an all-reduce of all their ranks, and a message there and back."""

    def __init__(self, rank: Rank, group: Any, pair: tuple[int, int], tasks: int) -> None:
        self.rank, self.dist, self.group = rank, rank.dist, group
        self.first = rank.rank // tasks == pair[0]
        # Messages go between ranks of the same place.
        self.peer = pair[1 if self.first else 0] * tasks + rank.rank % tasks
        self.data = rank.torch.zeros(rank.number("size") // ITEM_BYTES, device=rank.device)
        self.works = {
            "all_reduce_s": lambda: self.dist.all_reduce(self.data, group=group),
            "there_and_back_s": self.there_and_back,
        }
        self.times: dict[str, Any] = {"pair": list(pair), "bytes": self.data.numel() * ITEM_BYTES}
        self.warm = False

    def there_and_back(self) -> None:
        """Send and receive, or receive and send."""
        for sends in (self.first, not self.first):
            if sends:
                self.dist.send(self.data, self.peer, group=self.group)
            else:
                self.dist.recv(self.data, self.peer, group=self.group)

    def measure(self) -> None:
        """Time both once; the first time after one that makes the connections."""
        if not self.warm:
            for work in self.works.values():
                work()
            self.rank.wait()
            self.dist.barrier(group=self.group)
            self.warm = True
        for name, work in self.works.items():
            began = time.perf_counter()
            work()
            self.rank.wait()
            self.times.setdefault(name, []).append(time.perf_counter() - began)


if __name__ == "__main__":
    run(measure)
