"""Time all-reduce, all-gather and reduce-scatter over sizes, and check every result.

A size is the total: what is reduced, and what has been gathered or is scattered.
"""

from __future__ import annotations

import time
from typing import Any

import lumisite_record
from rank import Rank, run  # the modules beside this one

# mypy: disable-error-code="import-not-found"

ITEM_BYTES = 4


def measure(rank: Rank) -> None:
    """Measure every collective at every size."""
    rank.connect()
    found = rank.record["collectives"] = []
    for text in lumisite_record.options("sweep"):
        name, _, sizes = text.partition(":")
        for size in sizes.split(","):
            rank.phase = f"running {name} of {size} bytes"
            found.append(measure_one(rank, name, int(size)))


def measure_one(rank: Rank, name: str, size: int) -> dict[str, Any]:
    """Time one collective at one size; what this PyTorch cannot do is recorded."""
    count = max(rank.ranks, size // ITEM_BYTES // rank.ranks * rank.ranks)
    call = Call(rank, name, count)
    common: dict[str, Any] = {"collective": name, "asked": size, "bytes": count * ITEM_BYTES}
    try:
        wrong = call.wrong()
    except (RuntimeError, AttributeError, NotImplementedError) as error:
        return {**common, "unsupported": lumisite_record.words(error)}
    times = []
    for _ in range(rank.number("repeats")):
        began = time.perf_counter()
        call.run()
        rank.wait()
        times.append(time.perf_counter() - began)
    return {**common, "times_s": times, "wrong": wrong + call.wrong()}


class Call:
    """One collective with its buffers; `count` is the number of items in all."""

    def __init__(self, rank: Rank, name: str, count: int) -> None:
        self.rank, self.name, torch = rank, name, rank.torch
        self.pattern = (torch.arange(count, device=rank.device) % 7 + 1).float()
        part = count // rank.ranks
        self.mine = slice(rank.rank * part, (rank.rank + 1) * part)
        small, large = torch.zeros(part, device=rank.device), torch.zeros(count, device=rank.device)
        self.source, self.target = {
            "all_reduce": (large, large),
            "all_gather": (small, large),
            "reduce_scatter": (large, small),
        }[name]

    def run(self) -> None:
        """Do it once."""
        if self.name == "all_reduce":
            self.rank.dist.all_reduce(self.source)
        elif self.name == "all_gather":
            self.rank.dist.all_gather_into_tensor(self.target, self.source)
        else:
            self.rank.dist.reduce_scatter_tensor(self.target, self.source)

    def wrong(self) -> int:
        """Do it with known numbers and count the wrong ones; the buffers are zero again afterwards."""
        ranks, factor = self.rank.ranks, float(self.rank.rank + 1)
        if self.name == "all_gather":
            self.source.copy_(self.pattern[self.mine] * factor)
            factors = self.rank.torch.arange(1, ranks + 1, device=self.rank.device)
            expected = self.pattern * factors.repeat_interleave(self.source.numel())
        else:
            self.source.copy_(self.pattern * factor)
            pattern = self.pattern if self.name == "all_reduce" else self.pattern[self.mine]
            expected = pattern * ranks * (ranks + 1) / 2
        self.run()
        wrong = int((self.target != expected).sum())
        self.source.zero_()
        self.target.zero_()
        return wrong


if __name__ == "__main__":
    run(measure)
