"""A short DDP training on two nodes, started as a user starts it: how fast it was, and which interface carried it."""

from __future__ import annotations

import shutil
from dataclasses import dataclass

from tests.twin.cluster import EXCHANGE, Cluster
from tests.twin.fence import SCRIPTS
from tests.twin.helper_site import LOAD

SRUN = "srun -N2 --ntasks-per-node=1"
CONTAINER = f"singularity --quiet exec --bind {EXCHANGE} /appl/images/torch.sif"


@dataclass(frozen=True)
class Training:
    """What rank 0 saw; `sent_mb` is by interface, in 10^6 bytes."""

    steps_per_s: float
    sent_mb: dict[str, float]


def with_module(steps: int = 10) -> str:
    """Give the command of a user who loads the module, and sets nothing."""
    return f"{LOAD} && {SRUN} {CONTAINER} python3 {EXCHANGE}/ddp.py {steps}"


def by_hand(cluster: Cluster, interface: str | None, steps: int = 10) -> str:
    """Give the command of a user without the module, who says where ranks meet and, maybe, the interface for gloo."""
    meet = f"export MASTER_ADDR={cluster.nodes[0]} MASTER_PORT=29500"
    if interface is not None:
        meet += f" GLOO_SOCKET_IFNAME={interface}"
    return f"{meet} && {SRUN} {CONTAINER} python3 {EXCHANGE}/ddp.py {steps}"


def train(cluster: Cluster, command: str) -> Training:
    """Run one of the commands above."""
    shutil.copy(SCRIPTS / "ddp.py", cluster.exchange)
    return read_training(cluster.run(command).check().stdout)


def read_training(text: str) -> Training:
    """Read what rank 0 printed."""
    rows = [line.split() for line in text.splitlines()]
    (speed,) = [float(row[1]) for row in rows if row[0] == "steps_per_s"]
    return Training(speed, {row[1]: float(row[2]) for row in rows if row[0] == "sent_mb"})
