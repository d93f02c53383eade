"""Train with DistributedDataParallel on synthetic data: a model bound by communication, and one bound by compute.

The one bound by compute is convolutions: those of AMD GPUs come from MIOpen, whose first search is in the first step,
which is kept apart.
"""

from __future__ import annotations

import argparse
import hashlib
import time
from typing import Any

import rank as own  # the module beside this one

# mypy: disable-error-code="import-not-found"

#: Height and width of the images that convolutions get.
SIDE = 32

# PyTorch, and the module beside this one, are found where this runs.


def add_options(parser: argparse.ArgumentParser) -> None:
    """Sizes, so that the same script serves a laptop's cores and a node of GPUs."""
    parser.add_argument("--model", action="append", default=[], metavar="NAME:KIND:LAYERS:WIDTH:BATCH")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warm-up", type=int, default=3)


def measure(rank: own.Rank) -> None:
    """Measure every model."""
    torch, dist = rank.meet()
    models = rank.record["models"] = {}
    for text in rank.options.model:
        name, kind, layers, width, batch = text.split(":")
        rank.phase = f"training model {name}"
        models[name] = train(rank, torch, dist, kind, int(layers), int(width), int(batch))
    rank.phase = "leaving the other ranks"
    dist.barrier()
    dist.destroy_process_group()


def build(torch: Any, kind: str, layers: int, width: int) -> tuple[Any, tuple[int, ...]]:
    """Give a network and the shape of one item of its input."""
    chain = []
    for _ in range(layers):
        if kind == "conv":
            chain += [torch.nn.Conv2d(width, width, 3, padding=1), torch.nn.ReLU()]
        else:
            chain += [torch.nn.Linear(width, width), torch.nn.ReLU()]
    return torch.nn.Sequential(*chain), (width, SIDE, SIDE) if kind == "conv" else (width,)


def train(rank: own.Rank, torch: Any, dist: Any, kind: str, layers: int, width: int, batch: int) -> dict[str, Any]:
    """Train one model; give what was seen."""
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(0)
    plain, shape = build(torch, kind, layers, width)
    network = plain.to(rank.device)
    ids = [rank.device.index] if rank.device.type == "cuda" else None
    model = DistributedDataParallel(network, device_ids=ids)
    # Other data on every rank, so that gradients agree only if they were exchanged.
    torch.manual_seed(1 + rank.rank)
    data = torch.randn(batch, *shape, device=rank.device)
    step = Stepper(rank, torch, model, data)

    began = time.perf_counter()
    first = step.synced()
    warm_up = [step.synced() for _ in range(rank.options.warm_up)]
    warm_up_s = time.perf_counter() - began
    dist.barrier()
    began = time.perf_counter()
    steps = [step.synced() for _ in range(rank.options.steps)]
    total_s = time.perf_counter() - began
    dist.barrier()
    alone = [step.alone() for _ in range(rank.options.steps)]
    return {
        "batch": batch,
        "parameters": sum(each.numel() for each in network.parameters()),
        "first_step_s": first,
        "warm_up_s": warm_up_s,
        "warm_up_steps": len(warm_up) + 1,
        "total_s": total_s,
        "step_s": steps,
        "alone_s": alone,
        "gradient": gradient(step, torch),
    }


class Stepper:
    """One training step, with and without the exchange of gradients; both give seconds."""

    def __init__(self, rank: own.Rank, torch: Any, model: Any, data: Any) -> None:
        self.rank = rank
        self.torch = torch
        self.model = model
        self.data = data

    def synced(self) -> float:
        """Do a step as training does."""
        began = time.perf_counter()
        self.model.zero_grad(set_to_none=True)
        self.model(self.data).square().mean().backward()
        self.rank.wait(self.torch)
        return time.perf_counter() - began

    def alone(self) -> float:
        """Do a step that keeps its gradients to itself."""
        with self.model.no_sync():
            return self.synced()


def gradient(step: Stepper, torch: Any) -> dict[str, Any]:
    """Say what a rank's own gradient was and what it was after the exchange, by a digest and one number each.

    The number is the product with a fixed random vector: the mean of the own ones must be the exchanged one.
    """
    step.alone()
    own_number, _ = digest(step, torch)
    step.synced()
    number, text = digest(step, torch)
    return {"own": own_number, "exchanged": number, "digest": text}


def digest(step: Stepper, torch: Any) -> tuple[float, str]:
    """Give the product of the gradient with a fixed vector, and a digest of its bytes."""
    numbers = torch.Generator().manual_seed(2)
    total = 0.0
    seen = hashlib.sha256()
    for parameter in step.model.parameters():
        values = parameter.grad.detach().to("cpu", torch.float32).contiguous()
        weights = torch.randn(values.shape, generator=numbers)
        total += float((values.double() * weights.double()).sum())
        seen.update(values.numpy().tobytes())
    return total, seen.hexdigest()[:16]


if __name__ == "__main__":
    own.run(measure, add_options)
