"""The runner against a Slurm that the test plays: each way a job can wait or end, and the runner itself killed."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lumisite.errors import ResolveError, ToolError
from lumisite.findings.finding import Finding
from lumisite.validate.lines import Sample
from lumisite.validate.probes.probe import Group, quote
from lumisite.validate.run import slurm
from lumisite.validate.run.folder import SAMPLES, Run, append, gather, read_records, read_request
from tests.support.played_slurm import (
    NODES,
    THREE,
    KilledError,
    PlayedSlurm,
    drive,
    job_gates,
    keys,
    new_run,
    play,
    runner,
    work,
)
from tests.support.requests import a_request

SILENT = "Batch job submission failed: Unable to contact slurm controller (connect failure)"


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> PlayedSlurm:
    cluster = PlayedSlurm()
    play(monkeypatch, cluster)
    return cluster


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "run"


def verdicts(run: Path, reports: list[Finding] | None = None, *, again: bool = False) -> list[str]:
    return [gate.verdict for gate in job_gates(work(run, reports, again=again))]


def also(monkeypatch: pytest.MonkeyPatch, played: PlayedSlurm, then: Callable[[], None]) -> None:
    """Have something happen each time the runner sleeps."""
    go_on = played.go_on

    def both() -> None:
        go_on()
        then()

    monkeypatch.setattr(played, "go_on", both)


# ---- a run that goes well


def test_what_happens_is_reported_and_the_first_capture_kept(played: PlayedSlurm, run: Path) -> None:
    for name in ("stamp-02", "stamp-01"):
        (run / "jobs" / name).mkdir(parents=True)
        (run / "jobs" / name / "facts.json").write_text(name)
    reports: list[Finding] = []
    assert verdicts(run, reports) == ["pass", "pass"]
    texts = [one.message for one in reports if one.subject == "stamp-01" and one.code == "job-progress"]
    assert (texts[0], texts[-1]) == ("job 1 on nid000001,nid000002", "all 3 steps have run")
    assert "two-2n passed, 100.5 s" in texts
    assert (run / "facts.json").read_text() == "stamp-01"


def test_runs_are_gathered_once_each_and_whole(played: PlayedSlurm, run: Path, tmp_path: Path) -> None:
    work(run)
    (run / "facts.json").write_text("{}\n")
    for _ in range(2):
        gather(run, tmp_path / "all")
    for name in (SAMPLES, "run.json", "facts.json"):
        assert (tmp_path / "all" / name).read_bytes() == (run / name).read_bytes()


def test_a_folder_has_one_run_and_a_run_one_runner(tmp_path: Path) -> None:
    with pytest.raises(ResolveError, match="not a run"):
        read_request(tmp_path)
    run = new_run(tmp_path)
    assert read_request(tmp_path) == replace(a_request(), folder=str(tmp_path))
    with pytest.raises(ResolveError, match="has a run already"):
        new_run(tmp_path)
    run.lock()
    with pytest.raises(ToolError, match="another lumisite works on this run"):
        Run(tmp_path).lock()
    run.release()


# ---- waiting


@pytest.mark.parametrize(
    ("reason", "states", "code", "message"),
    [
        ("Resources", ("powering_up", "allocated"), "job-waits", "job 1 PENDING (Resources)"),
        ("", ("idle", "idle"), "job-waits", "job 1 PENDING (None)"),
        ("ReqNodeNotAvail", ("idle", "draining"), "job-nodes-away", f": {NODES[1]} draining (bad DIMM)"),
        (None, ("idle", "idle"), "slurm-silent", "Slurm does not answer: Unable to contact slurm controller"),
    ],
)
def test_what_keeps_a_job_from_starting_is_reported_once_in_slurms_words(
    played: PlayedSlurm, run: Path, monkeypatch: pytest.MonkeyPatch, reason: str | None, states: tuple[str, str],
    code: str, message: str,
) -> None:  # fmt: skip
    left = iter(range(9))

    def poll(jobs: list[str]) -> dict[str, slurm.JobState]:
        waits = next(left, None) is not None
        if waits and reason is None:
            raise slurm.SilentError(["squeue"], "Unable to contact slurm controller")
        for job in jobs:
            played.jobs[job].state = "PENDING" if waits else "RUNNING"
        return dict.fromkeys(jobs, slurm.JobState("PENDING" if waits else "RUNNING", reason or ""))

    monkeypatch.setattr(slurm, "poll", poll)
    played.nodes = {**dict(zip(NODES, states, strict=True)), "nid000003": "down"}
    played.reasons = {NODES[1]: "bad DIMM"}
    reports: list[Finding] = []
    assert verdicts(run, reports) == ["pass", "pass"]
    (waits,) = [one for one in reports if one.code != "job-progress"]
    assert (waits.code, waits.nodes) == (code, NODES[1:] if code == "job-nodes-away" else ())
    assert waits.message.endswith(message)


@pytest.mark.parametrize("heard", [True, False])
def test_a_job_that_slurm_may_have_heard_of_is_submitted_once(
    played: PlayedSlurm, run: Path, monkeypatch: pytest.MonkeyPatch, heard: bool
) -> None:
    left = iter([heard, False])

    def submit(script: str) -> str:
        answer = next(left, None)
        if answer is None:
            return played.submit(script)
        if answer:
            played.submit(script)
        raise slurm.SilentError(["sbatch"], SILENT)

    monkeypatch.setattr(slurm, "submit", submit)
    assert verdicts(run) == ["pass", "pass"]
    assert len(played.jobs) == 2


# ---- ends


def test_a_refused_submission_ends_in_a_line_that_reports_it(
    played: PlayedSlurm, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_script: str) -> str:
        raise slurm.RefusedError("sbatch refused: Invalid account")

    monkeypatch.setattr(slurm, "submit", refuse)
    found = [(gate.verdict, gate.code, gate.cause) for gate in job_gates(work(run))]
    assert found == [("fail", "sbatch-refused", "sbatch refused: Invalid account")] * 2


@pytest.mark.parametrize(
    ("state", "away", "code", "words"),
    [
        ("NODE_FAIL", True, "job-node-lost", "; Slurm: nid000002 drained (Prolog error)"),
        # Slurm took the node out of service, and cancelled what ran there.
        ("CANCELLED", True, "job-node-lost", "the job ended as CANCELLED during two-2n; Slurm: nid000002 drained"),
        ("", True, "job-node-lost", "the job ended as forgotten by Slurm during two-2n; Slurm: nid000002 drained"),
        ("NODE_FAIL", False, "job-node-lost", "the job ended as NODE_FAIL during two-2n; its nodes are back in service"),
        ("TIMEOUT", True, "job-time-limit", "the job reached its time limit during two-2n"),
        ("CANCELLED", False, "job-failed", "the job was cancelled by someone else during two-2n"),
        ("", False, "job-failed", "Slurm no longer knows the job, and it did not report its end during two-2n"),
        ("FAILED", False, "job-failed", "the job ended as FAILED during two-2n"),
    ],
)  # fmt: skip
def test_a_job_that_ends_early_reports_why_and_keeps_what_it_measured(
    played: PlayedSlurm, run: Path, state: str, away: bool, code: str, words: str
) -> None:
    played.stop_after, played.end_state = 1, state
    played.nodes = {"nid000001": "idle", "nid000002": "drained" if away else "idle"}
    played.reasons = {"nid000002": "Prolog error"}
    lines = work(run)
    nodes = NODES[1:] if away and code == "job-node-lost" else NODES
    assert {(gate.code, gate.nodes) for gate in job_gates(lines)} == {(code, nodes)}
    assert all(words in gate.cause for gate in job_gates(lines))
    assert len([line for line in lines if isinstance(line, Sample)]) == 2  # one step of each of two jobs
    assert keys(work(run)) == keys(lines)  # and once it has ended, it has ended


LAUNCH = b"srun: error: Task launch for StepId=1.2 failed on node nid000002: Communication connection failure\n"
AWAY = b"srun: error: Unable to confirm allocation for job 1: Unable to contact slurm controller (connect failure)\n"


@pytest.mark.parametrize(
    ("end", "stderr", "code", "words", "nodes"),
    [
        (b"1 module:1 1000.5\n", b"", "job-module-failed", "the module could not be loaded on nid000001", NODES),
        (b"1 lost:two-2n 1000.5\n", LAUNCH, "job-step-lost", "not start two-2n.*: srun: error: Task launch", NODES[1:]),
        (b"1 lost:two-2n 1000.5\n", AWAY, "job-step-lost", "not start two-2n: srun: error: Unable to confirm", NODES),
    ],
)
def test_a_script_that_ends_itself_reports_why(
    played: PlayedSlurm, run: Path, monkeypatch: pytest.MonkeyPatch, end: bytes, stderr: bytes, code: str, words: str,
    nodes: tuple[str, ...],
) -> None:  # fmt: skip
    played.stop_after, played.end_state = 1, "RUNNING"

    def end_itself() -> None:
        for step in run.glob("jobs/*/two-2n"):
            (step / "stderr").write_bytes(stderr)
            (step.parent / "done").write_bytes(end)

    also(monkeypatch, played, end_itself)
    gate, _ = job_gates(work(run))
    assert (gate.code, gate.nodes) == (code, nodes)
    assert re.search(words, gate.cause)


def test_a_job_that_slurm_has_forgotten_may_still_say_that_it_is_done(
    played: PlayedSlurm, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its marks may be on their way when Slurm is asked first."""
    answers = iter([slurm.JobState("")])
    monkeypatch.setattr(slurm, "poll", lambda jobs: {job: next(answers, slurm.JobState("RUNNING")) for job in jobs})
    assert verdicts(run) == ["pass", "pass"]


@pytest.mark.parametrize("mark", [b"x 100.5\n", b"0 nan\n", b"\xff\xfe 1\n", b"9999 1\n", b"", b"0\n"])
@pytest.mark.parametrize("name", ["two-2n/exit", "done", "two-2n/began"])
def test_a_damaged_mark_shows_nothing_and_ends_in_no_traceback(
    played: PlayedSlurm, run: Path, monkeypatch: pytest.MonkeyPatch, mark: bytes, name: str
) -> None:
    """As on a disk that was full for a while: the script goes on, and its mark is missing."""

    def damage() -> None:
        for path in run.glob(f"jobs/*/{name}"):
            path.write_bytes(mark)

    also(monkeypatch, played, damage)
    expected = "pass" if name.endswith("began") else "inconclusive"
    assert verdicts(run) == verdicts(run) == [expected] * 2
    if name == "two-2n/exit":
        (gate, _) = job_gates(work(run))
        text = "the job ended, and left no result that can be read of two-2n"
        assert (gate.code, gate.cause) == ("records-unreadable", text)


# ---- records and words


def test_a_record_that_is_not_whole_is_none(tmp_path: Path) -> None:
    """A rank that is killed while it writes must not end the run."""
    for name, content in (("7.json", ""), ("8.json", '{"rank": 8, "ho'), ("9.json", "[]"), ("9.at", "\0")):
        (tmp_path / name).write_text(content)
    (tmp_path / "0.json").write_text('{"rank": 0}')
    assert read_records(tmp_path) == [{"rank": 0}]


def test_records_that_cannot_be_judged_are_reported_with_the_reason(played: PlayedSlurm, run: Path) -> None:
    def unreadable(*_: object) -> None:
        raise KeyError("missing")

    reports: list[Finding] = []
    group = Group(THREE[1].steps, unreadable)  # type: ignore[arg-type]
    drive(runner(new_run(run), reports, [group]))
    assert any("inconclusive: two-2n: the records cannot be judged (KeyError" in report.message for report in reports)


def test_the_words_of_a_step_begin_with_the_runtimes_and_end_with_sruns(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    step = run.job_folder("r") / "s"
    step.mkdir(parents=True)
    fatal = "could not open image /appl/none.sif: no such file or directory"
    noise = "".join(f"INFO:    converting {number}\n" for number in range(50))
    errors = "".join(f"srun: error: nid00000{number}: tasks 0-7: Exited with exit code 255\n" for number in range(9))
    (step / "stderr").write_text(noise + f"\x1b[31mFATAL:  \x1b[0m {fatal}\n" * 16 + errors)
    words = quote(run.errors("r", "s/stderr"))
    assert words.startswith(f"FATAL:   {fatal}")
    assert words.endswith("nid000008: tasks 0-7: Exited with exit code 255")
    assert (words.count("FATAL"), words.count("INFO")) == (1, 0)
    (step / "stderr").write_text("something quiet\n")
    assert run.errors("r", "s/stderr") == ("something quiet",)


# ---- the runner ends, and goes on


def test_a_job_that_was_lost_goes_on_when_the_run_is_resumed(played: PlayedSlurm, run: Path) -> None:
    played.stop_after, played.end_state = 1, "NODE_FAIL"
    played.nodes = {"nid000001": "idle", "nid000002": "down"}
    lost = job_gates(work(run))
    assert [gate.verdict for gate in lost] == ["inconclusive"] * 2
    assert f"`lumisite validate --resume {run}`" in lost[0].advice
    # Only a resumption that is asked for does so.
    assert verdicts(run) == ["inconclusive"] * 2
    played.stop_after = None
    for _ in range(2):
        assert verdicts(run, again=True) == ["pass", "pass"]
        lines = work(run)
        assert len(keys(lines)) == 2 * 7 == len(set(keys(lines)))
    assert len(played.jobs) == 2 + 2


@pytest.mark.parametrize("at", [1, 4, 7])
@pytest.mark.parametrize("how", ["before", "after", "torn"])
def test_killed_at_a_write_it_goes_on_with_its_jobs(
    played: PlayedSlurm, run: Path, monkeypatch: pytest.MonkeyPatch, how: str, at: int
) -> None:
    """The write is not done, done, or a torn line."""
    left = at

    def deadly(path: Path, data: bytes) -> None:
        nonlocal left
        left -= 1
        append(path, {"before": b"", "torn": data[: len(data) // 2]}.get(how, data) if left == 0 else data)
        if left == 0:
            raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr("lumisite.validate.run.folder.append", deadly)
        with pytest.raises(KilledError):
            work(run)
    lines = work(run)
    assert len(keys(lines)) == 2 * 7 == len(set(keys(lines)))
    assert verdicts(run) == ["pass", "pass"]
    assert len(played.jobs) == 2


def test_killed_behind_sbatch_the_job_is_found_again(
    played: PlayedSlurm, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def submit_and_die(script: str) -> str:
        played.submit(script)
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(slurm, "submit", submit_and_die)
        with pytest.raises(KilledError):
            work(run)
    assert verdicts(run) == ["pass", "pass"]
    assert len(played.jobs) == 2  # not three


def test_a_full_disk_names_the_file() -> None:
    with pytest.raises(OSError, match=r"No space left on device: '/dev/full'"):
        append(Path("/dev/full"), b"line\n")
