"""Train with DDP over gloo for a moment; rank 0 prints `steps_per_s NUMBER` and what its node sent, `sent_mb IF NUMBER`.

Eight linear layers of 512 by 512: 8 MB of gradients cross the network in each step. The argument is the number of steps.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

# mypy: disable-error-code="import-not-found"
# torch is in the image that this runs in, not where this is checked.
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    torch.set_num_threads(1)
    rank, ranks = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    layers = [torch.nn.Linear(512, 512) for _ in range(8)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
    batch = torch.randn(8, 512)
    for _ in range(3):
        step(model, batch)
    dist.barrier()
    before, began = sent_bytes(), time.monotonic()
    for _ in range(steps):
        step(model, batch)
    dist.barrier()
    if rank == 0:
        print(f"steps_per_s {steps / (time.monotonic() - began):.2f}")
        for interface, sent in sorted(sent_bytes().items()):
            print(f"sent_mb {interface} {(sent - before[interface]) / 1e6:.1f}")
    dist.destroy_process_group()


def step(model: torch.nn.Module, batch: torch.Tensor) -> None:
    model.zero_grad()
    model(batch).sum().backward()


def sent_bytes() -> dict[str, int]:
    """What each interface of this node has sent since it came up (proc(5), /proc/net/dev)."""
    lines = Path("/proc/net/dev").read_text().splitlines()
    rows = [line.replace(":", " ").split() for line in lines if ":" in line]
    return {row[0]: int(row[9]) for row in rows}


if __name__ == "__main__":
    main()
