"""The rehearsal runs to its end, and shows what it promises to show."""

from __future__ import annotations

import re

import pytest

from tests.twin import rehearse
from tests.twin.fixtures import require_twin

pytestmark = [pytest.mark.root, pytest.mark.slurm, pytest.mark.lmod, pytest.mark.apptainer]


def test_the_rehearsal_shows_before_maintenance_and_after(capfd: pytest.CaptureFixture[str]) -> None:
    require_twin()
    code = rehearse.main()
    shown = capfd.readouterr().out
    assert code == 0, shown
    arrived = re.findall(r"^(nid00000[12]), task [01]\n  libfabric (\S+),", shown, re.MULTILINE)
    assert sorted(arrived[:2]) == [("nid000001", "1.15.2.0"), ("nid000002", "1.15.2.0")]
    assert sorted(arrived[2:4]) == sorted(arrived[4:]) == [("nid000001", "1.22.0"), ("nid000002", "1.22.0")]
    assert "the same" in shown
    without, with_module = re.findall(r"^sent_mb eth0 (\S+)$", shown, re.MULTILINE)
    assert float(without) > 80 > 10 * float(with_module)
    assert re.search(r"^with the module \d+\.\d times as fast$", shown, re.MULTILINE)


def test_a_step_that_does_not_show_what_it_should_fails_the_rehearsal(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    require_twin()
    # The environment differs from what it was before: nothing is unloaded.
    monkeypatch.setattr(rehearse, "UNLOAD", rehearse.UNLOAD.replace("module unload", "true"))
    assert rehearse.main() == 1
    assert "NOT as it should be" in capfd.readouterr().out
