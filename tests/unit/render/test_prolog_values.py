"""What torchrun needs beside an address with a suffix, and settings by conditions about the node."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.prologs import SHELLS, STEP, Script, lay_out, lumi_like, lumi_like_files, render_files, shell_command
from tests.unit.render.test_prolog import sound


@pytest.fixture(params=SHELLS)
def prolog(request: pytest.FixtureRequest, tmp_path: Path) -> Script:
    spank = lay_out(tmp_path, lumi_like_files())
    return Script(tuple(shell_command(request.param, tmp_path)), spank / "task_prolog")


# ---- torchrun


def test_with_a_suffix_torchruns_c10d_is_told_which_node_leads(prolog: Script, tmp_path: Path) -> None:
    """No node knows the name with the suffix as its own, and all would wait for another."""
    files = render_files(lumi_like(("  interfaces: [hsn0,", "  host_suffix: i\n  interfaces: [hsn0,")), rocm=["6.2"])
    prolog = Script(prolog.command, lay_out(tmp_path / "suffix", files) / "task_prolog")
    first, other = (sound(prolog.step(SLURM_PROCID=rank)) for rank in "01")
    assert first.exports["MASTER_ADDR"] == other.exports["MASTER_ADDR"] == "nid005124i"
    assert [one.exports["PET_LOCAL_ADDR"] for one in (first, other)] == [f"{STEP['SLURMD_NODENAME']}i"] * 2
    assert (first.exports["PET_RDZV_CONF"], "PET_RDZV_CONF" in other.exports) == ("is_host=1", False)
    # In a step inside the step only its own first task leads.
    inner = sound(prolog.step(SLURM_PROCID="1", SLURM_STEP_ID="1", **first.exports))
    assert "PET_RDZV_CONF" in inner.unsets
    # What the user says stays, and where the address is the user's, so is all of it.
    mine = sound(prolog.step(SLURM_PROCID="0", PET_RDZV_CONF="timeout=9", PET_LOCAL_ADDR="x")).exports
    theirs = sound(prolog.step(SLURM_PROCID="0", MASTER_ADDR="nid000009")).exports
    assert not any(name.startswith("PET_") for name in (*mine, *theirs))


def test_without_a_suffix_torchrun_is_told_nothing(prolog: Script) -> None:
    assert not any(name.startswith("PET_") for name in sound(prolog.step(SLURM_PROCID="0")).exports)


# ---- conditions about the node


CONDITIONS = """\
  - {name: BY_KIND, value: '1', when: {kind: [lumi-g]}, why: w, source: here}
  - {name: BY_OTHER_KIND, value: '1', when: {kind: [lumi-c]}, why: w, source: here}
  - {name: BY_NODES, value: '1', when: {nodes: several}, why: w, source: here}
"""


@pytest.mark.parametrize(
    ("job", "names"),
    [
        ({}, "BY_KIND BY_NODES"),
        ({"SLURM_JOB_PARTITION": "standard"}, "BY_OTHER_KIND BY_NODES"),
        ({"SLURM_JOB_PARTITION": "none"}, "BY_NODES"),
        ({"SLURM_JOB_PARTITION": None, "SLURM_STEP_NUM_NODES": "1"}, ""),
    ],
)
def test_the_kind_and_the_number_of_nodes_decide(job: dict[str, str | None], names: str, tmp_path: Path) -> None:
    files = render_files(lumi_like(("settings:\n", f"settings:\n{CONDITIONS}")), rocm=("6.2",))
    node = ("lumi", "lumi-c" if job.get("SLURM_JOB_PARTITION") == "standard" else "lumi-g")
    script = Script(tuple(shell_command("dash", tmp_path)), lay_out(tmp_path, files, node) / "task_prolog")
    assert [name for name in sound(script.step(**job)).exports if name.startswith("BY_")] == names.split()
