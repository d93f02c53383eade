"""All nodes of a cluster, a few in each job, each on its own nodes, and one record a node."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from lumisite.validate.lines import Gate
from lumisite.validate.probes.failed_ranks import NO_BEAT_S
from tests.support.sites import site_text
from tests.twin import faults
from tests.twin.cluster import Cluster, ClusterPlan
from tests.twin.fixtures import require_twin
from tests.twin.login_node import LUMISITE, ready_cluster
from tests.twin.test_validate import at_work, end_step, ended, gates, lines, twice

pytestmark = [pytest.mark.root, pytest.mark.slurm, pytest.mark.apptainer, pytest.mark.lmod]

SITE = "/scratch/machine.yaml"


@pytest.fixture(scope="module")
def site() -> Iterator[Cluster]:
    """Four nodes, each with two ranks."""
    require_twin()
    with ready_cluster(ClusterPlan(nodes=4, images=("torch",))) as cluster:
        text = site_text(("tasks_per_node: 1\n", "tasks_per_node: 2\n"))
        (cluster.shared / SITE[1:]).write_text(text)
        yield cluster


def test_each_node_is_validated_once(site: Cluster) -> None:
    words = "--nodes 4 --step-nodes 2 --probe communicators"
    done = site.run(f"{LUMISITE} validate --site {SITE} --out /scratch/machine {words}")
    assert done.code == 0, done.stdout + done.stderr
    made = gates(site, "machine", "communicators")
    one, two, three, four = site.nodes[:4]
    assert sorted(gate.nodes for gate in made if len(gate.nodes) > 1) == [(one, two), (one, three), (three, four)]
    assert {gate.verdict for gate in lines(site, "machine") if isinstance(gate, Gate)} == {"pass"}
    assert not twice(lines(site, "machine"))
    jobs = site.shared / "scratch/machine/jobs"
    assert len(list(jobs.glob("*/slurm-*.out"))) == 3
    for records in jobs.glob("*/communicators-2n*/records"):
        nodes = {path.stem for path in records.glob("*.jsonl")}
        assert len(nodes) == 2
        assert {path.name for path in records.iterdir()} == {
            f"{name}.{end}" for name in nodes for end in ("jsonl", "at")
        }


def test_of_two_ranks_of_a_node_the_one_that_hangs_is_named(site: Cluster) -> None:
    words = f"--site {SITE} --nodes 2 --node-sets 1 --probe ddp --limit 600"
    with at_work(site, "hung", words, "ddp-2n …") as process:
        at = site.shared / "scratch/hung/jobs"
        faults.wait_until(lambda: bool(list(at.glob("*/ddp-2n/records/nid000002.at"))), "node 2 has begun")
        stop = (
            "for pid in $(pgrep -u $(id -u) -f [p]robes/ddp.py); do "
            "! grep -qzx SLURM_PROCID=3 /proc/$pid/environ || kill -STOP $pid; done"
        )
        faults.wait_until(
            lambda: site.run(f"{stop}; ps -o stat= -u $(id -u) | grep -q T", node="nid000002").code == 0, "stopped"
        )
        stopped_at = time.time()
        (other,) = at.glob("*/ddp-2n/records/nid000001.at")
        faults.wait_until(lambda: other.stat().st_mtime > stopped_at + 2 * NO_BEAT_S, "the others have reported since")
        end_step(site, "hung/jobs/*/ddp-2n")
        code, _, _ = ended(process)
    assert code == 5
    gate = gates(site, "hung", "ddp")[-1]
    assert (gate.code, gate.rank, gate.nodes) == ("step-hung", 3, ("nid000002",))
