"""Meet the other ranks over gloo, and add up what each has: the shortest training there is."""

from __future__ import annotations

import os

# mypy: disable-error-code="import-not-found"
# torch is in the image that this runs in, not where this is checked.
import torch
import torch.distributed as dist

rank, ranks = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
dist.init_process_group("gloo", rank=rank, world_size=ranks)
total = torch.ones(1)
dist.all_reduce(total)
print(f"rank {rank} sees {total.item():.0f}", flush=True)
dist.destroy_process_group()
