"""Move data between nodes, and keep what tells how it went: the library's log, and the counters of the interfaces."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import rank as own  # the modules beside this one

# mypy: disable-error-code="import-not-found"

ITEM_BYTES = 4
#: What is kept of one rank's log at most; a log with these subsystems has some hundred lines.
LOG_BYTES = 4 << 20


def measure(rank: own.Rank) -> None:
    """Move data, and keep what the library said of it."""
    log = rank.out / f"{rank.rank}.log.%h.%p"
    if rank.kind != "cpu":
        # A file for each rank: lines of several in one stream tear each other.
        os.environ.update(NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT,NET,ENV", NCCL_DEBUG_FILE=str(log))
    try:
        move(rank)
    finally:
        logs = sorted(rank.out.glob(f"{rank.rank}.log.*"))
        rank.record["log"] = "".join(path.read_text(errors="replace") for path in logs)[:LOG_BYTES]


def move(rank: own.Rank) -> None:
    """Reduce over all ranks, and note what every interface has carried meanwhile."""
    rank.meet()
    data = rank.torch.zeros(rank.asked("size") // ITEM_BYTES, device=rank.device)
    reduce(rank, data, 1)
    rank.phase = "moving data"
    before = counters()
    reduce(rank, data, rank.asked("repeats"))
    after = counters()
    rank.record["moved"] = data.numel() * ITEM_BYTES * rank.asked("repeats")
    rank.record["carried"] = {name: after[name] - before.get(name, 0) for name in after}


def reduce(rank: own.Rank, data: Any, times: int) -> None:
    """Reduce a few times, until all are done."""
    for _ in range(times):
        rank.dist.all_reduce(data)
    rank.wait()
    rank.dist.barrier()


def counters() -> dict[str, int]:
    """Give the bytes that every interface has received and sent (proc(5), /proc/net/dev)."""
    found = {}
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, colon, rest = line.partition(":")
        if colon and name.strip() != "lo":
            numbers = rest.split()
            found[name.strip()] = int(numbers[0]) + int(numbers[8])
    return found


if __name__ == "__main__":
    own.run(measure)
