"""A deployment root that others could change, and names that modules cannot have."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from lumisite.release import deploy as deploy_of
from lumisite.release.trust import refuse_out
from tests.support.scene import THIRD, Run, current, deploy
from tests.support.trees import NEW, OLD, everything, tree, written

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
    ("", lambda path: path.chmod(0o775), "mode 0775", "chmod g-w "),
    ("releases", lambda path: path.chmod(0o777), "mode 0777", "chmod go-w "),
    ("releases", lambda path: path.chmod(0o2775), "mode 2775", "chmod g-w "),
    (".lock", lambda path: path.chmod(0o622), "mode 0622", "chmod go-w "),
    ("..", lambda path: path.chmod(0o777), "srv/team: mode 0777", "chmod go-w "),
    ("../..", lambda path: path.chmod(0o2770), "srv: mode 2770", "chmod g-w "),
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
def test_a_root_that_others_could_change_is_refused(
    run: Run, deep: Path, name: str, change: Callable[[Path], None], message: str, remedy: str
) -> None:
    place = (Path("srv/team/root") / name).resolve()
    if "2770" in message or "2775" in message:
        os.chown(place, -1, NEIGHBOUR)
    change(place)
    refused_everywhere(run, message, remedy)


@needs_root
@pytest.mark.parametrize("name", ["", "current", "history", "..", f"releases/{NEW}"])
def test_what_belongs_to_somebody_else_is_refused(run: Run, deep: Path, name: str) -> None:
    place = Path(os.path.normpath(Path.cwd() / "srv/team/root" / name))
    give(place)
    command = f"chown {'-h ' if name == 'current' else ''}root {place}"
    refused_everywhere(run, f"{place}: belongs to uid {NEIGHBOUR}", command)
    assert "[root-open]" in run("rollback", "ROOT")[2]


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
    assert "spank/task_prolog: " in err
    assert "[release-mode]" in err


FOREIGN: list[tuple[str, Callable[[Path], object], str]] = [
    # of the rendered tree or the folders above it, what is changed, and whose it is then
    *((name, give, f"belongs to uid {NEIGHBOUR}")
      for name in ("", "MANIFEST.json", "spank/task_prolog", "..")),
    *((name, lambda path: path.chmod(0o777), "mode 0777")
      for name in ("spank", "../..")),
    ("spank/task_prolog", lambda path: path.chmod(0o775), "mode 0775"),
    ("modules", lambda path: path.chmod(0o1777), "mode 1777"),
]  # fmt: skip


@pytest.fixture
def rendered() -> Path:
    """A rendered tree, two folders down and behind a link."""
    written(Path("home/admin/out"), tree(THIRD))
    Path("OUT").symlink_to("home/admin/out")
    return Path("OUT")


@needs_root
@pytest.mark.parametrize(("name", "change", "whose"), FOREIGN)
def test_a_tree_that_others_could_have_changed_is_not_deployed(
    run: Run, rendered: Path, name: str, change: Callable[[Path], object], whose: str
) -> None:
    place = Path(os.path.normpath(Path.cwd() / "home/admin/out" / name))
    change(place)
    for words in (["deploy", "OUT", "ROOT"], ["deploy", "OUT", "ROOT", "--apply"], ["deploy", "OUT", "ROOT", "--json"]):
        code, out, err = run(*words)
        assert (code, out) == (3, "")
        assert err.startswith(f"lumisite: OUT: {place} ({whose}")
        assert err.endswith("[root-open]\n")
        assert err.count("\n") == 1
    assert not Path("ROOT").exists()


@needs_root
def test_a_tree_forged_to_fit_its_manifest_is_not_deployed(run: Run) -> None:
    """A neighbour renders his own: every hash fits, and each file is his."""
    with TemporaryDirectory() as place:
        written(Path(place, "out"), tree(THIRD))
        for path in Path(place, "out").rglob("*"):
            give(path)
        some = run("deploy", f"{place}/out", "ROOT", "--apply")
        give(Path(place, "out"))
        Path(place, "out/MANIFEST.json").write_text("{")  # what others wrote is not even parsed
        every = run("deploy", f"{place}/out", "ROOT", "--apply")
    assert (some[:2], every[:2], Path("ROOT").exists()) == ((3, ""), (3, ""), False)
    assert (
        f"{place}/out/MANIFEST.json (belongs to uid {NEIGHBOUR}, who can change what users load) and 9 more " in some[2]
    )
    assert f"{place}/out (belongs to uid {NEIGHBOUR}, " in every[2]


@needs_root
def test_what_root_rendered_may_be_deployed_by_an_admin_and_a_team_may_share_the_folder(run: Run) -> None:
    with TemporaryDirectory() as place:
        Path(place).chmod(0o2775)
        os.chown(place, NEIGHBOUR, NEIGHBOUR)
        written(Path(place, "out"), tree(THIRD))
        assert run("deploy", f"{place}/out", f"{place}/ROOT")[0] == 3  # root is in no such team
        os.setegid(NEIGHBOUR)
        os.seteuid(NEIGHBOUR)
        try:
            code = run("deploy", f"{place}/out", f"{place}/ROOT", "--apply")[0]
        finally:
            os.seteuid(0)
            os.setegid(0)
    assert code == 0


def test_what_is_copied_is_what_was_judged(run: Run, rendered: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who is quick changes the tree after it was looked at, and puts links in the place of folders."""
    really = refuse_out

    def judged(path: Path, admin: int, status: Mapping[str, os.stat_result] | None = None) -> None:
        really(path, admin, status)
        if status:
            (path / "spank").rename("gone")
            (path / "spank").symlink_to(Path("evil").absolute())
            (path / "modules/singularity-CPEbits/25.03.lua").write_text("evil")

    Path("evil").mkdir()
    Path("evil/task_prolog").write_text("evil")
    monkeypatch.setattr(deploy_of, "refuse_out", judged)
    assert run("deploy", "OUT", "ROOT", "--apply")[0] == 0
    assert current() == THIRD


@pytest.mark.parametrize("name", ["spank", "spank/task_prolog"])
def test_no_link_out_of_the_tree_is_followed(run: Run, rendered: Path, name: str) -> None:
    linked(rendered.resolve() / name)
    code, _, err = run("deploy", "OUT", "ROOT", "--apply")
    assert code == 1
    assert f"{name}: " in err
    assert not Path("ROOT").exists()


@needs_root
def test_a_link_that_is_put_into_the_tree_while_it_is_read_is_not_followed(
    run: Run, rendered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = os.stat

    def stat_then_swap(path: str | Path, *words: object, **named: Any) -> os.stat_result:
        status = really(path, *words, **named)
        if path == "spank" and named.get("dir_fd") is not None:
            monkeypatch.setattr(os, "stat", really)
            linked(Path("home/admin/out/spank").absolute())
        return status

    monkeypatch.setattr(os, "stat", stat_then_swap)
    code, out, err = run("deploy", "OUT", "ROOT", "--apply")
    assert (code, out) == (3, "")
    assert err.startswith("lumisite: OUT/spank: cannot go on: Not a directory")


@pytest.mark.parametrize("mode", [0o777, 0o700])
def test_the_folder_of_a_release_has_its_mode_too(run: Run, mode: int) -> None:
    deploy("old", "new")
    Path("ROOT/releases", OLD).chmod(mode)
    code, _, err = run("rollback", "ROOT")
    assert code == 1
    assert f"mode {mode:04o}, expected 0755" in err


def test_a_sticky_folder_on_the_way_and_a_root_that_a_team_shares_are_taken(run: Run, deep: Path) -> None:
    Path("srv/team").chmod(0o1777)
    Path("srv/team/root").chmod(0o2775)
    assert run("deploy", "third", "ROOT", "--apply")[0] == 0
    assert run("rollback", "ROOT")[0] == 0
    assert current() == NEW


@pytest.mark.parametrize("sign", [":", "\n", " ", "$"])
def test_a_root_whose_name_modules_cannot_have_is_refused(run: Run, sign: str) -> None:
    Path("plain").mkdir()
    Path(f"link{sign}").symlink_to("plain")
    for name in (f"a{sign}b", f"link{sign}"):
        code, out, err = run("deploy", "new", name, "--apply")
        assert (code, out) == (2, "")
        assert "[root-unfit]" in err
        assert err.count("\n") == 1
    assert not Path(f"a{sign}b").exists()


def test_no_advice_leaves_the_link_dangling(run: Run) -> None:
    deploy("old", "new")
    Path("ROOT/releases", OLD).rename("gone")
    code, _, err = run("rollback", "ROOT")
    assert code == 1
    assert "[release-missing]" in err
    assert "ln -s" not in err
    # A release with nothing in it is no better than none.
    Path("gone").rename(Path("ROOT/releases", OLD))
    Path("ROOT/releases", OLD, "modules").rename("gone")
    assert "ln -s" not in run("rollback", "ROOT")[2]
