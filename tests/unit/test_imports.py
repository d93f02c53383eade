"""Imports go down only, and only the edges touch the world."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import lumisite

PACKAGE = Path(lumisite.__file__).parent
#: From the top: a room imports those behind it.
ROOMS = ["cli", "lint", "validate", "facts", "release", "render", "binds", "images", "machine", "site", "errors"]

#: The modules that may read or write files, run programs or look at the environment.
EDGES = {
    "cli",
    "release/deploy.py",
    "release/edits.py",
    "release/files.py",
    "release/root.py",
    "release/tree.py",
    "release/write.py",
    "render/made_up_step.py",
    "render/templates.py",
    "images/family.py",
    "images/load_lock.py",
    "images/sif.py",
    "machine/host.py",
    "machine/live.py",
    "site/load.py",
    "validate/run/folder.py",
    "validate/run/slurm.py",
}
#: The rooms of `validate`, from the top.
PROOF = (
    *("__init__", "report", "reframe", "run", "baseline", "verdict"),
    *("probes", "transport", "samples", "lines", "metric_names", "blocks"),
)
#: Scripts that run inside a job: nothing imports them.
JOBSIDE = re.compile(r"validate/probes/(job/|\w+/job)")
WORLD = {"os", "subprocess", "shutil", "socket", "tempfile", "fcntl", "signal"}


def modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE or path.name == "errors.py")


def imported(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            yield node.lineno, node.module or ""


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_down_only(path: Path) -> None:
    here = ROOMS.index(room(path))
    for line, name in imported(path):
        parts = name.split(".")
        if parts[0] == "lumisite" and len(parts) > 1:
            assert ROOMS.index(parts[1]) >= here, f"{path}:{line}: {room(path)} imports {name}, which is above it"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_the_edges_touch_the_world(path: Path) -> None:
    relative = str(path.relative_to(PACKAGE))
    if relative in EDGES or room(path) in EDGES or JOBSIDE.match(relative):
        return
    for line, name in imported(path):
        assert name.split(".")[0] not in WORLD, f"{relative}:{line}: imports {name}, but is not an edge"
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            called = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            assert called not in ("open", "read_text", "read_bytes", "write_text", "write_bytes"), (
                f"{relative}:{node.lineno}: opens a file, but is not an edge"
            )


@pytest.mark.parametrize("path", sorted((PACKAGE / "validate").rglob("*.py")), ids=lambda path: path.stem)
def test_imports_in_validate_go_down_only(path: Path) -> None:
    here = path.relative_to(PACKAGE / "validate").parts[0].removesuffix(".py")
    for line, name in imported(path):
        parts = name.split(".")
        if parts[:2] == ["lumisite", "validate"] and len(parts) > 2:
            assert PROOF.index(parts[2]) >= PROOF.index(here), f"{path}:{line}: {here} imports {name}, above it"


def test_the_edges_exist() -> None:
    for edge in EDGES - {"cli"}:
        assert (PACKAGE / edge).is_file(), f"{edge} is gone: take it out of EDGES"
