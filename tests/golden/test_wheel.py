"""The built wheel renders the same tree as the checkout: templates and sites are inside it."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import lumisite

CHECKOUT = Path(lumisite.__file__).parent.parent


@pytest.mark.thorough
def test_the_wheel_renders_what_the_checkout_renders(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, check=True, cwd=CHECKOUT, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    assert _render(tmp_path / "installed", tmp_path) == _render(CHECKOUT, tmp_path)


def _render(package: Path, tmp_path: Path) -> str:
    out = tmp_path / f"rendered-{package.name}"
    environment = {**os.environ, "PYTHONPATH": str(package)}
    command = [sys.executable, "-m", "lumisite", "render", "--rocm", "6.2", "--out", str(out)]
    subprocess.run(command, check=True, cwd=tmp_path, env=environment, capture_output=True)
    where = [sys.executable, "-c", "import lumisite; print(lumisite.__file__)"]
    used = subprocess.run(where, check=True, cwd=tmp_path, env=environment, capture_output=True, text=True).stdout
    assert used.startswith(str(package))
    return (out / "MANIFEST.json").read_text()
