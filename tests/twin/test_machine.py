"""All nodes of a cluster, a few in each job, each on its own nodes, and one record a node."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lumisite.validate.lines import Gate, Sample
from lumisite.validate.run.folder import SAMPLES, lines_of
from tests.support.sites import site_text
from tests.twin import faults
from tests.twin.cluster import LOGIN, Cluster, ClusterPlan
from tests.twin.fixtures import require_twin
from tests.twin.login_node import LUMISITE, ready_cluster
from tests.twin.test_validate import at_work, ended, gates, lines, send, twice

pytestmark = [pytest.mark.root, pytest.mark.slurm, pytest.mark.apptainer, pytest.mark.lmod]

SITE = "/scratch/machine.yaml"


@pytest.fixture(scope="module")
def site() -> Iterator[Cluster]:
    """Five nodes, each with two ranks."""
    require_twin()
    with ready_cluster(ClusterPlan(nodes=5, images=("torch",))) as cluster:
        text = site_text(("tasks_per_node: 1\n", "tasks_per_node: 2\n"))
        (cluster.shared / SITE[1:]).write_text(text)
        yield cluster


def test_each_node_is_validated_once(site: Cluster) -> None:
    words = "--nodes 4 --step-nodes 2 --probe transport"
    done = site.run(f"{LUMISITE} validate --site {SITE} --out /scratch/machine {words}")
    assert done.code == 0, done.stdout + done.stderr
    carried = gates(site, "machine", "transport")
    one, two, three, four = site.nodes[:4]
    assert sorted(gate.nodes for gate in carried) == [(one, two), (one, three), (three, four)]
    assert {gate.verdict for gate in lines(site, "machine") if isinstance(gate, Gate)} == {"pass"}
    assert not twice(lines(site, "machine"))
    jobs = site.shared / "scratch/machine/jobs"
    assert len(list(jobs.glob("*/slurm-*.out"))) == 3
    for records in jobs.glob("*/transport-2n*/records"):
        nodes = {path.stem for path in records.glob("*.jsonl")}
        assert len(nodes) == 2
        assert {path.name for path in records.iterdir()} == {
            f"{name}.{end}" for name in nodes for end in ("jsonl", "at")
        }


def test_interrupted_it_cancels_all_jobs_and_resume_measures_the_rest(site: Cluster) -> None:
    words = f"--site {SITE} --nodes 5 --step-nodes 3 --probe ddp"
    with at_work(site, "rest", words, "ddp-1n …") as process:
        send(site, "rest", "INT")
        code, _, err = ended(process)
    assert code == 130, err
    faults.wait_until(lambda: not site.run("squeue --noheader --format=%i").check().stdout.split(), "cancelled")
    done = site.run(f"{LUMISITE} validate --resume /scratch/rest")
    assert done.code == 0, done.stdout + done.stderr
    found = lines_of(site.shared / "scratch/rest" / SAMPLES)
    # Training on one GPU and on one node are gates of the same node.
    assert not twice([line for line in found if isinstance(line, Sample)])
    # The last nodes are fewer.
    trained = {gate.nodes for gate in gates(site, "rest", "ddp") if len(gate.nodes) > 1}
    one, two, three, four, five = site.nodes
    assert trained == {(one, two, three), (four, five), (one, four)}


def test_a_job_that_slurm_lost_is_run_again_when_the_run_is_resumed(site: Cluster) -> None:
    words = f"--site {SITE} --nodes 4 --step-nodes 2 --probe ddp"
    down, up = (f"scontrol update nodename=nid000002 state={state} reason=test" for state in ("down", "resume"))
    up += " || true"  # it may be back already (ReturnToService)
    with at_work(site, "again", words, "ddp-2n …") as process:
        with faults.as_root(site, LOGIN, down, up):
            pass
        code, _, err = ended(process)
    assert code == 4, err
    done = site.run(f"{LUMISITE} validate --resume /scratch/again")
    assert done.code == 0, done.stdout + done.stderr
    assert len(list((site.shared / "scratch/again/jobs").glob("*/slurm-*.out"))) == 4


def test_of_two_ranks_of_a_node_the_one_that_hangs_is_named(site: Cluster) -> None:
    words = f"--site {SITE} --nodes 2 --node-sets 1 --probe ddp --limit 25"
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
        code, _, _ = ended(process)
    assert code == 5
    gate = gates(site, "hung", "ddp")[-1]
    assert (gate.code, gate.rank, gate.nodes) == ("step-hung", 3, ("nid000002",))
