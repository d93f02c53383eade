"""A node for `check --host` in `host`, and the twin's release, deployed in `root`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lumisite.cli import main
from tests.support.dict_trees import Files, write_tree

Node = Callable[[Files], Path]
Check = Callable[..., tuple[int, list[dict[str, Any]]]]


@pytest.fixture(scope="session")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A deployment root with the twin's release, of which each test has a copy."""
    folder = tmp_path_factory.mktemp("deployed")
    assert main(["render", "--site", "twin", "--out", str(folder / "out")]) == 0
    assert main(["deploy", str(folder / "out"), str(folder / "root"), "--apply"]) == 0
    return folder / "root"


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deployed: Path) -> Node:
    """A copy of the root as `root`, and what writes a node to `host`."""
    monkeypatch.chdir(tmp_path)
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
    """The exit code of `check --host`, and its findings as JSON."""

    def call(site: str = "twin") -> tuple[int, list[dict[str, Any]]]:
        capsys.readouterr()
        code = main(["check", site, "--host", "--root", "root", "--host-root", "host", "--json"])
        return code, json.loads(capsys.readouterr().out)

    return call
