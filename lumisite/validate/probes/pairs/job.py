"""Look for slow nodes: each node by itself, then every node with one neighbour, then with the other.

The nodes stand in a ring. Round 1 has the pairs (0,1), (2,3)…, round 2 is shifted by one, and with an odd number of
nodes round 3 closes the ring: a good node with a bad neighbour has a good one as well.
"""

from __future__ import annotations

import os
import time
from typing import Any

import rank as own  # the modules beside this one

# mypy: disable-error-code="import-not-found"

ITEM_BYTES = 4


def measure(rank: own.Rank) -> None:
    """Measure this rank's GPU, then its pairs."""
    rank.meet()
    torch, dist = rank.torch, rank.dist
    rank.phase = "measuring its GPU"
    dist.barrier()
    rank.record["alone"] = alone(rank, torch)
    tasks = max(1, rank.ranks // int(os.environ.get("SLURM_STEP_NUM_NODES", "1")))
    node = rank.rank // tasks
    rank.record["node"] = node
    rank.record["pairs"] = pairs(rank, torch, dist, node, tasks)


def alone(rank: own.Rank, torch: Any) -> dict[str, Any]:
    """Time products of matrices and copies of memory, here and from the host."""
    width = rank.asked("width")
    left, right = torch.randn(2, width, width, device=rank.device)
    large = torch.zeros(rank.asked("size") // ITEM_BYTES, device=rank.device)
    copy = torch.empty_like(large)
    works: dict[str, Any] = {"product_s": lambda: left @ right, "copy_s": lambda: copy.copy_(large)}
    if rank.device.type == "cuda":
        host = torch.zeros(large.numel(), pin_memory=True)
        works["from_host_s"] = lambda: large.copy_(host, non_blocking=True)
    told: dict[str, Any] = {"width": width, "bytes": large.numel() * ITEM_BYTES}
    for name, work in works.items():
        work()
        rank.wait()
        told[name] = [timed(rank, torch, work) / rank.asked("products") for _ in range(rank.asked("repeats"))]
    return told


def timed(rank: own.Rank, torch: Any, work: Any) -> float:
    """Give the seconds of one repeat."""
    began = time.perf_counter()
    for _ in range(rank.asked("products")):
        work()
    rank.wait()
    return time.perf_counter() - began


def rounds(nodes: int) -> list[list[tuple[int, int]]]:
    """Give the pairs of each round."""
    if nodes < 3:
        return [[(0, 1)]] if nodes == 2 else []
    first = [(node, node + 1) for node in range(0, nodes - 1, 2)]
    second = [(node, (node + 1) % nodes) for node in range(1, nodes - (nodes % 2), 2)]
    return [first, second] + ([[(nodes - 1, 0)]] if nodes % 2 else [])


def pairs(rank: own.Rank, torch: Any, dist: Any, node: int, tasks: int) -> list[dict[str, Any]]:
    """Go through all rounds with the others."""
    found = []
    for number, pairing in enumerate(rounds(rank.ranks // tasks), start=1):
        rank.phase = f"making the pairs of round {number}"
        mine, group = None, None
        for pair in pairing:
            members = [other * tasks + local for other in pair for local in range(tasks)]
            # Every rank has to make every group, its own or not.
            made = dist.new_group(members)
            if node in pair:
                mine, group = pair, made
        rank.phase = f"measuring the pairs of round {number}"
        if mine is None:
            idle(rank, dist)
            continue
        peer = (mine[1] if node == mine[0] else mine[0]) * tasks + rank.rank % tasks
        found.append({"round": number, "pair": list(mine), **one(rank, torch, dist, group, peer, node == mine[0])})
    return found


def idle(rank: own.Rank, dist: Any) -> None:
    """Take part in what all ranks do in a round, without a pair of its own."""
    for _ in range(rank.asked("repeats")):
        dist.barrier()


def one(rank: own.Rank, torch: Any, dist: Any, group: Any, peer: int, first: bool) -> dict[str, Any]:
    """Time an all-reduce of the pair, and a message there and back between ranks of the same place."""
    data = torch.zeros(rank.asked("size") // ITEM_BYTES, device=rank.device)

    def there_and_back() -> None:
        for sends in (first, not first):
            if sends:
                dist.send(data, peer, group=group)
            else:
                dist.recv(data, peer, group=group)

    works = {"all_reduce_s": lambda: dist.all_reduce(data, group=group), "there_and_back_s": there_and_back}
    times: dict[str, list[float]] = {name: [] for name in works}
    for work in works.values():
        work()
    rank.wait()
    for _ in range(rank.asked("repeats")):
        dist.barrier()
        for name, work in works.items():
            began = time.perf_counter()
            work()
            rank.wait()
            times[name].append(time.perf_counter() - began)
    return {"bytes": data.numel() * ITEM_BYTES, **times}


if __name__ == "__main__":
    own.run(measure)
