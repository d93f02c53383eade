"""Move data between nodes, and keep what tells how it went: the library's log, and the counters of the interfaces."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import lumisite_record
from rank import Rank, run  # the modules beside this one

# mypy: disable-error-code="import-not-found"

ITEM_BYTES = 4
#: What is kept of one rank's log at most; a log with these subsystems has some hundred lines.
LOG_BYTES = 4 << 20


def measure(rank: Rank) -> None:
    """Move data, and keep what the library logged."""
    log = rank.out / f"{rank.rank}.log.%h.%p"
    if rank.kind != "cpu":
        # A file for each rank: lines of several in one stream tear each other.
        os.environ.update(NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT,NET,ENV", NCCL_DEBUG_FILE=str(log))
    try:
        move(rank)
    finally:
        logs = sorted(rank.out.glob(f"{rank.rank}.log.*"))
        rank.record["log"] = "".join(path.read_text(errors="replace") for path in logs)[:LOG_BYTES]
        for path in logs if lumisite_record.shares_node() else ():
            path.unlink()  # the record has it, and a node has one file


def move(rank: Rank) -> None:
    """Reduce over all ranks, and note what every interface has sent meanwhile."""
    rank.connect()
    data = rank.torch.zeros(rank.number("size") // ITEM_BYTES, device=rank.device)
    reduce(rank, data, 1)
    rank.phase = "moving data"
    before = counters()
    reduce(rank, data, rank.number("repeats"))
    after = counters()
    rank.record["moved"] = data.numel() * ITEM_BYTES * rank.number("repeats")
    rank.record["sent"] = {name: after[name] - before.get(name, 0) for name in after}


def reduce(rank: Rank, data: Any, times: int) -> None:
    """Reduce a few times, until all are done."""
    for _ in range(times):
        rank.dist.all_reduce(data)
    rank.wait()
    rank.dist.barrier()


def counters() -> dict[str, int]:
    """Return the bytes that every interface has sent (proc(5), /proc/net/dev)."""
    found = {}
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, colon, rest = line.partition(":")
        if colon and name.strip() != "lo":
            found[name.strip()] = int(rest.split()[8])
    return found


if __name__ == "__main__":
    run(measure)
