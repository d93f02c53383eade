"""The scene of every test of deployment."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lumisite.cli import main
from tests.support.scene import THIRD, Run
from tests.support.trees import NEW, OLD, tree, written


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What reaches the disk when the power fails is not tested here, and costs most of the time."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()  # what the scene has printed
        code = main(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture(autouse=True)
def outs(tmp_path: Path) -> None:
    """Three rendered trees in the test's own folder: old, new and third."""
    written(tmp_path / "old", tree(OLD, libfabric="1.15.2.0"))
    written(tmp_path / "new", tree(NEW))
    written(tmp_path / "third", tree(THIRD, libfabric="2.0"))
