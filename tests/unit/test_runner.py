"""The runner against a Slurm that the test plays: every way a job can end, and being killed at any point."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from lumisite.errors import ToolError
from lumisite.site.load import load_site
from lumisite.validate import slurm
from lumisite.validate.job import DONE, EXIT, RECORDS, JobPlan, Options
from lumisite.validate.lines import Gate, Sample
from lumisite.validate.plan import choose_node_sets, plan_jobs
from lumisite.validate.probe import Ended, Expected, Group, Line, Step
from lumisite.validate.runner import Pace, Runner, Setting
from lumisite.validate.runs import JOURNAL, SAMPLES, Run, create_run, gather, lines_of

SITE = load_site("twin").site
NODES = ("nid000001", "nid000002")


class KilledError(BaseException):
    """The runner is gone, as after kill -9: nothing that it holds in memory is left."""


class PlayedSlurm:
    """Slurm, played: a job's steps end one after the other each time somebody asks."""

    def __init__(self) -> None:
        self.jobs: dict[str, str] = {}
        self.states: dict[str, str] = {}
        self.refuse = ""
        self.stop_after: int | None = None
        self.end_state = "COMPLETED"
        self.cancelled: list[str] = []
        self.nodes = [slurm.Node(name, "idle") for name in NODES]

    def submit(self, script: str) -> str:
        if self.refuse:
            raise slurm.RefusedError(f"sbatch refused: {self.refuse}")
        identity = str(len(self.jobs) + 1)
        self.jobs[identity] = script
        self.states[identity] = "RUNNING"
        return identity

    def find(self, name: str) -> str | None:
        found = [job for job, script in self.jobs.items() if f"--job-name={name}\n" in Path(script).read_text()]
        return found[-1] if found else None

    def poll(self, jobs: Sequence[str]) -> Mapping[str, slurm.JobState]:
        return {job: slurm.JobState(self.states.get(job, "")) for job in jobs}

    def cancel(self, jobs: Sequence[str]) -> None:
        self.cancelled += jobs
        self.states.update(dict.fromkeys(jobs, "CANCELLED"))

    def nodes_of(self, _partition: str) -> list[slurm.Node]:
        return self.nodes

    def go_on(self) -> None:
        """Let one more step of each running job end, as its script would."""
        for job, script in self.jobs.items():
            if self.states[job] != "RUNNING":
                continue
            folder, attempt = Path(script).parent, Path(script).name.split(".")[1]
            (folder / f"claim.{attempt}").mkdir(exist_ok=True)
            (folder / f"started.{attempt}").write_text(f"{job} 0\n")
            steps = [line.split()[1] for line in Path(script).read_text().splitlines() if line.startswith("step ")]
            ended = [step for step in steps if (folder / step / EXIT).exists()]
            if self.stop_after is not None and len(ended) == self.stop_after:
                (folder / steps[len(ended)]).mkdir(exist_ok=True)
                (folder / steps[len(ended)] / "began").write_text("100.0\n")
                self.states[job] = self.end_state
            elif len(ended) == len(steps):
                (folder / DONE).write_text(f"{job} 0 1000\n")
                self.states[job] = "COMPLETED"
            else:
                step = folder / steps[len(ended)]
                (step / RECORDS).mkdir(parents=True, exist_ok=True)
                (step / "began").write_text("100.0\n")
                (step / RECORDS / "0.json").write_text(
                    json.dumps({"rank": 0, "local_rank": 0, "value": len(ended) + 1})
                )
                (step / EXIT).write_text(f"0 {200 + len(ended)}.5\n")


def judge(steps: Sequence[Ended], expected: Expected) -> list[Line]:
    value = steps[0].records[0]["value"]
    assert isinstance(value, int)
    return [expected.gate("pass", "fine"), expected.sample("speed", float(value), "higher", "1/s")]


def a_group(name: str, nodes: tuple[str, ...]) -> Group:
    step = Step(name, "several", nodes, 1, ("true",), (), (), 10)
    return Group((step,), judge)


def plans(folder: Path, jobs: int = 2) -> list[JobPlan]:
    names = ("one", "two", "three")
    return plan_jobs("stamp", str(folder), [NODES], jobs, lambda nodes: [a_group(name, nodes) for name in names])


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> PlayedSlurm:
    cluster = PlayedSlurm()
    for name in ("submit", "find", "poll", "cancel", "nodes_of"):
        monkeypatch.setattr(slurm, name, getattr(cluster, name))
    monkeypatch.setattr("lumisite.validate.runner.time.sleep", lambda _: cluster.go_on())
    return cluster


def runner(run: Run, said: list[str] | None = None, jobs: int = 2) -> Runner:
    own = plans(run.folder, jobs)
    specs = {group.folder: "spec" for plan in own for group in plan.groups}
    setting = Setting(SITE, "gloo", Options("standard-g"), "mark", specs, Pace(0, 0, 0))
    return Runner(run, setting, own, (said if said is not None else []).append)


def work(folder: Path, said: list[str] | None = None) -> list[Sample | Gate]:
    run = Run(folder) if (folder / "run.json").exists() else create_run(folder, {})
    one = runner(run, said)
    try:
        one.restore(run.hold())
        one.work()
    finally:
        run.release()
    return lines_of(folder / SAMPLES)


def keys(lines: Sequence[Sample | Gate]) -> list[tuple[str, str, tuple[str, ...]]]:
    return sorted((each.metric if isinstance(each, Sample) else each.gate, each.run, each.nodes) for each in lines)


def job_gates(lines: Sequence[Sample | Gate]) -> list[Gate]:
    return [line for line in lines if isinstance(line, Gate) and line.gate == "job"]


def test_the_first_capture_of_a_node_is_that_of_the_run(played: PlayedSlurm, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    for name in ("stamp-02", "stamp-01"):
        (folder / "jobs" / name).mkdir(parents=True)
        (folder / "jobs" / name / "facts.json").write_text(name)
    work(folder)
    assert (folder / "facts.json").read_text() == "stamp-01"


def test_runs_are_gathered_once_each_and_whole(played: PlayedSlurm, tmp_path: Path) -> None:
    work(tmp_path / "run")
    for name in ("facts.json", "series.jsonl"):
        (tmp_path / "run" / name).write_text("{}\n")
    for _ in range(2):
        gather(tmp_path / "run", tmp_path / "all")
        gather(tmp_path / "run", tmp_path / "flat", {SAMPLES: "all.jsonl"})
    for name in (SAMPLES, "series.jsonl", "run.json", "facts.json"):
        assert (tmp_path / "all" / name).read_bytes() == (tmp_path / "run" / name).read_bytes()
    assert (tmp_path / "flat/all.jsonl").read_bytes() == (tmp_path / "run" / SAMPLES).read_bytes()
    assert {path.name for path in (tmp_path / "flat").iterdir()} == {"all.jsonl", "all.jsonl.lock"}


def test_every_step_of_every_job_gives_its_lines_once(played: PlayedSlurm, tmp_path: Path) -> None:
    lines = work(tmp_path / "run")
    assert len(keys(lines)) == 2 * (3 + 3 + 1) == len(set(keys(lines)))
    assert [gate.verdict for gate in job_gates(lines)] == ["pass", "pass"]
    assert len(played.jobs) == 2


class Deadly:
    """Ends the runner at the `at`-th write of the run: before it, after it, or in the middle of a line."""

    def __init__(self, at: int, how: str, end: type[BaseException] = KilledError) -> None:
        self.left, self.how, self.end = at, how, end

    def patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import os

        write = os.write

        def deadly(handle: int, data: bytes) -> int:
            self.left -= 1
            if self.left == 0:
                if self.how == "torn":
                    write(handle, data[: len(data) // 2])
                elif self.how == "after":
                    write(handle, data)
                raise self.end
            return write(handle, data)

        monkeypatch.setattr("lumisite.validate.runs.os.write", deadly)


@pytest.mark.parametrize("how", ["before", "after", "torn"])
def test_killed_at_any_write_nothing_is_lost_or_doubled(
    played: PlayedSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    whole = work(tmp_path / "whole")
    at = 0
    while True:
        at += 1
        folder = tmp_path / f"run-{at}"
        played.jobs.clear()
        played.states.clear()
        with monkeypatch.context() as patch:
            Deadly(at, how).patch(patch)
            try:
                work(folder)
            except KilledError:
                pass
            else:
                break
        lines = work(folder)
        assert keys(lines) == keys(whole), f"killed {how} write {at}"
        # Each job that reached Slurm was one that did the work, or found its place taken.
        assert [gate.verdict for gate in job_gates(lines)] == ["pass", "pass"]
    assert at > 15


@pytest.mark.parametrize("how", ["before", "after"])
def test_interrupted_at_any_write_it_cancels_its_jobs_and_goes_on_later(
    played: PlayedSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    whole = work(tmp_path / "whole")
    at = 0
    while True:
        at += 1
        played.jobs.clear()
        played.states.clear()
        run = create_run(tmp_path / f"run-{at}", {})
        one = runner(run)
        with monkeypatch.context() as patch:
            Deadly(at, how, KeyboardInterrupt).patch(patch)
            try:
                one.restore(run.hold())
                one.work()
            except KeyboardInterrupt:
                one.cancel()
            else:
                break
            finally:
                run.release()
        assert "RUNNING" not in played.states.values(), f"interrupted {how} write {at}"
        assert keys(work(run.folder)) == keys(whole), f"interrupted {how} write {at}"
    assert at > 15


#: What the runner calls between its writes: it may die before or after any of them.
CALLS = ("submit", "find", "poll", "cancel", "nodes_of")


@pytest.mark.parametrize("how", ["before", "after"])
@pytest.mark.parametrize("end", [KilledError, KeyboardInterrupt])
def test_ended_at_any_question_to_slurm_nothing_is_lost_or_doubled(
    played: PlayedSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, end: type[BaseException]
) -> None:
    whole = work(tmp_path / "whole")
    at, asked = 0, 0

    def deadly(call: Callable[..., object]) -> Callable[..., object]:
        def ask(*words: object) -> object:
            nonlocal asked
            asked += 1
            if asked == at and how == "before":
                raise end
            answer = call(*words)
            if asked == at:
                raise end
            return answer

        return ask

    while True:
        at, asked = at + 1, 0
        played.jobs.clear()
        played.states.clear()
        run = create_run(tmp_path / f"run-{at}", {})
        one = runner(run)
        with monkeypatch.context() as patch:
            for name in CALLS:
                patch.setattr(slurm, name, deadly(getattr(played, name)))
            patch.setattr("lumisite.validate.runner.time.sleep", deadly(lambda _: played.go_on()))
            try:
                one.restore(run.hold())
                one.work()
            except KilledError:
                pass
            except KeyboardInterrupt:
                one.cancel()
            else:
                break
            finally:
                run.release()
        assert keys(work(run.folder)) == keys(whole), f"ended {how} call {at}"
    assert at > 5


@pytest.mark.parametrize("stopped", [True, False], ids=["in the middle", "at its end"])
@pytest.mark.parametrize("name", [SAMPLES, JOURNAL])
def test_a_torn_last_line_of_any_file_is_made_whole(
    played: PlayedSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, stopped: bool
) -> None:
    whole = work(tmp_path / "whole")
    for left in (1, 20, -1):
        folder = tmp_path / f"run{left}"
        played.jobs.clear()
        played.states.clear()
        with monkeypatch.context() as patch:
            if stopped:
                Deadly(9, "after").patch(patch)
            with suppress(KilledError):
                work(folder)
        data = (folder / name).read_bytes()
        last = data[:-1].rfind(b"\n") + 1
        (folder / name).write_bytes(data[: last + left] if left > 0 else data[:left])
        assert keys(work(folder)) == keys(whole), left


def test_a_full_disk_leaves_no_half_of_a_line(
    played: PlayedSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    write, left = os.write, iter(range(5))

    def short(handle: int, data: bytes) -> int:
        return write(handle, data if next(left, None) is not None else data[: len(data) // 2])

    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr("lumisite.validate.runs.os.write", short)
        with pytest.raises(OSError, match=r"No space left on device: '.*samples\.jsonl'"):
            work(folder)
    assert all(path.read_bytes().endswith(b"\n") for path in folder.glob("*.jsonl"))
    assert len(keys(work(folder))) == 2 * 7


@pytest.mark.parametrize("line", ["{", "[]", '{"event": "submitted", "run": "stamp-01"}'])
def test_a_damaged_journal_is_told_by_its_line(played: PlayedSlurm, tmp_path: Path, line: str) -> None:
    work(tmp_path / "run")
    journal = tmp_path / "run" / JOURNAL
    journal.write_text(f"{line}\n{journal.read_text()}")
    with pytest.raises(ToolError, match=r"jobs\.jsonl:1: .* is no line of a journal"):
        work(tmp_path / "run")


def test_killed_between_sbatch_and_the_journal_the_job_is_found_again(
    played: PlayedSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def submit_and_die(script: str) -> str:
        PlayedSlurm.submit(played, script)
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(slurm, "submit", submit_and_die)
        with pytest.raises(KilledError):
            work(tmp_path / "run")
    lines = work(tmp_path / "run")
    assert len(played.jobs) == 2  # not three
    assert len(keys(lines)) == len(set(keys(lines)))


def test_a_refused_submission_ends_in_a_line_that_says_so(played: PlayedSlurm, tmp_path: Path) -> None:
    played.refuse = "Invalid account or account/partition combination specified"
    gates = job_gates(work(tmp_path / "run"))
    assert [gate.verdict for gate in gates] == ["fail", "fail"]
    assert gates[0].cause == "sbatch refused: Invalid account or account/partition combination specified"


@pytest.mark.parametrize(
    ("state", "cause"),
    [
        ("NODE_FAIL", "nid000002 was lost (NODE_FAIL) during two-2n"),
        ("TIMEOUT", "the job reached its time limit during two-2n"),
        ("CANCELLED", "the job was cancelled by someone else during two-2n"),
        ("FAILED", "the job ended as FAILED during two-2n"),
        ("", "Slurm no longer knows the job, and it did not say that it was done during two-2n"),
    ],
)
def test_a_job_that_ends_early_says_why_and_keeps_what_it_measured(
    played: PlayedSlurm, tmp_path: Path, state: str, cause: str
) -> None:
    played.stop_after, played.end_state = 1, state
    played.nodes = [slurm.Node("nid000001", "idle"), slurm.Node("nid000002", "down")]
    lines = work(tmp_path / "run")
    assert {gate.cause for gate in job_gates(lines)} == {cause}
    assert len([line for line in lines if isinstance(line, Sample)]) == 2  # one step of each of two jobs
    assert keys(work(tmp_path / "run")) == keys(lines)  # and once it has ended, it has ended


def test_a_slurm_that_does_not_answer_is_waited_for(
    played: PlayedSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = slurm.JobState(None, "Unable to contact slurm controller")
    monkeypatch.setattr(slurm, "poll", lambda jobs: dict.fromkeys(jobs, silent))
    said: list[str] = []
    assert [gate.verdict for gate in job_gates(work(tmp_path / "run", said))] == ["pass", "pass"]
    assert any("does not answer: Unable to contact slurm controller" in line for line in said)


def test_cancelling_takes_only_jobs_of_this_run_and_resume_measures_the_rest(
    played: PlayedSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played.jobs["7"], played.states["7"] = str(tmp_path / "others.sh"), "PENDING"
    run = create_run(tmp_path / "run", {})
    one = runner(run)
    one.restore(run.hold())
    asked = iter(range(3))

    def interrupt(_: float) -> None:
        played.go_on()
        if next(asked, None) is None:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("lumisite.validate.runner.time.sleep", interrupt)
        with pytest.raises(KeyboardInterrupt):
            one.work()
    one.cancel()
    run.release()
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
    run = create_run(tmp_path / "run", {})
    run.hold()
    with pytest.raises(ToolError, match="another lumisite is at work on this run"):
        Run(tmp_path / "run").hold()
    run.release()


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
    causes = [gate.cause for gate in job_gates(work(tmp_path / "run"))]
    assert causes == ["the job ended, and two-2n, three-2n left no result"] * 2


def test_a_run_that_is_removed_stops(played: PlayedSlurm, tmp_path: Path) -> None:
    go_on = played.go_on

    def remove() -> None:
        go_on()
        (tmp_path / "run/run.json").unlink(missing_ok=True)

    played.go_on = remove  # type: ignore[method-assign]
    with pytest.raises(ToolError, match="run was removed while its jobs ran"):
        work(tmp_path / "run")


def test_what_slurm_says_is_told_once_while_a_step_waits(
    played: PlayedSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = slurm.JobState("PENDING", "BeginTime")
    monkeypatch.setattr(slurm, "poll", lambda jobs: dict.fromkeys(jobs, waiting))
    said: list[str] = []
    work(tmp_path / "run", said)
    assert sum("PENDING (BeginTime)" in line for line in said) == 2  # once for each job


# ---- which nodes


def nodes(text: str) -> list[slurm.Node]:
    return [slurm.Node(name, state) for name, _, state in (word.partition(":") for word in text.split())]


@pytest.mark.parametrize(
    ("state", "size", "wanted", "found"),
    [
        ("a:idle b:idle c:idle d:idle", 2, 2, [("a", "b"), ("c", "d")]),
        ("a:idle b:idle c:idle", 2, 2, [("a", "b")]),
        ("a:drained b:idle c:down d:idle e:idle f:idle", 2, 2, [("b", "d"), ("e", "f")]),
        ("a:allocated b:idle c:idle", 1, 3, [("b",), ("c",), ("a",)]),
        ("a:maint b:idle", 1, 2, [("b",)]),
    ],
)
def test_free_nodes_first_and_never_drained_ones(
    state: str, size: int, wanted: int, found: list[tuple[str, ...]]
) -> None:
    assert choose_node_sets(nodes(state), size, wanted) == found


def test_in_a_reservation_its_nodes_count_as_free() -> None:
    assert choose_node_sets(nodes("a:maint b:reserved c:idle"), 1, 3, reserved=True, only=["a", "b"]) == [
        ("a",),
        ("b",),
    ]


def test_too_few_nodes_are_refused_with_their_states() -> None:
    with pytest.raises(ToolError, match="2 nodes are needed and 1 can be had: a is drained, b is down"):
        choose_node_sets(nodes("a:drained b:down c:idle"), 2, 1)
