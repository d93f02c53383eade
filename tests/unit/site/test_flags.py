"""The flag by which a runtime brings the GPUs in: one for all, or one for the GPUs of each vendor."""

from __future__ import annotations

import pytest

from lumisite.cli import main
from lumisite.errors import SiteError
from lumisite.site.load import EMBEDDED, load_site
from lumisite.site.model import Site
from tests.support.linted import found
from tests.support.sites import load_text

DARDEL = (EMBEDDED / "dardel.yaml").read_text()


def flags(site: Site) -> dict[str, tuple[bool | None, tuple[str, ...] | None]]:
    """The settings that flags are, with the nodes that they are for."""
    found = (one for one in site.settings if one.name.endswith(("_NV", "_ROCM")))
    return {one.name: (one.when.gpus, one.when.kind) for one in found}


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("lumi", {}),  # its images bring all but devices
        ("leonardo", {"SINGULARITY_NV": (True, None)}),
        ("frontier", {"APPTAINER_ROCM": (True, None)}),
        ("dardel", {"SINGULARITY_ROCM": (None, ("mi250x",)), "SINGULARITY_NV": (None, ("gh200",))}),
    ],
)
def test_each_flag_is_a_setting_of_the_nodes_that_have_such_gpus(name: str, right: dict[str, object]) -> None:
    assert flags(load_site(name).site) == right


def test_one_flag_is_that_of_all_vendors() -> None:
    site = load_text(DARDEL.replace("{amd: rocm, nvidia: nv}", "nv")).site
    assert flags(site) == {"SINGULARITY_NV": (True, None)}
    assert {kind: site.gpu_flags(kind) for kind in site.node_kinds} == {"mi250x": {"nv"}, "gh200": {"nv"}, "cpu": set()}

    site = load_text(DARDEL.replace("{amd: rocm, nvidia: nv}", "{amd: rocm}")).site
    assert flags(site) == {"SINGULARITY_ROCM": (None, ("mi250x",))}


@pytest.mark.parametrize("partition", ["gpu", "gpugh", "main"])
def test_a_task_finds_the_flag_of_its_nodes(partition: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "--site", "dardel", "--partition", partition]) == 0
    said = capsys.readouterr().out
    assert ("SINGULARITY_ROCM=1" in said, "SINGULARITY_NV=1" in said) == (partition == "gpu", partition == "gpugh")


def test_a_setting_of_the_site_counts_more() -> None:
    text = DARDEL.replace("settings:\n", "settings:\n  - {name: SINGULARITY_NV, leave: yes, why: w, source: PSW}\n")
    assert flags(load_text(text).site)["SINGULARITY_NV"] == (None, None)


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("{amd: rocm, ", "{amd: ROCm x, ", "runtimes.singularity.gpu.amd: wrong-type"),
        ("nvidia: nv}", "nvdia: nv}", "runtimes.singularity.gpu: unknown-name"),
        ("{amd: rocm, nvidia: nv}", "[rocm, nv]", "runtimes.singularity.gpu: wrong-shape"),
        ("{amd: rocm, nvidia: nv}", "a b", "runtimes.singularity.gpu: wrong-type"),
        ("prefix: SINGULARITY", "emit: cdi", "runtimes.singularity.gpu: key-without-effect"),
    ],
)
def test_a_flag_that_cannot_be_is_one_fault_at_its_place(old: str, new: str, fault: str) -> None:
    assert old in DARDEL
    with pytest.raises(SiteError) as caught:
        load_text(DARDEL.replace(old, new))
    (finding,) = caught.value.findings
    line = next(number for number, text in enumerate(DARDEL.splitlines(), 1) if "gpu: {amd: rocm" in text)
    assert finding.place
    assert finding.place.line == line
    assert f"{finding.subject}: {finding.code}" == fault


@pytest.mark.parametrize(
    ("command", "partition", "rules"),
    [
        ("srun singularity exec --nv x.sif true", "gpu", ["4 gpu-flag"]),
        ("singularity exec --nv x.sif true", "gpugh", []),
        ("singularity exec --rocm x.sif true", "gpugh", ["4 gpu-flag"]),
        ("singularity exec --nv x.sif true", "main", []),
        ("echo singularity exec --nv x.sif true", "gpu", []),
    ],
)
def test_lint_finds_the_flag_of_other_gpus(command: str, partition: str, rules: list[str]) -> None:
    script = f"#!/bin/bash\n#SBATCH -p {partition} -N 1 -t 1:00:00\n\n{command}\n"
    assert [one for one in found(script, load_site("dardel").site) if one.endswith("gpu-flag")] == rules
