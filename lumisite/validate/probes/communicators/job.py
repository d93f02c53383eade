"""Make process groups one after the other, each followed by its first collective, and end where one of them hangs.

Group 1 is the one that every program begins with; the others have all ranks as well. A rank that is too long at one
place ends itself: what hangs in a library hears no exception, and PyTorch's own watchdog leaves no record.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import lumisite_record
from rank import Rank, run  # the modules beside this one

# mypy: disable-error-code="import-not-found"

ITEM_BYTES = 4
#: How long a rank that hangs waits before it ends, so that the others come to the same end, in seconds.
LINGER_S = 3.0


class Watch:
    """Knows where this rank is, and ends it when it is there for too long."""

    def __init__(self, rank: Rank) -> None:
        self.rank = rank
        self.patience = rank.number("patience")  # longest time at one place, in seconds
        self.groups = rank.number("groups")
        self.at(1, "making")
        threading.Thread(target=self.run, daemon=True).start()

    def at(self, group: int, part: str) -> None:
        """Come to another place: `part` is what is done with a group (PARTS in failed_ranks.py)."""
        self.rank.phase = f"{part} group {group} of {self.groups}"
        self.rank.details = {"group": group, "part": part, "settings": self.rank.settings}
        self.rank.record.update(self.rank.details)
        self.since = time.monotonic()
        self.rank.report()

    def run(self) -> None:
        """Wait until it is too long, and record that."""
        while time.monotonic() - self.since < self.patience:
            time.sleep(0.2)
        self.rank.report()  # it finds out whether this rank was stopped
        self.rank.record.update(hung_time=time.time(), hung_s=self.patience, hung_at=self.rank.phase)
        if self.rank.froze:
            self.rank.record["froze"] = True
        try:
            lumisite_record.leave(self.rank.record)
            time.sleep(LINGER_S)
            end_children("self")
        finally:
            os._exit(1)


def end_children(process: str) -> None:
    """End what a process has started: where Slurm follows parents, it loses those whose parent has ended."""
    for thread in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(OSError):  # the thread has just ended
            for child in thread.read_text().split():
                end_children(child)
                with suppress(ProcessLookupError):
                    os.kill(int(child), signal.SIGKILL)


def measure(rank: Rank) -> None:
    """Make the groups and use them."""
    rank.load()
    watch = Watch(rank)
    rank.record["groups"] = [measure_one(rank, watch, number) for number in range(1, watch.groups + 1)]
    watch.at(watch.groups, "leaving")


def measure_one(rank: Rank, watch: Watch, number: int) -> dict[str, Any]:
    """Make a group and use it once; give the seconds of both, and how many sums are wrong."""
    watch.at(number, "making")
    began = time.perf_counter()
    group = None  # the one of all programs
    if number == 1:
        rank.join()
    else:
        group = rank.dist.new_group()
    made = time.perf_counter()
    data = rank.torch.full((rank.number("size") // ITEM_BYTES,), float(rank.rank + number), device=rank.device)
    watch.at(number, "entering")  # with NCCL the communicator is made on entering the first collective
    work = rank.dist.all_reduce(data, group=group, async_op=True)
    watch.at(number, "running")
    work.wait()
    rank.wait()
    done = time.perf_counter()
    total = rank.ranks * (rank.ranks - 1) / 2 + rank.ranks * number
    return {"make_s": made - began, "first_s": done - made, "wrong": int((data != total).sum())}


if __name__ == "__main__":
    run(measure)
