"""A deployment root that others could change, or that users cannot enter, and names that modules cannot have."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.scene import Run, current, deploy
from tests.support.trees import NEW, OLD, everything

NEIGHBOUR = 4242
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")


def give(path: Path) -> None:
    os.lchown(path, NEIGHBOUR, NEIGHBOUR)


def linked(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


@pytest.fixture
def deep() -> Path:
    """The root of the scene, two folders down and with a release in it."""
    Path("srv/team").mkdir(parents=True)
    Path("ROOT").symlink_to("srv/team/root")
    Path("srv/team/root").mkdir()
    deploy("old", "new")
    return Path("ROOT")


OTHERS = [
    ("", lambda path: path.chmod(0o1777), "mode 1777", "chmod go-w "),
    ("", lambda path: path.chmod(0o757), "mode 0757", "chmod o-w "),
    ("", lambda path: path.chmod(0o775), "mode 0775", "chmod g-w "),
    ("releases", lambda path: path.chmod(0o777), "mode 0777", "chmod go-w "),
    ("releases", lambda path: path.chmod(0o2775), "mode 2775", "chmod g-w "),
    ("history", lambda path: path.chmod(0o666), "mode 0666", "chmod go-w "),
    (".lock", lambda path: path.chmod(0o622), "mode 0622", "chmod go-w "),
    ("releases", linked, "is a symbolic link", "put what it leads to there itself"),
    ("history", linked, "is a symbolic link", "put what it leads to there itself"),
    (".lock", linked, "is a symbolic link", "or move it away"),
    ("..", lambda path: path.chmod(0o777), "srv/team: has mode 0777", "chmod go-w "),
    ("../..", lambda path: path.chmod(0o2770), "srv: has mode 2770", "chmod g-w "),
    ("", lambda path: path.chmod(0o750), "mode 0750, which shuts users out", "chmod o+x "),
    ("releases", lambda path: path.chmod(0o700), "mode 0700, which shuts users out", "chmod o+x "),
]


def refused_everywhere(run: Run, message: str, remedy: str) -> None:
    before = everything(Path("srv/team/root"))
    for words in (["deploy", "third"], ["deploy", "third", "--apply"], ["rollback"]):
        code, out, err = run(words[0], *words[1:2], "ROOT", *words[2:])
        assert (code, out) == (1, "")
        assert message in err
        assert remedy in err
        assert err.count("\n") == 1
    assert everything(Path("srv/team/root")) == before


@pytest.mark.parametrize(("name", "change", "message", "remedy"), OTHERS)
def test_a_root_that_others_could_change_or_users_cannot_enter_is_refused(
    run: Run, deep: Path, name: str, change: Callable[[Path], None], message: str, remedy: str
) -> None:
    place = (Path("srv/team/root") / name).resolve()
    if "2770" in message or "2775" in message:
        os.chown(place, -1, NEIGHBOUR)
    change(place)
    refused_everywhere(run, message, remedy)


@needs_root
@pytest.mark.parametrize("name", ["", "releases", "current", "history", ".lock", "..", f"releases/{NEW}"])
def test_what_belongs_to_somebody_else_is_refused(run: Run, deep: Path, name: str) -> None:
    place = Path(os.path.normpath(Path.cwd() / "srv/team/root" / name))
    give(place)
    command = f"chown {'-h ' if name == 'current' else ''}root {place}"
    refused_everywhere(run, f"{place}: belongs to uid {NEIGHBOUR}, who can change what users load", command)


@needs_root
def test_a_link_on_the_way_that_somebody_else_can_move_is_refused(run: Run, deep: Path) -> None:
    give(Path("ROOT"))
    refused_everywhere(run, f"ROOT: belongs to uid {NEIGHBOUR}", "chown -h root ")


@needs_root
def test_a_file_of_somebody_else_in_a_release_is_found_though_nothing_in_it_is_changed(run: Run) -> None:
    deploy("old", "new")
    give(Path("ROOT/releases", OLD, "spank/task_prolog"))
    code, _, err = run("rollback", "ROOT")
    assert code == 1
    assert "spank/task_prolog: belongs to another than the folder (root)" in err


@pytest.mark.parametrize("mode", [0o777, 0o700])
def test_the_folder_of_a_release_has_its_mode_too(run: Run, mode: int) -> None:
    deploy("old", "new")
    Path("ROOT/releases", OLD).chmod(mode)
    code, _, err = run("rollback", "ROOT")
    assert code == 1
    assert f"has mode {mode:04o} instead of 0755" in err


def test_a_sticky_folder_on_the_way_and_a_root_that_a_team_shares_are_taken(run: Run, deep: Path) -> None:
    Path("srv/team").chmod(0o1777)
    Path("srv/team/root").chmod(0o2775)
    assert run("deploy", "third", "ROOT", "--apply")[0] == 0
    assert run("rollback", "ROOT")[0] == 0
    assert current() == NEW


@pytest.mark.parametrize("bits", [0, 0o002, 0o077])
def test_no_umask_makes_wide_modes(run: Run, bits: int) -> None:
    before = os.umask(bits)
    try:
        deploy("old", "new")
        assert run("rollback", "ROOT")[0] == 0
    finally:
        os.umask(before)
    for path, (mode, _, _) in everything(Path("ROOT")).items():
        assert stat.S_ISLNK(mode) or not mode & 0o022, path
    assert stat.S_IMODE(Path("ROOT/.lock").stat().st_mode) == 0o600, "who may read a lock can hold it"


@pytest.mark.parametrize("sign", [":", "\n", " ", '"', "'", "%", "$", ",", "é", "\u200b"])
def test_a_root_whose_name_modules_cannot_have_is_refused(run: Run, sign: str) -> None:
    Path("plain").mkdir()
    Path(f"link{sign}").symlink_to("plain")
    for name in (f"a{sign}b", f"link{sign}"):
        code, out, err = run("deploy", "new", name, "--apply")
        assert (code, out) == (2, "")
        assert f"contains {sign!r} (letters, digits and ._+@=- would be right)" in err
        assert err.count("\n") == 1
    assert not Path(f"a{sign}b").exists()


def test_no_advice_leaves_the_link_dangling(run: Run) -> None:
    deploy("old", "new")
    Path("ROOT/releases", OLD).rename("gone")
    code, _, err = run("rollback", "ROOT")
    assert code == 1
    assert "is missing; nothing was changed: `lumisite releases " in err
    assert "ln -s" not in err
    # A release with nothing in it is no better than none.
    Path("gone").rename(Path("ROOT/releases", OLD))
    Path("ROOT/releases", OLD, "modules").rename("gone")
    assert "ln -s" not in run("rollback", "ROOT")[2]


def test_the_advice_for_a_link_that_leads_elsewhere_works_as_it_is(run: Run) -> None:
    deploy("new")
    Path("ROOT/current").unlink()
    Path("ROOT/current").symlink_to("releases/none/of/them")
    code, _, err = run("deploy", "old", "ROOT", "--apply")
    assert code == 1
    subprocess.run(err.partition("newest release: ")[2], shell=True, check=True)
    assert current() == NEW


def test_the_current_release_is_never_told_to_be_removed(run: Run) -> None:
    deploy("new")
    Path("third/MANIFEST.json").write_bytes(
        Path("third/MANIFEST.json").read_bytes().replace(b"2026-07-aaaaaaaaaaaa", NEW.encode())
    )
    code, _, err = run("deploy", "third", "ROOT", "--apply")
    assert code == 1
    assert "render with another id\n" in err


@needs_root
def test_check_host_tells_a_user_of_a_root_that_is_closed_to_users(run: Run) -> None:
    with TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        root = Path(place, "root")
        assert run("deploy", "new", str(root), "--apply")[0] == 0
        root.chmod(0o700)
        words = ["check", "--host", "--root", str(root), "--json"]
        assert run(*words)[0] == 1  # all is loaded now that the user needs of a Python that may be closed to him
        os.seteuid(NEIGHBOUR)
        try:
            code, out, err = run(*words)
        finally:
            os.seteuid(0)
    assert code == 1, err
    (fault,) = json.loads(out)
    assert (fault["path"], fault["remedy"]) == (str(root), f"chmod o+x {root}")
