"""Names that an earlier release of a root has offered, after a deploy of one that lacks them, in real module systems."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from lumisite.cli import main
from lumisite.release.tree import load_manifest
from lumisite.site.load import LoadedSite
from lumisite.site.scalars import Line
from tests.twin.environment_modules import EnvironmentModules
from tests.twin.environment_modules import each_version as each_em
from tests.twin.lmod import Lmod, Session, each_lmod, render
from tests.twin.test_environment_modules import LUMI

pytestmark = [pytest.mark.lmod, pytest.mark.root]

AI, CPE, FILES = "singularity-AI-bindings", "singularity-CPEbits", "singularity-userfilesystems"
ROOT = "/appl/lumisite"
#: What a release had, and what has its place: the same ROCm where there is one, else the default.
LED: Mapping[str, str] = {
    f"{AI}/24.03-rocm6.0": f"{AI}/25.03-rocm6.3",
    f"{AI}/24.03-rocm6.2": f"{AI}/25.03-rocm6.2",
    f"{AI}/24.03": f"{AI}/25.03-rocm6.3",
    f"{AI}/24.11": f"{AI}/25.03-rocm6.3",
    f"{CPE}/24.03": f"{CPE}/25.03",
}


def without(loaded: LoadedSite, *names: str, old_versions: tuple[Line, ...] = (Line("24.03"),)) -> LoadedSite:
    """Give a site that has some modules no more, and other old names."""
    modules = {name: one for name, one in loaded.site.modules.items() if name not in names}
    ai = dataclasses.replace(modules[AI], loads=tuple(set(modules) - {AI}), old_versions=old_versions)
    return dataclasses.replace(loaded, site=dataclasses.replace(loaded.site, modules={**modules, AI: ai}))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root where three releases were deployed, each of which lacks something of the one before."""
    tmp_path = tmp_path_factory.mktemp("deployed")
    early = without(LUMI, old_versions=(Line("24.03"), Line("24.11")))
    outs = (
        render(tmp_path / "first", early, platform="2024-08", cpe=["24.03"], rocm=["6.0", "6.2"]),
        render(tmp_path / "second", LUMI, cpe=["25.03"], rocm=["6.3"]),
        render(tmp_path / "third", without(LUMI, FILES), cpe=["25.03"], rocm=["6.3", "6.2"]),
    )
    path = tmp_path / "root"
    for out in outs:
        assert main(["deploy", str(out), str(path), "--apply"]) == 0
    return path


@pytest.fixture
def own_root(root: Path, tmp_path: Path) -> Path:
    """A copy of that root, for tests that move its link or deploy once more."""
    return shutil.copytree(root, tmp_path / "root", symlinks=True)


@each_lmod
def test_lmod_leads_each_name_of_an_earlier_release_to_what_replaces_it(version: str, root: Path) -> None:
    place = {"MODULEPATH": f"{ROOT}/current/modules"}
    by_name = [
        Session(
            ["true", f"module load {name}", f"module unload {name.partition('/')[0]}", f"module help {name}"], place
        )
        for name in LED
    ]
    plain = [Session(["true", f"module load {to}"], place) for to in LED.values()]
    runs = Lmod(version, {ROOT: root}).run_all([*by_name, *plain])
    for (name, to), run, (_, direct) in zip(LED.items(), runs[: len(LED)], runs[len(LED) :], strict=True):
        before, loaded, unloaded, helped = run
        assert loaded.code == 0, loaded.output
        assert loaded.modules == direct.modules
        assert loaded.variables == direct.variables, name
        assert f"{to}" in loaded.words
        assert f"{to}" in helped.words
        assert unloaded.variables == before.variables
    said = runs[0][1].words
    assert f"{AI}/24.03-rocm6.0 is gone: it was for platform 2024-08, and this is platform 2026-01" in said
    assert f"{AI}/25.03-rocm6.3 is loaded instead." in said
    assert "unknown" not in said


@each_lmod
def test_a_session_that_has_loaded_what_is_gone_now_gets_the_new_release_alone(version: str, own_root: Path) -> None:
    """As without the name, a modulefile that is gone cannot be unloaded, and the next load tidies up."""
    old, new, _ = sorted((own_root / "releases").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    own_root.chmod(0o777)
    name = f"{AI}/24.03-rocm6.0"
    place = {"MODULEPATH": f"{ROOT}/current/modules"}
    move = f"ln -s releases/{{}} {ROOT}/new && mv -T {ROOT}/new {ROOT}/current".format
    start = [f"{move(old.name)}; module purge", f"module load {name}", move(new.name)]
    *runs, (fresh,) = Lmod(version, writable={ROOT: own_root}).run_all(
        [
            *(Session([*start, between, f"module load {name}"], place) for between in ("module purge", "true")),
            # The link has been moved to the new release then.
            Session([f"module load {name}"], place),
        ]
    )
    for _, loaded, moved, between, again in runs:
        assert loaded.environment["LUMISITE_RELEASE"].endswith(old.name)
        assert moved.code == between.code == again.code == 0, again.output
        assert sorted(again.binds) == sorted(fresh.binds)
        assert {**again.variables, "SINGULARITY_BINDPATH": ""} == {**fresh.variables, "SINGULARITY_BINDPATH": ""}
        assert again.modules == fresh.modules
    assert fresh.environment["LUMISITE_RELEASE"].endswith(new.name)


@each_lmod
def test_lmod_says_of_a_module_that_nothing_replaces_why_it_is_gone(version: str, root: Path) -> None:
    lmod = Lmod(version, {ROOT: root})
    names = (f"{FILES}/2026-01", f"{FILES}/2024-08", FILES)
    *loads, avail, spider = lmod.run(
        *(f"module load {name}" for name in names),
        "module avail",
        "module spider",
        MODULEPATH=f"{ROOT}/current/modules",
    )
    for load in loads:
        assert load.code != 0
        assert load.modules == []
        assert f"{FILES}/20" in load.words
        assert "is gone:" in load.words
        assert "Nothing replaces it" in load.words
    for look in (avail, spider):
        assert "24.03" not in look.output, "what is gone is not offered"
        assert FILES not in look.output


@each_em
def test_environment_modules_do_the_same(version: str, root: Path) -> None:
    real = EnvironmentModules(version, {ROOT: root})
    place = {"MODULEPATH": f"{ROOT}/current/modules-tcl"}
    by_name = [Session(["true", f"module load {name}", f"module unload {name}"], place) for name in LED]
    plain = [Session(["true", f"module load {to}"], place) for to in LED.values()]
    gone = [*(f"module load {name}" for name in (f"{FILES}/2024-08", FILES)), "module avail"]
    *runs, (*loads, avail) = real.run_all([*by_name, *plain, Session(gone, place)])
    for (name, to), run, (_, direct) in zip(LED.items(), runs[: len(LED)], runs[len(LED) :], strict=True):
        before, loaded, unloaded = run
        assert loaded.code == 0, loaded.output
        assert loaded.modules == direct.modules
        assert loaded.variables == direct.variables, name
        assert f"{name} is an old name of {to}, which is loaded instead." in loaded.words
        assert "old name" not in direct.output
        assert unloaded.variables == before.variables
    for load in loads:
        assert load.code != 0
        assert load.modules == []
        assert "is gone:" in load.words
        assert "Nothing replaces it" in load.words
    assert "24.03" not in avail.output
    assert FILES not in avail.output


def test_the_names_live_on_when_the_release_that_had_them_is_removed(own_root: Path, tmp_path: Path) -> None:
    for release in (own_root / "releases").iterdir():
        if release.name != (own_root / "current").readlink().name:
            release.rename(tmp_path / release.name)
    out = render(tmp_path / "fourth", LUMI, cpe=["25.09"], rocm=["6.3"])
    assert main(["deploy", str(out), str(own_root), "--apply"]) == 0
    assert load_manifest(own_root / "current")[0].names[f"{AI}/24.03-rocm6.0"] == f"{AI}/25.09-rocm6.3"
    (loaded,) = Lmod("8.7", {ROOT: own_root}).run(
        f"module load {AI}/24.03-rocm6.0", MODULEPATH=f"{ROOT}/current/modules"
    )
    assert loaded.code == 0, loaded.output
    assert f"{AI}/25.09-rocm6.3" in loaded.modules
