"""Every modulefile that a site of the package can have, in real Lmod: what it sets, and that nothing is left of it."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from lumisite.render.manifest import ModuleSummary
from lumisite.site.load import embedded_sites, load_site
from tests.twin.lmod import TREE, VERSIONS, Lmod, Session, Step, each_lmod, render, render_all

pytestmark = [pytest.mark.lmod, pytest.mark.root]

AI, CPE, FILES = "singularity-AI-bindings", "singularity-CPEbits", "singularity-userfilesystems"

#: Other sites than LUMI are looked at in one Lmod.
each_site = pytest.mark.parametrize(
    ("version", "site"),
    [*((version, "lumi") for version in VERSIONS), *(("8.7", name) for name in embedded_sites() if name != "lumi")],
)


@dataclass(frozen=True)
class Everything:
    """All that a site can have, the leftover CPE releases too, and each module alone in a session of Lmod."""

    tree: Path
    modules: Mapping[str, ModuleSummary]
    alone: Mapping[str, Sequence[Step]]
    swapped: Sequence[Step]
    loaded_over: Sequence[Step]
    names: Sequence[str]
    """The modules of which one replaces the other, in the order in which they do."""


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Everything]:
    @functools.cache
    def ask(version: str, site: str) -> Everything:
        out = tmp_path_factory.mktemp("everything") / "out"
        modules = render_all(out, load_site(site))
        names = [name for name, module in modules.items() if module.loads]
        ai, _, _ = names[0].partition("/")
        sessions = [Session(["true", f"module load {name}", f"module unload {name}"]) for name in modules]
        for change in (f"module swap {ai}", "module load"):
            changes = [f"{change} {name}" for name in names[1:]]
            sessions.append(Session(["true", f"module load {names[0]}", *changes, f"module unload {ai}"]))
        *alone, swapped, loaded = Lmod(version, {TREE: out}).run_all(sessions)
        return Everything(out, modules, dict(zip(modules, alone, strict=True)), swapped, loaded, names)

    return ask


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return render(tmp_path_factory.mktemp("plain") / "out", rocm=["6.2"])


def expected_binds(modules: Mapping[str, ModuleSummary], name: str) -> list[str]:
    """The binds of a module and of those that it loads, which come first."""
    binds = [bind for other in modules[name].loads for bind in modules[other].binds]
    return [*binds, *modules[name].binds]


@each_site
def test_every_version_sets_what_the_manifest_says_and_leaves_nothing(
    version: str, site: str, everything: Callable[[str, str], Everything]
) -> None:
    found = everything(version, site)
    modules = found.modules
    variable = f"{load_site(site).site.runtime.prefix}_BINDPATH"
    for name, (before, loaded, after) in found.alone.items():
        assert loaded.code == after.code == 0, loaded.output
        assert loaded.environment.get(variable, "").split(",") == (expected_binds(modules, name) or [""]), name
        assert name in loaded.modules
        assert set(modules[name].loads) <= set(loaded.modules)
        assert modules[name].environment.items() <= loaded.environment.items(), name
        assert after.variables == before.variables, name
        assert after.modules == []


@each_site
def test_swapping_gives_what_a_fresh_load_gives(
    version: str, site: str, everything: Callable[[str, str], Everything]
) -> None:
    found = everything(version, site)
    assert found.names
    for name, swap, over in zip(found.names, found.swapped[1:-1], found.loaded_over[1:-1], strict=True):
        load = found.alone[name][1]
        for way in (swap, over):
            assert way.code == 0, way.output
            assert way.modules == load.modules, name
            assert way.variables == load.variables, name
    assert found.swapped[-1].variables == found.loaded_over[-1].variables == found.swapped[0].variables


@each_lmod
def test_the_helper_is_switched_on_by_ai_bindings_alone(
    version: str, everything: Callable[[str, str], Everything]
) -> None:
    found = everything(version, "lumi")
    name = found.names[0]
    _, cpe, ai = Lmod(version, {TREE: found.tree}).run("true", f"module load {CPE} {FILES}", f"module load {name}")
    assert "SLURM_TASK_PROLOG" not in cpe.environment
    assert ai.environment["SLURM_TASK_PROLOG"] == f"{TREE}/spank/task_prolog"
    assert ai.environment["PATH"].startswith(f"{TREE}/spank/bin:")
    assert ai.environment["LUMISITE_STACK"] == name.partition("/")[2]


@each_lmod
def test_every_load_and_unload_order_composes(version: str, plain: Path) -> None:
    orders = list(itertools.permutations((AI, CPE, FILES)))
    pairs = list(zip(orders, reversed(orders), strict=True))
    sessions = [
        Session(["true", *(f"module load {name}" for name in up), *(f"module unload {name}" for name in down)])
        for up, down in pairs
    ]
    runs = Lmod(version, {TREE: plain}).run_all(sessions)
    reference = sorted(runs[0][3].binds)
    assert len(reference) == 8
    for (up, down), (before, *steps) in zip(pairs, runs, strict=True):
        assert all(step.code == 0 for step in steps), (up, down)
        assert sorted(steps[2].binds) == reference, up
        assert steps[2].modules == [f"{AI}/25.03-rocm6.2", f"{CPE}/25.03", f"{FILES}/2026-01"], up
        assert steps[-1].variables == before.variables, (up, down)
        assert steps[-1].modules == []


@each_lmod
def test_unloading_ai_bindings_leaves_the_modules_that_the_user_loaded(version: str, plain: Path) -> None:
    sessions = [
        Session(["true", f"module load {mine}", f"module load {AI}", f"module unload {AI}"])
        for mine in (CPE, FILES, f"{CPE} {FILES}")
    ]
    for _, user, both, left in Lmod(version, {TREE: plain}).run_all(sessions):
        assert len(both.binds) == 8, user.command
        assert len(set(both.binds)) == 8, user.command
        assert left.modules == user.modules, user.command
        assert left.variables == user.variables, user.command


@each_lmod
def test_a_module_that_ai_bindings_brought_goes_with_it(version: str, plain: Path) -> None:
    _, _, without_one, without_any = Lmod(version, {TREE: plain}).run(
        "true", f"module load {AI}", f"module unload {CPE}", f"module unload {AI}"
    )
    assert without_one.binds == ["/pfs", "/scratch", "/projappl", "/project", "/flash", "/appl"]
    assert without_any.modules == []
    assert without_any.binds == []


WAYS_OUT = (
    "module purge",
    "module --force purge",
    "module unload singularity-AI-bindings/25.03-rocm6.2",
    "module del singularity-AI-bindings",
    "ml -singularity-AI-bindings",
)


@each_lmod
def test_every_way_out_leaves_the_environment_of_before(version: str, plain: Path) -> None:
    environment = {"SINGULARITY_BINDPATH": "/mine", "LMOD_SYSTEM_DEFAULT_MODULES": ""}
    sessions = [Session(["true", f"module load {AI}", way], environment) for way in WAYS_OUT]
    for before, loaded, after in Lmod(version, {TREE: plain}).run_all(sessions):
        assert loaded.variables != before.variables
        assert after.code == 0, after.output
        changed = differences(before, after)
        # `reset` notes the default list of modules, whatever it unloads.
        assert set(changed) <= {"LMOD_SYSTEM_DEFAULT_MODULES", "__LMOD_DEFAULT_MODULES_LOADED__"}, after.command
        assert after.modules == [], after.command


RELOADS = ("module reload", "module update", "module refresh", "module restore mine")


@each_lmod
def test_a_reload_changes_nothing(version: str, plain: Path) -> None:
    start = ["true", f"module load {AI}", "module save mine"]
    sessions = [
        Session([*start, command, f"module unload {AI} {CPE} {FILES}"], environment)
        for environment in ({}, {"SINGULARITY_BINDPATH": "/mine,/scratch", "SLURM_MPI_TYPE": "pmix"})
        for command in RELOADS
    ]
    for before, loaded, _, again, after in Lmod(version, {TREE: plain}).run_all(sessions):
        assert again.code == 0, again.output
        assert again.variables == loaded.variables, again.command
        assert again.modules == loaded.modules, again.command
        assert after.variables == before.variables, again.command


@each_lmod
def test_a_saved_collection_comes_back(version: str, tmp_path: Path) -> None:
    render(tmp_path / "out", rocm=["6.4", "6.2"])
    before, loaded, saved, purged, restored, other, back = Lmod(version, {TREE: tmp_path / "out"}).run(
        "true",
        f"module load {AI}/25.03-rocm6.4",
        "module save mine",
        "module purge",
        "module restore mine",
        f"module load {AI}/25.03-rocm6.2",
        "module restore mine",
    )
    assert saved.code == 0
    assert purged.variables == before.variables
    assert other.environment["LUMISITE_STACK"] == "25.03-rocm6.2"
    for step in (restored, back):
        assert "has changed" not in step.output, "Lmod holds the modules for others than were saved"
        assert step.modules == loaded.modules
        assert {**step.variables, "LMOD_DEFAULT": ""} == {**loaded.variables, "LMOD_DEFAULT": ""}


@each_lmod
def test_two_trees_replace_each_other(version: str, tmp_path: Path) -> None:
    render(tmp_path / "old", platform="2024-08", rocm=["6.2"], cpe=["24.03"])
    render(tmp_path / "new", rocm=["6.2"], cpe=["24.03"])
    name = f"{AI}/24.03-rocm6.2"
    load = ["true", f"module load {name}"]
    replace = [
        "module use /old/modules",
        f"module load {name}",
        "module use /new/modules",
        "module unuse /new/modules",
        "module purge; module unuse /old/modules; module use /old/modules",
    ]
    (_, fresh_old), (_, fresh_new), (before, first, second, third, after) = Lmod(
        version, {"/old": tmp_path / "old", "/new": tmp_path / "new"}
    ).run_all(
        [
            Session(load, {"MODULEPATH": "/old/modules:/new/modules"}),
            Session(load, {"MODULEPATH": "/new/modules:/old/modules"}),
            Session(replace, {"MODULEPATH": ""}),
        ]
    )
    assert fresh_old.environment["SLURM_TASK_PROLOG"] == "/old/spank/task_prolog"
    for step, fresh in ((first, fresh_old), (second, fresh_new)):
        assert sorted(step.binds) == sorted(fresh.binds)
        for variable in ("SLURM_TASK_PROLOG", "LUMISITE_RELEASE", "PATH"):
            assert step.environment[variable] == fresh.environment[variable]
    assert sorted(third.binds) == sorted(first.binds)
    assert {**third.variables, "SINGULARITY_BINDPATH": ""} == {**first.variables, "SINGULARITY_BINDPATH": ""}
    assert after.variables == before.variables


def differences(before: Step, after: Step) -> dict[str, tuple[str | None, str | None]]:
    """The variables that differ, Lmod's notes left out."""
    names = {**before.variables, **after.variables}
    return {
        name: (before.variables.get(name), after.variables.get(name))
        for name in names
        if before.variables.get(name) != after.variables.get(name)
    }


@each_lmod
def test_a_dependency_replaces_the_version_that_the_user_had(version: str, tmp_path: Path) -> None:
    tree = render(tmp_path / "out", rocm=["6.4"], cpe=["all"])
    _, both, after = Lmod(version, {TREE: tree}).run(
        f"module load {CPE}/25.03", f"module load {AI}/25.09-rocm6.4", f"module unload {AI}"
    )
    assert f"{CPE}/25.09" in both.modules
    assert after.modules == []
    assert after.binds == []
