"""The edge to Slurm, against what its commands print."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
from pytest_subprocess import FakeProcess

from lumisite.errors import ToolError
from lumisite.validate.run import slurm
from lumisite.validate.run.slurm import JobState

#: squeue and scontrol say this of a job that is older than MinJobAge (Slurm 22.05 to 26.05).
FORGOTTEN = "slurm_load_jobs error: Invalid job id specified\n"
SILENT = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"


def squeue(fp: FakeProcess, jobs: str, out: str = "", err: str = "") -> None:
    words = ["squeue", "--noheader", f"--jobs={jobs}", "--states=all", "--format=%i|%T|%r"]
    fp.register(words, stdout=out, stderr=err, returncode=1 if err else 0)


def test_nodes_have_their_states_without_marks(fp: FakeProcess) -> None:
    out = "nid000002|idle*\nnid000001|mixed\nnid000003|drained~\nnid000001|mixed\n"
    fp.register(["sinfo", "--noheader", "--Node", "--partition=g", "--format=%N|%T"], stdout=out)
    states = [("nid000001", "mixed"), ("nid000002", "idle"), ("nid000003", "drained")]
    assert list(slurm.nodes_of("g").items()) == states


@pytest.mark.parametrize("out", ["17\n", "17;cluster\n", "", "Submitted.\n", "12;x\n0\0\n", "1" * 10_000])
def test_a_job_has_an_id_and_an_answer_without_one_is_no_job(fp: FakeProcess, out: str) -> None:
    fp.register(["sbatch", "--parsable", "job.sh"], stdout=out)
    if out.startswith("17"):
        assert slurm.submit("job.sh") == "17"
        return
    with pytest.raises(slurm.RefusedError, match=r"^sbatch answered .* where a job id was expected"):
        slurm.submit("job.sh")


def test_jobs_in_the_queue_need_one_question(fp: FakeProcess) -> None:
    squeue(fp, "1,2", "1|RUNNING|None\n2|PENDING|Resources\n")
    assert slurm.poll(["1", "2"]) == {"1": JobState("RUNNING", "None"), "2": JobState("PENDING", "Resources")}
    assert not slurm.poll([])


@pytest.mark.parametrize(
    ("sacct", "state"), [("NODE_FAIL\n", "NODE_FAIL"), ("CANCELLED by 0\n", "CANCELLED"), ("", "")]
)
def test_a_job_that_squeue_has_forgotten_is_looked_up_in_the_accounting(
    fp: FakeProcess, sacct: str, state: str
) -> None:
    squeue(fp, "1", err=FORGOTTEN)
    fp.register(["sacct", fp.any()], stdout=sacct, returncode=0 if sacct else 1)
    found = slurm.poll(["1"])["1"]
    assert (found.state, found.ended) == (state, True)


def test_a_controller_that_is_silent_ends_and_refuses_no_job(fp: FakeProcess) -> None:
    squeue(fp, "1", err=SILENT)
    with pytest.raises(slurm.SilentError):
        slurm.poll(["1"])
    fp.register(["sbatch", "--parsable", "job.sh"], stderr=f"sbatch: error: {SILENT}", returncode=1)
    with pytest.raises(slurm.SilentError, match="Unable to contact"):
        slurm.submit("job.sh")


def test_cancelling_a_job_that_has_ended_is_no_fault(fp: FakeProcess) -> None:
    ended = "scancel: error: Kill job error on job id 1: Invalid job id specified"
    fp.register(["scancel", "1"], stderr=ended, returncode=1)
    slurm.cancel(["1"])
    fp.register(["scancel", "2"], stderr=SILENT.replace("slurm_load_jobs", "scancel:"), returncode=1)
    with pytest.raises(ToolError, match=r"^scancel 2: Unable to contact slurm controller"):
        slurm.cancel(["2"])


def test_the_shells_modules_do_not_reach_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sbatch = tmp_path / "sbatch"
    sbatch.write_text(f"#!/bin/sh\nenv >{tmp_path}/environment\necho 1\n")
    sbatch.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    # sbatch would take those of the second line before what the script requests.
    left_out = {"LOADEDMODULES", "PYTHONPATH", "NCCL_DEBUG", "SLURM_EXPORT_ENV"}
    left_out |= {"SBATCH_TIMELIMIT", "SBATCH_PARTITION", "SBATCH_EXPORT"}
    for name in (*left_out, "SBATCH_ACCOUNT"):
        monkeypatch.setenv(name, "mine")
    assert slurm.submit("job.sh") == "1"
    sent = {line.partition("=")[0] for line in (tmp_path / "environment").read_text().splitlines()}
    assert "SBATCH_ACCOUNT" in sent
    assert not sent & left_out
    assert "SBATCH_PARTITION=mine" in slurm.ignored_options()
    assert "SBATCH_ACCOUNT=mine" not in slurm.ignored_options()


def test_a_reservation_names_its_nodes(fp: FakeProcess) -> None:
    text = "ReservationName=maint StartTime=x Nodes=nid[000001-000002] NodeCnt=2"
    fp.register(["scontrol", "--oneliner", "show", "reservation", "maint"], stdout=text)
    fp.register(["scontrol", "show", "hostnames", "nid[000001-000002]"], stdout="nid000001\nnid000002\n")
    assert slurm.nodes_of_reservation("maint") == ["nid000001", "nid000002"]
    fp.register(["scontrol", "--oneliner", "show", "reservation", "soon"], stdout="ReservationName=soon Nodes=(null)")
    with pytest.raises(ToolError, match=r"^soon: the reservation has no nodes"):
        slurm.nodes_of_reservation("soon")


@pytest.mark.parametrize("times", [3, 99])
def test_a_query_is_repeated_with_patience(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    now, asked = [0.0], []

    def run(argv: list[str]) -> subprocess.CompletedProcess[str]:
        asked.append(argv)
        silent = len(asked) <= times
        err = "slurm_load_partitions: Unable to contact slurm controller (connect failure)\n"
        return subprocess.CompletedProcess(argv, int(silent), "" if silent else "n1|idle\n", err * silent)

    monkeypatch.setattr(slurm, "_run", run)
    monkeypatch.setattr(time, "sleep", lambda s: now.append(now.pop() + s))
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    if times == 3:
        assert slurm.nodes_of("g") == {"n1": "idle"}
    else:
        with pytest.raises(slurm.SilentError, match=r"sinfo .*: .*Unable to contact slurm controller"):
            slurm.nodes_of("g")
        assert now[0] >= slurm.RETRY_S


def test_a_question_that_hangs_ends_no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(*_: object, **__: object) -> None:
        raise subprocess.TimeoutExpired("squeue", 60)

    monkeypatch.setattr(slurm, "run_program", hang)
    with pytest.raises(slurm.SilentError, match="Slurm does not answer: within 60 s"):
        slurm.poll(["1"])
