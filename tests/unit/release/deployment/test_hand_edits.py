"""What happens to what an admin changed by hand in a deployed release."""

from __future__ import annotations

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


def test_edits_set_aside_stay_in_their_release_alone(run: Run) -> None:
    deploy("old")
    edit_current()
    before = everything(Path("ROOT/releases", OLD))
    code, out, _ = run("deploy", "new", "ROOT", "--apply", "--set-edits-aside")
    assert code == 0
    assert out.endswith(f"deployed {NEW} (before: {OLD})\n")
    assert everything(Path("ROOT/releases", OLD)) == before
    assert current() == NEW


def test_an_edited_release_is_never_written_into_and_the_command_that_does_is_told(run: Run) -> None:
    deploy("old")
    top = Path("ROOT/releases", OLD)
    edit_current()
    (top / "modules/singularity-CPEbits/25.03.lua").unlink()
    before = everything(top)
    for options in ([], ["--apply"], ["--apply", "--set-edits-aside"]):
        code, _, err = run("deploy", "old", "ROOT", *options)
        assert code == 1
        assert f"rsync -a --checksum --delete old/ {top.resolve()}/" in err
        assert "--set-edits-aside" not in err
    assert everything(top) == before


def test_edits_in_an_older_release_are_no_matter_until_it_comes_again(run: Run) -> None:
    deploy("old")
    Path("ROOT/current/spank/task_prolog").write_text("x")
    assert run("deploy", "new", "ROOT", "--apply", "--set-edits-aside")[0] == 0
    deploy("third")
    for options in ([], ["--set-edits-aside"]):
        assert run("deploy", "old", "ROOT", "--apply", *options)[0] == 1
    assert current() == THIRD
