"""The day of a maintenance: a baseline, nothing has changed, every link is slower, one node is slow.

Links are so slow here that they bound everything: no CPU of this machine, which all nodes share, has a part in it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.twin import faults
from tests.twin.cluster import Cluster, ClusterPlan, running
from tests.twin.fixtures import require_twin
from tests.twin.helper_site import deploy_site
from tests.twin.login_node import LUMISITE, install_lumisite
from tests.twin.process import Result

pytestmark = [pytest.mark.root, pytest.mark.slurm, pytest.mark.apptainer, pytest.mark.lmod]

RATE, SLOWER = "300mbit", "255mbit"  # 15 % less
RING = "--probe pairs --jobs 1 --nodes 4 --node-sets 1"


@pytest.fixture(scope="module")
def site() -> Iterator[Cluster]:
    """A cluster of two node sets, with baselines taken before the maintenance."""
    require_twin()
    with running(ClusterPlan(nodes=4, images=("torch",), high_speed_rate=RATE)) as cluster:
        deploy_site(cluster)
        install_lumisite(cluster)
        yield cluster


def lumisite(cluster: Cluster, words: str) -> Result:
    return cluster.run(f"cd /scratch && {LUMISITE} {words}")


def validate(cluster: Cluster, name: str, words: str) -> Result:
    return lumisite(cluster, f"validate --site twin --out /scratch/{name} {words}")


def asked_for(done: Result) -> str:
    """The command that the verdict prints for going on."""
    told = [line.removeprefix("lumisite:").strip() for line in done.stderr.splitlines()]
    return next(line.removeprefix("lumisite ") for line in told if line.startswith("lumisite validate --more "))


def verdict(done: Result) -> dict[str, object]:
    found = json.loads(done.stdout)["verdict"]
    assert isinstance(found, dict)
    return found


def test_the_day_of_a_maintenance(site: Cluster) -> None:
    before = lumisite(site, "baseline --site twin --probe collectives --jobs 10 --into before.jsonl")
    assert before.code == 0, before.stdout + before.stderr
    assert "before.jsonl has 10 jobs, 1 day, 2 node sets" in before.stderr
    assert "that is a baseline" in before.stderr

    same = validate(site, "same", "--probe collectives --baseline before.jsonl")
    assert same.code == 0, same.stdout + same.stderr

    with faults.every_link_throttled(site, SLOWER):
        first = validate(site, "after", "--probe collectives --baseline before.jsonl --json")
        assert first.code == 4, first.stdout + first.stderr
        suspected = verdict(first)
        more = asked_for(first)
        second = lumisite(site, more)
    assert {one["metric"]: one["verdict"] for one in suspected["metrics"] if one["decides"]} == {  # type: ignore[attr-defined]
        f"collectives/{name}_busbw/4MiB/2n": "unconfirmed" for name in ("all_gather", "all_reduce", "reduce_scatter")
    }
    assert more == "validate --more /scratch/after --jobs 5 --probe collectives"
    assert second.code == 1, second.stdout + second.stderr
    assert second.stdout.startswith("FAIL: ")
    # The system, and no node.
    assert "drain" not in second.stdout
    (row,) = [line for line in second.stdout.splitlines() if line.startswith("collectives/all_reduce_busbw/4MiB/2n")]
    assert " -15." in row or " -14." in row, row
    assert "confirmed: 1" in row


def test_a_node_with_a_slow_link_is_named_and_the_system_is_fine(site: Cluster) -> None:
    before = lumisite(site, f"baseline --site twin {RING} --into ring.jsonl")
    assert before.code == 0, before.stdout + before.stderr
    assert "for a baseline it lacks 9 jobs more\n" in before.stderr
    with faults.interface_throttled(site, "nid000003", "hsn0", "150mbit"):
        after = validate(site, "ring", f"{RING} --baseline ring.jsonl")
    assert after.code == 5, after.stdout + after.stderr
    assert after.stdout.startswith("BAD-NODES: ")
    assert "scontrol update nodename=nid000003 state=drain reason='lumisite: slow by pairs/" in after.stdout
