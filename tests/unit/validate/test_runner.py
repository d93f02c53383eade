"""The runner against a Slurm that the test plays: every way a job can end."""

from __future__ import annotations

from pathlib import Path

import pytest

from lumisite.errors import ResolveError, ToolError
from lumisite.findings.finding import Finding
from lumisite.validate.lines import Sample
from lumisite.validate.run import slurm
from lumisite.validate.run.folder import SAMPLES, Run, gather, lines_of, read_request
from tests.support.played_slurm import NODES, PlayedSlurm, job_gates, keys, new_run, plans, play, runner, work


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> PlayedSlurm:
    return play(monkeypatch)


def test_the_first_capture_of_a_node_is_that_of_the_run(played: PlayedSlurm, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    for name in ("stamp-02", "stamp-01"):
        (folder / "jobs" / name).mkdir(parents=True)
        (folder / "jobs" / name / "facts.json").write_text(name)
    work(folder)
    assert (folder / "facts.json").read_text() == "stamp-01"


def test_runs_are_gathered_once_each_and_whole(played: PlayedSlurm, tmp_path: Path) -> None:
    work(tmp_path / "run")
    (tmp_path / "run/facts.json").write_text("{}\n")
    for _ in range(2):
        gather(tmp_path / "run", tmp_path / "all")
    for name in (SAMPLES, "run.json", "facts.json"):
        assert (tmp_path / "all" / name).read_bytes() == (tmp_path / "run" / name).read_bytes()


def test_what_happens_is_reported(played: PlayedSlurm, tmp_path: Path) -> None:
    reports: list[Finding] = []
    work(tmp_path / "run", reports)
    codes = [one.code for one in reports if one.subject == "stamp-01"]
    assert {*codes} == {"job-progress"}
    texts = [one.message for one in reports if one.subject == "stamp-01"]
    assert (texts[0], texts[-1]) == ("job 1 on nid000001,nid000002", "all 3 steps have run")
    assert "two-2n passed, 101.5 s" in texts


def test_a_job_whose_module_cannot_be_loaded_says_so(played: PlayedSlurm, tmp_path: Path) -> None:
    played.stop_after, played.end_state = 1, "RUNNING"
    go_on = played.go_on

    def end() -> None:
        go_on()
        for job in (tmp_path / "run/jobs").iterdir():
            (job / "done").write_text("1 module:1 1000.5\n")

    played.go_on = end  # type: ignore[method-assign]
    assert {(gate.code, gate.verdict) for gate in job_gates(work(tmp_path / "run"))} == {("job-module-failed", "fail")}


def test_every_step_of_every_job_gives_its_lines_once(played: PlayedSlurm, tmp_path: Path) -> None:
    lines = work(tmp_path / "run")
    assert len(keys(lines)) == 2 * (3 + 3 + 1) == len(set(keys(lines)))
    assert [gate.verdict for gate in job_gates(lines)] == ["pass", "pass"]
    assert len(played.jobs) == 2


def test_a_refused_submission_ends_in_a_line_that_says_so(played: PlayedSlurm, tmp_path: Path) -> None:
    played.refuse = "Invalid account or account/partition combination specified"
    gates = job_gates(work(tmp_path / "run"))
    assert [gate.verdict for gate in gates] == ["fail", "fail"]
    assert (gates[0].code, gates[0].text) == ("sbatch-refused", f"sbatch refused: {played.refuse}")


@pytest.mark.parametrize(
    ("state", "code", "nodes"),
    [
        ("NODE_FAIL", "job-node-lost", ("nid000002",)),
        ("TIMEOUT", "job-time-limit", NODES),
        # Slurm took the node out of service, and cancelled what ran there.
        ("CANCELLED", "job-node-lost", ("nid000002",)),
        ("FAILED", "job-node-lost", ("nid000002",)),
        ("", "job-node-lost", ("nid000002",)),
    ],
)
def test_a_job_that_ends_early_says_why_and_keeps_what_it_measured(
    played: PlayedSlurm, tmp_path: Path, state: str, code: str, nodes: tuple[str, ...]
) -> None:
    played.stop_after, played.end_state = 1, state
    played.nodes = {"nid000001": "idle", "nid000002": "drained"}
    played.reasons = {"nid000002": "Prolog error"}
    lines = work(tmp_path / "run")
    assert {(gate.code, gate.nodes) for gate in job_gates(lines)} == {(code, nodes)}
    assert all("during two-2n" in gate.text for gate in job_gates(lines))
    if code == "job-node-lost":
        (cause,) = {gate.text for gate in job_gates(lines)}
        assert cause.endswith("; Slurm: nid000002 drained (Prolog error)")
    assert len([line for line in lines if isinstance(line, Sample)]) == 2  # one step of each of two jobs
    assert keys(work(tmp_path / "run")) == keys(lines)  # and once it has ended, it has ended


def test_a_slurm_that_does_not_answer_is_waited_for(
    played: PlayedSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def poll(_jobs: object) -> None:
        raise slurm.SilentError(slurm.silence(["squeue"], "Unable to contact slurm controller"))

    monkeypatch.setattr(slurm, "poll", poll)
    reports: list[Finding] = []
    assert [gate.verdict for gate in job_gates(work(tmp_path / "run", reports))] == ["pass", "pass"]
    assert "Slurm does not answer: Unable to contact slurm controller" in [
        one.message for one in reports if one.code == "slurm-silent"
    ]


def test_a_job_that_slurm_has_forgotten_may_still_say_that_it_is_done(
    played: PlayedSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its marks may be on their way when Slurm is asked first."""
    answers = iter([slurm.JobState("")])
    monkeypatch.setattr(slurm, "poll", lambda jobs: {job: next(answers, slurm.JobState("RUNNING")) for job in jobs})
    assert [gate.verdict for gate in job_gates(work(tmp_path / "run"))] == ["pass", "pass"]


def test_cancelling_takes_only_jobs_of_this_run_and_resume_measures_the_rest(
    played: PlayedSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played.jobs["7"], played.states["7"] = str(tmp_path / "others.sh"), "PENDING"
    run = new_run(tmp_path / "run")
    one = runner(run)
    run.lock()
    one.restore()
    asked = iter(range(3))

    def interrupt(_: float) -> None:
        played.go_on()
        if next(asked, None) is None:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("lumisite.validate.run.runner.time.sleep", interrupt)
        with pytest.raises(KeyboardInterrupt):
            one.work()
    reports: list[Finding] = []
    one.report = reports.append
    one.cancel()
    run.release()
    assert [report.message for report in reports if "cancelled" in report.message] == [
        "job 2 cancelled",
        "job 3 cancelled",
    ]
    assert "7" not in played.cancelled
    assert len(played.cancelled) == 2
    kept = keys(lines_of(tmp_path / "run" / SAMPLES))
    assert kept
    assert not job_gates(lines_of(tmp_path / "run" / SAMPLES))
    played.jobs.pop("7")
    whole = work(tmp_path / "run")
    assert set(kept) < set(keys(whole))
    assert len(keys(whole)) == 2 * 7 == len(set(keys(whole)))


def test_two_at_one_run_are_one_too_many(played: PlayedSlurm, tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    run.lock()
    with pytest.raises(ToolError) as refused:
        Run(tmp_path / "run").lock()
    assert "another lumisite works on this run" in str(refused.value)
    run.release()


def test_a_folder_has_one_run(tmp_path: Path) -> None:
    with pytest.raises(ResolveError) as refused:
        read_request(tmp_path)
    assert "not a run" in str(refused.value)
    new_run(tmp_path)
    with pytest.raises(ResolveError) as refused:
        new_run(tmp_path)
    assert "has a run already" in str(refused.value)


def test_a_job_that_ends_without_a_result_of_each_step_has_not_passed(played: PlayedSlurm, tmp_path: Path) -> None:
    """As on a disk that was full for a while: the script goes on, and its mark is missing."""
    go_on = played.go_on

    def forgetful() -> None:
        go_on()
        for path in (tmp_path / "run/jobs").glob("*/two-2n/exit"):
            path.unlink()
            (path.parent / "forgotten").touch()
        for path in (tmp_path / "run/jobs").glob("*/two-2n/forgotten"):
            # The script would not do it again.
            (path.parent.parent / "three-2n").mkdir(exist_ok=True)
            (path.parent.parent / "done").write_text("1 0 1000\n")

    played.go_on = forgetful  # type: ignore[method-assign]
    gates = [(gate.code, gate.text) for gate in job_gates(work(tmp_path / "run"))]
    text = "the job ended, and left no result that can be read of two-2n, three-2n"
    assert gates == [("records-unreadable", text)] * 2


def test_a_record_that_is_not_whole_is_none(played: PlayedSlurm, tmp_path: Path) -> None:
    """A rank that is killed while it writes must not end the run."""
    work(tmp_path / "run")
    run = Run(tmp_path / "run")
    (plan, *_) = plans(run.folder)
    step = plan.groups[0].steps[0]
    records = tmp_path / "run/jobs" / plan.run / step.folder / "records"
    before = run.records(plan.run, step)
    assert before
    for name, content in (("7.json", ""), ("8.json", '{"rank": 8, "ho'), ("9.json", "[]"), ("9.at", "\0")):
        (records / name).write_text(content)
    assert run.records(plan.run, step) == before


def test_what_slurm_says_is_told_once_while_a_step_waits(
    played: PlayedSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = slurm.JobState("PENDING", "BeginTime")
    monkeypatch.setattr(slurm, "poll", lambda jobs: dict.fromkeys(jobs, waiting))
    reports: list[Finding] = []
    work(tmp_path / "run", reports)
    waits = [one.message for one in reports if one.code == "job-waits"]
    assert waits == ["job 1 PENDING (BeginTime)"]  # whatever the number of jobs
