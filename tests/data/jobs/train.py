"""What the users' scripts train, if for any epoch: a linear layer on random numbers; each rank ends with a line of JSON."""

# mypy: disable-error-code="import-not-found"
# torch is in the image that this runs in, not where this is checked.

import json
import os
import socket
import sys
from pathlib import Path

PLACES = ("/scratch", "/project", "/opt/cray", "/usr/lib64/libcxi.so.1", "/var/spool/slurmd", "/.singularity.d")
NAMES = ("MASTER_ADDR", "MASTER_PORT", "GLOO_SOCKET_IFNAME", "NCCL_NET_GDR_LEVEL", "PYTHONNOUSERSITE", "CONDA_PREFIX")


def train(rank: int, ranks: int, epochs: int) -> int:
    """Train, and give how many ranks have met."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    model = torch.nn.Linear(20, 1)
    if ranks > 1:
        dist.init_process_group("gloo", rank=rank, world_size=ranks)
        model = DistributedDataParallel(model)
    met = torch.ones(1)
    for epoch in range(epochs):
        model(torch.rand(32, 20)).sum().backward()
        print(f"[GPU{rank}] Epoch {epoch} | Batchsize: 32", flush=True)
    if ranks > 1:
        dist.all_reduce(met)
    return int(met.item())


def main() -> None:
    rank = int(os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0")))
    ranks = int(os.environ.get("WORLD_SIZE", os.environ.get("SLURM_NTASKS", "1")))
    epochs = int(sys.argv[1])
    met = train(rank, ranks, epochs) if epochs else ranks
    told = {"rank": rank, "ranks": met, "node": socket.gethostname(), "python": sys.executable}
    told["places"] = [place for place in PLACES if Path(place).exists()]
    told["environment"] = {name: os.environ[name] for name in NAMES if name in os.environ}
    told["cpus"] = len(os.sched_getaffinity(0))
    try:
        import hello_from_the_venv

        told["venv"] = hello_from_the_venv.__file__
    except ImportError:
        told["venv"] = None
    print("RAN " + json.dumps(told), flush=True)


main()
# This PyTorch's gloo may abort where Python takes it down: "terminate called without an active exception".
os._exit(0)
