"""Every Tcl modulefile that LUMI can have, in real Environment Modules: what it sets, what it says, what it leaves."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from lumisite.render.manifest import ModuleSummary
from tests.twin.environment_modules import EnvironmentModules, each_version
from tests.twin.lmod import TREE, Lmod, Session, Step, render_all
from tests.twin.test_environment_modules import AI, CPE, LUMI

pytestmark = [pytest.mark.lmod, pytest.mark.root]


@dataclass(frozen=True)
class Everything:
    """All that a platform can have, and each module alone: loaded twice, and then unloaded or purged."""

    tree: Path
    modules: Mapping[str, ModuleSummary]
    unloaded: Mapping[str, Sequence[Step]]
    purged: Mapping[str, Sequence[Step]]


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Everything]:
    @functools.cache
    def ask(version: str, platform: str) -> Everything:
        out = tmp_path_factory.mktemp("everything") / "out"
        modules = render_all(out, LUMI, platform)
        twice = {name: ["true", f"module load {name}", f"module load {name}"] for name in modules}
        unload = [Session([*twice[name], f"module unload {name}"]) for name in modules]
        purge = [Session([*twice[name], "module purge"]) for name in modules]
        runs = EnvironmentModules(version, {TREE: out}).run_all([*unload, *purge])
        half = len(modules)
        return Everything(
            out,
            modules,
            dict(zip(modules, runs[:half], strict=True)),
            dict(zip(modules, runs[half:], strict=True)),
        )

    return ask


@each_version
@pytest.mark.parametrize("platform", LUMI.site.platforms)
def test_every_version_sets_what_the_manifest_says_and_leaves_nothing(
    version: str, platform: str, everything: Callable[[str, str], Everything]
) -> None:
    found = everything(version, platform)
    modules = found.modules
    for name, (before, loaded, again, after) in found.unloaded.items():
        binds = [bind for other in modules[name].loads for bind in modules[other].binds]
        assert loaded.code == after.code == 0, loaded.output
        assert loaded.binds == [*binds, *modules[name].binds], name
        assert loaded.modules == sorted([name, *modules[name].loads])
        assert modules[name].environment.items() <= loaded.environment.items()
        assert again.variables == loaded.variables
        assert after.variables == found.purged[name][-1].variables == before.variables, name


@each_version
def test_swapping_gives_what_a_fresh_load_gives(version: str, everything: Callable[[str, str], Everything]) -> None:
    found = everything(version, LUMI.site.platform)
    names = [name for name in found.modules if name.startswith(AI)]
    swaps = [f"module swap {AI} {name}" for name in names[1:]]
    before, *swapped, after, _, purged = EnvironmentModules(version, {TREE: found.tree}).run(
        "true",
        f"module load {names[0]}",
        *swaps,
        f"module unload {AI}",
        f"module load {names[0]}",
        "module purge",
    )
    for name, swap in zip(names, swapped, strict=True):
        load = found.unloaded[name][1]
        assert swap.code == 0, swap.output
        assert swap.modules == load.modules, name
        assert swap.variables == load.variables, name
    assert after.variables == purged.variables == before.variables


@each_version
def test_names_and_texts_are_those_that_users_type_and_read(
    version: str, everything: Callable[[str, str], Everything]
) -> None:
    tree = everything(version, LUMI.site.platform).tree
    looks = (
        "module avail",
        f"module load {AI}",
        f"module help {CPE}",
        f"module whatis {CPE}",
        "module purge",
        "true",
    )
    looked, old_name, by_name, swapped, deprecated = EnvironmentModules(version, {TREE: tree}).run_all(
        [
            Session(looks),
            Session(["true", f"module load {AI}/24.03", f"module unload {AI}/24.03"]),
            Session([f"module load {AI}"]),
            Session([f"module load {AI}/25.09-rocm7.0", f"module swap {AI} {AI}/24.03"]),
            Session([f"module load {AI}/24.03-rocm6.2"]),
        ]
    )
    avail, loaded, told, summary, _, unloaded = looked
    assert f"{AI}/25.03-rocm6.3(default)" in avail.words
    assert f"{CPE}/25.03(default)" in avail.words
    assert not re.search(rf"{AI}/24\.03(?!-)", avail.output), "old names are not offered"
    assert f"{AI}/25.03-rocm6.3" in loaded.modules
    (lua,) = Lmod("8.7", {TREE: tree}).run(f"module help {CPE}")
    body = told.output[told.output.index(f"{CPE}/25.03 for") :].rpartition("----")[0].rstrip("-\n")
    assert body in lua.output, "the same text as with Lmod"
    assert f"{CPE}/25.03: Description: {LUMI.site.modules[CPE].summary}\n" in summary.output
    notice = f"{AI}/24.03 is an old name of {AI}/25.03-rocm6.3, which is loaded instead."
    for step in (old_name[1], swapped[1]):
        assert notice in step.words
        assert step.variables == by_name[0].variables
    assert notice not in by_name[0].output
    assert old_name[2].variables == old_name[0].variables
    assert f"{AI}/24.03-rocm6.2 is deprecated: CPE 24.03 is no longer supported" in deprecated[0].words
    assert f"Use {CPE}/25.03 instead." in deprecated[0].words
    assert unloaded.modules == []
