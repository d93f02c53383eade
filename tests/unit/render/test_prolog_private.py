"""The task prolog's private directories: whose they are, who may enter, how long they live."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from tests.support.prologs import STEP, Ran, Script, is_root
from tests.unit.render.test_prolog import CACHES, prolog, sound

__all__ = ["prolog"]


def private(ran: Ran) -> Path:
    return Path(ran.exports["MIOPEN_USER_DB_PATH"])


def test_miopen_has_a_directory_that_only_the_user_can_enter(prolog: Script, tmp_path: Path) -> None:
    ran = sound(prolog.step())
    for name in ("MIOPEN_USER_DB_PATH", "MIOPEN_CUSTOM_CACHE_DIR"):
        path = Path(ran.exports[name])
        assert path.is_relative_to(tmp_path / "tmp")
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
        for parent in path.relative_to(tmp_path / "tmp").parents:
            assert stat.S_IMODE((tmp_path / "tmp" / parent).stat().st_mode) & 0o77 == (0o77 if not parent.name else 0)
    assert f"lumisite-{os.getuid()}" in str(path)
    assert private(sound(prolog.step(SLURM_STEP_ID="1"))) == private(ran)
    assert (Path(ran.exports["LUMISITE_PRIVATE"]) / ".space").stat().st_size == 0


def test_the_users_umask_does_not_open_it(prolog: Script) -> None:
    before = os.umask(0o007)
    try:
        assert stat.S_IMODE(private(sound(prolog.step())).stat().st_mode) == 0o700
    finally:
        os.umask(before)


def test_ranks_that_start_together_agree_on_it(prolog: Script) -> None:
    environments = [{**STEP, "SLURM_LOCALID": str(rank), "SLURM_PROCID": str(rank)} for rank in range(8)]
    running = [
        subprocess.Popen([*prolog.command, str(prolog.path)], env=environment, stdout=subprocess.PIPE, text=True)
        for environment in environments
    ]
    answers = [Ran(process.wait(), process.communicate()[0], "") for process in running]
    assert len({private(sound(answer)) for answer in answers}) == 1
    assert private(answers[0]).is_dir()


def usual_place(tmp_path: Path) -> Path:
    return tmp_path / "tmp" / f"lumisite-{os.getuid()}"


def test_a_link_in_its_place_is_not_followed(prolog: Script, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    usual_place(tmp_path).symlink_to(home)
    place = private(sound(prolog.step()))
    assert not place.is_relative_to(usual_place(tmp_path))
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert list(home.iterdir()) == []


def test_a_dangling_link_in_its_place_is_not_followed(prolog: Script, tmp_path: Path) -> None:
    usual_place(tmp_path).symlink_to(tmp_path / "nowhere")
    assert not private(sound(prolog.step())).is_relative_to(usual_place(tmp_path))
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o750, 0o700])
def test_a_directory_that_stood_there_before_is_not_used(prolog: Script, tmp_path: Path, mode: int) -> None:
    usual_place(tmp_path).mkdir()
    usual_place(tmp_path).chmod(mode)
    place = private(sound(prolog.step()))
    assert not place.is_relative_to(usual_place(tmp_path))
    assert stat.S_IMODE(place.stat().st_mode) == 0o700


@pytest.mark.skipif(not is_root(), reason="only root can give a directory to another user")
def test_a_directory_of_another_user_is_not_used(prolog: Script, tmp_path: Path) -> None:
    usual_place(tmp_path).mkdir()
    usual_place(tmp_path).chmod(0o1777)
    os.chown(usual_place(tmp_path), 65534, 65534)
    assert not private(sound(prolog.step())).is_relative_to(usual_place(tmp_path))


def test_without_a_private_place_the_variables_stay_unset_and_it_says_so(prolog: Script, tmp_path: Path) -> None:
    for name in (usual_place(tmp_path).name, f"{usual_place(tmp_path).name}-1234567"):
        (tmp_path / "tmp" / name).write_text("in the way")
    ran = sound(prolog.step(SLURM_LOCALID="0"))
    assert "MIOPEN_USER_DB_PATH" not in ran.exports
    assert any("no place for private directories" in line for line in ran.prints)


def test_no_directory_where_others_could_rename_it(prolog: Script, tmp_path: Path) -> None:
    """/tmp without the sticky bit belongs to whoever is fastest; root owns it here only if root runs the test."""
    (tmp_path / "tmp").chmod(0o777)
    if is_root():
        os.chown(tmp_path / "tmp", 65534, 65534)
        assert "MIOPEN_USER_DB_PATH" not in sound(prolog.step()).exports
    else:
        assert "MIOPEN_USER_DB_PATH" in sound(prolog.step()).exports


def test_a_users_own_cache_directory_makes_no_other(prolog: Script, tmp_path: Path) -> None:
    ran = sound(prolog.step(**dict.fromkeys(CACHES, "/mine")))
    assert not CACHES & set(ran.exports)
    assert list((tmp_path / "tmp").iterdir()) == []


def test_each_rank_has_a_directory_of_its_own_where_programs_cannot_share_one(prolog: Script, tmp_path: Path) -> None:
    for rank in ("0", "3"):
        ran = sound(prolog.step(SLURM_LOCALID=rank, SLURM_PROCID=rank))
        place = Path(ran.exports["LUMISITE_PRIVATE"]) / "aiter" / rank
        assert stat.S_IMODE(place.stat().st_mode) == 0o700
        assert (place / "build").is_dir()
    assert len({path.name for path in place.parent.iterdir()}) == 2
