"""Imports go down only, and only the edges touch the world."""

from __future__ import annotations

import ast
import graphlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import lumisite

PACKAGE = Path(lumisite.__file__).parent
#: From the top: a room imports those behind it.
ROOMS = (
    "cli",
    "lint",
    "validate",
    "release",
    "facts",
    "render",
    "binds",
    "images",
    "machine",
    "vendors",
    "site",
    "errors",
    "paths",
    "findings",
    "text",
)
#: The rooms of `validate`, from the top.
PROOF = (
    *("__init__", "report", "run", "verdict"),
    *("probes", "transport", "nccl_log", "samples", "lines"),
)

#: The modules that may read or write files, run programs or look at the environment.
EDGES = {
    "cli",
    "release/deploy.py",
    "release/files.py",
    "validate/run/new_request.py",
    "release/root.py",
    "release/tree.py",
    "release/trust.py",
    "render/wrapper_image.py",
    "render/templates.py",
    "images/known.py",
    "images/sif.py",
    "lint/own_variables.py",
    "machine/host.py",
    "machine/run_program.py",
    "site/read.py",
    "validate/run/folder.py",
    "validate/run/slurm.py",
}
#: Scripts that run inside a job: nothing imports them.
JOBSIDE = re.compile(r"validate/probes/(common/|\w+/job)")
WORLD = {"os", "subprocess", "shutil", "socket", "tempfile", "fcntl", "signal"}
READERS = ("open", "fdopen", "FileIO", "read_text", "read_bytes", "mmap", "fromfile", "loadtxt")
#: What opens something else than a file that is there: the reader of files, standard input, a closed output, a lock.
READING = {
    ("site/read.py", "os.open"),
    ("site/read.py", "os.fdopen"),
    ("cli/input.py", "io.FileIO"),
    ("cli/__init__.py", "os.fdopen"),
    ("release/root.py", "os.open"),
}
OPENERS = ("open", "read_text", "read_bytes", "write_text", "write_bytes")


@cache
def trees() -> dict[str, ast.Module]:
    """Each module of a room by its path in the package, and what is in it."""
    paths = sorted(
        path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE or path.name in ("errors.py", "text.py")
    )
    return {str(path.relative_to(PACKAGE)): ast.parse(path.read_text()) for path in paths}


@cache
def nodes(name: str) -> tuple[ast.AST, ...]:
    """All that is in a module, in the order of `ast.walk`."""
    return tuple(ast.walk(trees()[name]))


def dotted(name: str) -> str:
    return f"lumisite.{name.removesuffix('.py').replace('/', '.').removesuffix('.__init__')}"


@cache
def modules() -> dict[str, str]:
    """The modules by the names that imports have for them."""
    return {dotted(name): name for name in trees()}


@cache
def imported(name: str) -> tuple[tuple[str, list[str]], ...]:
    return tuple(_imported(name))


def _imported(name: str) -> Iterator[tuple[str, list[str]]]:
    """Give where a module imports another, for types alone or inside of a function too, and the parts of its name."""
    for node in nodes(name):
        if isinstance(node, ast.Import):
            yield from ((f"{name}:{node.lineno}", alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}:{node.lineno}: a relative import"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield f"{name}:{node.lineno}", (inner if inner in modules() else node.module or "").split(".")


def room(name: str) -> str:
    return name.partition("/")[0].removesuffix(".py")


def test_imports_go_down_only() -> None:
    up = [
        f"{place}: {room(name)} imports {'.'.join(parts)}, which is above it"
        for name in trees()
        for place, parts in imported(name)
        if parts[0] == "lumisite" and len(parts) > 1 and ROOMS.index(parts[1]) < ROOMS.index(room(name))
    ]
    assert up == []


def test_imports_in_validate_go_down_only() -> None:
    up = []
    for name in (one for one in trees() if room(one) == "validate"):
        here = name.split("/")[1].removesuffix(".py")
        for place, parts in imported(name):
            if parts[:2] == ["lumisite", "validate"] and len(parts) > 2 and PROOF.index(parts[2]) < PROOF.index(here):
                up.append(f"{place}: {here} imports {'.'.join(parts)}, which is above it")
    assert up == []


def test_imports_have_no_circles() -> None:
    """Inside of rooms too."""
    graph = {
        one: {".".join(parts) for _, parts in imported(name)} & (modules().keys() - {one})
        for one, name in modules().items()
    }
    assert list(graphlib.TopologicalSorter(graph).static_order())  # raises CycleError, which names the circle


def test_only_the_edges_touch_the_world() -> None:
    touching = []
    for name in trees():
        if name in EDGES or room(name) in EDGES or JOBSIDE.match(name):
            continue
        touching += [f"{place}: imports {parts[0]}" for place, parts in imported(name) if parts[0] in WORLD]
        for node in nodes(name):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
                called = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
                if called in OPENERS:
                    touching.append(f"{name}:{node.lineno}: opens a file")
    assert touching == [], "only an edge may"


def test_files_are_opened_for_reading_in_one_place() -> None:
    """A second way would be one that a pipe, a device or a file without end stops or fills."""
    reading = []
    for name in trees():
        calls = [] if JOBSIDE.match(name) else [node for node in nodes(name) if isinstance(node, ast.Call)]
        for call in calls:
            called = getattr(call.func, "attr", getattr(call.func, "id", ""))
            if called not in READERS:
                continue
            text = ast.unparse(call)
            writes = called == "open" and any(flag in text for flag in ("O_WRONLY", "O_DIRECTORY", "O_CREAT"))
            if not writes and (name, ast.unparse(call.func)) not in READING:
                reading.append(f"{name}:{call.lineno}: {text}")
    assert reading == [], "site/read.py opens files for reading"


def test_the_edges_exist() -> None:
    for edge in EDGES - {"cli"}:
        assert (PACKAGE / edge).is_file(), f"{edge} is gone: take it out of EDGES"
