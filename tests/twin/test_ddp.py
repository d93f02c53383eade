"""The slow interface costs what it costs on a real machine: training over it is measurably slower."""

from __future__ import annotations

import shutil

import pytest

from tests.twin.cluster import EXCHANGE, Cluster
from tests.twin.fence import SCRIPTS

pytestmark = [pytest.mark.root, pytest.mark.slurm, pytest.mark.apptainer]


def steps_per_s(twin: Cluster, interface: str) -> float:
    shutil.copy(SCRIPTS / "ddp.py", twin.exchange)
    container = f"singularity --quiet exec --bind {EXCHANGE} /appl/images/torch.sif"
    meet = {"MASTER_ADDR": twin.nodes[0], "MASTER_PORT": "29500", "GLOO_SOCKET_IFNAME": interface}
    command = f"srun -N2 --ntasks-per-node=1 {container} python3 {EXCHANGE}/ddp.py"
    return float(twin.run(command, environment=meet).check().stdout.split()[1])


def test_ddp_is_slower_over_the_management_interface(twin: Cluster) -> None:
    fast, slow = steps_per_s(twin, "hsn0"), steps_per_s(twin, "eth0")
    print(f"hsn0 {fast:.2f} steps/s, eth0 {slow:.2f} steps/s")
    assert fast / slow >= 1.5
