"""Train for a few epochs and record how long each took: `wrapper.py OUTDIR --part NAME --backend NAME --steps N`.

One task for each rank. It runs twice, in the site's container and in an environment of the container wrapper (Tykky),
and the judge puts the two side by side. Data are made up, so that file systems have no part in it; what the start
costs is recorded apart. Eight linear layers: 8 MB of gradients cross the network in each step.
"""

# mypy: disable-error-code="import-not-found"
# lumisite_record stands beside this file in the job, and torch is in the image.

import os
import sys
import time
from typing import Any

import lumisite_record as record

EPOCHS = 4
WARM_UP_STEPS = 2
LAYERS, WIDTH, BATCH = 8, 512, 16
NAMED = ("librccl", "libnccl", "libfabric", "libcxi")


def main() -> None:
    """Write the record."""
    began = time.monotonic()
    facts = record.identity()
    facts.update(part=record.option("part", "container"), backend=record.option("backend", "gloo"))
    facts["environment"] = record.environment(
        ("NCCL_", "GLOO_", "FI_", "MASTER_", "LD_LIBRARY_PATH", "LUMISITE", "SINGULARITY_NAME", "SINGULARITY_CONTAINER")
    )
    try:
        facts.update(trained(began, str(facts["backend"])))
    except Exception as error:
        words = str(error).strip().splitlines()
        facts.update(error="{}: {}".format(type(error).__name__, record.shown(words[0] if words else "")))
    record.leave(sys.argv[1], facts)


def trained(began: float, backend: str) -> "dict[str, object]":
    """Train, and give the seconds of the import, of the meeting and of each epoch."""
    import torch
    import torch.distributed as dist

    imported = time.monotonic()
    # Without it, each of several ranks on a node takes all of its CPUs.
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0))))
    rank, ranks = record.number("SLURM_PROCID"), record.number("SLURM_NTASKS", 1)
    dist.init_process_group(backend, rank=rank, world_size=ranks)
    met = time.monotonic()
    device = torch.device("cpu")
    if backend == "nccl":
        device = torch.device("cuda", record.number("SLURM_LOCALID") % torch.cuda.device_count())
        torch.cuda.set_device(device)
    layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers).to(device))
    batch = torch.randn(BATCH, WIDTH, device=device)
    run(model, batch, WARM_UP_STEPS)
    steps = int(record.option("steps", "4"))
    epochs = []
    for _ in range(EPOCHS):
        dist.barrier()
        start = time.monotonic()
        run(model, batch, steps)
        dist.barrier()
        epochs.append(round(time.monotonic() - start, 6))
    libraries = mapped()
    dist.destroy_process_group()
    return {
        "torch": str(torch.__version__),
        "ranks": ranks,
        "import_s": round(imported - began, 3),
        "meet_s": round(met - imported, 3),
        "epoch_s": epochs,
        "mapped": libraries,
    }


def run(model: "Any", batch: "Any", steps: int) -> None:
    """Take a few steps; the last one is waited for."""
    for _ in range(steps):
        model.zero_grad()
        loss = model(batch).sum()
        loss.backward()
    loss.item()


def mapped() -> "list[str]":
    """List the libraries in use that may carry the traffic."""
    found = {"/" + line.partition("/")[2] for line in record.text_of("/proc/self/maps").splitlines()}
    return sorted(path for path in found if path.rpartition("/")[2].startswith(NAMED))


if __name__ == "__main__":
    main()
