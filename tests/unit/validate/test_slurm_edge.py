"""The edge to Slurm, against what its commands print."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from pytest_subprocess import FakeProcess

from lumisite.errors import ToolError
from lumisite.machine.program import MOST_BYTES
from lumisite.validate.run import slurm
from lumisite.validate.run.slurm import JobState

#: squeue and scontrol say this of a job that is older than MinJobAge (Slurm 22.05 to 26.05).
FORGOTTEN = "slurm_load_jobs error: Invalid job id specified\n"
SILENT = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"


def squeue(fp: FakeProcess, jobs: str, out: str = "", err: str = "") -> None:
    words = ["squeue", "--noheader", f"--jobs={jobs}", "--states=all", "--format=%i|%T|%r"]
    fp.register(words, stdout=out, stderr=err, returncode=1 if err else 0)


def scontrol(fp: FakeProcess, job: str, out: str = "", err: str = "") -> None:
    words = ["scontrol", "--oneliner", "show", "job", job]
    fp.register(words, stdout=out, stderr=err, returncode=1 if err else 0)


def test_nodes_have_their_states_without_marks(fp: FakeProcess) -> None:
    out = "nid000002|idle*\nnid000001|mixed\nnid000003|drained~\nnid000001|mixed\n"
    fp.register(["sinfo", "--noheader", "--Node", "--partition=g", "--format=%N|%T"], stdout=out)
    states = [("nid000001", "mixed"), ("nid000002", "idle"), ("nid000003", "drained")]
    assert list(slurm.nodes_of("g").items()) == states


@pytest.mark.parametrize("out", ["17\n", "17;cluster\n"])
def test_a_job_has_an_id(fp: FakeProcess, out: str) -> None:
    fp.register(["sbatch", "--parsable", "job.sh"], stdout=out)
    assert slurm.submit("job.sh") == "17"


def test_a_refusal_keeps_slurms_words(fp: FakeProcess) -> None:
    err = "sbatch: warning: something\nsbatch: error: Batch job submission failed: Invalid account\n"
    fp.register(["sbatch", "--parsable", "job.sh"], stderr=err, returncode=1)
    with pytest.raises(slurm.RefusedError) as refused:
        slurm.submit("job.sh")
    assert refused.value.finding.code == "sbatch-refused"
    assert refused.value.finding.message == "sbatch refused: Batch job submission failed: Invalid account"


def test_jobs_in_the_queue_need_one_question(fp: FakeProcess) -> None:
    squeue(fp, "1,2", "1|RUNNING|None\n2|PENDING|Resources\n")
    assert slurm.poll(["1", "2"]) == {
        "1": JobState("RUNNING", "None"),
        "2": JobState("PENDING", "Resources"),
    }
    assert not slurm.poll([])


def program(folder: Path, name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a program of this name before all others."""
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_a_program_without_an_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for stream in ("1", "2"):
        program(tmp_path, "sinfo", f"exec yes nid000001 >&{stream}", monkeypatch)
        with pytest.raises(ToolError) as refused:
            slurm.nodes_of("g")
        assert refused.value.finding.message == f"prints more than {MOST_BYTES} bytes"


def test_a_program_that_says_nothing_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "sbatch", "sleep 60 & exec sleep 60", monkeypatch)  # the first keeps the output open
    monkeypatch.setattr(slurm, "PATIENCE_S", 0.3)
    start = time.monotonic()
    with pytest.raises(slurm.SilentError) as refused:
        slurm.submit("job.sh")
    assert refused.value.finding.code == "slurm-silent"
    assert time.monotonic() - start < 30


def test_more_nodes_than_any_site_has_are_refused(fp: FakeProcess) -> None:
    names = " ".join(f"n{number}" for number in range(slurm.MOST_NODES + 1))
    fp.register(["scontrol", "show", "hostnames", "n[0-999999]"], stdout=names)
    with pytest.raises(ToolError) as refused:
        slurm.expand("n[0-999999]")
    assert str(refused.value) == f"scontrol: printed more than {slurm.MOST_NODES} nodes, which no site has"


def test_of_what_squeue_says_no_more_is_kept_than_a_line(fp: FakeProcess) -> None:
    squeue(fp, "1", out=f"1|{'A' * 9000}|{'b' * 9000}\n")
    assert slurm.poll(["1"]) == {"1": JobState("A" * 200, "b" * 200)}


@pytest.mark.parametrize("said", ["", "Submitted.\n", "12;x\n0\0\n", "1" * 10_000])
def test_an_answer_without_a_job_id_is_no_job(fp: FakeProcess, said: str) -> None:
    fp.register(["sbatch", "--parsable", "job.sh"], stdout=said)
    with pytest.raises(slurm.RefusedError) as refused:
        slurm.submit("job.sh")
    assert refused.value.finding.code == "sbatch-refused"


@pytest.mark.parametrize(
    ("scontrol_out", "scontrol_err", "sacct_out", "state", "over"),
    [
        ("JobId=1 JobState=NODE_FAIL Reason=None NodeList=n1", "", None, "NODE_FAIL", True),
        ("", FORGOTTEN, "TIMEOUT\n", "TIMEOUT", True),
        ("", FORGOTTEN, None, "", True),
        ("", SILENT, None, None, False),
    ],
)
def test_a_job_that_squeue_has_forgotten_is_asked_for_elsewhere(
    fp: FakeProcess, scontrol_out: str, scontrol_err: str, sacct_out: str | None, state: str | None, over: bool
) -> None:
    squeue(fp, "1", err=FORGOTTEN)
    scontrol(fp, "1", scontrol_out, scontrol_err)
    fp.register(["sacct", fp.any()], stdout=sacct_out or "", returncode=0 if sacct_out else 1)
    found = slurm.poll(["1"])["1"]
    assert (found.state, found.ended) == (state, over)


def test_without_sacct_installed_a_forgotten_job_is_forgotten(fp: FakeProcess) -> None:
    squeue(fp, "1", err=FORGOTTEN)
    scontrol(fp, "1", err=FORGOTTEN)

    def missing(_: object) -> None:
        raise FileNotFoundError

    fp.register(["sacct", fp.any()], callback=missing)
    assert slurm.poll(["1"])["1"] == JobState("")


def test_a_controller_that_is_silent_ends_no_job(fp: FakeProcess) -> None:
    squeue(fp, "1", err=SILENT)
    assert not slurm.poll(["1"])["1"].ended


def test_cancelling_a_job_that_has_ended_is_no_fault(fp: FakeProcess) -> None:
    fp.register(
        ["scancel", "1"], stderr="scancel: error: Kill job error on job id 1: Invalid job id specified", returncode=1
    )
    slurm.cancel(["1"])
    fp.register(["scancel", "2"], stderr="scancel: error: Unable to contact slurm controller", returncode=1)
    with pytest.raises(ToolError) as refused:
        slurm.cancel(["2"])
    assert str(refused.value).startswith("scancel 2: Unable to contact slurm controller (")


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
    with pytest.raises(ToolError) as refused:
        slurm.nodes_of_reservation("soon")
    assert str(refused.value).startswith("soon: the reservation has no nodes")


def test_no_slurm_here_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ToolError) as refused:
        slurm.nodes_of("g")
    assert (refused.value.finding.code, refused.value.finding.subject) == ("program-not-found", "sinfo")
