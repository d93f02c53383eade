"""Modules of a deployed release: what moves with the link `current`, and what stays with the session."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from lumisite.render.manifest import MANIFEST
from tests.twin.lmod import Lmod, Session, each_lmod, render

pytestmark = [pytest.mark.lmod, pytest.mark.root]

AI, CPE, FILES = "singularity-AI-bindings", "singularity-CPEbits", "singularity-userfilesystems"
ROOT = "/appl/lumisite"
MODULES = f"{ROOT}/current/modules"


@dataclass(frozen=True)
class Asked:
    """What an admin asks for."""

    rocm: Sequence[str]
    cpe: Sequence[str] = ()
    platform: str | None = None


def add_release(root: Path, asked: Asked) -> str:
    """Render a release into a root, as a deploy leaves it, and give its id."""
    out = render(root / "out", platform=asked.platform, rocm=asked.rocm, cpe=asked.cpe)
    release = str(json.loads((out / MANIFEST).read_text())["release"])
    (root / "releases").mkdir(exist_ok=True)
    out.rename(root / "releases" / release)
    return release


def link(root: Path, release: str) -> None:
    (root / "new").symlink_to(f"releases/{release}")
    (root / "new").rename(root / "current")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "root"
    path.mkdir()
    # Sessions move the link themselves.
    path.chmod(0o777)
    return path


def move(release: str) -> str:
    return f"ln -s releases/{release} {ROOT}/new && mv -T {ROOT}/new {ROOT}/current"


@each_lmod
def test_what_a_session_gets_names_the_release_and_not_the_link(version: str, root: Path) -> None:
    release = add_release(root, Asked(rocm=["6.4"]))
    link(root, release)
    places = (MODULES, f"{ROOT}/releases/{release}/modules")
    for (loaded,) in Lmod(version, {ROOT: root}).run_all(
        [Session([f"module load {AI}"], {"MODULEPATH": place}) for place in places]
    ):
        assert loaded.environment["SLURM_TASK_PROLOG"] == f"{ROOT}/releases/{release}/spank/task_prolog"
        assert loaded.environment["PATH"].startswith(f"{ROOT}/releases/{release}/spank/bin:")
        assert loaded.environment["LUMISITE_RELEASE"] == f"{ROOT}/releases/{release}"


@each_lmod
def test_a_rendered_tree_works_where_it_lies(version: str, tmp_path: Path) -> None:
    render(tmp_path / "site out", rocm=["6.4"])
    before, _, loaded, after = Lmod(version, {"/home/site out": tmp_path / "site out"}).run(
        "true",
        "module use '/home/site out/modules'",
        f"module load {AI}",
        f"module unload {AI}; module unuse '/home/site out/modules'",
        MODULEPATH="/mnt",
    )
    assert loaded.environment["SLURM_TASK_PROLOG"] == "/home/site out/spank/task_prolog"
    assert loaded.environment["PATH"].startswith("/home/site out/spank/bin:")
    assert after.variables == before.variables


@each_lmod
def test_what_was_loaded_before_the_link_moved_unloads_after_it(version: str, root: Path) -> None:
    old = add_release(root, Asked(rocm=["6.4"], cpe=["24.03", "25.03"]))
    new = add_release(root, Asked(rocm=["6.4"], cpe=["25.03", "25.09"]))
    link(root, old)
    name = f"{AI}/25.03-rocm6.4"
    before, loaded, moved, after = Lmod(version, writable={ROOT: root}).run(
        "true",
        f"module load {name}",
        move(new),
        f"module unload {name}",
        MODULEPATH=MODULES,
        SINGULARITY_BINDPATH="/mine",
    )
    assert loaded.environment["LUMISITE_RELEASE"] == f"{ROOT}/releases/{old}"
    assert moved.code == 0, moved.output
    assert moved.variables == loaded.variables
    assert after.variables == before.variables
    assert after.modules == []


@each_lmod
def test_a_load_after_the_link_moved_gives_the_new_release_alone(version: str, root: Path) -> None:
    old = add_release(root, Asked(rocm=["6.2", "6.4"]))
    new = add_release(root, Asked(rocm=["6.4"]))
    link(root, old)
    load = f"module load {AI}/25.03-rocm6.4"
    place = {"MODULEPATH": MODULES}
    # The second session finds the link moved.
    (before, _, _, again, after), (fresh,) = Lmod(version, writable={ROOT: root}).run_all(
        [Session(["true", load, move(new), load, f"module unload {AI}"], place), Session([load], place)]
    )
    assert again.variables == fresh.variables
    assert old not in str(again.variables)
    assert after.variables == before.variables


#: A release, and the one after it, which lacks what was loaded.
LOST = (
    Asked(rocm=["6.2"], cpe=["24.03"], platform="2024-08"),
    Asked(rocm=["6.2"], cpe=["24.03"], platform="2026-01"),
)


@each_lmod
def test_a_session_whose_modulepath_names_the_release_keeps_it_whole(version: str, root: Path) -> None:
    old, new = (add_release(root, asked) for asked in LOST)
    link(root, old)
    before, loaded, moved, after = Lmod(version, writable={ROOT: root}).run(
        f"module use $(readlink -f {ROOT}/current)/modules",
        f"module load {AI}",
        move(new),
        f"module unload {AI}",
        MODULEPATH="/none",
    )
    assert loaded.environment["LUMISITE_RELEASE"] == f"{ROOT}/releases/{old}"
    assert moved.variables == loaded.variables
    assert after.variables == before.variables


@each_lmod
def test_what_lmod_cannot_unload_since_its_file_is_gone_goes_with_the_next_load(version: str, root: Path) -> None:
    """Lmod forgets a module whose file is gone and leaves its variables; nothing of ours runs then."""
    old, new = (add_release(root, asked) for asked in LOST)
    link(root, old)
    load = f"module load {AI}"
    start = ["true", load, move(new)]
    environment = {"MODULEPATH": MODULES, "SINGULARITY_BINDPATH": "/mine,/scratch"}
    *runs, (fresh,) = Lmod(version, writable={ROOT: root}).run_all(
        [
            *(Session([*start, command, load, "module purge"], environment) for command in ("module purge", "true")),
            # The link has been moved then.
            Session([load], environment),
        ]
    )
    for before, loaded, _, left, again, after in runs:
        assert left.variables != before.variables, "then this page of the documentation can go"
        assert set(left.binds) <= set(loaded.binds)
        assert sorted(again.binds) == sorted(fresh.binds)
        assert {**again.variables, "SINGULARITY_BINDPATH": ""} == {**fresh.variables, "SINGULARITY_BINDPATH": ""}
        assert old not in str(again.variables)
        assert after.variables == before.variables
