"""The runner, ended at any point: nothing is lost, nothing is doubled."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from lumisite.validate.run import slurm
from lumisite.validate.run.folder import SAMPLES, append
from tests.support.played_slurm import KilledError, PlayedSlurm, job_gates, keys, play, work


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> PlayedSlurm:
    return play(monkeypatch)


class Deadly:
    """Ends the runner at the `at`-th write of the run: before it, after it, or in the middle of a line."""

    def __init__(self, at: int, how: str, end: type[BaseException] = KilledError) -> None:
        self.left, self.how, self.end = at, how, end

    def patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def deadly(path: Path, data: bytes) -> None:
            self.left -= 1
            kept = {"before": b"", "torn": data[: len(data) // 2]}.get(self.how, data) if self.left == 0 else data
            append(path, kept)
            if self.left == 0:
                raise self.end

        monkeypatch.setattr("lumisite.validate.run.folder.append", deadly)


@pytest.mark.parametrize("at", [1, 4, 7])
@pytest.mark.parametrize("how", ["before", "after", "torn"])
def test_killed_at_a_write_it_goes_on_with_its_jobs(
    played: PlayedSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, at: int
) -> None:
    with monkeypatch.context() as patch:
        Deadly(at, how).patch(patch)
        with pytest.raises(KilledError):
            work(tmp_path / "run")
    lines = work(tmp_path / "run")
    assert len(keys(lines)) == 2 * 7 == len(set(keys(lines)))
    assert [gate.verdict for gate in job_gates(lines)] == ["pass", "pass"]
    assert len(played.jobs) == 2


@pytest.mark.parametrize("stopped", [True, False], ids=["in the middle", "at its end"])
def test_a_torn_last_line_is_made_whole(
    played: PlayedSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped: bool
) -> None:
    whole = work(tmp_path / "whole")
    for left in (1, 20, -1):
        folder = tmp_path / f"run{left}"
        played.jobs.clear()
        played.states.clear()
        with monkeypatch.context() as patch:
            if stopped:
                Deadly(6, "after").patch(patch)
            with suppress(KilledError):
                work(folder)
        data = (folder / SAMPLES).read_bytes()
        last = data[:-1].rfind(b"\n") + 1
        (folder / SAMPLES).write_bytes(data[: last + left] if left > 0 else data[:left])
        assert keys(work(folder)) == keys(whole), left


def test_a_full_disk_is_told_with_the_file() -> None:
    with pytest.raises(OSError, match=r"No space left on device: '/dev/full'"):
        append(Path("/dev/full"), b"line\n")


def test_killed_behind_sbatch_the_job_is_found_again(
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
