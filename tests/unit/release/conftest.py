"""The command line over three rendered trees; and a node in `host`, with the twin's release deployed in `root`."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lumisite.cli import main
from tests.support.dict_trees import Files, write_tree
from tests.support.rendered_trees import NEW, OLD, THIRD, tree, written

Run = Callable[..., tuple[int, str, str]]
Node = Callable[[Files], Path]
Check = Callable[..., tuple[int, list[dict[str, Any]]]]


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Write the rendered trees `old`, `new` and `third`; return what calls a command: its exit code, output and errors."""
    # What reaches the disk when the power fails is not tested with this, and costs most of the time.
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    written(tmp_path / "old", tree(OLD, libfabric="1.15.2.0"))
    written(tmp_path / "new", tree(NEW))
    written(tmp_path / "third", tree(THIRD, libfabric="2.0"))

    def call(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()  # what the scene has printed
        code = main(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture(scope="session")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A deployment root with the twin's release, of which each test has a copy."""
    folder = tmp_path_factory.mktemp("deployed")
    assert main(["render", "--site", "twin", "--out", str(folder / "out")]) == 0
    assert main(["deploy", str(folder / "out"), str(folder / "root"), "--apply"]) == 0
    return folder / "root"


@pytest.fixture
def node(tmp_path: Path, deployed: Path) -> Node:
    """Copy the root to `root`, and return what writes a node to `host`."""
    shutil.copytree(deployed, "root", symlinks=True)

    def write(files: Files) -> Path:
        top = write_tree(tmp_path / "host", files)
        (top / "tmp").mkdir(exist_ok=True)
        (top / "tmp").chmod(0o1777)
        if (top / "usr/bin/apptainer").is_file():
            (top / "usr/bin/apptainer").chmod(0o755)
        return top

    return write


@pytest.fixture
def check(capsys: pytest.CaptureFixture[str]) -> Check:
    """Return what calls `check --host`: its exit code, and its findings as JSON."""

    def call(site: str = "twin") -> tuple[int, list[dict[str, Any]]]:
        capsys.readouterr()
        code = main(["check", site, "--host", "--root", "root", "--host-root", "host", "--json"])
        return code, json.loads(capsys.readouterr().out)

    return call
