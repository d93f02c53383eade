"""What `diff` and `deploy` show: what fits on a screen, all of it on request; colours and a pager on a terminal alone."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from lumisite.render.manifest import ModuleSummary
from tests.support.scene import Run, deploy
from tests.support.trees import NEW, OLD, manifest, tree, with_manifest, written

ESCAPE = "\x1b["


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


def on_terminal(*arguments: str, **environment: str) -> str:
    """What a terminal of 24 lines and 80 columns gets on stdout."""
    main, other = pty.openpty()
    values: Mapping[str, str] = {
        **os.environ,
        "TERM": "xterm",
        "NO_COLOR": "",
        "LINES": "24",
        "COLUMNS": "80",
        **environment,
    }
    command = ["env", "--default-signal=INT", sys.executable, "-m", "lumisite", *arguments]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdin=other, stdout=other, stderr=quiet, env=values, start_new_session=True):
        os.close(other)
        found = b""
        while True:
            try:
                part = os.read(main, 65536)
            except OSError:  # as Linux says that the other side is closed
                break
            if not part:
                break
            found += part
    os.close(main)
    return found.decode().replace("\r\n", "\n")


@pytest.mark.usefixtures("large")
def test_colours_are_for_terminals(run: Run) -> None:
    plain = run("deploy", "large", "ROOT", "--details")[1]
    assert ESCAPE not in plain
    coloured = on_terminal("deploy", "large", "ROOT", "--details")
    assert ESCAPE in coloured
    assert re.sub(r"\x1b\[\d*m", "", coloured) == plain
    assert on_terminal("deploy", "large", "ROOT", "--details", NO_COLOR="1") == plain
    assert on_terminal("deploy", "large", "ROOT", "--details", TERM="dumb") == plain


def test_what_stands_in_files_is_no_colour(run: Run, tmp_path: Path) -> None:
    files = tree(NEW, libfabric="\x1b[31m1.22.0")
    written(tmp_path / "hostile", files)
    deploy("old")
    shown = on_terminal("deploy", "hostile", "ROOT", "--details")
    assert "\\x1b[31m1.22.0" in shown
    assert f"{ESCAPE}31m1.22" not in shown
