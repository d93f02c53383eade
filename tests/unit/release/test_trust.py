"""A deployment root or a rendered tree that others could change, and names that modules cannot have."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from lumisite.release import deploy as deploy_of
from lumisite.release.tree import load_tree
from lumisite.release.trust import refuse_out
from tests.support.rendered_trees import NEW, OLD, THIRD, current, deploy, everything, tree, written
from tests.unit.release.conftest import Run

NEIGHBOUR = 4242
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")
Change = Callable[[Path], object]


def give(path: Path) -> None:
    os.lchown(path, NEIGHBOUR, NEIGHBOUR)


def of_neighbours(mode: int) -> Change:
    """Return what gives a folder to a group in which the admin is not, with a mode."""

    def change(path: Path) -> None:
        os.chown(path, -1, NEIGHBOUR)
        path.chmod(mode)

    return change


def linked(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


@pytest.fixture
def deep(run: Run) -> Path:
    """The root of the scene, two folders down and behind a link, with two releases in it."""
    Path("srv/team/root").mkdir(parents=True)
    Path("ROOT").symlink_to("srv/team/root")
    deploy("old", "new")
    return Path.cwd() / "srv/team/root"


FOREIGN_OWNER = f"belongs to uid {NEIGHBOUR}"


@needs_root
@pytest.mark.parametrize(
    ("name", "change", "message", "remedy"),
    [
        ("", lambda path: path.chmod(0o1777), "mode 1777", "chmod go-w "),
        ("", lambda path: path.chmod(0o775), "mode 0775", "chmod g-w "),
        ("releases", of_neighbours(0o2775), "mode 2775", "chmod g-w "),
        (".lock", lambda path: path.chmod(0o622), "mode 0622", "chmod go-w "),
        ("policy", lambda path: path.chmod(0o666), "mode 0666", "chmod go-w "),
        ("..", lambda path: path.chmod(0o777), "srv/team: mode 0777", "chmod go-w "),
        ("../..", of_neighbours(0o2770), "srv: mode 2770", "chmod g-w "),
        ("", give, FOREIGN_OWNER, "chown root "),
        ("current", give, FOREIGN_OWNER, "chown -h root "),
        ("history", give, FOREIGN_OWNER, "chown root "),
        ("..", give, FOREIGN_OWNER, "chown root "),
        (f"releases/{NEW}", give, FOREIGN_OWNER, "chown root "),
        ("../../../ROOT", give, f"ROOT: {FOREIGN_OWNER}", "chown -h root "),
    ],
)
def test_a_root_that_others_could_change_is_refused_untouched(
    run: Run, deep: Path, name: str, change: Change, message: str, remedy: str
) -> None:
    assert run("policy", "ROOT", "observe")[0] == 0
    change(Path(os.path.normpath(deep / name)))
    before = everything(deep)
    for words in ("deploy third ROOT", "deploy third ROOT --apply", "rollback ROOT", "policy ROOT on"):
        code, out, err = run(*words.split())
        assert (code, out) == (1, "")
        assert message in err
        assert remedy in err
        assert (err.count("\n"), "[root-open]" in err) == (1, True)
    assert everything(deep) == before


def test_a_sticky_folder_on_the_way_and_a_root_that_a_team_shares_are_fine(run: Run, deep: Path) -> None:
    (deep / "..").chmod(0o1777)
    deep.chmod(0o2775)
    assert run("deploy", "third", "ROOT", "--apply")[0] == 0
    assert run("rollback", "ROOT")[0] == 0
    assert current() == NEW


@needs_root
def test_what_is_in_a_release_belongs_to_its_owner_or_to_root(run: Run) -> None:
    deploy("old", "new")
    old = Path("ROOT/releases", OLD)
    give(old / "spank/task_prolog")
    code, _, err = run("rollback", "ROOT")
    assert (code, "spank/task_prolog: " in err, "[release-mode]" in err) == (1, True, True)
    for path in (old, *old.rglob("*")):
        give(path)
    os.chown(old / "spank/bin/singularity", 0, 0)
    assert load_tree(old).faults == ()


@pytest.mark.parametrize("sign", [":", "\n", " ", "$"])
def test_a_root_whose_name_modules_cannot_have_is_refused(run: Run, sign: str) -> None:
    Path("plain").mkdir()
    Path(f"link{sign}").symlink_to("plain")
    for name in (f"a{sign}b", f"link{sign}"):
        code, out, err = run("deploy", "new", name, "--apply")
        assert (code, out) == (2, "")
        assert ("[root-unfit]" in err, err.count("\n")) == (True, 1)
    assert not Path(f"a{sign}b").exists()


# ---- the tree to deploy


@pytest.fixture
def rendered() -> Path:
    """A rendered tree, two folders down and behind a link."""
    written(Path("home/admin/out"), tree(THIRD))
    Path("OUT").symlink_to("home/admin/out")
    return Path.cwd() / "home/admin/out"


@needs_root
@pytest.mark.parametrize(
    ("name", "change", "whose"),
    [
        *((name, give, FOREIGN_OWNER) for name in ("", "MANIFEST.json", "spank/task_prolog", "..")),
        *((name, lambda path: path.chmod(0o777), "mode 0777") for name in ("spank", "../..")),
        ("spank/task_prolog", lambda path: path.chmod(0o775), "mode 0775"),
        ("modules", lambda path: path.chmod(0o1777), "mode 1777"),
    ],
)
def test_a_tree_that_others_could_have_changed_is_not_deployed(
    run: Run, rendered: Path, name: str, change: Change, whose: str
) -> None:
    place = Path(os.path.normpath(rendered / name))
    change(place)
    for options in ([], ["--apply"], ["--json"]):
        code, out, err = run("deploy", "OUT", "ROOT", *options)
        assert (code, out) == (3, "")
        assert err.startswith(f"lumisite: OUT: {place} ({whose}")
        assert (err.endswith("[root-open]\n"), err.count("\n")) == (True, 1)
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
    first = f"{place}/out/MANIFEST.json ({FOREIGN_OWNER}, who can change what users load)"
    assert f"{first} and 9 more " in some[2]
    assert f"{place}/out ({FOREIGN_OWNER}, " in every[2]


@needs_root
def test_what_root_rendered_may_be_deployed_by_an_admin_and_a_team_may_share_the_folder(run: Run) -> None:
    with TemporaryDirectory() as place:
        give(Path(place))
        Path(place).chmod(0o2775)
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


@pytest.mark.parametrize("name", ["spank", "spank/task_prolog"])
def test_no_link_out_of_the_tree_is_followed(run: Run, rendered: Path, name: str) -> None:
    linked(rendered / name)
    code, _, err = run("deploy", "OUT", "ROOT", "--apply")
    assert (code, f"{name}: " in err, Path("ROOT").exists()) == (1, True, False)


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


def test_a_link_that_is_put_into_the_tree_while_it_is_read_is_not_followed(
    run: Run, rendered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = os.stat

    def stat_then_swap(path: str | Path, *words: object, **named: Any) -> os.stat_result:
        status = really(path, *words, **named)
        if path == "spank" and named.get("dir_fd") is not None:
            monkeypatch.setattr(os, "stat", really)
            linked(rendered / "spank")
        return status

    monkeypatch.setattr(os, "stat", stat_then_swap)
    code, out, err = run("deploy", "OUT", "ROOT", "--apply")
    assert (code, out) == (3, "")
    assert err.startswith("lumisite: OUT/spank: cannot go on: Not a directory")
