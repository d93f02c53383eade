"""What Slurm lost shows nothing until the run is resumed: it is no failure."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

import pytest

from lumisite.findings.finding import Finding
from lumisite.validate.lines import Gate, Sample
from lumisite.validate.probes.probe import quote
from lumisite.validate.run import slurm
from lumisite.validate.run.folder import SAMPLES, Run, lines_of
from tests.support.played_slurm import NODES, PlayedSlurm, job_gates, keys, new_run, play, runner, work

SILENT = "Batch job submission failed: Unable to contact slurm controller (connect failure)"
LAUNCH = "srun: error: Task launch for StepId=1.2 failed on node nid000002: Communication connection failure\n"
AWAY = "srun: error: Unable to confirm allocation for job 1: Unable to contact slurm controller (connect failure)\n"


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> PlayedSlurm:
    return play(monkeypatch)


def resume(folder: Path) -> list[Sample | Gate]:
    run = Run(folder)
    one = runner(run)
    run.lock()
    one.restore(again=True)
    one.work()
    run.release()
    return lines_of(folder / SAMPLES)


# ---- Slurm does not answer


@pytest.mark.parametrize("heard", [True, False])
def test_a_job_that_slurm_may_have_heard_of_is_submitted_once(
    played: PlayedSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heard: bool
) -> None:
    left = iter([heard, False])

    def submit(script: str) -> str:
        answer = next(left, None)
        if answer is None:
            return played.submit(script)
        if answer:
            played.submit(script)
        raise slurm.SilentError(slurm.silence(["sbatch"], SILENT))

    monkeypatch.setattr(slurm, "submit", submit)
    reports: list[Finding] = []
    assert [gate.verdict for gate in job_gates(work(tmp_path / "run", reports))] == ["pass", "pass"]
    assert len(played.jobs) == 2
    assert ("slurm-silent", "stamp-01", f"Slurm does not answer: {SILENT}") in [
        (one.code, one.subject, one.message) for one in reports
    ]


def test_a_silent_sbatch_has_not_refused(fp: object, monkeypatch: pytest.MonkeyPatch) -> None:
    fp.register(["sbatch", "--parsable", "job.sh"], stderr=f"sbatch: error: {SILENT}\n", returncode=1)  # type: ignore[attr-defined]
    with pytest.raises(slurm.SilentError, match="Unable to contact"):
        slurm.submit("job.sh")


@pytest.mark.parametrize("times", [3, 99])
def test_a_question_is_asked_again_with_patience(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
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


# ---- what Slurm lost


def test_a_job_that_was_lost_goes_on_when_the_run_is_resumed(played: PlayedSlurm, tmp_path: Path) -> None:
    played.stop_after, played.end_state = 1, "NODE_FAIL"
    played.nodes = {"nid000001": "idle", "nid000002": "down"}
    lost = job_gates(work(tmp_path / "run"))
    assert [gate.verdict for gate in lost] == ["inconclusive"] * 2
    assert lost[0].code == "job-node-lost"
    assert f"`lumisite validate --resume {tmp_path}/run`" in lost[0].advice
    # Only a resumption that is asked for does so.
    assert [gate.verdict for gate in job_gates(work(tmp_path / "run"))] == ["inconclusive"] * 2
    played.stop_after = None
    for _ in range(2):
        lines = resume(tmp_path / "run")
        assert [gate.verdict for gate in job_gates(lines)] == ["pass", "pass"]
        assert len(keys(lines)) == 2 * 7 == len(set(keys(lines)))
    assert len(played.jobs) == 2 + 2


@pytest.mark.parametrize(
    ("words", "quote", "nodes"),
    [
        (LAUNCH, "srun: error: Task launch", ("nid000002",)),
        (AWAY, "srun: error: Unable to confirm", NODES),
    ],
)
def test_a_step_that_slurm_lost_for_good_is_told_in_its_words(
    played: PlayedSlurm, tmp_path: Path, words: str, quote: str, nodes: tuple[str, ...]
) -> None:
    played.stop_after, played.end_state = 1, "RUNNING"
    go_on = played.go_on

    def lose() -> None:
        go_on()
        for step in (tmp_path / "run/jobs").glob("*/two-2n"):
            (step / "stderr").write_text(words)
            (step.parent / "done").write_text("1 lost:two-2n 1000.5\n")

    played.go_on = lose  # type: ignore[method-assign]
    gates = job_gates(work(tmp_path / "run"))
    assert [gate.verdict for gate in gates] == ["inconclusive"] * 2
    assert gates[0].code == "job-step-lost"
    assert re.search(f"did not start two-2n.*: {quote}", gates[0].text)
    assert gates[0].nodes == nodes


# ---- damaged marks


@pytest.mark.parametrize(
    "mark", [b"x 100.5\n", b"-1 100\n", b"0 nan\n", b"0 inf", b"\xff\xfe 1\n", b"9999 1\n", b"", b"0\n"]
)
@pytest.mark.parametrize("name", ["two-2n/exit", "done", "two-2n/began"])
def test_a_damaged_mark_shows_nothing_and_ends_in_no_traceback(
    played: PlayedSlurm, tmp_path: Path, mark: bytes, name: str
) -> None:
    go_on = played.go_on

    def damage() -> None:
        go_on()
        for path in (tmp_path / "run/jobs").glob(f"*/{name}"):
            path.write_bytes(mark)

    played.go_on = damage  # type: ignore[method-assign]
    verdicts = [gate.verdict for gate in job_gates(work(tmp_path / "run"))]
    assert verdicts == (["pass"] if name.endswith("began") else ["inconclusive"]) * 2
    assert [gate.verdict for gate in job_gates(work(tmp_path / "run"))] == verdicts


# ---- what a step said


def test_steps_that_do_not_pass_are_reported_with_their_cause(played: PlayedSlurm, tmp_path: Path) -> None:
    def unreadable(*_: object) -> None:
        raise KeyError("missing")

    reports: list[Finding] = []
    run = new_run(tmp_path / "run")
    one = runner(run, reports)
    for job in one.jobs:
        for group in job.plan.groups:
            object.__setattr__(group, "judge", unreadable)
    run.lock()
    one.restore()
    one.work()
    run.release()
    assert any("inconclusive: two-2n: the records cannot be judged (KeyError" in report.message for report in reports)


def test_the_words_of_a_step_begin_with_the_runtimes_and_end_with_sruns(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    step = run.job_folder("r") / "s"
    step.mkdir(parents=True)
    coloured = "\x1b[31mFATAL:  \x1b[0m could not open image /appl/none.sif: no such file or directory"
    fatal = "FATAL:   could not open image /appl/none.sif: no such file or directory"
    noise = "".join(f"INFO:    converting {number}\n" for number in range(50))
    errors = "".join(f"srun: error: nid00000{number}: tasks 0-7: Exited with exit code 255\n" for number in range(9))
    (step / "stderr").write_text(noise + f"{coloured}\n" * 16 + errors)
    words = quote(run.errors("r", "s/stderr"))
    assert words.startswith(fatal)
    assert words.endswith("nid000008: tasks 0-7: Exited with exit code 255")
    assert words.count("FATAL") == 1
    assert "INFO" not in words
    (step / "stderr").write_text("something quiet\n")
    assert run.errors("r", "s/stderr") == ("something quiet",)
