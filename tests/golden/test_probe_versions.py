"""A reminder: what measures has changed, and the version of its probe has not.

Comments, docstrings and blank lines are no part of what measures. If numbers still compare with those of the baseline,
write the file anew with `--update-golden`; if not, raise `version` of the probe in its judge.py first.
"""

from __future__ import annotations

import ast
import hashlib
import io
import json
import tokenize
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import lumisite.validate.probes
from lumisite.validate.probes.probe import spec_hash
from lumisite.validate.probes.suite import PROBES
from lumisite.validate.run.plan import plans_of
from tests.support.golden import check_golden
from tests.support.records import target_of
from tests.support.requests import LOADED, a_request

FOLDER = Path(lumisite.validate.probes.__file__).parent
GOLDEN = Path(__file__).with_name("probe_versions.json")
#: Probes that measure.
MEASURING = ("communicators", "collectives", "ddp", "pairs")


def plain(source: str) -> str:
    """Return a script without comments, docstrings and blank lines."""
    lines = source.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines[node.lineno - 1 : node.end_lineno] = [""] * ((node.end_lineno or node.lineno) - node.lineno + 1)
    return "\n".join(line.rstrip() for line in lines if line.strip())


def numbers_of(source: str) -> Iterator[str]:
    """Yield the functions of a judge that make numbers of what scripts recorded."""
    for node in ast.parse(source).body:
        text = ast.get_source_segment(source, node) or ""
        if isinstance(node, ast.FunctionDef) and ("sample(" in text or node.name == "bus_bandwidth"):
            yield plain(text)


def measures(folder: str) -> str:
    scripts = [*sorted((FOLDER / folder).glob("job*.py")), FOLDER / "common" / "rank.py"]
    parts = [plain(script.read_text()) for script in scripts]
    parts += numbers_of((FOLDER / folder / "judge.py").read_text())
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def test_what_measures_does_not_change_without_its_version(request: pytest.FixtureRequest) -> None:
    target = target_of("lumi")
    found = {name: {"version": PROBES[name](target).version, "measures": measures(name)} for name in MEASURING}
    check_golden(request, GOLDEN, json.dumps(found, indent=1) + "\n")


def test_numbers_of_one_version_compare_whatever_the_bytes_of_scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A comment in a script made a new baseline necessary."""
    (plan, *_) = plans_of(a_request(), LOADED)
    group = plan.groups[-1]
    before = spec_hash(group)
    read = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: read(path) + b"\n# a comment\n")
    assert spec_hash(group) == before
    assert spec_hash(replace(group, version=group.version + 1)) != before
