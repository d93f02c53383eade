"""The task prolog's private directories: where they are, whose they are, who may enter."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from tests.support.prologs import ROOT, STEP, Ran, Script, is_root, lumi_like
from tests.unit.render.test_prolog import rendered, sound

DB = "MIOPEN_USER_DB_PATH"
#: The variables that name private directories.
CACHES = {setting.name for setting in lumi_like().site.settings if setting.directory}


def private(ran: Ran) -> Path:
    return Path(ran.exports[DB])


def test_caches_have_a_directory_that_only_the_user_can_enter_whatever_the_umask(
    prolog: Script, tmp_path: Path
) -> None:
    before = os.umask(0o007)
    try:
        ran = sound(prolog.step())
    finally:
        os.umask(before)
    place = Path(ran.exports["LUMISITE_PRIVATE"])
    assert place == tmp_path / f"tmp/lumisite-{os.getuid()}"
    assert stat.S_IMODE(place.stat().st_mode) == 0o1700
    for name in (DB, "MIOPEN_CUSTOM_CACHE_DIR"):
        path = Path(ran.exports[name])
        assert path.is_relative_to(place)
        assert {stat.S_IMODE(one.stat().st_mode) for one in (path, path.parent)} == {0o700}
    assert (place / ".space").stat().st_size == 0
    assert private(sound(prolog.step(SLURM_STEP_ID="1"))) == private(ran)


def test_ranks_that_start_together_agree_on_it(prolog: Script) -> None:
    environments = [{**STEP, "SLURM_LOCALID": str(rank), "SLURM_PROCID": str(rank)} for rank in range(8)]
    running = [
        subprocess.Popen([*prolog.command, str(prolog.path)], env=environment, stdout=subprocess.PIPE, text=True)
        for environment in environments
    ]
    answers = [Ran(process.wait(), process.communicate()[0], "") for process in running]
    assert len({private(sound(answer)) for answer in answers}) == 1
    assert private(answers[0]).is_dir()


@pytest.mark.parametrize(
    "kind",
    [
        "link",
        "dangling link",
        "file",
        0o777,
        0o700,
        pytest.param("another user", marks=pytest.mark.skipif(not is_root(), reason="only root can give it away")),
    ],
)
def test_what_stood_in_its_place_before_is_not_used(prolog: Script, tmp_path: Path, kind: str | int) -> None:
    usual, home = tmp_path / f"tmp/lumisite-{os.getuid()}", tmp_path / "home"
    home.mkdir()
    if kind in ("link", "dangling link"):
        usual.symlink_to(home if kind == "link" else tmp_path / "nowhere")
    elif kind == "file":
        usual.touch()
    else:
        usual.mkdir()
        usual.chmod(kind if isinstance(kind, int) else 0o1777)
        os.chown(usual, *((65534,) * 2 if kind == "another user" else (-1, -1)))
    place = private(sound(prolog.step()))
    assert place.is_relative_to(f"{usual}-{STEP['SLURM_JOB_ID']}")
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert list(home.iterdir()) == []
    assert not (tmp_path / "nowhere").exists()


def test_no_directory_where_others_could_rename_it(prolog: Script, tmp_path: Path) -> None:
    """/tmp without the sticky bit belongs to whoever is fastest; root owns it here only if root runs the test."""
    (tmp_path / "tmp").chmod(0o777)
    if is_root():
        os.chown(tmp_path / "tmp", 65534, 65534)
    assert (DB in sound(prolog.step()).exports) != is_root()


TMP = f"  - {{path: {ROOT}/tmp, kind: node-local, writable: yes, in_memory: yes,"
LOCAL = f"  - {{path: {ROOT}/local, kind: node-local, writable: yes, why: the disk of the node, source: UG}}\n"


def test_a_missing_place_leaves_the_next_one_and_without_any_the_variables_stay_unset(
    prolog: Script, tmp_path: Path
) -> None:
    two = rendered(prolog, tmp_path, (TMP, LOCAL + TMP))
    assert private(sound(two.step())).is_relative_to(tmp_path / "tmp")
    (tmp_path / "local").mkdir()
    assert private(sound(two.step())).is_relative_to(tmp_path / "local")
    for place in ("local", "tmp"):
        (tmp_path / place).rename(tmp_path / f"{place}-gone")
    ran = sound(two.step(SLURM_LOCALID="0", LUMISITE_VERBOSE="1"))
    assert not CACHES & set(ran.exports)
    for place in ("local", "tmp"):
        assert any(f": no directory for caches in {tmp_path}/{place}: " in line for line in ran.prints)
    without = "nid005124 has no place for private directories, so caches go where programs put them"
    assert f"lumisite: {without}" in ran.prints
    assert not sound(two.step(SLURM_LOCALID="1")).prints


def test_a_users_own_cache_directory_makes_no_other(prolog: Script, tmp_path: Path) -> None:
    ran = sound(prolog.step(**dict.fromkeys(CACHES, "/mine")))
    assert not CACHES & set(ran.exports)
    assert list((tmp_path / "tmp").iterdir()) == []


def test_each_rank_has_a_directory_of_its_own_where_programs_cannot_share_one(prolog: Script) -> None:
    for rank in ("0", "3"):
        ran = sound(prolog.step(SLURM_LOCALID=rank, SLURM_PROCID=rank))
        place = Path(ran.exports["LUMISITE_PRIVATE"]) / "aiter" / rank
        assert stat.S_IMODE(place.stat().st_mode) == 0o700
        assert (place / "build").is_dir()
    assert {path.name for path in place.parent.iterdir()} == {"0", "3"}
