"""Where the task prolog makes private directories: in the first of the site's places that will do."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from tests.support.prologs import (
    ROOT,
    SHELLS,
    Ran,
    Script,
    lay_out,
    lumi_like,
    render_files,
    shell_command,
)
from tests.unit.render.test_prolog import sound

TMP = f"  - {{path: {ROOT}/tmp, kind: node-local, writable: yes, in_memory: yes,"
LOCAL = f"  - {{path: {ROOT}/local, kind: node-local, writable: yes, why: the disk of the node, source: UG}}\n"
CACHE = "MIOPEN_USER_DB_PATH"
BINDS = "SINGULARITY_BINDPATH"


@functools.cache
def files(entry: str, in_memory: str = "in_memory: yes") -> dict[str, str]:
    return render_files(lumi_like((TMP, entry + TMP.replace("in_memory: yes", in_memory))), rocm=("6.2",))


def prolog_with(folder: Path, shell: str, entry: str, in_memory: str = "in_memory: yes") -> Script:
    spank = lay_out(folder, files(entry, in_memory))
    return Script(tuple(shell_command(shell, folder)), spank / "task_prolog")


@pytest.fixture(params=SHELLS)
def prolog(request: pytest.FixtureRequest, tmp_path: Path) -> Script:
    """Caches go to /local; then comes /tmp."""
    return prolog_with(tmp_path, request.param, LOCAL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder that the site has made for the job."""
    path = tmp_path / "local/1234567.user"
    path.mkdir(parents=True, mode=0o700)
    return path


def cache(ran: Ran) -> Path:
    return Path(sound(ran).exports[CACHE])


def test_without_any_place_the_variables_stay_unset_and_why_is_said(prolog: Script, tmp_path: Path) -> None:
    (tmp_path / "tmp").rmdir()
    ran = sound(prolog.step(LUMISITE_VERBOSE="all"))
    assert CACHE not in ran.exports
    for place in (f"{tmp_path}/local", f"{tmp_path}/tmp"):
        assert any(f": no directory for caches in {place}: " in line for line in ran.prints)


def test_a_full_or_missing_place_leaves_the_next_one(tmp_path: Path) -> None:
    script = prolog_with(tmp_path, "dash", LOCAL)
    assert cache(script.step()).is_relative_to(tmp_path / "tmp")
    (tmp_path / "local").mkdir()
    assert cache(script.step()).is_relative_to(tmp_path / "local")
