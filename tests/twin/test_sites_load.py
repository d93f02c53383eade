"""The modules of every site of the package, in Lmod."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lumisite.render.manifest import MANIFEST, ModuleSummary, parse_manifest
from lumisite.site.load import embedded_sites, load_site
from tests.twin.lmod import TREE, Lmod, Session, render

pytestmark = [pytest.mark.lmod, pytest.mark.root]

MANY = ("lumi", "twin")  # their modules have tests of their own, release by release
SITES = [name for name in embedded_sites() if name not in MANY]


def written(site: str, out: Path) -> dict[str, ModuleSummary]:
    """Render what a site can have of each stack; give the manifest's modules."""
    loaded = load_site(site)
    every: dict[str, Any] = {stack: ["all"] for stack in loaded.site.platforms[loaded.site.platform].stacks}
    render(out, loaded, **every)
    return dict(parse_manifest((out / MANIFEST).read_bytes(), MANIFEST).modules)


@pytest.mark.parametrize("site", SITES)
def test_each_module_sets_what_the_manifest_says_and_leaves_nothing(site: str, tmp_path: Path) -> None:
    modules = written(site, tmp_path / "out")
    variable = f"{load_site(site).site.runtime.prefix}_BINDPATH"
    lmod = Lmod("8.7", {TREE: tmp_path / "out"})
    sessions = [Session(["true", f"module load {name}", f"module unload {name}"]) for name in modules]
    for name, (before, loaded, after) in zip(modules, lmod.run_all(sessions), strict=True):
        assert loaded.code == after.code == 0, loaded.output
        brought = [bind for other in (*modules[name].loads, name) for bind in modules[other].binds]
        assert loaded.environment.get(variable, "").split(",") == (brought or [""]), name
        assert loaded.modules == sorted([name, *modules[name].loads])
        assert modules[name].environment.items() <= loaded.environment.items()
        assert after.variables == before.variables, name
