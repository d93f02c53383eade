"""What `deploy` shows: what fits on a screen, all of it on request."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from lumisite.render.manifest import ModuleSummary
from tests.support.scene import Run, deploy
from tests.support.trees import NEW, OLD, manifest, tree, with_manifest, written


@pytest.fixture
def large(tmp_path: Path) -> None:
    """A release that differs from the old one in more than any screen holds."""
    paths = [f"/opt/{number:03}" for number in range(200)]
    modules = {f"m{number:02}/1": ModuleSummary(binds=tuple(paths)) for number in range(40)}
    tasks = {"settings": {f"VARIABLE_{number}": "1" for number in range(50)}}
    files = {**tree(NEW), **{f"modules/m{number:02}/1.lua": tree()["spank/task_prolog"] for number in range(40)}}
    described = replace(manifest(NEW), modules=modules, tasks=tasks)
    written(tmp_path / "large", with_manifest(files, described))
    deploy("old")


def test_what_stands_in_files_is_spelled_out(run: Run, tmp_path: Path) -> None:
    written(tmp_path / "hostile", tree(NEW, libfabric="\x1b[31m1.22.0"))
    deploy("old")
    assert "\\x1b[31m1.22.0" in (shown := run("deploy", "hostile", "ROOT", "--details")[1])
    assert "\x1b" not in shown


@pytest.mark.usefixtures("large")
def test_a_summary_fits_on_a_screen_and_tells_how_to_see_all(run: Run) -> None:
    code, out, err = run("deploy", "large", "ROOT")
    assert code == 1
    lines = (out + err).splitlines()
    assert len(lines) <= 23
    assert f"release {OLD} -> {NEW}" == lines[0]
    assert "+ platform: 2026-01" in lines
    assert re.search(r"^and \d+ more lines$", out, re.MULTILINE)
    assert re.search(r"^4[0-9] files: \d+ new, \d+ changed", out, re.MULTILINE)
    assert "all of it: lumisite deploy large ROOT --details\n" in err
    assert "deploy it: lumisite deploy large ROOT --apply\n" in err
    code, out, err = run("deploy", "large", "ROOT", "--details")
    assert code == 1
    assert "+ setting VARIABLE_49: 1\n" in out
    assert "\n+++ b/modules/singularity-CPEbits/25.03.lua\n" in out
    assert "all of it" not in err
