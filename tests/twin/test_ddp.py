"""DDP on two nodes: the slow interface costs what it costs on a real machine, and with the module nothing goes over it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.twin.cluster import Cluster, ClusterPlan, running
from tests.twin.fixtures import require_twin
from tests.twin.helper_site import deploy_site
from tests.twin.training import by_hand, train, with_module

pytestmark = [pytest.mark.measures, pytest.mark.root, pytest.mark.slurm, pytest.mark.apptainer]

#: Ten steps of 8 MB of gradients.
GRADIENTS_MB = 80


@pytest.fixture(scope="module")
def site() -> Iterator[Cluster]:
    """A cluster with the site deployed."""
    require_twin()
    with running(ClusterPlan(images=("torch",))) as cluster:
        deploy_site(cluster)
        yield cluster


def test_ddp_is_slower_over_the_management_interface(site: Cluster) -> None:
    fast, slow = (train(site, by_hand(site, interface)) for interface in ("hsn0", "eth0"))
    print(f"hsn0 {fast.steps_per_s:.2f} steps/s, eth0 {slow.steps_per_s:.2f} steps/s")
    # About 2 where the machine has nothing else to do.
    assert fast.steps_per_s / slow.steps_per_s >= 1.2


def test_without_the_module_gradients_take_the_management_interface(site: Cluster) -> None:
    sent = train(site, by_hand(site, None)).sent_mb
    assert sent["eth0"] > GRADIENTS_MB > sent["hsn0"] * 10


def test_with_the_module_gradients_take_the_fast_interface_and_the_user_sets_nothing(site: Cluster) -> None:
    sent = train(site, with_module()).sent_mb
    assert sent["hsn0"] > GRADIENTS_MB > sent["eth0"] * 10
