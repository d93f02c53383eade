"""All nodes of a cluster, a few in each job: tasks of a real job array, each on its own nodes, and one record a node."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise

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


def most_busy(cluster: Cluster, name: str) -> int:
    """Return how many nodes were busy at once, by the marks of the jobs."""
    run = cluster.shared / "scratch" / name
    sizes: dict[str, int] = {}
    for batch in json.loads((run / "run.json").read_text())["batches"]:
        sizes |= {f"{batch['stamp']}-{number:02}": len(s) for number, s in enumerate(batch["node_sets"], start=1)}
    changes = []
    for job in (run / "jobs").iterdir():
        if job.is_dir():
            began = max(job.glob("started.*")).read_text().split()[1]
            changes += [
                (float(began), sizes[job.name]),
                (float((job / "done").read_text().split()[-1]), -sizes[job.name]),
            ]
    busy = most = 0
    for _, change in sorted(changes):
        busy += change
        most = max(most, busy)
    return most


def test_each_node_is_validated_once_and_no_more_are_busy(site: Cluster) -> None:
    words = "--nodes 4 --step-nodes 2 --busy 2 --probe transport"
    done = site.run(f"{LUMISITE} validate --site {SITE} --out /scratch/machine {words}")
    assert done.code == 0, done.stdout + done.stderr
    carried = gates(site, "machine", "transport")
    one, two, three, four = site.nodes[:4]
    assert sorted(gate.nodes for gate in carried) == [(one, two), (one, three), (three, four)]
    assert {gate.verdict for gate in lines(site, "machine") if isinstance(gate, Gate)} == {"pass"}
    assert not twice(lines(site, "machine"))
    assert most_busy(site, "machine") == 2
    jobs = site.shared / "scratch/machine/jobs"
    ids = {path.read_text().split()[0] for path in jobs.glob("*/started.1")}
    assert len(ids) == 3
    assert len(list(jobs.glob("lumisite-*.1.sh"))) == 1
    for records in jobs.glob("*/transport-2n*/records"):
        nodes = {path.stem for path in records.glob("*.jsonl")}
        assert len(nodes) == 2
        assert {path.name for path in records.iterdir()} == {
            f"{name}.{end}" for name in nodes for end in ("jsonl", "at")
        }
    planned = site.run(f"{LUMISITE} validate --site {SITE} --out /scratch/dry --dry-run {words}").stderr
    files = sum(1 for _ in jobs.rglob("*"))
    (promised,) = [int(a) for a, b in pairwise(planned.split()) if b == "files"]
    assert files <= promised < 2 * files


def test_interrupted_it_cancels_all_tasks_and_resume_measures_the_rest(site: Cluster) -> None:
    words = f"--site {SITE} --nodes 5 --step-nodes 3 --busy 3 --probe ddp"
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
    # The last nodes are fewer: their task is smaller than its array says.
    trained = {gate.nodes for gate in gates(site, "rest", "ddp") if len(gate.nodes) > 1}
    one, two, three, four, five = site.nodes
    assert trained == {(one, two, three), (four, five), (one, four)}
    assert most_busy(site, "rest") <= 3


def test_a_job_that_slurm_lost_is_run_again_behind_the_others(site: Cluster) -> None:
    words = f"--site {SITE} --nodes 4 --step-nodes 2 --busy 2 --probe ddp"
    down, up = (f"scontrol update nodename=nid000002 state={state} reason=test" for state in ("down", "resume"))
    with at_work(site, "again", words, "ddp-2n …") as process:
        with faults.as_root(site, LOGIN, down, up):
            pass
        code, _, err = ended(process)
    assert code == 0, err
    (script,) = (site.shared / "scratch/again/jobs").glob("lumisite-*.2.sh")
    assert "#SBATCH --array=1%1\n" in script.read_text()
    assert "#SBATCH --dependency=afterany:" in script.read_text()
    began = {job.parent.name[-2:]: float(job.read_text().split()[1]) for job in script.parent.glob("*/started.*")}
    assert max(began, key=lambda number: began[number]) == "01"
    assert most_busy(site, "again") == 2


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
    assert (gate.code, gate.rank, gate.nodes) == ("rank-silent", 3, ("nid000002",))
