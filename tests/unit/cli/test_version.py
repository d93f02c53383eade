"""What `--version` tells of the commit."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from lumisite import __version__
from lumisite.cli import main
from lumisite.cli.version import commit_of


def git(*words: str) -> str:
    argv = ["git", "-c", "user.name=n", "-c", "user.email=e", *words]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


def test_a_checkout_tells_its_commit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    git("-C", str(tmp_path), "init", "--quiet")
    git("-C", str(tmp_path), "commit", "--quiet", "--allow-empty", "-m", "x")
    assert commit_of(tmp_path / "lumisite") == git("-C", str(tmp_path), "rev-parse", "--short=12", "HEAD")
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith(f"lumisite {__version__}")


def test_a_wheel_tells_the_commit_that_its_builder_wrote(tmp_path: Path) -> None:
    (tmp_path / "COMMIT").write_text("0123456789ab\n")
    assert commit_of(tmp_path) == "0123456789ab"


def test_where_neither_is_known_none_is_told(tmp_path: Path) -> None:
    assert commit_of(tmp_path / "lumisite") == ""
