"""What keeps a job from starting is named while it waits, with the words of Slurm, and a job that waits its turn is no fault."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytest_subprocess import FakeProcess

from lumisite.findings.finding import Finding
from lumisite.validate.run import slurm
from lumisite.validate.run.reasons import why_waits
from tests.support.played_slurm import NODES, PlayedSlurm, play, work
from tests.unit.validate.test_slurm_edge import squeue


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> PlayedSlurm:
    return play(monkeypatch)


@pytest.mark.parametrize(
    "reason", ["Resources", "None", "", "PartitionNodeLimit", "a word that no release of Slurm has"]
)
def test_a_reason_of_slurm_is_said_in_its_words(fp: FakeProcess, reason: str) -> None:
    squeue(fp, "7", f"7|PENDING|{reason}\n")
    found = why_waits("r1", "7", slurm.poll(["7"])["7"], {})
    assert (found.code, found.subject) == ("job-waits", "r1")
    assert found.message == f"job 7 PENDING ({reason or 'None'})"


def waiting(
    played: PlayedSlurm, folder: Path, monkeypatch: pytest.MonkeyPatch, reason: str, looks: int
) -> list[Finding]:
    """Return what is reported while jobs wait for so many looks at Slurm, and then run."""
    asked = 0

    def poll(jobs: list[str]) -> dict[str, slurm.JobState]:
        nonlocal asked
        asked += 1
        state = slurm.JobState("PENDING", reason) if asked <= looks else slurm.JobState("RUNNING")
        played.states.update(dict.fromkeys(jobs, state.state or ""))
        return dict.fromkeys(jobs, state)

    monkeypatch.setattr(slurm, "poll", poll)
    reports: list[Finding] = []
    work(folder, reports)
    return [one for one in reports if one.subject == "stamp-01" and one.code.startswith("job-")]


def test_a_drained_node_is_named_with_the_reason_that_slurm_has(
    played: PlayedSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played.nodes = {NODES[0]: "idle", NODES[1]: "draining", "nid000003": "down"}
    played.reasons = {NODES[1]: "bad DIMM [root@2026-01-22]"}
    found = waiting(played, tmp_path / "run", monkeypatch, "ReqNodeNotAvail", looks=9)
    (away,) = [one for one in found if one.code != "job-progress"]
    assert (away.code, away.nodes) == ("job-nodes-away", (NODES[1],))
    assert away.message.endswith(f": {NODES[1]} draining (bad DIMM [root@2026-01-22])")


def test_a_node_that_boots_or_is_busy_is_no_fault(
    played: PlayedSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played.nodes = {NODES[0]: "powering_up", NODES[1]: "allocated"}
    found = waiting(played, tmp_path / "run", monkeypatch, "Resources", looks=20)
    assert [one.code for one in found if one.code != "job-progress"] == ["job-waits"]
