"""What happens to what an admin changed by hand in a deployed release."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from lumisite.release import deploy as deploy_module
from lumisite.release.files import replace_entry
from lumisite.render.manifest import MANIFEST
from tests.support.scene import THIRD, Run, current, deploy, edit_current
from tests.support.trees import NEW, OLD, everything, manifest, with_manifest


def test_hand_edits_in_the_current_release_stop_a_deploy_and_are_named(run: Run) -> None:
    deploy("old")
    edit_current()
    before = everything(Path("ROOT/releases"))
    code, _, err = run("deploy", "new", "ROOT", "--apply")
    assert code == 1
    assert "[deploy-over-edits]" in err
    assert re.search(rf"\n  \S+/{OLD}/modules/mine.lua: .*\[release-file-unknown\]", err)
    assert re.search(rf"\n  \S+/{OLD}/spank/task_prolog: .*\(\S+, 20\d\d-\d\d-\d\dT.*\[release-file-edited\]", err)
    assert "--set-edits-aside" in err
    assert everything(Path("ROOT/releases")) == before
    assert Path("ROOT/current").readlink().name == OLD


@pytest.mark.parametrize(
    "edit",
    [
        lambda top: (top / "spank/task_prolog").chmod(0o600),
        lambda top: (top / "spank").chmod(0o700),
        lambda top: (top / "spank/task_prolog").unlink(),
        lambda top: (top / MANIFEST).write_text("{"),
        lambda top: (top / "notes").mkdir(),
        lambda top: (top / MANIFEST).write_text(
            with_manifest({}, manifest(OLD))[MANIFEST].text  # reads well, but is not the one that was deployed
        ),
    ],
)
def test_every_kind_of_damage_is_noticed(run: Run, edit: Callable[[Path], object]) -> None:
    deploy("old")
    edit(Path("ROOT/releases", OLD))
    assert run("deploy", "new", "ROOT")[0] == 1
    assert run("deploy", "new", "ROOT", "--apply")[0] == 1
    assert run("status", "ROOT", "--all")[0] == 1
    assert run("deploy", "new", "ROOT", "--apply", "--set-edits-aside")[0] == 0
    assert current() == NEW


def test_edits_set_aside_stay_in_their_release_alone(run: Run) -> None:
    deploy("old")
    edit_current()
    before = everything(Path("ROOT/releases", OLD))
    code, out, _ = run("deploy", "new", "ROOT", "--apply", "--set-edits-aside")
    assert code == 0
    assert out.endswith(f"deployed {NEW} (before: {OLD})\n")
    assert everything(Path("ROOT/releases", OLD)) == before
    assert current() == NEW


def test_an_edited_release_is_left_alone_until_the_command_that_repairs_it_is_typed(run: Run) -> None:
    deploy("old")
    edit_current()
    before = everything(Path("ROOT/releases"))
    told = {run(*words)[2] for words in (["deploy", "old", "ROOT", "--apply"], ["deploy", "old", "ROOT"])}
    assert everything(Path("ROOT/releases")) == before
    for err in told:
        (command,) = re.findall(r"lumisite (deploy .* --set-edits-aside)\) \[deploy-edited\]", err)
        assert command == f"deploy old {Path('ROOT').resolve()} --apply --set-edits-aside"


def a_link_in_the_place_of(path: Path, to: str | Path) -> None:
    path.rename("elsewhere")
    path.symlink_to(to)


def a_folder_in_the_place_of(path: Path) -> None:
    path.unlink()
    (path / "x").mkdir(parents=True)


DAMAGE: dict[str, tuple[Callable[[Path], object], list[str]]] = {
    # what is done to the only release, and what is kept of it
    "a file edited": (lambda top: (top / "spank/task_prolog").write_text("mine"), ["spank/task_prolog"]),
    "a file added": (lambda top: (top / "modules/mine.lua").write_text("mine"), ["modules/mine.lua"]),
    "a folder added": (lambda top: (top / "a/b").mkdir(parents=True), ["a"]),
    "a file gone": (lambda top: (top / "spank/task_prolog").unlink(), []),
    "a folder gone": (lambda top: (top / "modules").rename("elsewhere"), []),
    "everything gone": (lambda top: [one.rename(one.name) for one in top.iterdir()], []),
    "a mode": (lambda top: (top / "spank/task_prolog").chmod(0o600), []),
    "a mode of a folder": (lambda top: (top / "spank").chmod(0o777), []),
    "a manifest that is none": (lambda top: (top / MANIFEST).write_text("{"), [MANIFEST]),
    "no manifest": (lambda top: (top / MANIFEST).unlink(), []),
    "a link in the place of a folder": (
        lambda top: a_link_in_the_place_of(top / "spank", Path("elsewhere").absolute()),
        ["spank"],
    ),
    "a folder in the place of a file": (
        lambda top: a_folder_in_the_place_of(top / "spank/task_prolog"),
        ["spank/task_prolog"],
    ),
    "a link in the place of a file": (
        lambda top: a_link_in_the_place_of(top / "spank/task_prolog", "/etc/hostname"),
        ["spank/task_prolog"],
    ),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_one_command_leads_out_of_any_damage_of_the_only_release_and_keeps_what_was_edited(run: Run, case: str) -> None:
    damage, kept = DAMAGE[case]
    deploy("old")
    top = Path("ROOT/releases", OLD)
    whole = {path: (mode, content) for path, (mode, _, content) in everything(top).items()}
    damage(top)
    damaged = everything(top)
    assert run("deploy", "old", "ROOT", "--apply")[0] == 1
    assert everything(top) == damaged
    code, out, _ = run("deploy", "old", "ROOT", "--apply", "--set-edits-aside")
    assert (code, current()) == (0, OLD)
    assert {path: (mode, content) for path, (mode, _, content) in everything(top).items()} == whole
    assert run("status", "ROOT", "--all")[0] == 0
    asides = list(Path("ROOT/set-aside").iterdir())
    assert out.endswith(f" {asides[0].resolve()}\n" if kept else f"deployed {OLD}\n")
    assert len(asides) == bool(kept)
    for name in kept:
        left = everything(asides[0])
        assert {path: left[path][2] for path in left if path.startswith(name)} == {
            path: damaged[path][2] for path in damaged if path.startswith(name)
        }
    assert run("deploy", "new", "ROOT", "--apply")[0] == 0
    assert run("rollback", "ROOT")[0] == 0
    assert current() == OLD


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")
@pytest.mark.parametrize("name", ["spank", "spank/task_prolog", "modules/singularity-CPEbits"])
def test_what_somebody_else_owns_in_a_release_is_replaced(run: Run, name: str) -> None:
    deploy("old")
    os.lchown(Path("ROOT/releases", OLD, name), 4242, 4242)
    assert run("deploy", "old", "ROOT", "--apply")[0] == 1
    assert run("deploy", "old", "ROOT", "--apply", "--set-edits-aside")[0] == 0
    assert current() == OLD
    assert {path.lstat().st_uid for path in Path("ROOT/releases", OLD).rglob("*")} == {0}


def test_a_release_that_is_changed_while_it_is_repaired_is_not_called_whole(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy("old")
    edit_current()

    def again(path: Path, content: bytes, mode: int = 0o644) -> None:
        replace_entry(path, content, mode)
        path.write_text("mine again")

    monkeypatch.setattr(deploy_module, "replace_entry", again)
    code, out, err = run("deploy", "old", "ROOT", "--apply", "--set-edits-aside")
    assert (code, out) == (1, "")
    assert "[release-changing]\n  spank/task_prolog: " in err


def test_edits_in_an_older_release_are_no_matter_until_it_comes_again(run: Run) -> None:
    deploy("old")
    Path("ROOT/current/spank/task_prolog").write_text("x")
    assert run("deploy", "new", "ROOT", "--apply", "--set-edits-aside")[0] == 0
    deploy("third")
    assert run("deploy", "old", "ROOT", "--apply")[0] == 1
    assert current() == THIRD
    assert run("deploy", "old", "ROOT", "--apply", "--set-edits-aside")[0] == 0
    assert current() == OLD
