"""Time all-reduce, all-gather and reduce-scatter over sizes, and check every result.

A size is the total: what is reduced, and what has been gathered or is scattered. Where the image has rccl-tests they
are run as well, before PyTorch takes the GPUs; rank 0 keeps what they print.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import time
from typing import Any

import rank as own  # the module beside this one

# mypy: disable-error-code="import-not-found"

#: The first of these that an image has is used (rccl-tests and nccl-tests have the same names).
TOOLS = {"all_reduce": "all_reduce_perf", "all_gather": "all_gather_perf", "reduce_scatter": "reduce_scatter_perf"}
#: How long one of them may take, in seconds.
TOOL_S = 90
ITEM_BYTES = 4


def add_options(parser: argparse.ArgumentParser) -> None:
    """Sizes in bytes for each collective."""
    parser.add_argument("--sweep", action="append", default=[], metavar="COLLECTIVE:BYTES,BYTES")
    parser.add_argument("--repeats", type=int, default=8)


def measure(rank: own.Rank) -> None:
    """Measure every collective at every size."""
    if rank.options.backend == "nccl":
        tools(rank)
    torch, dist = rank.meet()
    found = rank.record["collectives"] = []
    for text in rank.options.sweep:
        name, _, sizes = text.partition(":")
        for size in sizes.split(","):
            rank.phase = f"running {name} of {size} bytes"
            found.append(one(rank, torch, dist, name, int(size)))
    rank.phase = "leaving the other ranks"
    dist.barrier()
    dist.destroy_process_group()


def one(rank: own.Rank, torch: Any, dist: Any, name: str, size: int) -> dict[str, Any]:
    """Time one collective at one size; what this PyTorch cannot do is said."""
    count = max(rank.ranks, size // ITEM_BYTES // rank.ranks * rank.ranks)
    call = Call(rank, torch, dist, name, count)
    told: dict[str, Any] = {"collective": name, "asked": size, "bytes": count * ITEM_BYTES}
    try:
        wrong = call.wrong()
    except (RuntimeError, AttributeError, NotImplementedError) as error:
        told["unsupported"] = (str(error).strip().splitlines() or [""])[0][:200]
        return told
    times = []
    for _ in range(rank.options.repeats):
        began = time.perf_counter()
        call.run()
        rank.wait(torch)
        times.append(time.perf_counter() - began)
    told.update(times_s=times, wrong=wrong + call.wrong())
    return told


class Call:
    """One collective with its buffers; `count` is the number of items in all."""

    def __init__(self, rank: own.Rank, torch: Any, dist: Any, name: str, count: int) -> None:
        self.rank, self.torch, self.dist, self.name = rank, torch, dist, name
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
            self.dist.all_reduce(self.source)
        elif self.name == "all_gather":
            self.dist.all_gather_into_tensor(self.target, self.source)
        else:
            self.dist.reduce_scatter_tensor(self.target, self.source)

    def wrong(self) -> int:
        """Do it with known numbers and count the wrong ones; the buffers are zero again afterwards."""
        ranks, factor = self.rank.ranks, float(self.rank.rank + 1)
        total = ranks * (ranks + 1) / 2
        if self.name == "all_gather":
            self.source.copy_(self.pattern[self.mine] * factor)
            part = self.pattern.numel() // ranks
            factors = self.torch.arange(1, ranks + 1, device=self.rank.device).repeat_interleave(part)
            right = self.pattern * factors
        else:
            self.source.copy_(self.pattern * factor)
            right = (self.pattern if self.name == "all_reduce" else self.pattern[self.mine]) * total
        self.run()
        wrong = int((self.target != right).sum())
        self.source.zero_()
        self.target.zero_()
        return wrong


def tools(rank: own.Rank) -> None:
    """Run rccl-tests where the image has them; all ranks take part through MPI, and rank 0 prints."""
    tables = {}
    for text in rank.options.sweep:
        name, _, sizes = text.partition(":")
        tool = shutil.which(TOOLS[name])
        if tool is None:
            continue
        rank.phase = f"running {TOOLS[name]}"
        asked = sizes.split(",")
        words = [tool, "-b", asked[0], "-e", asked[-1], "-f", "2", "-g", "1", "-c", "1"]
        try:
            # MPI finds its process manager through file descriptors that the task has inherited.
            done = subprocess.run(
                words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=TOOL_S, close_fds=False, check=False
            )
            tables[name] = done.stdout.decode("utf-8", "replace")[:65536]
        except (OSError, subprocess.TimeoutExpired) as error:
            tables[name] = f"# {error}"
    if rank.rank == 0:
        rank.record["tables"] = tables


if __name__ == "__main__":
    own.run(measure, add_options)
