"""Train with DDP over gloo for a moment and print the speed: `steps_per_s NUMBER`, from rank 0.

Eight linear layers of 512 by 512: 8 MB of gradients cross the network in each step.
"""

import os
import time

# mypy: disable-error-code="import-not-found"
# torch is in the image that this runs in, not where this is checked.
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = 10


def main() -> None:
    torch.set_num_threads(1)
    rank, ranks = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    layers = [torch.nn.Linear(512, 512) for _ in range(8)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
    batch = torch.randn(8, 512)
    for _ in range(3):
        step(model, batch)
    dist.barrier()
    began = time.monotonic()
    for _ in range(STEPS):
        step(model, batch)
    dist.barrier()
    if rank == 0:
        print(f"steps_per_s {STEPS / (time.monotonic() - began):.2f}")
    dist.destroy_process_group()


def step(model: torch.nn.Module, batch: torch.Tensor) -> None:
    model.zero_grad()
    model(batch).sum().backward()


if __name__ == "__main__":
    main()
