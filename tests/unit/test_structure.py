"""What keeps the house in order: files and functions that can be read at one sitting, and imports without circles."""

from __future__ import annotations

import ast
import graphlib
from collections.abc import Collection
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARTS = ("lumisite", "tests", "docs")
LONGEST_FILE = 400
LONGEST_FUNCTION = 60


def files(*parts: str) -> list[Path]:
    return sorted(path for part in parts for path in (ROOT / part).rglob("*.py"))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("part", PARTS)
def test_files_and_functions_are_short(part: str) -> None:
    long = []
    for path in files(part):
        text = path.read_text()
        lines = text.count("\n")
        if lines > LONGEST_FILE:
            long.append(f"{name_of(path)}: {lines} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > LONGEST_FUNCTION:
                    long.append(f"{name_of(path)}:{node.lineno}: {node.name} has {length} lines")
    assert long == []


def test_imports_have_no_circles() -> None:
    """Inside of rooms too; an import for types alone, or inside of a function, counts as any other."""
    modules = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in files("lumisite")
    }
    graph = {name: imported(path, modules) - {name} for name, path in modules.items()}
    assert list(graphlib.TopologicalSorter(graph).static_order())  # raises CycleError, which names the circle


def imported(path: Path, modules: Collection[str]) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
    return {name for name in found if name in modules}
