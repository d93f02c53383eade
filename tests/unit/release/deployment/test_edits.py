"""What an admin changed by hand in a deployed release is named, and nothing is written over it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from lumisite.render.manifest import MANIFEST, sha256_of
from tests.support.scene import Run, current, deploy, edit_current
from tests.support.trees import NEW, OLD, everything, manifest, with_manifest


def test_edits_in_the_current_release_are_named_and_stay_in_it(run: Run) -> None:
    deploy("old")
    edit_current()
    before = everything(Path("ROOT/releases", OLD))
    for options in ([], ["--apply"]):
        code, _, err = run("deploy", "new", "ROOT", *options)
        assert code == (0 if options else 1)
        assert re.search(r"\n  modules/mine.lua: .*\[release-edited\]", err)
        assert re.search(r"\n  spank/task_prolog: .*\(\S+, 20\d\d-\d\d-\d\dT.*\[release-edited\]", err)
    assert everything(Path("ROOT/releases", OLD)) == before
    assert current() == NEW


@pytest.mark.parametrize(
    "edit",
    [
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
    before = everything(Path("ROOT/releases"))
    assert run("deploy", "new", "ROOT")[0] == 1
    for words in (["deploy", "old", "ROOT", "--apply"], ["deploy", "old", "ROOT"]):
        code, _, err = run(*words)
        assert code == 1
        assert "[release-damaged]" in err
    assert everything(Path("ROOT/releases")) == before
    assert run("deploy", "new", "ROOT", "--apply")[0] == 0
    assert current() == NEW


def test_a_release_that_was_edited_with_its_manifest_is_not_gone_back_to(run: Run) -> None:
    deploy("old", "new")
    top, path = Path("ROOT/releases", OLD), "spank/task_prolog"
    described = (top / MANIFEST).read_text()
    was = sha256_of((top / path).read_bytes())
    (top / path).write_text("#!/bin/sh\nexit 1\n")
    assert described.count(was) == 1
    (top / MANIFEST).write_text(described.replace(was, sha256_of((top / path).read_bytes())))
    code, _, err = run("rollback", "ROOT")
    assert (code, current()) == (1, NEW)
    assert re.search(r"\n  MANIFEST.json: edited .*\[release-edited\]", err)
