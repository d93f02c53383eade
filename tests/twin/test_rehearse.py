"""The rehearsal runs to its end on one screen."""

from __future__ import annotations

import pytest

from tests.twin import rehearse
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
