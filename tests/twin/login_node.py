"""lumisite on the twin's nodes, as an admin has it: the package and what it needs, on the node's own Python.

The ordinary user owns its folders, so that Python keeps what it compiles: with each job lumisite runs several times.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lumisite
from lumisite.render.templates import FOLDERS
from tests.twin.cluster import EXCHANGE, Cluster, ClusterPlan, running
from tests.twin.helper_site import deploy_site
from tests.twin.process import Result
from tests.twin.roots import USER, USER_ID

#: What lumisite imports to run jobs; all of it works without compiled parts, so it serves any Python.
NEEDED = ("click", "jinja2", "markupsafe", "packaging", "yaml", "cattrs", "attr", "attrs", "typing_extensions")
PLACE = "/appl/admin/python"
LUMISITE = f"PYTHONPATH={PLACE} python3 -m lumisite"
START = "from lumisite.__main__ import run\n\nrun()\n"


@contextmanager
def ready_cluster(plan: ClusterPlan) -> Iterator[Cluster]:
    """Run a cluster with the modules deployed and lumisite on its login node."""
    with running(plan) as cluster:
        deploy_site(cluster)
        install_lumisite(cluster)
        yield cluster


def install_lumisite(cluster: Cluster) -> None:
    """Put lumisite where all nodes find it (`LUMISITE` runs it there)."""
    copy_lumisite(cluster.shared / PLACE.removeprefix("/"))
    let_python_compile(cluster, PLACE)


def copy_lumisite(place: Path) -> None:
    """Copy lumisite, with what it imports, into a folder that a PYTHONPATH may name."""
    for name in NEEDED:
        found = importlib.util.find_spec(name)
        assert found is not None
        assert found.origin is not None
        source = Path(found.origin)
        if source.name == "__init__.py":
            _copy(source.parent, place / name)
        else:
            place.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, place)
    package = Path(lumisite.__file__).parent
    _copy(package, place / "lumisite")
    for folder in FOLDERS:  # in the package, as a wheel has them
        _copy(package.parent / folder, place / "lumisite" / folder)


def let_python_compile(cluster: Cluster, place: str) -> None:
    """Give the folders below a place of /appl to the ordinary user."""
    for folder, _, _ in os.walk(cluster.shared / place.removeprefix("/")):
        os.chown(folder, USER_ID, USER_ID)


def install_command(cluster: Cluster) -> None:
    """Let the ordinary user start `lumisite` by its name on every node, as a site's admin would have installed it."""
    install_lumisite(cluster)
    command = cluster.exchange / "bin/lumisite"
    command.parent.mkdir()
    # What the user has in PYTHONPATH stays as it is, for lumisite to see.
    command.write_text(f"#!/usr/bin/python3\nimport sys\n\nsys.path.insert(0, {PLACE!r})\n{START}")
    command.chmod(0o755)
    profile = cluster.shared / "users" / USER / ".bash_profile"
    profile.write_text(f"export PATH=$PATH:{EXCHANGE}/bin\n")


def _copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.so"))


def asked_for(done: Result) -> str:
    """Give the command that `validate` says to go on with, without `lumisite`."""
    (command,) = re.findall("after `lumisite (validate [^`]+)`", done.stderr)
    return str(command)
