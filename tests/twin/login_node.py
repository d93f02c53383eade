"""lumisite on the twin's login node, as an admin has it: the package and what it needs, on the node's own Python."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import lumisite
from lumisite.render.templates import FOLDERS
from tests.twin.cluster import EXCHANGE, Cluster
from tests.twin.roots import USER

#: What lumisite imports to run jobs; all of it works without compiled parts, so it serves any Python.
NEEDED = ("jinja2", "markupsafe", "packaging", "yaml")
PLACE = f"{EXCHANGE}/python"
LUMISITE = f"PYTHONPATH={PLACE} python3 -m lumisite"


def install_lumisite(cluster: Cluster) -> None:
    """Put lumisite where the login node finds it (`LUMISITE` runs it there)."""
    place = cluster.exchange / "python"
    for name in NEEDED:
        found = importlib.util.find_spec(name)
        assert found is not None
        assert found.origin is not None
        _copy(Path(found.origin).parent, place / name)
    package = Path(lumisite.__file__).parent
    _copy(package, place / "lumisite")
    for folder in FOLDERS:  # in the package, as a wheel has them
        _copy(package.parent / folder, place / "lumisite" / folder)


def install_command(cluster: Cluster) -> None:
    """Let the ordinary user start `lumisite` by its name on every node, as a site's admin would have installed it."""
    install_lumisite(cluster)
    command = cluster.exchange / "bin/lumisite"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec env PYTHONPATH={PLACE} python3 -m lumisite "$@"\n')
    command.chmod(0o755)
    profile = cluster.shared / "users" / USER / ".bash_profile"
    profile.write_text(f"export PATH=$PATH:{EXCHANGE}/bin\n")


def _copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
