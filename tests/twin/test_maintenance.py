"""The day of a maintenance: a baseline, every link is slower, one node is slow (`rehearse`: nothing has changed).

Links are so slow here that they bound everything: the CPUs of this machine, which all nodes share, have little part.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from tests.twin import faults
from tests.twin.cluster import Cluster, ClusterPlan
from tests.twin.fixtures import require_twin
from tests.twin.login_node import LUMISITE, asked_for, ready_cluster
from tests.twin.process import Result

pytestmark = [pytest.mark.measures, pytest.mark.root, pytest.mark.slurm, pytest.mark.apptainer, pytest.mark.lmod]

RATE, SLOWER = "160mbit", "136mbit"  # 15 % less
FOUR = "--jobs 1 --nodes 4 --node-sets 1"
RING = f"--probe pairs {FOUR}"


@pytest.fixture(scope="module")
def site() -> Iterator[Cluster]:
    """A cluster of two node sets, with baselines taken before the maintenance."""
    require_twin()
    with ready_cluster(ClusterPlan(nodes=4, images=("torch",), high_speed_rate=RATE)) as cluster:
        done = lumisite(cluster, "validate --baseline --site twin --probe collectives --jobs 10 --into before")
        assert done.code == 0, done.stdout + done.stderr
        assert "10 of 10 jobs, 1 of 1 days, 2 of 2 disjoint node sets" in done.stderr
        assert "incomplete" not in done.stderr
        ring = lumisite(cluster, f"validate --baseline --site twin {RING} --into ring-before")
        assert ring.code == 0, ring.stdout + ring.stderr
        assert "1 of 10 jobs" in ring.stderr
        yield cluster


def lumisite(cluster: Cluster, words: str) -> Result:
    return cluster.run(f"cd /scratch && {LUMISITE} {words}")


def validate(cluster: Cluster, name: str, words: str) -> Result:
    return lumisite(cluster, f"validate --site twin --out /scratch/{name} {words}")


def test_every_link_is_slower(site: Cluster) -> None:
    with faults.every_link_throttled(site, SLOWER):
        first = validate(site, "after", "--probe collectives --before before --json")
        assert first.code == 4, first.stdout + first.stderr
        more = asked_for(first)
        second = lumisite(site, more)
    found = json.loads(first.stdout)["verdict"]["metrics"]
    assert {one["metric"]: one["verdict"] for one in found if one["decides"]} == {
        "collectives/all_reduce_busbw/4MiB/2n": "unconfirmed"
    }
    assert more.endswith("--jobs 5 --nodes 2 --probe collectives --out /scratch/after-next")
    assert second.code == 0, second.stdout + second.stderr
    second = lumisite(site, "report after after-next --before before")
    assert second.code == 1, second.stdout + second.stderr
    assert second.stdout.startswith("FAIL: ")
    # The system, and no node.
    assert "drain" not in second.stdout
    name = "  collectives/all_reduce_busbw/4MiB/2n"
    row, why = [line for line in second.stdout.splitlines() if line.startswith(name)]
    assert re.search(r" -1[3-7]\.\d % \(", row), row
    assert "; confirmed by 5 more jobs: " in why


def test_one_node_has_a_slow_link(site: Cluster) -> None:
    with faults.interface_throttled(site, "nid000003", "hsn0", "80mbit"):
        pairs = validate(site, "pairs", "--probe collectives --before before")
        hunt = lumisite(site, asked_for(pairs))
        ring = validate(site, "ring", f"{RING} --before ring-before")
    # Two node sets that disagree are no verdict on the system, and do not tell which of the two nodes it is.
    assert pairs.code == 4, pairs.stdout + pairs.stderr
    assert "; only on nid000003, nid000004, not on nid000001, nid000002: a node, not the system" in pairs.stdout
    assert re.search(r"nid000003 is \d+ % slower than the others", hunt.stdout)
    assert ring.stdout.startswith("BAD-NODES: ")
    for done in (hunt, ring):
        assert done.code == 5, done.stdout + done.stderr
        assert "scontrol update nodename=nid000003 state=drain reason='lumisite: slow by pairs/" in done.stdout


@pytest.mark.parametrize("fault", ["link", "folder"])
def test_one_bad_node_of_four_is_told_as_that_node(site: Cluster, fault: str) -> None:
    planted, words = {
        # A third of the rate: a message's first eighth goes at once where a link was idle, and more or fewer were.
        "link": (faults.interface_throttled(site, "nid000003", "hsn0", "53mbit"), RING),
        # What cannot start there, and what the others then wait for, follows from it.
        "folder": (faults.path_gone(site, "nid000003", "/opt/cray"), f"--probe environment --probe ddp {FOUR}"),
    }[fault]
    with planted:
        done = validate(site, f"bad-{fault}", words)
    assert done.code == 5, done.stdout + done.stderr
    assert "scontrol update nodename=nid000003 state=drain" in done.stdout
    told = lumisite(site, f"report /scratch/bad-{fault}")
    assert told.code == 5, told.stdout
    assert told.stdout.startswith("BAD-NODES: ")
