"""Real Environment Modules in a throw-away copy of a root, as `lmod` has Lmod in one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from tests.twin.cache import build_tool, cached, remove_tree
from tests.twin.lmod import ENVIRONMENT, TREE, Lmod
from tests.twin.packages import open_archive
from tests.twin.roots import node_root

#: The Debian release that each version comes from (observed in November 2026).
VERSIONS: Mapping[str, str] = {"5.2": "bookworm", "5.5": "trixie"}

each_version = pytest.mark.parametrize("version", VERSIONS)


@dataclass(frozen=True)
class EnvironmentModules(Lmod):
    """One version of Environment Modules, over a root that has what its package depends on."""

    init: ClassVar[str] = "/usr/share/modules/init"
    variables: ClassVar[Mapping[str, str]] = {
        **ENVIRONMENT,
        "MODULEPATH": f"{TREE}/modules-tcl",
        "MODULES_PAGER": "",
        "MODULES_COLOR": "never",
    }

    @property
    def layers(self) -> str:
        suite = VERSIONS[self.version]
        entry = cached(f"environment-modules-{suite}", {"version": 1}, lambda partial: _unpack(suite, partial))
        return f"{entry / 'root'}:{node_root(suite)}"


def _unpack(suite: str, partial: Path) -> None:
    archive = open_archive(suite, node_root(suite), partial / "apt")
    build_tool(["dpkg", "-x", str(archive.download("environment-modules")), str(partial / "root")])
    remove_tree(partial / "apt")
