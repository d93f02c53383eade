"""The Tcl modulefiles in real Environment Modules: what they set, what a user keeps, and what an unload gives back."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

import lumisite
from lumisite.render.manifest import MANIFEST, ModuleSummary, parse_manifest
from lumisite.site.load import LoadedSite, load_site
from tests.support.sites import load_text, site_text
from tests.twin.environment_modules import EnvironmentModules, each_version
from tests.twin.lmod import TREE, Lmod, Session, lumi_with_a_setting, render
from tests.twin.test_lmod_environment import BINDS, KEPT, OURS
from tests.twin.test_lmod_quoting import HOSTILE, path_of, site_with_paths, site_with_values, yaml
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


def everything(out: Path, platform: str) -> Mapping[str, ModuleSummary]:
    """Render all that a platform can have; give the manifest's modules."""
    described = LUMI.site.platforms[platform]
    cpe = list(map(str, described.stacks["cpe"].installed))
    render(out, LUMI, platform=platform, cpe=cpe, rocm=["all"])
    return parse_manifest((out / MANIFEST).read_bytes(), MANIFEST).modules


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return render(tmp_path / "out", for_both(lumi_with_a_setting()), rocm=["6.4"])


@each_version
@pytest.mark.parametrize("platform", LUMI.site.platforms)
def test_every_version_sets_what_the_manifest_says_and_leaves_nothing(
    version: str, platform: str, tmp_path: Path
) -> None:
    modules = everything(tmp_path / "out", platform)
    real = EnvironmentModules(version, {TREE: tmp_path / "out"})
    verbs = ("load", "load", "unload", "load")
    runs = real.run_all(
        [Session(["true", *(f"module {verb} {name}" for verb in verbs), "module purge"]) for name in modules]
    )
    for name, (before, loaded, again, after, _, purged) in zip(modules, runs, strict=True):
        binds = [bind for other in modules[name].loads for bind in modules[other].binds]
        assert loaded.code == after.code == 0, loaded.output
        assert loaded.binds == [*binds, *modules[name].binds], name
        assert loaded.modules == sorted([name, *modules[name].loads])
        assert modules[name].environment.items() <= loaded.environment.items()
        assert again.variables == loaded.variables
        assert after.variables == purged.variables == before.variables, name


@each_version
def test_swapping_gives_what_a_fresh_load_gives(version: str, tmp_path: Path) -> None:
    modules = everything(tmp_path / "out", LUMI.site.platform)
    names = [name for name in modules if name.startswith(AI)]
    fresh = [Session([f"module load {name}"]) for name in names]
    swaps = [f"module swap {AI} {name}" for name in names[1:]]
    chain = Session(["true", f"module load {names[0]}", *swaps, f"module unload {AI}"])
    *loads, swapped = EnvironmentModules(version, {TREE: tmp_path / "out"}).run_all([*fresh, chain])
    for name, (load,), swap in zip(names, loads, swapped[1:-1], strict=True):
        assert swap.code == 0, swap.output
        assert swap.modules == load.modules, name
        assert swap.variables == load.variables, name
    assert swapped[-1].variables == swapped[0].variables


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
@pytest.mark.parametrize("name", ["SITE_SETTING", "SLURM_TASK_PROLOG"])
@pytest.mark.parametrize("value", ["pmix", "", "/home/me/my prolog,50% `x`"])
def test_the_users_own_value_wins_and_stays(version: str, name: str, value: str, tree: Path) -> None:
    real = EnvironmentModules(version, {TREE: tree})
    before, loaded, after = real.run("true", f"module load {AI}", f"module unload {AI}", **{name: value})
    assert loaded.environment[name] == value
    assert ("SLURM_TASK_PROLOG is your own" in loaded.output) == (name == "SLURM_TASK_PROLOG")
    assert after.variables == before.variables


@each_version
@pytest.mark.parametrize("name", ["SITE_SETTING", "SLURM_TASK_PROLOG"])
def test_a_value_that_the_user_changed_in_between_stays(version: str, name: str, tree: Path) -> None:
    changes = {f"export {name}=mine": "mine", f"export {name}=": "", f"unset {name}": None}
    sessions = [Session(["true", f"module load {AI}", change, f"module unload {AI}"]) for change in changes]
    runs = EnvironmentModules(version, {TREE: tree}).run_all(sessions)
    for (change, left), (before, _, _, after) in zip(changes.items(), runs, strict=True):
        assert after.variables == {**before.variables, **({} if left is None else {name: left})}, change


@each_version
def test_names_and_texts_are_those_that_users_type_and_read(version: str, tmp_path: Path) -> None:
    everything(tmp_path / "out", LUMI.site.platform)
    real = EnvironmentModules(version, {TREE: tmp_path / "out"})
    avail, loaded, told, summary, _, unloaded = real.run(
        "module avail",
        f"module load {AI}",
        f"module help {CPE}",
        f"module whatis {CPE}",
        "module purge",
        "true",
    )
    assert f"{AI}/25.03-rocm6.3(default)" in avail.words
    assert f"{CPE}/25.03(default)" in avail.words
    assert not re.search(rf"{AI}/24\.03(?!-)", avail.output), "old names are not offered"
    assert f"{AI}/25.03-rocm6.3" in loaded.modules
    (lua,) = Lmod("8.7", {TREE: tmp_path / "out"}).run(f"module help {CPE}")
    body = told.output[told.output.index(f"{CPE}/25.03 for") :].rpartition("----")[0].rstrip("-\n")
    assert body in lua.output, "the same text as with Lmod"
    assert f"{CPE}/25.03: Description: {LUMI.site.modules[CPE].summary}\n" in summary.output
    old_name, by_name, swapped, deprecated = real.run_all(
        [
            Session(["true", f"module load {AI}/24.03", f"module unload {AI}/24.03"]),
            Session([f"module load {AI}"]),
            Session([f"module load {AI}/25.09-rocm7.0", f"module swap {AI} {AI}/24.03"]),
            Session([f"module load {AI}/24.03-rocm6.2"]),
        ]
    )
    notice = f"{AI}/24.03 is an old name of {AI}/25.03-rocm6.3, which is loaded instead."
    for step in (old_name[1], swapped[1]):
        assert notice in step.words
        assert step.variables == by_name[0].variables
    assert notice not in by_name[0].output
    assert old_name[2].variables == old_name[0].variables
    assert f"{AI}/24.03-rocm6.2 is deprecated: CPE 24.03 is no longer supported" in deprecated[0].words
    assert f"Use {CPE}/25.03 instead." in deprecated[0].words
    assert unloaded.modules == []


@each_version
def test_what_would_overwrite_the_list_and_another_version_are_kept_out(version: str, tmp_path: Path) -> None:
    tree = render(tmp_path / "out", LUMI, rocm=["6.2", "6.4"])
    foreign = tmp_path / "foreign/singularity-bindings/1"
    foreign.parent.mkdir(parents=True)
    foreign.write_text("#%Module\nsetenv SINGULARITY_BIND /opt/cray\n")
    real = EnvironmentModules(version, {TREE: tree, "/foreign": tmp_path / "foreign"})
    path = {"MODULEPATH": f"{TREE}/modules-tcl:/foreign"}
    for first, second in (("singularity-bindings/1", AI), (f"{AI}/25.03-rocm6.2", f"{AI}/25.03-rocm6.4")):
        loaded, refused = real.run(f"module load {first}", f"module load {second}", **path)
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
@pytest.mark.parametrize("command", ["module reload", "module save mine; module restore mine", "module refresh"])
def test_a_reload_changes_nothing(version: str, command: str, tree: Path) -> None:
    before, loaded, again, after = EnvironmentModules(version, {TREE: tree}).run(
        "true", f"module load {AI}", command, f"module unload {AI}", SINGULARITY_BINDPATH="/mine,/scratch"
    )
    assert again.code == 0, again.output
    assert again.variables == loaded.variables
    assert after.variables == before.variables


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
    for path in paths:
        assert f"\n  {path}\n" in told.output


@each_version
def test_hostile_texts_reach_help_and_whatis_as_they_are(version: str, tmp_path: Path) -> None:
    texts = [text for text in HOSTILE if len(text) < 100]
    for number, text in enumerate(texts):
        words = f"[{yaml(f'key {text} x')}]"
        deprecated = f"{{successor: {yaml(f'{text} x')}, reason: {yaml(f'Since {text}')}}}"
        changes = (
            ("name: the developers of lumisite", f"name: {yaml(f'Dr {text} x')}"),
            ("keywords: [singularity, container, bind, cray", f"deprecated: {deprecated}\n    keywords: {words} #"),
        )
        render(
            tmp_path / "out" / str(number), for_both(load_text(site_text(*changes), file=f"{text}.yaml")), rocm=["6.2"]
        )
    commands = [f"module load {CPE}", f"module help {CPE}", f"module whatis {CPE}", "! test -e /tmp/owned"]
    sessions = [Session(commands, {"MODULEPATH": f"{TREE}/{number}/modules-tcl"}) for number, _ in enumerate(texts)]
    runs = EnvironmentModules(version, {TREE: tmp_path / "out"}).run_all(sessions)
    for text, (load, told, summary, clean) in zip(texts, runs, strict=True):
        plain = " ".join(text.split())
        assert load.code == told.code == summary.code == clean.code == 0
        assert f"is deprecated: Since {plain} Use {plain} x instead." in load.words
        assert f"Dr {plain} x" in told.words
        assert f": Support: Dr {text} x, docs/" in summary.output
        assert f"key {text} x\n" in summary.output


@each_version
def test_the_probe_of_a_validation_finds_nothing_to_say(version: str, tree: Path) -> None:
    script = PROBES / "modules/job.sh"
    names = [f"{FILES}/2026-01", f"{CPE}/25.03", f"{AI}/25.03-rocm6.4"]
    run = f"LUMISITE_PROBE=clean bash /probes/{script.name} $HOME/out {TREE}/modules-tcl {BINDS}=/mine -- {' '.join(names)}"
    real = EnvironmentModules(version, {TREE: tree, "/probes": script.parent})
    _, told = real.run(run, "cat $HOME/out/0.json")
    found = json.loads(told.output)["modules"]
    assert list(found) == names
    for one in found.values():
        assert (one["load"], one["loaded"], one["unload"], one["still_loaded"], one["left"]) == (0, True, 0, False, {})
