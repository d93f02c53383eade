"""What keeps a job from starting is named while it waits, on a real Slurm."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from tests.twin import faults
from tests.twin.cluster import Cluster, ClusterPlan
from tests.twin.fixtures import require_twin
from tests.twin.login_node import ready_cluster
from tests.twin.test_validate import at_work, ended

pytestmark = [pytest.mark.root, pytest.mark.slurm, pytest.mark.apptainer, pytest.mark.lmod]


@pytest.fixture(scope="module")
def site() -> Iterator[Cluster]:
    """A cluster with the modules deployed and lumisite on its login node."""
    require_twin()
    with ready_cluster(ClusterPlan(images=("torch",))) as cluster:
        yield cluster


def scontrol(cluster: Cluster, words: str) -> None:
    cluster.run(f"scontrol update {words}", user="root").check()


def until(process: subprocess.Popen[str], text: str) -> str:
    assert process.stderr is not None
    return next((line for line in process.stderr if text in line), "")


def test_a_limit_and_a_drained_node_are_named_while_the_job_waits(site: Cluster) -> None:
    scontrol(site, "partitionname=standard-g maxnodes=1")
    try:
        with at_work(site, "waits", "--probe node --nodes 2", "PENDING (PartitionNodeLimit)") as process:
            with faults.node_drained(site, "nid000002", "bad DIMM"):
                scontrol(site, "partitionname=standard-g maxnodes=unlimited")
                told = until(process, "bad DIMM")
            code, out, err = ended(process)
    finally:
        scontrol(site, "partitionname=standard-g maxnodes=unlimited")
    assert "nid000002 drained (bad DIMM" in told
    assert "--avoid nid000002" in told
    assert code == 0, out + err
