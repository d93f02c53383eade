"""Where the task prolog makes private directories: the folder of the job, else the next place."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.prologs import (
    ROOT,
    SHELLS,
    Ran,
    Script,
    is_root,
    lay_out,
    lumi_like,
    render_files,
    shell_command,
)
from tests.unit.render.test_prolog import sound

TMP = f"  - {{path: {ROOT}/tmp, kind: node-local, writable: yes, in_memory: yes,"
LOCAL = f"  - {{path: {ROOT}/local, kind: node-local, job_folder: $TMPDIR, why: the disk of the node, source: UG}}\n"
BY_NUMBER = LOCAL.replace("$TMPDIR", f"'{ROOT}/local/$SLURM_JOB_ID'")
FIRST = LOCAL.replace("job_folder: $TMPDIR", "writable: yes")
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
    """The folder of each job is what `$TMPDIR` says, below /local; then comes /tmp."""
    return prolog_with(tmp_path, request.param, LOCAL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder that the site has made for the job."""
    path = tmp_path / "local/1234567.user"
    path.mkdir(parents=True, mode=0o700)
    return path


def cache(ran: Ran) -> Path:
    return Path(sound(ran).exports[CACHE])


# ---- the folder of the job


@pytest.mark.parametrize("end", ["", "/"])
def test_caches_are_in_the_folder_of_the_job_which_containers_see(prolog: Script, folder: Path, end: str) -> None:
    ran = sound(prolog.step(TMPDIR=f"{folder}{end}"))
    assert cache(ran) == folder / f"lumisite-{os.getuid()}/miopen/db"
    assert cache(ran).is_dir()
    assert ran.exports["LUMISITE_PRIVATE"] == str(folder / f"lumisite-{os.getuid()}")
    assert str(folder) in ran.exports[BINDS].split(",")
    assert str(folder) in ran.exports["LUMISITE_BINDS_TASK"].split(",")


def test_the_folder_may_be_named_by_the_number_of_the_job(tmp_path: Path) -> None:
    script = prolog_with(tmp_path, "dash", BY_NUMBER)
    (tmp_path / "local/1234567").mkdir(parents=True)
    assert cache(script.step()).is_relative_to(tmp_path / "local/1234567")
    for number in (None, "7"):
        assert cache(script.step(SLURM_JOB_ID=number)).is_relative_to(tmp_path / "tmp")


def odd_folders(tmp_path: Path, folder: Path) -> Iterator[tuple[str, str]]:
    """Give values of TMPDIR that no caches go to, by what is wrong with them."""
    link = tmp_path / "local/link"
    link.symlink_to(folder)
    for name in ("a b", "a,b", "a:b", "a;b", "a\nexport LD_PRELOAD=x", "$(touch x)", "*", "a'b", 'a"b', "a\\b", "ü"):
        (tmp_path / "local" / name).mkdir(parents=True)
        yield f"has {name!r}", str(tmp_path / "local" / name)
    (tmp_path / "scratch").mkdir()
    (tmp_path / "file").write_text("")
    yield "is not set", ""
    yield "is below another file system", str(tmp_path / "scratch")
    yield "leaves by ..", f"{tmp_path}/local/../scratch"
    yield "is the file system itself", f"{tmp_path}/local"
    yield "is the file system itself, with /", f"{tmp_path}/local//"
    yield "is relative", "local/1234567.user"
    yield "is a link", str(link)
    yield "is a link, with /", f"{link}/"
    yield "is not there", f"{tmp_path}/local/gone"
    yield "is a file", f"{tmp_path}/file"
    if is_root():
        theirs = tmp_path / "local/theirs"
        theirs.mkdir()
        os.chown(theirs, 65534, 65534)
        yield "is another user's", str(theirs)


def test_a_folder_that_is_not_the_jobs_own_is_passed_over_and_why_is_said(
    prolog: Script, tmp_path: Path, folder: Path
) -> None:
    for wrong, value in odd_folders(tmp_path, folder):
        ran = sound(prolog.step(TMPDIR=value, LUMISITE_VERBOSE="all"))
        assert cache(ran).is_relative_to(tmp_path / "tmp"), wrong
        assert f"{tmp_path}/local" not in ran.exports[BINDS], wrong
        assert any(": no directory for caches in $TMPDIR: " in line for line in ran.prints), wrong
    assert list(folder.iterdir()) == []


def test_without_any_place_the_variables_stay_unset_and_why_is_said(prolog: Script, tmp_path: Path) -> None:
    (tmp_path / "tmp").rmdir()
    ran = sound(prolog.step(LUMISITE_VERBOSE="all"))
    assert CACHE not in ran.exports
    for place in ("$TMPDIR", f"{tmp_path}/tmp"):
        assert any(f": no directory for caches in {place}: " in line for line in ran.prints)


def test_what_an_earlier_job_had_does_not_stay_when_its_folder_is_gone(
    prolog: Script, tmp_path: Path, folder: Path
) -> None:
    """As where a job submits the next one, which inherits its environment."""
    first = sound(prolog.step(TMPDIR=str(folder)))
    kept = {name: value for name, value in first.exports.items() if name.startswith(("LUMISITE_", "MIOPEN", "SING"))}
    for entry in sorted(folder.rglob("*"), reverse=True):
        entry.rmdir() if entry.is_dir() else entry.unlink()
    folder.rmdir()
    (tmp_path / "tmp").rmdir()
    second = sound(prolog.step(**{**kept, "SLURM_JOB_ID": "1234568", "TMPDIR": str(folder)}))
    assert str(folder) not in second.exports[BINDS]
    assert str(folder) not in second.exports["LUMISITE_BINDS_TASK"]
    assert {CACHE, "LUMISITE_PRIVATE"} <= set(second.unsets)


def test_a_full_or_missing_place_leaves_the_next_one(tmp_path: Path) -> None:
    script = prolog_with(tmp_path, "dash", FIRST)
    assert cache(script.step()).is_relative_to(tmp_path / "tmp")
    (tmp_path / "local").mkdir()
    assert cache(script.step()).is_relative_to(tmp_path / "local")
