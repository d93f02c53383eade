"""Rolling back, and the history that says where to."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lumisite.render.manifest import MANIFEST, sha256_of
from tests.support.rendered_trees import NEW, OLD, THIRD, current, deploy
from tests.unit.release.conftest import Run

NEXT = "lumisite: check that it fits: lumisite status ROOT\n"


@pytest.mark.usefixtures("run")
def test_a_reader_of_its_output_that_has_left_stops_no_rollback() -> None:
    deploy("old", "new")
    reader, writer = os.pipe()
    os.close(reader)
    subprocess.run([sys.executable, "-m", "lumisite", "rollback", "ROOT"], stdout=writer, check=False)
    os.close(writer)
    assert current() == OLD


def test_rollback_goes_back_until_there_is_none_and_a_deploy_starts_from_there(run: Run) -> None:
    deploy("old", "new")
    code, out, err = run("rollback", "ROOT")
    assert (code, out.splitlines()[-1], err, current()) == (0, f"rolled back {NEW} -> {OLD}", NEXT, OLD)
    assert "- platform: 2026-01\n+ platform: 2025-06\n" in out
    code, _, err = run("rollback", "ROOT")
    assert (code, f"no release before {OLD}; nothing was changed" in err) == (3, True)
    deploy("third")
    assert run("rollback", "ROOT")[0] == 0
    assert current() == OLD


def test_rollback_goes_to_any_release_that_is_named(run: Run) -> None:
    deploy("old", "new", "third")
    code, out, _ = run("rollback", "ROOT", OLD)
    assert (code, out.splitlines()[-1], current()) == (0, f"rolled back {THIRD} -> {OLD}", OLD)
    assert run("rollback", "ROOT")[0] == 3, "nothing is before it"
    assert run("rollback", "ROOT", NEW)[0] == 0, "forward too"
    for name, code, message in (
        (NEW, 2, "already the current release"),
        ("../x", 2, "not the id of a release"),
        ("2020-01-x", 1, "release-missing"),
    ):
        found, out, err = run("rollback", "ROOT", name)
        assert (found, out, message in err) == (code, "", True)
    (Path("ROOT/releases") / THIRD / "spank/task_prolog").write_text("x")
    assert run("rollback", "ROOT", THIRD)[0] == 1
    assert current() == NEW


def edit_with_its_manifest(release: Path) -> None:
    path, described = release / "spank/task_prolog", (release / MANIFEST).read_text()
    was = sha256_of(path.read_bytes())
    path.write_text("#!/bin/sh\nexit 1\n")
    assert described.count(was) == 1
    (release / MANIFEST).write_text(described.replace(was, sha256_of(path.read_bytes())))


@pytest.mark.parametrize(
    ("damage", "messages", "by_hand"),
    [
        (lambda release: (release / "spank/task_prolog").write_text("x"), ("release-damaged", "release-edited"), True),
        (edit_with_its_manifest, ("release-damaged", "\n  MANIFEST.json: edited "), True),
        (lambda release: release.chmod(0o777), ("release-damaged", "mode 0777, expected 0755"), True),
        # No advice may leave the link dangling: a release with nothing in it is no better than none.
        (lambda release: release.rename("gone"), ("release-missing",), False),
        (lambda release: (release / "modules").rename("gone"), ("release-damaged", "release-file-missing"), False),
    ],
)
def test_rollback_refuses_a_release_that_is_not_whole(
    run: Run, damage: Callable[[Path], object], messages: tuple[str, ...], by_hand: bool
) -> None:
    deploy("old", "new")
    damage(Path("ROOT/releases", OLD))
    history = Path("ROOT/history").read_bytes()
    code, _, err = run("rollback", "ROOT")
    assert (code, current()) == (1, NEW)
    assert [message for message in messages if message not in err] == []
    assert ("ln -s" in err) == by_hand
    assert Path("ROOT/history").read_bytes() == history


def test_rollback_away_from_an_edited_release_leaves_it_as_it_is(run: Run) -> None:
    deploy("old", "new")
    Path("ROOT/current/modules/mine.lua").write_text("-- mine\n")
    code, _, err = run("rollback", "ROOT")
    assert code == 0
    assert f"{NEW}: not as it was deployed; left as it is:\n  modules/mine.lua" in err
    assert Path("ROOT/releases", NEW, "modules/mine.lua").exists()
    assert current() == OLD


def test_rollback_goes_even_when_its_line_cannot_be_written(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    deploy("old", "new")

    def full(descriptor: int, content: bytes) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        code, _, err = run("rollback", "ROOT")
    assert code == 0
    assert "history: could not be written; the link was moved all the same" in err
    assert current() == OLD
    assert run("rollback", "ROOT")[0] == 3
    deploy("third")
    assert run("rollback", "ROOT")[0] == 0
    assert current() == OLD


@pytest.mark.parametrize("words", [("deploy", "new", "old", "--apply"), ("status", "old"), ("rollback", "nowhere")])
def test_a_rendered_tree_or_nothing_is_no_deployment_root(run: Run, words: tuple[str, ...]) -> None:
    code, _, err = run(*words)
    assert (code, "[root-unfit]" in err) == (2, True)
    assert not Path("old/releases").exists()


def test_a_root_that_has_lost_its_link_goes_to_a_release_that_is_named(run: Run) -> None:
    deploy("old", "new")
    Path("ROOT/current").unlink()
    place = Path("ROOT").absolute()
    code, _, err = run("rollback", "ROOT")
    assert (code, f"`lumisite rollback {place} ID`" in err) == (3, True)
    advice = f"next: lumisite status {place} --all, then lumisite rollback {place} ID\n"
    assert run("status", "ROOT")[1].endswith(advice)
    assert run("rollback", "ROOT", NEW) == (0, f"rolled back (none) -> {NEW}\n", NEXT)
    assert current() == NEW
    assert run("rollback", "ROOT")[0] == 0, "the way back is as before"
    assert current() == OLD
