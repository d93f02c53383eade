"""The rehearsal runs to its end, and shows what it promises to show."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.twin import rehearse
from tests.twin.cluster import Cluster
from tests.twin.fixtures import require_twin

pytestmark = [pytest.mark.measures, pytest.mark.root, pytest.mark.slurm, pytest.mark.lmod, pytest.mark.apptainer]


def test_the_rehearsal_shows_before_maintenance_and_after(capfd: pytest.CaptureFixture[str]) -> None:
    require_twin()
    code = rehearse.main()
    shown = capfd.readouterr().out
    assert code == 0, shown
    commands = re.findall(
        r"^(?:admin|user@uan01)\$ (?:cd /scratch && |srun \S+ -w \S+ )?lumisite (\S+)", shown, re.MULTILINE
    )
    release = ["render", "deploy", "deploy"]
    day = [*release, "facts", "validate", "facts", "changes", *release, "validate", "verdict", "rollback"]
    assert commands == day, shown
    arrived = re.findall(r"^(nid00000[12]), task [01]\n  libfabric (\S+),", shown, re.MULTILINE)
    assert sorted(arrived[:2]) == [("nid000001", "1.15.2.0"), ("nid000002", "1.15.2.0")]
    assert sorted(arrived[2:4]) == sorted(arrived[4:]) == [("nid000001", "1.22.0"), ("nid000002", "1.22.0")]
    assert "/opt/cray/libfabric: release folder /opt/cray/libfabric/1.15.2.0 -> /opt/cray/libfabric/1.22.0" in shown
    assert "singularity-CPEbits/24.03 -> 25.03: + /opt/cray/libfabric/1.22.0" in shown
    # What `validate` says, `verdict` says of the numbers alone.
    assert re.search(r"^(PASS|WARN): ", shown, re.MULTILINE)
    assert re.search(r"^(PASS|WARN)$", shown, re.MULTILINE)
    assert "lumisite validate --more" not in shown  # a verdict that waits for nothing
    assert "the same" in shown
    assert "3) singularity-AI-bindings/24.03-rocm6.0" in shown.partition("rolled back ")[2]
    without, with_module = re.findall(r"^sent_mb eth0 (\S+)$", shown, re.MULTILINE)
    assert float(without) > 80 > 10 * float(with_module)
    assert re.search(r"^with the module \d+\.\d times as fast$", shown, re.MULTILINE)


def test_a_step_that_does_not_show_what_it_should_fails_the_rehearsal(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    require_twin()
    # The environment differs from what it was before: nothing is unloaded.
    monkeypatch.setattr(rehearse, "UNLOAD", rehearse.UNLOAD.replace("module unload", "true"))
    for name in ("BASELINE", "VALIDATE", "VERDICT"):  # the long ones
        monkeypatch.setattr(rehearse, name, "echo '4 of 10 jobs, collectives/all_reduce_busbw/4MiB/2n'")
    monkeypatch.setattr(rehearse.Stage, "worth", lambda _: True)
    assert rehearse.main() == 1
    summary = capfd.readouterr().out.partition("NOT as it should be\n")[2].splitlines()
    assert [line[:11] for line in summary].count("FAILED  0/1") == 1
    assert len(summary) == 8, "a line a part"


def test_each_step_is_asked_for_its_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that ends otherwise, or does not say what was hoped for, or says what it should not, has failed."""
    monkeypatch.setattr(Cluster, "command", lambda _, command: ["sh", "-c", command])
    cluster = Cluster.__new__(Cluster)
    stage = rehearse.Stage(cluster, Path("/"))
    assert stage.user("echo fine", "fine")
    assert not stage.user("echo fine", "well")
    assert not stage.user("echo fine; exit 4", "fine")
    assert stage.user("echo fine; exit 1", "fine", code=1)
    assert not stage.user("echo new and old", "new", unlike="old")
