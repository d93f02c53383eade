"""What happens to what an admin changed by hand in a deployed release."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from lumisite.render.manifest import MANIFEST
from tests.support.scene import THIRD, Run, current, deploy, edit_current
from tests.support.trees import NEW, OLD, everything, manifest, with_manifest


def test_hand_edits_in_the_current_release_stop_a_deploy_and_are_named(run: Run) -> None:
    deploy("old")
    edit_current()
    before = everything(Path("ROOT/releases"))
    code, _, err = run("deploy", "new", "ROOT", "--apply")
    assert code == 1
    assert re.search(rf"{OLD}: is not as it was deployed:\n  modules/mine.lua: not written by lumisite \(\S+, 20", err)
    assert re.search(r"\n  spank/task_prolog: edited \(\S+, 20\d\d-\d\d-\d\dT", err)
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
    assert run("releases", "ROOT")[0] == 1
    assert run("deploy", "new", "ROOT", "--apply", "--set-edits-aside")[0] == 0
    assert current() == NEW


def test_edits_set_aside_are_copied_and_stay_in_their_release_too(run: Run) -> None:
    deploy("old")
    edit_current()
    before = everything(Path("ROOT/releases", OLD))
    code, out, _ = run("deploy", "new", "ROOT", "--apply", "--set-edits-aside")
    assert code == 0
    aside = Path("ROOT/edited", f"{OLD}-1")
    assert f"edits copied to {aside.resolve()}" in out
    files = {path: found for path, found in everything(aside).items() if found[2]}
    assert set(files) == {"spank/task_prolog", "modules/mine.lua"}
    assert all(files[path] == before[path] for path in files)
    assert everything(Path("ROOT/releases", OLD)) == before
    assert current() == NEW


def test_the_edited_release_itself_is_made_whole_again(run: Run) -> None:
    deploy("old")
    top = Path("ROOT/releases", OLD)
    edit_current()
    (top / "spank/bin").rename(top / "bin")
    (top / "spank/bin").symlink_to("../bin")
    (top / "modules/singularity-CPEbits/25.03.lua").unlink()
    (top / "modules/singularity-CPEbits/25.03.lua/deep").mkdir(parents=True)
    (top / "modules/singularity-CPEbits/25.03.lua/deep/file").write_text("kept")
    (top / "modules").chmod(0o700)
    assert run("deploy", "old", "ROOT", "--apply")[0] == 1
    assert run("deploy", "old", "ROOT", "--apply", "--set-edits-aside")[0] == 0
    assert current() == OLD
    aside = Path("ROOT/edited", f"{OLD}-1")
    assert (aside / "modules/singularity-CPEbits/25.03.lua/deep/file").read_text() == "kept"
    assert str((aside / "spank/bin").readlink()) == "../bin"
    assert (aside / "bin/singularity").exists()
    assert not list(Path("ROOT").rglob(".lumisite-*"))


def test_edits_are_set_aside_each_time_under_a_new_name(run: Run) -> None:
    deploy("old")
    for number in (1, 2):
        edit_current()
        assert run("deploy", "old", "ROOT", "--apply", "--set-edits-aside")[0] == 0
        assert Path("ROOT/edited", f"{OLD}-{number}", "modules/mine.lua").exists()


def test_a_pipe_cannot_be_set_aside_and_is_named(run: Run) -> None:
    deploy("old")
    os.mkfifo("ROOT/current/pipe")
    code, _, err = run("deploy", "new", "ROOT", "--apply", "--set-edits-aside")
    assert code == 1
    assert "pipe: is neither a file nor a link and cannot be set aside; remove it" in err
    assert current_name() == OLD
    assert not list(Path("ROOT").rglob(".lumisite-*"))


def current_name() -> str:
    return Path("ROOT/current").readlink().name


def test_edits_in_an_older_release_are_no_matter_until_it_comes_again(run: Run) -> None:
    deploy("old")
    Path("ROOT/current/spank/task_prolog").write_text("x")
    assert run("deploy", "new", "ROOT", "--apply", "--set-edits-aside")[0] == 0
    deploy("third")
    assert run("deploy", "old", "ROOT", "--apply")[0] == 1
    assert current() == THIRD
