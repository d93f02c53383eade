"""Train for a few epochs and record how long each took: `--part NAME --steps N`, besides the options of all.

It runs twice, in the site's container and in an environment of the container wrapper (Tykky), and the judge puts the
two side by side. Data are made up, so that file systems have no part in it. Eight linear layers: 8 MB of gradients
cross the network in each step.
"""

from __future__ import annotations

import time
from typing import Any

import lumisite_record
import rank as own  # the modules beside this one

# mypy: disable-error-code="import-not-found"

EPOCHS = 4
WARM_UP_STEPS = 2
LAYERS, WIDTH, BATCH = 8, 512, 16
#: Libraries that may carry the traffic, and the variables that decide on it.
NAMED = ("librccl", "libnccl", "libfabric", "libcxi")
SETTINGS = ("NCCL_", "GLOO_", "FI_", "LD_LIBRARY_PATH")


def measure(rank: own.Rank) -> None:
    """Train, and give the seconds of each epoch."""
    rank.record.update(part=lumisite_record.option("part"), environment=lumisite_record.environment(SETTINGS))
    rank.meet()
    torch, dist = rank.torch, rank.dist
    layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers).to(rank.device))
    batch = torch.randn(BATCH, WIDTH, device=rank.device)
    train(model, batch, WARM_UP_STEPS)
    rank.record["epoch_s"] = []
    for number in range(1, EPOCHS + 1):
        rank.phase = f"training epoch {number}"
        dist.barrier()
        began = time.monotonic()
        train(model, batch, rank.asked("steps"))
        dist.barrier()
        rank.record["epoch_s"].append(round(time.monotonic() - began, 6))
    rank.record["mapped"] = lumisite_record.mapped(NAMED)


def train(model: Any, batch: Any, steps: int) -> None:
    """Take a few steps; the last one is waited for."""
    for _ in range(steps):
        model.zero_grad()
        loss = model(batch).sum()
        loss.backward()
    loss.item()


if __name__ == "__main__":
    own.run(measure)
