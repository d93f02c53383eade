"""The rehearsal runs to its end on one screen, and fails where a command does not show what it should."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.twin import rehearse
from tests.twin.cluster import Cluster
from tests.twin.fixtures import require_twin

pytestmark = [pytest.mark.measures, pytest.mark.root, pytest.mark.slurm, pytest.mark.lmod, pytest.mark.apptainer]


def test_the_rehearsal_shows_before_maintenance_and_after(capfd: pytest.CaptureFixture[str]) -> None:
    require_twin()
    code = rehearse.main()
    out = capfd.readouterr().out
    assert code == 0, out
    assert len(out.splitlines()) < 40, "one screen"
    assert out.count("libfabric 1.15.2.0, as on platform 2024-08") == 1
    assert out.count("libfabric 1.22.0, as on platform 2026-01") == 1
    assert out.endswith("\n14 of 14 commands did what they should\n")


def test_a_command_that_does_something_else_is_shown_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Cluster, "command", lambda _, command: ["sh", "-c", command])
    rehearsal = rehearse.Rehearsal(Cluster.__new__(Cluster), Path("/"))
    rehearsal.user("echo first; echo fine", "fine")
    assert capsys.readouterr().out == "user@uan01$ echo first; echo fine\n    fine\n"
    rehearsal.user("echo fine; exit 1", "fine", code=1)
    assert rehearsal.failed == []
    rehearsal.user("echo first; echo second", "fine")
    assert "FAILED (exit code 0" in (out := capsys.readouterr().out)
    assert "first\nsecond\n" in out
    rehearsal.user("echo fine; exit 4", "fine")
    assert (len(rehearsal.failed), rehearsal.steps) == (2, 4)
