"""lumisite on the twin's login node, as an admin has it: the package and what it needs, on the node's own Python."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import lumisite
from tests.twin.cluster import EXCHANGE, Cluster

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
    _copy(Path(lumisite.__file__).parent, place / "lumisite")


def _copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
