"""Move data between nodes, and keep what tells how it went: the library's log, and the counters of the interfaces."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import rank as own  # the module beside this one

# mypy: disable-error-code="import-not-found"

ITEM_BYTES = 4
#: What is kept of one rank's log at most; a log with these subsystems has some hundred lines.
LOG_BYTES = 4 << 20


def add_options(parser: argparse.ArgumentParser) -> None:
    """Sizes."""
    parser.add_argument("--size", type=int, default=4 << 20, help="bytes of a message")
    parser.add_argument("--repeats", type=int, default=4)


def measure(rank: own.Rank) -> None:
    """Say how the interfaces are, then move data and say what they carried."""
    rank.record["interfaces"] = states()
    log = rank.out / f"{rank.rank}.log.%h.%p"
    if rank.options.backend == "nccl":
        # A file for each rank: lines of several in one stream tear each other.
        os.environ.update(NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT,NET,ENV", NCCL_DEBUG_FILE=str(log))
    try:
        move(rank)
    finally:
        logs = sorted(rank.out.glob(f"{rank.rank}.log.*"))
        rank.record["log"] = "".join(path.read_text(errors="replace") for path in logs)[:LOG_BYTES]


def move(rank: own.Rank) -> None:
    """Reduce over all ranks, and note what every interface has carried meanwhile."""
    torch, dist = rank.meet()
    data = torch.zeros(rank.options.size // ITEM_BYTES, device=rank.device)
    dist.all_reduce(data)
    rank.wait(torch)
    dist.barrier()
    rank.phase = "moving data"
    before = counters()
    for _ in range(rank.options.repeats):
        dist.all_reduce(data)
    rank.wait(torch)
    dist.barrier()
    after = counters()
    rank.record["moved"] = data.numel() * ITEM_BYTES * rank.options.repeats
    rank.record["carried"] = {name: after[name] - before.get(name, 0) for name in after}
    rank.phase = "leaving the other ranks"
    dist.destroy_process_group()


def counters() -> dict[str, int]:
    """Give the bytes that every interface has received and sent (proc(5), /proc/net/dev)."""
    found = {}
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, colon, rest = line.partition(":")
        if colon and name.strip() != "lo":
            numbers = rest.split()
            found[name.strip()] = int(numbers[0]) + int(numbers[8])
    return found


def states() -> dict[str, Any]:
    """Give the state of every interface as the kernel names it: up, down, lowerlayerdown."""
    found = {}
    for folder in sorted(Path("/sys/class/net").glob("*")):
        try:
            found[folder.name] = (folder / "operstate").read_text().strip()
        except OSError as error:
            found[folder.name] = str(error)
    return found


if __name__ == "__main__":
    own.run(measure, add_options)
