"""The catalogue is whole: each code is used, tested, explained and has advice; rooms write no sentences beside it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from string import Formatter

import pytest

from lumisite.findings.catalogue import FOLDER, CatalogueEntry
from lumisite.findings.finding import Severity
from tests.support.catalogue import catalogue

TOP = Path(__file__).parents[3]
CODE = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def literals(*folders: str) -> Iterator[str]:
    """All words in quotes, in Python and in data."""
    for folder in folders:
        for path in (TOP / folder).rglob("*"):
            if path.suffix in (".py", ".sh", ".json", ".yaml", ".j2") and FOLDER not in path.parents:
                text = "" if path == Path(__file__) else path.read_text(errors="replace")
                yield from re.findall(r"[a-z0-9]+(?:-[a-z0-9]+)*", text)


@pytest.fixture(scope="module")
def used() -> set[str]:
    return set(literals("lumisite"))


@pytest.fixture(scope="module")
def tested() -> set[str]:
    return set(literals("tests"))


@pytest.mark.parametrize("entry", catalogue().values(), ids=lambda entry: entry.code)
def test_a_code_is_used_and_tested(entry: CatalogueEntry, used: set[str], tested: set[str]) -> None:
    assert CODE.fullmatch(entry.code)
    assert entry.code in used, "no room has it"
    assert entry.code in tested, "no test has it"


@pytest.mark.parametrize("entry", catalogue().values(), ids=lambda entry: entry.code)
def test_an_entry_is_whole(entry: CatalogueEntry) -> None:
    assert entry.text
    assert all(entry.text)
    assert entry.advice or entry.severity is Severity.INFO, "what is to be done?"
    for template in (*entry.text, *entry.advice):
        assert template == " ".join(template.split()), "a message is one line"
        assert all(name is None or name.isidentifier() for _, name, _, _ in Formatter().parse(template))


@pytest.mark.parametrize("entry", catalogue().values(), ids=lambda entry: entry.code)
def test_advice_is_not_in_the_text_too(entry: CatalogueEntry) -> None:
    # What is a value alone is the line that would be right, which a text may name.
    sentences = [todo for todo in entry.advice if " " in todo]
    assert not [todo for todo in sentences for text in entry.text if todo in text]


#: Four words in a row.
PROSE = re.compile(r"[A-Za-z][a-z']+(?:,? [A-Za-z][a-z']*){3,}")
#: How many such literals a module still has: patterns of other programs' words, and sentences that are to go. It may only
#: get smaller. Those of `texts.py` are data: what depends on each row of its table.
SENTENCES = {
    "lumisite/binds/plan_file.py": 1,
    "lumisite/binds/programs.py": 1,
    "lumisite/facts/kinds/texts.py": 13,
    "lumisite/images/remarks.py": 1,
    "lumisite/lint/options.py": 1,
    "lumisite/machine/loader.py": 2,
    "lumisite/release/diff.py": 2,
    "lumisite/release/names.py": 1,
    "lumisite/render/explain.py": 4,
    "lumisite/render/helper.py": 2,
    "lumisite/render/manifest.py": 4,
    "lumisite/render/module_help.py": 1,
    "lumisite/render/modules.py": 1,
    "lumisite/render/templates.py": 1,
    "lumisite/site/ledger.py": 4,
    "lumisite/validate/probes/collectives/judge.py": 1,
    "lumisite/validate/probes/communicators/job.py": 2,
    "lumisite/validate/probes/ddp/judge.py": 1,
    "lumisite/validate/probes/job/rank.py": 1,
    "lumisite/validate/run/slurm.py": 2,
    "lumisite/validate/transport/lines.py": 2,
    "lumisite/validate/transport/log.py": 1,
}


def prose(path: Path) -> Iterator[str]:
    """All literals of a module that are sentences, but docstrings and the documentation of fields (`key`)."""
    tree = ast.parse(path.read_text())
    left_out: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):  # a docstring
            left_out.add(node.value)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "key":
            left_out.update(ast.walk(node.args[0]))
        if isinstance(node, ast.JoinedStr):
            left_out.update(node.values)
    for node in ast.walk(tree):
        if node in left_out:
            continue
        if isinstance(node, ast.JoinedStr):
            parts = [str(part.value) if isinstance(part, ast.Constant) else " X " for part in node.values]
            text = "".join(parts)
        else:
            text = str(node.value) if isinstance(node, ast.Constant) else ""
        if PROSE.search(text):
            yield text


def test_prose_is_found(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        '"""A docstring of many words."""\nraise ToolError(f"{path}: is not a file at all")\nA = "two words"\n'
    )
    assert list(prose(module)) == [" X : is not a file at all"]


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=str(path.relative_to(TOP)))
        for path in sorted((TOP / "lumisite").rglob("*.py"))
        if path.relative_to(TOP).parts[1] != "cli"
    ],
)
def test_a_room_writes_no_sentence_beside_the_catalogue(path: Path) -> None:
    """What people read stands in the catalogue, in templates, or in `cli`."""
    found = list(prose(path))
    assert len(found) == SENTENCES.get(str(path.relative_to(TOP)), 0), found
