"""Files and functions can be read at one sitting, and a class is found by its name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARTS = ("lumisite", "tests", "docs")
LONGEST_FILE = 500
LONGEST_FUNCTION = 60


def files(part: str) -> list[Path]:
    return sorted((ROOT / part).rglob("*.py"))


def statements(within: ast.AST) -> Iterator[ast.AST]:
    """Give all statements at any depth; no function with a name stands inside of an expression, where most nodes are."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        inner = getattr(within, name, ())
        for one in inner if isinstance(inner, list) else ():
            yield one
            yield from statements(one)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_scripts_and_templates_are_short() -> None:
    texts = [
        path for part in ("spank_helpers", "modulefiles_src") for path in (ROOT / part).iterdir() if path.is_file()
    ]
    assert len(texts) > 8
    assert [name_of(path) for path in texts if path.read_text().count("\n") > LONGEST_FILE] == []


@pytest.mark.parametrize("part", PARTS)
def test_files_and_functions_are_short(part: str) -> None:
    long = []
    for path in files(part):
        text = path.read_text()
        lines = text.count("\n")
        if lines > LONGEST_FILE:
            long.append(f"{name_of(path)}: {lines} lines")
        for node in statements(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > LONGEST_FUNCTION:
                    long.append(f"{name_of(path)}:{node.lineno}: {node.name} has {length} lines")
    assert long == []


def test_no_two_classes_have_one_name() -> None:
    where: dict[str, list[str]] = {}
    for path in files("lumisite"):
        for node in statements(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                where.setdefault(node.name, []).append(name_of(path))
    assert len(where) > 100
    assert {name: paths for name, paths in where.items() if len(paths) > 1} == {}
