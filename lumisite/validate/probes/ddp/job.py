"""Train with DistributedDataParallel on synthetic data: a model bound by communication, and one bound by compute.

The one bound by compute is convolutions: libraries of GPUs may search for the fastest ones in the first step.
"""

from __future__ import annotations

import hashlib
import time
from typing import Any

import lumisite_record
from rank import Rank, run  # the modules beside this one

# mypy: disable-error-code="import-not-found"

#: Height and width of the images that convolutions get.
SIDE = 32


def measure(rank: Rank) -> None:
    """Measure every model: `--model NAME:KIND:LAYERS:WIDTH:BATCH`, several times."""
    rank.connect()
    models = rank.record["models"] = {}
    for text in lumisite_record.options("model"):
        name, kind, *sizes = text.split(":")
        rank.phase = f"training model {name}"
        models[name] = train(rank, kind, *map(int, sizes))


def train(rank: Rank, kind: str, layers: int, width: int, batch: int) -> dict[str, Any]:
    """Train one model; give what was seen."""
    rank.torch.manual_seed(0)
    plain, shape = build(rank.torch, kind, layers, width)
    ids = [rank.device.index] if rank.kind != "cpu" else None
    model = rank.torch.nn.parallel.DistributedDataParallel(plain.to(rank.device), device_ids=ids)
    # Other data on every rank, so that gradients agree only if they were exchanged.
    rank.torch.manual_seed(1 + rank.rank)
    step = Stepper(rank, model, rank.torch.randn(batch, *shape, device=rank.device))

    for _ in range(1 + rank.number("warm-up")):
        step.synced()
    rank.dist.barrier()
    began = time.perf_counter()
    steps = [step.synced() for _ in range(rank.number("steps"))]
    total_s = time.perf_counter() - began
    rank.dist.barrier()
    alone = [step.alone() for _ in steps]
    return {
        "batch": batch,
        "total_s": total_s,
        "step_s": steps,
        "alone_s": alone,
        "gradient": gradient(step),
    }


def build(torch: Any, kind: str, layers: int, width: int) -> tuple[Any, tuple[int, ...]]:
    """Return a network and the shape of one item of its input."""
    chain = []
    for _ in range(layers):
        layer = torch.nn.Conv2d(width, width, 3, padding=1) if kind == "conv" else torch.nn.Linear(width, width)
        chain += [layer, torch.nn.ReLU()]
    return torch.nn.Sequential(*chain), (width, SIDE, SIDE) if kind == "conv" else (width,)


class Stepper:
    """One training step, with and without the exchange of gradients; both give seconds."""

    def __init__(self, rank: Rank, model: Any, data: Any) -> None:
        self.rank, self.model, self.data = rank, model, data

    def synced(self) -> float:
        """Do a step as training does."""
        began = time.perf_counter()
        self.model.zero_grad(set_to_none=True)
        self.model(self.data).square().mean().backward()
        self.rank.wait()
        return time.perf_counter() - began

    def alone(self) -> float:
        """Do a step that keeps its gradients to itself."""
        with self.model.no_sync():
            return self.synced()


def gradient(step: Stepper) -> dict[str, Any]:
    """Return what a rank's own gradient was and what it was after the exchange, by a digest and one number each.

    The number is the product with a fixed random vector: the mean of all ranks' must be the exchanged one.
    """
    step.alone()
    local_number, _ = digest(step)
    step.synced()
    number, text = digest(step)
    return {"own": local_number, "exchanged": number, "digest": text}


def digest(step: Stepper) -> tuple[float, str]:
    """Return the product of the gradient with a fixed vector, and a digest of its bytes."""
    torch = step.rank.torch
    numbers = torch.Generator().manual_seed(2)
    total = 0.0
    seen = hashlib.sha256()
    for parameter in step.model.parameters():
        values = parameter.grad.detach().to("cpu", torch.float32).contiguous()
        total += float((values.double() * torch.randn(values.shape, generator=numbers).double()).sum())
        seen.update(values.numpy().tobytes())
    return total, seen.hexdigest()[:16]


if __name__ == "__main__":
    run(measure)
