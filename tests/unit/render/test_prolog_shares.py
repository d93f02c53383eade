"""The prolog's masks on part of a node where several GPUs have the same cores near them: those of `lumisite masks`."""

from __future__ import annotations

from pathlib import Path

import pytest

from lumisite.machine.masks import Request, cpu_masks
from lumisite.machine.topology import topology_of
from lumisite.site.cpus import format_cpu_list, parse_number_list
from lumisite.site.load import load_site
from tests.support.prologs import SHELLS, Script, lay_out, render_files, shell_command
from tests.unit.render.test_prolog_cpus import grant, reason, step, tried

LEONARDO = load_site("leonardo")
BOOSTER = topology_of("booster", LEONARDO.site.node_kinds["booster"])
PART = {"SLURM_JOB_PARTITION": "boost_usr_prod", "SLURM_CPUS_ON_NODE": "8"}


@pytest.fixture(params=SHELLS)
def prolog(request: pytest.FixtureRequest, tmp_path: Path) -> Script:
    """Leonardo's, with the kernel's files about cgroups in the test's own directory."""
    path = lay_out(tmp_path, render_files(LEONARDO), ("leonardo", "booster")) / "task_prolog"
    text = path.read_text().replace("/proc/self/cpuset", f"{tmp_path}/cpuset")
    path.write_text(text.replace("/sys/fs/cgroup", f"{tmp_path}/cgroup"))
    return Script(tuple(shell_command(request.param, tmp_path)), path)


@pytest.mark.parametrize(
    ("cpus", "gpus"),
    [
        ("0-7", "0"),
        ("0-7", "2"),
        ("4-11", "1,3"),
        ("0-15", "0-3"),
        ("8-23", "0,2"),
        ("16-31", "3"),
        ("0-6", "0,1"),
        ("12-20", "1-3"),
    ],
)
def test_tasks_of_a_part_have_the_cores_that_masks_tells(prolog: Script, tmp_path: Path, cpus: str, gpus: str) -> None:
    grant(tmp_path, cpus)
    granted, indices = frozenset(parse_number_list(cpus)), parse_number_list(gpus)
    right = cpu_masks(BOOSTER, Request(len(indices), cpus=granted, gpus=indices))
    for answer in right:
        found = tried(step(prolog, len(indices), answer.task, SLURM_STEP_GPUS=gpus, **PART))
        assert found is not None
        assert format_cpu_list(map(int, found.split(","))) == answer.cpus


def test_a_task_whose_peers_gpus_are_not_told_has_an_equal_part(prolog: Script, tmp_path: Path) -> None:
    grant(tmp_path, "0-15")
    words = {"SLURM_STEP_GPUS": "2", "SLURM_TRES_BIND": "gres/gpu:single:1", **PART}
    assert tried(step(prolog, 2, 1, **words)) == "8,9,10,11"


def test_too_few_for_all_is_no_mask(prolog: Script, tmp_path: Path) -> None:
    grant(tmp_path, "0-1")
    ran = step(prolog, 4, 0, SLURM_STEP_GPUS="0-3", **PART)
    assert tried(ran) is None
    assert reason(ran)


@pytest.mark.parametrize("site", ["lumi", "alps", "frontier"])
def test_where_each_gpu_has_cores_of_its_own_nothing_is_shared(site: str) -> None:
    rendered = render_files(load_site(site))
    assert not any("share()" in text for text in rendered.values())
    assert "spank_helpers/shares.sh" not in rendered["MANIFEST.json"]
