"""The Tcl modulefiles in real Environment Modules: what they set, what a user keeps, and what an unload gives back."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

import lumisite
from lumisite.render.manifest import MANIFEST
from lumisite.site.load import LoadedSite, load_site
from tests.twin.environment_modules import EnvironmentModules, each_version
from tests.twin.lmod import TREE, Lmod, Session, lumi_with_a_setting, render
from tests.twin.test_lmod_environment import BINDS, KEPT, NAMES, OURS, VALUES
from tests.twin.test_lmod_quoting import (
    HOSTILE,
    check_help_of_paths,
    check_texts,
    path_of,
    render_texts,
    site_with_paths,
    site_with_values,
)
from tests.twin.test_lmod_release import move

pytestmark = [pytest.mark.lmod, pytest.mark.root]

AI, CPE, FILES = "singularity-AI-bindings", "singularity-CPEbits", "singularity-userfilesystems"
PROBES = Path(lumisite.__file__).parent / "validate/probes"
ROOT = "/appl/lumisite"
MODULES = f"{ROOT}/current/modules-tcl"


def for_both(loaded: LoadedSite) -> LoadedSite:
    """Give a site whose modules are written for both systems."""
    modules = {name: dataclasses.replace(one, systems=("lmod", "tcl")) for name, one in loaded.site.modules.items()}
    return dataclasses.replace(loaded, site=dataclasses.replace(loaded.site, modules=modules))


LUMI = for_both(load_site("lumi"))


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return render(tmp_path_factory.mktemp("tree") / "out", for_both(lumi_with_a_setting()), rocm=["6.4"])


@each_version
def test_every_load_and_unload_order_composes(version: str, tmp_path: Path) -> None:
    render(tmp_path / "out", LUMI, rocm=["6.2"])
    orders = list(itertools.permutations((AI, CPE, FILES)))
    # What another module needs is not unloaded before it, unless both are asked for at once.
    sessions = [
        Session(["true", *(f"module load {one}" for one in up), f"module unload {AI} {CPE} {FILES}"]) for up in orders
    ]
    for up, (before, *steps) in zip(
        orders, EnvironmentModules(version, {TREE: tmp_path / "out"}).run_all(sessions), strict=True
    ):
        assert all(step.code == 0 for step in steps), up
        assert sorted(steps[2].binds) == sorted(OURS), up
        assert steps[-1].variables == before.variables, up


@each_version
def test_unloading_ai_bindings_leaves_what_the_user_loaded_and_takes_what_it_brought(version: str, tree: Path) -> None:
    real = EnvironmentModules(version, {TREE: tree})
    _, user, _, left = real.run("true", f"module load {CPE}", f"module load {AI}", f"module unload {AI}")
    assert left.modules == user.modules == [f"{CPE}/25.03"]
    assert left.variables == user.variables


@each_version
def test_a_dependency_replaces_the_version_that_the_user_had(version: str, tmp_path: Path) -> None:
    tree = render(tmp_path / "out", LUMI, rocm=["6.4"], cpe=["all"])
    before, _, both, after = EnvironmentModules(version, {TREE: tree}).run(
        "true", f"module load {CPE}/25.03", f"module load {AI}/25.09-rocm6.4", f"module unload {AI}"
    )
    assert f"{CPE}/25.09" in both.modules
    assert after.variables == before.variables


@each_version
def test_the_users_own_binds_come_first_and_are_given_back_exactly(version: str, tree: Path) -> None:
    sessions = [
        Session(["true", f"module load {AI}", f"module unload {AI}"], {} if value is None else {BINDS: value})
        for value in KEPT
    ]
    runs = EnvironmentModules(version, {TREE: tree}).run_all(sessions)
    for (value, taken), (before, loaded, after) in zip(KEPT.items(), runs, strict=True):
        own = value.split(",") if value else []
        assert loaded.binds == own + [bind for bind in OURS if bind not in taken], value
        assert after.variables == before.variables, value


#: What the user does between load and unload, and what must be left, starting with /mine.
EDITS = {
    f"export {BINDS}=${BINDS},/new": "/mine,/new",
    f"export {BINDS}=/new,${BINDS}": "/new,/mine",
    f"export {BINDS}=${{{BINDS}/,\\/flash/}}": "/mine",
    f"export {BINDS}=/other,/mine": "/other,/mine",
    f"export {BINDS}=": None,
    f"unset {BINDS}": None,
}


@each_version
def test_what_the_user_changed_in_between_stays(version: str, tree: Path) -> None:
    sessions = [Session(["true", f"module load {AI}", edit, f"module unload {AI}"], {BINDS: "/mine"}) for edit in EDITS]
    runs = EnvironmentModules(version, {TREE: tree}).run_all(sessions)
    for (edit, left), (before, _, _, after) in zip(EDITS.items(), runs, strict=True):
        assert after.environment.get(BINDS) == left, edit
        assert {**after.variables, BINDS: ""} == {**before.variables, BINDS: ""}, edit


@each_version
def test_the_users_own_value_wins_and_stays(version: str, tree: Path) -> None:
    own = list(itertools.product(NAMES, VALUES))
    commands = ["true", f"module load {AI}", f"module unload {AI}"]
    runs = EnvironmentModules(version, {TREE: tree}).run_all([Session(commands, {name: value}) for name, value in own])
    for (name, value), (before, loaded, after) in zip(own, runs, strict=True):
        assert loaded.environment[name] == value, name
        assert ("SLURM_TASK_PROLOG is your own" in loaded.output) == (name == "SLURM_TASK_PROLOG")
        assert after.variables == before.variables, (name, value)


@each_version
def test_a_value_that_the_user_changed_in_between_stays(version: str, tree: Path) -> None:
    changes: dict[str, dict[str, str]] = {}
    for name in NAMES:
        changes |= {f"export {name}=mine": {name: "mine"}, f"export {name}=": {name: ""}, f"unset {name}": {}}
    sessions = [Session(["true", f"module load {AI}", change, f"module unload {AI}"]) for change in changes]
    runs = EnvironmentModules(version, {TREE: tree}).run_all(sessions)
    for (change, left), (before, _, _, after) in zip(changes.items(), runs, strict=True):
        assert after.variables == {**before.variables, **left}, change


@each_version
def test_what_would_overwrite_the_list_and_another_version_are_kept_out(version: str, tmp_path: Path) -> None:
    tree = render(tmp_path / "out", LUMI, rocm=["6.2", "6.4"])
    foreign = tmp_path / "foreign/singularity-bindings/1"
    foreign.parent.mkdir(parents=True)
    foreign.write_text("#%Module\nsetenv SINGULARITY_BIND /opt/cray\n")
    real = EnvironmentModules(version, {TREE: tree, "/foreign": tmp_path / "foreign"})
    path = {"MODULEPATH": f"{TREE}/modules-tcl:/foreign"}
    pairs = (("singularity-bindings/1", AI), (f"{AI}/25.03-rocm6.2", f"{AI}/25.03-rocm6.4"))
    runs = real.run_all([Session([f"module load {first}", f"module load {second}"], path) for first, second in pairs])
    for (first, _), (loaded, refused) in zip(pairs, runs, strict=True):
        assert refused.code != 0
        assert first.partition("/")[0] in refused.output
        assert refused.variables == loaded.variables


@each_version
def test_the_same_comes_out_of_a_posix_shell_and_of_a_shell_below(version: str, tree: Path) -> None:
    real = EnvironmentModules(version, {TREE: tree})
    init = f". {real.init}/bash"
    commands = ["true", f"module load {AI}", f"bash -c '{init}; module unload {AI}; env'", f"module unload {AI}"]
    bash, sh = real.run_all([Session(commands, {BINDS: "/mine"}), Session(commands, {BINDS: "/mine"}, shell="sh")])
    for steps in (bash, sh):
        assert steps[1].environment["SLURM_TASK_PROLOG"] == f"{TREE}/spank/task_prolog"
        assert steps[1].environment["PATH"].startswith(f"{TREE}/spank/bin:")
        assert steps[1].environment["LUMISITE_STACK"] == "25.03-rocm6.4"
        assert "LUMISITE" not in steps[2].output
        assert f"{BINDS}=/mine\n" in steps[2].output
        assert steps[3].variables == steps[0].variables


@each_version
def test_a_reload_changes_nothing(version: str, tree: Path) -> None:
    reloads = ("module reload", "module save mine; module restore mine", "module refresh")
    sessions = [
        Session(["true", f"module load {AI}", command, f"module unload {AI}"], {BINDS: "/mine,/scratch"})
        for command in reloads
    ]
    for before, loaded, again, after in EnvironmentModules(version, {TREE: tree}).run_all(sessions):
        assert again.code == 0, again.output
        assert again.variables == loaded.variables, again.command
        assert after.variables == before.variables, again.command


def add_release(root: Path, rocm: Sequence[str]) -> str:
    """Render a release into a root, as a deploy leaves it, and give its id."""
    out = render(root / "out", LUMI, rocm=rocm)
    release = str(json.loads((out / MANIFEST).read_text())["release"])
    (root / "releases").mkdir(exist_ok=True)
    out.rename(root / "releases" / release)
    return release


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "root"
    path.mkdir()
    path.chmod(0o777)  # sessions move the link themselves
    return path


@each_version
def test_what_was_loaded_before_the_link_moved_unloads_after_it(version: str, root: Path) -> None:
    old, new = add_release(root, ["6.2", "6.4"]), add_release(root, ["6.4"])
    (root / "current").symlink_to(f"releases/{old}")
    name = f"{AI}/25.03-rocm6.4"
    before, loaded, moved, after, again = EnvironmentModules(version, writable={ROOT: root}).run(
        "true",
        f"module load {name}",
        move(new),
        f"module unload {name}",
        f"module load {name}",
        MODULEPATH=MODULES,
        SINGULARITY_BINDPATH="/mine",
    )
    assert moved.code == 0, moved.output
    assert loaded.environment["LUMISITE_RELEASE"] == f"{ROOT}/releases/{old}"
    assert loaded.environment["PATH"].startswith(f"{ROOT}/releases/{old}/spank/bin:")
    assert after.variables == before.variables
    assert again.environment["SLURM_TASK_PROLOG"] == f"{ROOT}/releases/{new}/spank/task_prolog"


@each_version
def test_a_session_keeps_a_release_that_lacks_its_version_after_the_link_moved(version: str, root: Path) -> None:
    """Whole, and with its release; only where its path names the release can it be unloaded."""
    old, new = add_release(root, ["6.4"]), add_release(root, ["6.2"])
    real = EnvironmentModules(version, writable={ROOT: root})
    for folder, unloads in ((f"{ROOT}/current", False), (f"{ROOT}/releases/{old}", True)):
        (root / "current").unlink(missing_ok=True)
        (root / "current").symlink_to(f"releases/{old}")
        before, loaded, _, after = real.run(
            "true", f"module load {AI}", move(new), f"module unload {AI}", MODULEPATH=f"{folder}/modules-tcl"
        )
        assert after.variables == (before if unloads else loaded).variables
        assert (after.code == 0) == unloads, after.output


@each_version
def test_each_module_system_sees_its_own_files_alone(version: str, tree: Path) -> None:
    (tcl,) = EnvironmentModules(version, {TREE: tree}).run("module avail")
    (lua,) = Lmod("8.7", {TREE: tree}).run("module avail")
    for step in (tcl, lua):
        assert "ERROR" not in step.output
        assert step.output.count(f"{CPE}/25.03") == 1


@each_version
def test_hostile_values_reach_the_environment_as_they_are(version: str, tmp_path: Path) -> None:
    """But in the locale C, where Environment Modules reads UTF-8 and writes Latin 1."""
    values = {f"HOSTILE_{number}": value for number, value in enumerate(HOSTILE)}
    tree = render(tmp_path / "out", for_both(site_with_values(HOSTILE)), rocm=["6.2"])
    commands = ["true", f"module load {AI}", f"module unload {AI}", "! test -e /tmp/owned"]
    sessions = [Session(commands), Session(commands, shell="sh"), Session(commands, {"LANG": "C"})]
    for number, run in enumerate(EnvironmentModules(version, {TREE: tree}).run_all(sessions)):
        before, loaded, after, clean = run
        kept = {name: value for name, value in values.items() if number < 2 or value.isascii()}
        assert kept.items() <= loaded.environment.items()
        assert number == 2 or after.variables == before.variables
        assert clean.code == 0, "something of a value was run"


@each_version
def test_hostile_paths_reach_the_bind_variable_as_they_are(version: str, tmp_path: Path) -> None:
    paths = list(dict.fromkeys(map(path_of, HOSTILE)))
    tree = render(tmp_path / "out", for_both(site_with_paths(paths)), rocm=["6.2"])
    before, loaded, told, after, clean = EnvironmentModules(version, {TREE: tree}).run(
        "true", f"module load {CPE}", f"module help {CPE}", f"module unload {CPE}", "! test -e /tmp/owned"
    )
    assert loaded.binds[: len(paths)] == paths
    assert after.variables == before.variables
    assert clean.code == 0
    check_help_of_paths(tree, told, paths)


@pytest.fixture(scope="module")
def hostile_texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return render_texts(tmp_path_factory.mktemp("texts") / "out", "modules-tcl", for_both)


@each_version
def test_hostile_texts_reach_help_and_whatis_as_they_are(version: str, hostile_texts: Path) -> None:
    check_texts(EnvironmentModules(version, {TREE: hostile_texts}))


@each_version
def test_the_probe_of_a_validation_finds_nothing_to_say(version: str, tree: Path) -> None:
    script = PROBES / "environment/job_node.sh"
    names = [f"{FILES}/2026-01", f"{CPE}/25.03", f"{AI}/25.03-rocm6.4"]
    run = f"LUMISITE_PROBE=clean bash /probes/{script.name} $HOME/out {TREE}/modules-tcl {BINDS}=/mine -- {' '.join(names)} --"
    real = EnvironmentModules(version, {TREE: tree, "/probes": script.parent})
    _, told = real.run(run, "cat $HOME/out/0.json")
    found = json.loads(told.output)["modules"]
    assert list(found) == names
    for one in found.values():
        assert (one["load"], one["loaded"], one["unload"], one["still_loaded"], one["left"]) == (0, True, 0, False, {})
