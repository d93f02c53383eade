"""The runner, ended at any point: nothing is lost, nothing is doubled."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from lumisite.errors import ToolError
from lumisite.validate.run import slurm
from lumisite.validate.run.folder import JOURNAL, SAMPLES, create_run
from tests.support.played_slurm import KilledError, PlayedSlurm, job_gates, keys, play, runner, work


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> PlayedSlurm:
    return play(monkeypatch)


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

        monkeypatch.setattr("lumisite.validate.run.folder.os.write", deadly)


@pytest.mark.thorough
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


@pytest.mark.thorough
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
                one.restore(run.lock())
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


@pytest.mark.thorough
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
            patch.setattr("lumisite.validate.run.runner.time.sleep", deadly(lambda _: played.go_on()))
            try:
                one.restore(run.lock())
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

    write = os.write

    def short(handle: int, data: bytes) -> int:
        full = Path(f"/proc/self/fd/{handle}").readlink().name == "samples.jsonl"
        return write(handle, data[: len(data) // 2] if full else data)

    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr("lumisite.validate.run.folder.os.write", short)
        with pytest.raises(OSError, match=r"No space left on device: '.*samples\.jsonl'"):
            work(folder)
    assert all(path.read_bytes()[-1:] in (b"", b"\n") for path in folder.glob("*.jsonl"))
    assert len(keys(work(folder))) == 2 * 7


@pytest.mark.parametrize(
    "line", ["{", "[]", '{"event": "gone", "run": "stamp-01"}', '{"event": "submitted", "run": "stamp-01"}']
)
def test_a_damaged_journal_is_told_by_its_line(played: PlayedSlurm, tmp_path: Path, line: str) -> None:
    work(tmp_path / "run")
    journal = tmp_path / "run" / JOURNAL
    journal.write_text(f"{line}\n{journal.read_text()}")
    with pytest.raises(ToolError, match=r"jobs\.jsonl:1: "):
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
