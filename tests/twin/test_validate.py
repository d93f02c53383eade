"""`lumisite validate` on a real cluster: jobs, the deployed module, the container, and PyTorch in it.

Faults that a table can tell are in test_faults_of_a_run.py, those of a whole maintenance in test_maintenance.py.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from lumisite.facts.facts import parse_facts
from lumisite.validate.lines import Gate, Sample
from lumisite.validate.probes.records import finished, text
from lumisite.validate.run.folder import SAMPLES, lines_of, read_records
from tests.twin import faults
from tests.twin.cluster import Cluster, ClusterPlan
from tests.twin.fixtures import require_twin
from tests.twin.login_node import LUMISITE, ready_cluster
from tests.twin.process import Result

pytestmark = [pytest.mark.root, pytest.mark.slurm, pytest.mark.apptainer, pytest.mark.lmod]

SMALL = "--image /appl/images/small.sif"
#: What one job of the whole suite measures on the twin's two nodes.
EXPECTED = {
    *(f"collectives/{name}_busbw/{size}/2n" for name in ("all_gather", "reduce_scatter") for size in ("1MiB", "4MiB")),
    *(f"collectives/all_reduce_busbw/{size}/2n" for size in ("64KiB", "1MiB", "4MiB")),
    *(
        f"ddp/{quantity}/{model}/{shape}"
        for quantity in ("samples_per_s", "step_time_p90_s")
        for model in ("comm", "compute")
        for shape in ("1n", "2n")
    ),
    *(f"ddp/exposed_communication/{model}/2n" for model in ("comm", "compute")),
    "communicators/first_group_s/2n",
    "communicators/next_group_s/2n",
    "pairs/all_reduce_busbw/2MiB/2n",
    "pairs/copy_bw/1n",
    "pairs/gemm/1n",
    "pairs/send_recv_bw/2MiB/2n",
}
GATES = {
    "node",
    "environment",
    "binds",
    "affinity",
    "limits",
    "miopen",
    "usersite",
    "transport",
    "communicators",
    "collectives",
    "ddp",
    "pairs",
    "job",
}


@pytest.fixture(scope="module")
def site() -> Iterator[Cluster]:
    """A cluster with the modules deployed and lumisite on its login node."""
    require_twin()
    with ready_cluster(ClusterPlan()) as cluster:
        yield cluster


def validate(cluster: Cluster, name: str, options: str) -> Result:
    """Run one job's worth of probes into /scratch/NAME."""
    return cluster.run(f"{LUMISITE} validate --site twin --jobs 1 --out /scratch/{name} {options}")


def lines(cluster: Cluster, name: str) -> list[Sample | Gate]:
    return lines_of(cluster.shared / "scratch" / name / SAMPLES)


def gates(cluster: Cluster, name: str, gate: str) -> list[Gate]:
    return [line for line in lines(cluster, name) if isinstance(line, Gate) and line.gate == gate]


def metrics(cluster: Cluster, name: str) -> dict[str, float]:
    return {line.metric: line.value for line in lines(cluster, name) if isinstance(line, Sample)}


def twice(found: list[Sample | Gate]) -> list[object]:
    """What stands there more than once."""
    keys = [(line.metric if isinstance(line, Sample) else line.gate, line.run, line.nodes) for line in found]
    return [key for key in keys if keys.count(key) > 1]


@contextmanager
def at_work(cluster: Cluster, name: str, options: str, until: str) -> Iterator[subprocess.Popen[str]]:
    """Have lumisite run on the login node; the block begins when it has said `until`. Its id is in /scratch/NAME.pid."""
    words = f"validate --site twin --jobs 1 --out /scratch/{name} {options}"
    # What a shell starts in the background ignores Ctrl-C, and so would lumisite where the tests run like that.
    command = f"echo $$ >/scratch/{name}.pid; exec env --default-signal=INT {LUMISITE} {words}"
    with subprocess.Popen(
        cluster.command(command), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if until in line:
                break
        else:
            pytest.fail("".join(said))
        yield process


def send(cluster: Cluster, name: str, signal: str) -> None:
    cluster.run(f"kill -{signal} $(cat /scratch/{name}.pid)").check()


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """What came of it; to wait for Slurm takes its time."""
    out, err = process.communicate(timeout=900)
    return process.returncode, out, err


def end_step(cluster: Cluster, step: str) -> None:
    """End a step of the run that goes on as if its time were over: it began long ago, and timeout(1) hears its alarm."""
    (began,) = (cluster.shared / "scratch").glob(f"{step}/began")
    began.write_text("1.0\n")
    cluster.run("pkill -ALRM -f '^timeout --kill-after=10 '", node=cluster.nodes[0]).check()


# ---- all is well


@pytest.mark.measures
def test_the_whole_suite_passes_in_one_job(site: Cluster) -> None:
    done = validate(site, "whole", "")
    assert done.code == 0, done.stdout + done.stderr
    assert set(metrics(site, "whole")) == EXPECTED
    found = lines(site, "whole")
    assert {line.gate for line in found if isinstance(line, Gate)} == GATES
    assert all(line.verdict == "pass" for line in found if isinstance(line, Gate))
    assert len({line.run for line in found}) == 1
    assert not twice(found)
    (gate,) = gates(site, "whole", "transport")
    assert gate.code == "transport-fine"
    about = json.loads((site.shared / "scratch/whole/run.json").read_text())
    assert about["node_sets"] == [["nid000001", "nid000002"]]
    assert about["image_digest"]
    assert parse_facts((site.shared / "scratch/whole/facts.json").read_bytes(), "facts.json").host == "nid000001"


# ---- what jobs do


def test_after_a_hang_of_all_nodes_no_step_follows_that_would_hang_too(site: Cluster) -> None:
    """As where a file system does not answer on any node."""
    words = "--probe collectives --probe ddp --probe pairs --limit 600"
    with at_work(site, "all-hung", words, "collectives-2n …") as process:
        at = site.shared / "scratch/all-hung/jobs"
        faults.wait_until(lambda: len([*at.glob("*/collectives-2n/records/?.at")]) == 2, "both ranks have begun")
        for node in ("nid000001", "nid000002"):
            site.run(
                "for pid in $(pgrep -u $(id -u) -f '^/usr/bin/python3.*robes/collectives.py'); do kill -STOP $pid; done",
                node=node,
            ).check()
        end_step(site, "all-hung/jobs/*/collectives-2n")
        code, out, err = ended(process)
    assert code == 1, out + err
    (hung,) = gates(site, "all-hung", "collectives")
    assert hung.nodes == ("nid000001", "nid000002")
    assert gates(site, "all-hung", "ddp")[-1].code == "step-skipped"
    assert {gate.code for gate in gates(site, "all-hung", "pairs")} == {"step-skipped"}
    assert f"follows from nid000001, nid000002 ({hung.code})" in out


def test_a_refused_submission_is_told_in_slurms_words(site: Cluster) -> None:
    done = validate(site, "refused", "--sbatch=--gres=gpu:99")
    assert done.code == 3
    (gate,) = gates(site, "refused", "job")
    words = "Batch job submission failed: Requested node configuration is not available"
    assert (gate.code, gate.text) == ("sbatch-refused", f"sbatch refused: {words}")


def test_interrupted_it_cancels_its_own_job_and_resume_runs_the_rest_under_the_same_settings(site: Cluster) -> None:
    other = site.run("sbatch --parsable --partition=small-g -n1 --hold --wrap 'sleep 1'").check().stdout.strip()
    words = "--probe node --probe transport --env 'GLOO_TRIED=a b'"
    with at_work(site, "interrupted", words, "transport-2n …") as process:
        send(site, "interrupted", "INT")
        code, _, err = ended(process)
    assert code == 130, err
    faults.wait_until(lambda: site.run("squeue --noheader --format=%i").check().stdout.split() == [other], "cancelled")
    site.run(f"scancel {other}").check()
    kept = lines(site, "interrupted")
    assert {line.gate for line in kept if isinstance(line, Gate)} == {"node"}
    done = site.run(f"{LUMISITE} validate --resume /scratch/interrupted")
    assert done.code == 0, done.stderr
    whole = lines(site, "interrupted")
    assert whole[: len(kept)] == kept
    assert [gate.code for gate in gates(site, "interrupted", "transport")] == ["transport-fine"]
    assert not twice(whole)
    steps = (site.shared / "scratch/interrupted/jobs").glob("*/transport-*/records")
    records = [record for step in steps for record in finished(read_records(step))]
    assert len(records) >= 4
    assert {text(record, "environment", "GLOO_TRIED") for record in records} == {"a b"}
    assert json.loads((site.shared / "scratch/interrupted/run.json").read_text())["env"] == {"GLOO_TRIED": "a b"}


def test_killed_it_finds_its_job_again(site: Cluster) -> None:
    with at_work(site, "killed", "--probe collectives", "collectives-2n …") as process:
        send(site, "killed", "KILL")
        ended(process)
    done = site.run(f"{LUMISITE} validate --resume /scratch/killed")
    assert done.code == 0, done.stderr
    assert [gate.verdict for gate in gates(site, "killed", "collectives")] == ["pass"]
    assert len([*(site.shared / "scratch/killed/jobs").glob("*/slurm-*.out")]) == 1


@pytest.mark.measures
def test_a_node_that_is_lost_is_named(site: Cluster) -> None:
    with at_work(site, "lost", "--probe ddp", "ddp-2n …") as process, faults.node_killed(site, "nid000002"):
        code, _, _ = ended(process)
    assert code == 4
    (gate,) = gates(site, "lost", "job")
    assert gate.verdict == "inconclusive"
    assert (gate.code, gate.nodes) == ("job-node-lost", ("nid000002",))
    assert re.search(r"NODE_FAIL during ddp-2n; Slurm: nid000002 \w+ \(.*\)", gate.text), gate.text
    assert "--avoid nid000002" in gate.advice
    assert "ddp/samples_per_s/comm/1n" in metrics(site, "lost")  # what was measured before is kept


def test_a_limit_and_a_drained_node_are_named_while_the_job_waits(site: Cluster) -> None:
    def most_nodes(number: str) -> None:
        site.run(f"scontrol update partitionname=standard-g maxnodes={number}", user="root").check()

    most_nodes("1")
    try:
        with at_work(site, "waits", f"--probe node {SMALL}", "PENDING (PartitionNodeLimit)") as process:
            with faults.node_drained(site, "nid000002", "bad DIMM"):
                most_nodes("unlimited")
                assert process.stderr is not None
                told = next((line for line in process.stderr if "bad DIMM" in line), "")
            code, out, err = ended(process)
    finally:
        most_nodes("unlimited")
    assert "nid000002 drained (bad DIMM" in told
    assert "--avoid nid000002" in told
    assert code == 0, out + err


def test_a_drained_node_is_not_used(site: Cluster) -> None:
    with faults.node_drained(site, "nid000002"):
        done = validate(site, "drained", "--dry-run")
    assert done.code == 3
    assert "2 nodes are needed and 1 are usable: nid000002 drained" in done.stderr
