"""What Slurm lost is run again or shows nothing, and what somebody changed in mid-run is set aside: neither is a failure."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lumisite.findings.finding import Finding
from lumisite.validate.lines import Gate, Sample
from lumisite.validate.probes.probe import quote
from lumisite.validate.run import slurm
from lumisite.validate.run.folder import SAMPLES, Run, SetBefore, create_run, lines_of
from lumisite.validate.run.job import changed, with_setters
from tests.support.played_slurm import NODES, PlayedSlurm, job_gates, keys, play, runner, work

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


@pytest.mark.parametrize("state", ["NODE_FAIL", "PREEMPTED", "", "COMPLETED"])
def test_what_slurm_lost_is_run_again_where_its_nodes_are_in_service(
    played: PlayedSlurm, tmp_path: Path, state: str
) -> None:
    played.stop_after, played.end_state = 1, state
    go_on = played.go_on

    def once() -> None:
        go_on()
        if len(played.jobs) > 2:
            played.stop_after = None

    played.go_on = once  # type: ignore[method-assign]
    reports: list[Finding] = []
    lines = work(tmp_path / "run", reports)
    assert {report.subject for report in reports if report.message == "once more"} == {"stamp-01", "stamp-02"}
    assert [gate.verdict for gate in job_gates(lines)] == ["pass", "pass"]
    assert len(keys(lines)) == 2 * 7 == len(set(keys(lines)))
    assert keys(work(tmp_path / "run")) == keys(lines)


def test_it_is_not_run_again_for_ever_nor_where_somebody_took_it_away(played: PlayedSlurm, tmp_path: Path) -> None:
    played.stop_after, played.end_state = 1, "NODE_FAIL"
    assert [gate.verdict for gate in job_gates(work(tmp_path / "run"))] == ["inconclusive"] * 2
    assert len(played.jobs) == 2 * 3
    played.end_state = "CANCELLED"
    assert [gate.verdict for gate in job_gates(work(tmp_path / "other"))] == ["inconclusive"] * 2
    assert len(played.jobs) == 2 * 3 + 2


def test_a_job_that_was_lost_goes_on_when_the_run_is_resumed(played: PlayedSlurm, tmp_path: Path) -> None:
    played.stop_after, played.end_state = 1, "NODE_FAIL"
    played.nodes = {"nid000001": "idle", "nid000002": "down"}
    lost = job_gates(work(tmp_path / "run"))
    assert [gate.verdict for gate in lost] == ["inconclusive"] * 2
    assert lost[0].code == "job-node-lost"
    assert f"`lumisite validate --resume {tmp_path}/run`" in lost[0].advice
    # Only a resumption that is asked for does so: `--more` leaves it.
    assert [gate.verdict for gate in job_gates(work(tmp_path / "run"))] == ["inconclusive"] * 2
    played.stop_after = None
    for _ in range(2):
        lines = resume(tmp_path / "run")
        assert [gate.verdict for gate in job_gates(lines)] == ["pass", "pass"]
        assert len(keys(lines)) == 2 * 7 == len(set(keys(lines)))
    assert len(played.jobs) == 2 + 2


@pytest.mark.parametrize(
    ("words", "quote", "tries"),
    [
        (LAUNCH, "srun: error: Task launch", 1),
        (AWAY, "srun: error: Unable to confirm", 3),
    ],
)
def test_a_step_that_slurm_lost_for_good_is_told_in_its_words(
    played: PlayedSlurm, tmp_path: Path, words: str, quote: str, tries: int
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
    assert re.search(f"did not start two-2n.*: {quote}", gates[0].cause)
    assert gates[0].nodes == (NODES if tries > 1 else ("nid000002",))
    assert len(played.jobs) == 2 * tries


def test_how_an_attempt_ended_says_nothing_of_the_next(played: PlayedSlurm, tmp_path: Path) -> None:
    played.stop_after, played.end_state = 1, "RUNNING"
    go_on = played.go_on

    def lose_once() -> None:
        go_on()
        for step in (tmp_path / "run/jobs").glob("*/two-2n") if len(played.jobs) == 2 else ():
            (step / "stderr").write_text(AWAY)
            (step.parent / "done").write_text("1 lost:two-2n 1000.5\n")
        if len(played.jobs) == 4:
            played.stop_after = None

    played.go_on = lose_once  # type: ignore[method-assign]
    assert [gate.verdict for gate in job_gates(work(tmp_path / "run"))] == ["pass", "pass"]
    assert len(played.jobs) == 4


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


# ---- what is changed in mid-run

WHILE, SINCE = "changed while the job ran", "changed since the first job of this run"
BEFORE = {"/i.sif": "1 5 9", "/s/current": "releases/a", "/s/current/spank/task_prolog": "7 7"}


def seen(*states: dict[str, str]) -> str:
    return "".join("\n" + "".join(f"{name}\t{value}\t" for name, value in one.items()) + "end\n" for one in states)


@pytest.mark.parametrize(
    ("own", "first", "code", "changes"),
    [
        ([BEFORE, BEFORE], BEFORE, "", ()),
        ([], BEFORE, "", ()),
        ([BEFORE], {}, "", ()),
        ([BEFORE, BEFORE | {"/i.sif": "2 5 9"}, BEFORE], {}, WHILE, ("/i.sif",)),
        ([BEFORE, {"/s/current": "releases/a"}], {}, WHILE, ("/i.sif", "/s/current/spank/task_prolog")),
        ([BEFORE, BEFORE | {"/s/current": "releases/b", "/s/current/x": "1"}], {}, WHILE, ("/s/current (releases/a -> releases/b)",)),
        ([BEFORE], BEFORE | {"/s/current/spank/task_prolog": "8 7"}, SINCE, ("/s/current/spank/task_prolog",)),
        ([BEFORE], BEFORE | {"/etc/slurm/prolog": "8 7"}, "", ()),
    ],
)  # fmt: skip
def test_what_was_changed_is_named(
    own: list[dict[str, str]], first: dict[str, str], code: str, changes: tuple[str, ...]
) -> None:
    found = changed(own, first)
    if found is None:
        assert not code
    else:
        assert found.code == "job-changed"
        assert found.message.endswith(f"{code}: {', '.join(changes)}")


def with_seen(played: PlayedSlurm, folder: Path, text: Callable[[str], str]) -> None:
    go_on = played.go_on

    def see() -> None:
        go_on()
        for job in (folder / "jobs").iterdir():
            (job / "seen").write_text(text(job.name))

    played.go_on = see  # type: ignore[method-assign]


def test_a_job_with_a_change_in_it_is_set_aside_and_stays_so(played: PlayedSlurm, tmp_path: Path) -> None:
    other = BEFORE | {"/i.sif": "2 5 9"}
    with_seen(played, tmp_path / "run", lambda job: seen(BEFORE, other) if job == "stamp-01" else seen(BEFORE))
    for _ in range(2):
        lines = work(tmp_path / "run")
        (only,) = [line for line in lines if line.run == "stamp-01"]
        assert isinstance(only, Gate)
        assert (only.gate, only.verdict) == ("job", "inconclusive")
        assert only.code == "job-changed"
        assert only.cause.endswith(f"{WHILE}: /i.sif")
        assert len([line for line in lines if line.run == "stamp-02"]) == 7


def test_jobs_before_and_after_a_change_are_not_mixed(played: PlayedSlurm, tmp_path: Path) -> None:
    other = BEFORE | {"/s/current": "releases/b"}
    # A line that was torn, as when the node went down, is none.
    with_seen(played, tmp_path / "run", lambda job: seen(BEFORE if job == "stamp-01" else other) + "\n/i.sif\t1 5")
    lines = work(tmp_path / "run")
    assert {line.run for line in lines if isinstance(line, Sample)} == {"stamp-01"}
    (gate,) = [gate for gate in job_gates(lines) if gate.verdict != "pass"]
    assert gate.code == "job-changed"
    assert gate.cause.endswith(f"{SINCE}: /s/current (releases/a -> releases/b)")


def test_a_job_that_failed_after_a_change_is_set_aside_too(played: PlayedSlurm, tmp_path: Path) -> None:
    played.stop_after, played.end_state = 1, "FAILED"
    with_seen(played, tmp_path / "run", lambda _: seen(BEFORE, {}))
    for gate in job_gates(work(tmp_path / "run")):
        assert gate.verdict == "inconclusive"
        assert gate.code == "job-changed"


# ---- what was set before, and what a step said


def test_what_was_set_before_is_named_to_what_it_bears_on() -> None:
    settings = ("NCCL_SOCKET_IFNAME=eth0", "MIOPEN_USER_DB_PATH=/x", "MIOPEN=1")
    before = [SetBefore(setting, "job", "") for setting in settings]
    before.append(SetBefore("NCCL_ALGO=Ring", "left-out", "/home/me"))

    def named(gate: str, value: str, verdict: str = "fail", *, together: bool = False) -> list[str]:
        line = Gate(gate, verdict, "x", "look", "r", NODES, 1.0, values={"x": value})  # type: ignore[arg-type]
        (found,) = with_setters([line], before, together=together)
        assert isinstance(found, Gate)
        return [setting for setting in settings if setting in found.advice] + ["Ring"] * ("Ring" in found.advice)

    assert named("ddp", "slow", together=True) == ["NCCL_SOCKET_IFNAME=eth0"]
    assert named("miopen", "MIOPEN_USER_DB_PATH=/x is bad") == ["MIOPEN_USER_DB_PATH=/x"]
    assert named("binds", "/opt is gone") == []
    assert named("ddp", "fine", "pass", together=True) == []


def test_steps_that_do_not_pass_are_reported_with_their_cause(played: PlayedSlurm, tmp_path: Path) -> None:
    def unreadable(*_: object) -> None:
        raise KeyError("missing")

    reports: list[Finding] = []
    run = create_run(tmp_path / "run", {})
    one = runner(run, reports)
    for job in one.jobs:
        for group in job.plan.groups:
            object.__setattr__(group, "judge", unreadable)
    run.lock()
    one.restore()
    one.work()
    run.release()
    assert any("inconclusive: two-2n: the records cannot be judged (KeyError" in report.message for report in reports)


def test_who_set_a_variable_is_said_once_in_a_run(played: PlayedSlurm, tmp_path: Path) -> None:
    go_on = played.go_on

    def note() -> None:
        go_on()
        for job in (tmp_path / "run/jobs").iterdir():
            (job / "set-before").write_text("NCCL_X=eth0\ttask-prolog\t/p\ntorn")

    played.go_on = note  # type: ignore[method-assign]
    reports: list[Finding] = []
    work(tmp_path / "run", reports)
    found = [one.message for one in reports if one.code == "variable-set"]
    assert found == ["NCCL_X=eth0 was set before lumisite ran, by the site's TaskProlog /p"]


def test_the_words_of_a_step_begin_with_the_runtimes_and_end_with_sruns(tmp_path: Path) -> None:
    run = create_run(tmp_path / "run", {})
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
