"""`lumisite validate` on a real cluster: jobs, the deployed module, the container, and PyTorch in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.twin.cluster import Cluster, ClusterPlan, running
from tests.twin.fixtures import require_twin
from tests.twin.helper_site import deploy_site
from tests.twin.login_node import LUMISITE, install_lumisite

pytestmark = [pytest.mark.root, pytest.mark.slurm, pytest.mark.apptainer, pytest.mark.lmod]


@pytest.fixture(scope="module")
def site() -> Iterator[Cluster]:
    """A cluster with the modules deployed and lumisite on its login node."""
    require_twin()
    with running(ClusterPlan(images=("torch",))) as cluster:
        deploy_site(cluster)
        install_lumisite(cluster)
        yield cluster


def test_one_job_trains_on_one_node_and_on_two(site: Cluster) -> None:
    done = site.run(f"{LUMISITE} validate --site twin --jobs 1 --probe ddp --out /scratch/first")
    assert done.code == 0, done.stderr
    assert "ddp: passed (2 of 2)" in done.stdout
    assert "ddp/samples_per_s/comm/2n" in done.stdout
