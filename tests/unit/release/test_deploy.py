"""Deploying, through the command line as an admin types it."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest

from lumisite.release.root import locked
from lumisite.release.tree import load_tree
from lumisite.render.manifest import MANIFEST
from tests.support.rendered_trees import (
    NEW,
    OLD,
    THIRD,
    current,
    deploy,
    everything,
    manifest,
    tree,
    with_manifest,
    written,
)
from tests.unit.release.conftest import Run


def test_without_apply_nothing_is_written(run: Run) -> None:
    code, out, err = run("deploy", "new", "ROOT")
    assert code == 1
    assert "+ module singularity-CPEbits/25.03\n+ module singularity-CPEbits/25.03: /opt/cray\n" in out
    assert err == "lumisite: nothing was written; deploy it: lumisite deploy new ROOT --apply\n"
    assert not Path("ROOT").exists()


def test_a_deploy_copies_the_tree_whole_leaves_the_old_release_and_moves_a_relative_link(run: Run) -> None:
    deploy("old")
    before = everything(Path("ROOT/releases") / OLD)
    code, out, err = run("deploy", "new", "ROOT", "--apply")
    assert (code, err) == (
        0,
        "lumisite: check that it fits: lumisite status ROOT\nlumisite: go back: lumisite rollback ROOT\n",
    )
    assert "- module singularity-CPEbits/25.03: /opt/cray/libfabric/1.15.2.0\n" in out
    assert out.endswith(f"deployed {NEW} (before: {OLD})\n")
    assert str(Path("ROOT/current").readlink()) == f"releases/{NEW}"
    assert everything(Path("ROOT/releases") / OLD) == before
    copied, rendered = everything(Path("ROOT/releases") / NEW), everything(Path("new"))
    assert {path: (mode, text) for path, (mode, _, text) in copied.items()} == {
        path: (mode, text) for path, (mode, _, text) in rendered.items()
    }


@pytest.mark.parametrize("bits", [0, 0o077])
def test_users_can_read_and_only_the_admin_can_write_whatever_the_umask_is(run: Run, bits: int) -> None:
    before = os.umask(bits)
    try:
        deploy("old", "new")
        assert run("rollback", "ROOT")[0] == 0
    finally:
        os.umask(before)
    modes = {path: stat.S_IMODE(mode) for path, (mode, _, _) in everything(Path("ROOT")).items()}
    assert {path: f"{mode:o}" for path, mode in modes.items() if "/" not in path} == {
        "releases": "755",
        "current": "777",
        "history": "644",
        ".lock": "600",  # who may read a lock can hold it
    }
    assert not load_tree(Path("ROOT/current")).faults


def test_a_root_of_somebody_else_is_refused_with_the_owners_name(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    deploy("old")
    really = os.open

    def not_mine(path: Path, *more: int, dir_fd: int | None = None) -> int:
        if Path(path).name == ".lock":
            raise PermissionError(13, "Permission denied", str(path))
        return really(path, *more, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", not_mine)
    code, out, err = run("deploy", "new", "ROOT", "--apply")
    owner = Path("ROOT").owner()
    assert (code, out) == (3, "")
    assert f"belongs to {owner}, and you cannot write there; nothing was changed (run the command as {owner})" in err


@pytest.mark.parametrize(("error", "code"), [(errno.EINVAL, 0), (errno.EIO, 3)])
def test_a_file_system_may_have_no_fsync_of_folders_but_none_that_fails(
    run: Run, monkeypatch: pytest.MonkeyPatch, error: int, code: int
) -> None:
    def refuse(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os, "fsync", refuse)
    assert run("deploy", "new", "ROOT", "--apply")[0] == code
    assert os.path.lexists("ROOT/current") == (code == 0)


def test_what_is_deployed_already_is_nothing_to_do(run: Run, tmp_path: Path) -> None:
    deploy("new")
    before = everything(Path("ROOT"))
    assert run("deploy", "new", "ROOT") == (0, f"no difference to {NEW}\n", "")
    assert run("deploy", "new", "ROOT", "--apply")[:2] == (
        0,
        f"no difference to {NEW}\nnothing to do: {NEW} is deployed\n",
    )
    written(tmp_path / "same", tree("2026-01-000000000000"))
    code, out, _ = run("deploy", "same", "ROOT", "--apply")
    assert code == 0
    assert f"nothing to do: {NEW} is deployed and has the same content as 2026-01-000000000000" in out
    after = everything(Path("ROOT"))
    assert {path: after[path] for path in after if path != ".lock"} == {
        path: before[path] for path in before if path != ".lock"
    }


@pytest.mark.parametrize(
    ("change", "code", "finding"),
    [
        (lambda out: (out / "spank/task_prolog").write_text("x"), 1, "out-changed"),
        (lambda out: (out / "spank/task_prolog").unlink(), 1, "out-changed"),
        (lambda out: (out / "more").write_text("x"), 1, "out-changed"),
        (lambda out: (out / MANIFEST).write_text("{}"), 1, "file-unreadable"),
        (lambda out: (out / MANIFEST).unlink(), 2, "out-unfit"),
        (lambda out: out.rename("gone"), 2, "out-unfit"),
    ],
)
def test_a_tree_that_is_not_as_it_was_rendered_is_refused(
    run: Run, change: Callable[[Path], object], code: int, finding: str
) -> None:
    change(Path("new"))
    for options in ([], ["--apply"]):
        found, out, err = run("deploy", "new", "ROOT", *options)
        assert (found, out) == (code, "")
        assert f"[{finding}]" in err
    assert not Path("ROOT").exists()


@pytest.mark.parametrize(
    ("prepare", "code", "message"),
    [
        (lambda root: root.write_text(""), 2, "[root-unfit]"),
        (lambda root: (root / "current").mkdir(parents=True), 1, "[root-damaged]"),
        (lambda root: (root.mkdir(), (root / "current").symlink_to("/etc")), 1, "[root-damaged]"),
        (lambda root: (root.mkdir(), (root / "history").write_text("x\n")), 1, "history:1: "),
        (lambda root: (root.mkdir(), (root / "releases").write_text("")), 3, "cannot deploy"),
        (lambda root: (root / ".lock").mkdir(parents=True), 3, "cannot lock"),
        (
            lambda root: ((root / "releases").mkdir(parents=True), (root / "releases" / NEW).write_text("")),
            1,
            "[release-damaged]",
        ),
    ],
)
def test_a_root_that_is_not_ours_is_refused_in_one_line(
    run: Run, tmp_path: Path, prepare: Callable[[Path], object], code: int, message: str
) -> None:
    prepare(Path("ROOT"))
    before = everything(tmp_path)
    found, _, err = run("deploy", "new", "ROOT", "--apply")
    assert (found, message in err, err.count("\n")) == (code, True, 1)
    after = everything(tmp_path)
    assert {path: found[2] for path, found in after.items() if path != "ROOT/.lock"} == {
        path: found[2] for path, found in before.items() if path != "ROOT/.lock"
    }


def test_a_root_inside_the_tree_is_refused(run: Run) -> None:
    code, _, err = run("deploy", "new", "new/ROOT", "--apply")
    assert (code, "is inside new, the tree to deploy" in err) == (2, True)
    assert not load_tree(Path("new")).faults


@pytest.mark.parametrize("options", [[], ["--apply"]])
def test_a_tree_of_another_site_is_refused_and_both_are_named(run: Run, tmp_path: Path, options: list[str]) -> None:
    written(tmp_path / "foreign", with_manifest(tree(THIRD), replace(manifest(THIRD), site="university")))
    deploy("old")
    code, out, err = run("deploy", "foreign", "ROOT", *options)
    assert (code, out) == (2, "")
    assert "[root-unfit]" in err
    assert "holds releases of site lumi, and foreign is of site university" in err
    assert [path.name for path in Path("ROOT/releases").iterdir()] == [OLD]


def test_an_id_with_other_content_is_refused(run: Run, tmp_path: Path) -> None:
    deploy("new", "old")
    written(tmp_path / "other", tree(NEW, libfabric="9.9"))
    code, _, err = run("deploy", "other", "ROOT", "--apply")
    assert (code, "[release-damaged]" in err, current()) == (1, True, OLD)
    # The same without a line in the history: a deploy that was killed before it came so far.
    Path("ROOT/history").unlink()
    assert run("deploy", "other", "ROOT", "--apply")[0] == 1


def test_a_current_release_that_is_gone_is_reported_and_replaced(run: Run) -> None:
    deploy("old")
    Path("ROOT/releases", OLD).rename("gone")
    code, _, err = run("deploy", "new", "ROOT", "--apply")
    assert (code, f"{OLD}: missing, though" in err, current()) == (0, True, NEW)


def test_a_release_folder_can_be_deployed_again(run: Run) -> None:
    deploy("old", "new", "third")
    assert run("deploy", f"ROOT/releases/{OLD}", "ROOT", "--apply")[0] == 0
    assert current() == OLD
    assert run("rollback", "ROOT")[0] == 0
    assert current() == THIRD


def test_while_one_is_at_work_a_second_deploy_is_refused_with_the_name_of_the_first(run: Run) -> None:
    deploy("old")
    root = Path("ROOT").resolve()
    with locked(root, "anna@uan01"):
        for command in (["deploy", "new", "ROOT", "--apply"], ["rollback", "ROOT"]):
            code, _, err = run(*command)
            assert code == 3
            before, _, rest = err.partition(", since ")
            since, _, after = rest.partition("); ")
            assert before == f"lumisite: {root}: another deploy or rollback is running (pid {os.getpid()}, anna@uan01"
            assert datetime.fromisoformat(since.replace("Z", "+00:00")) <= datetime.now(timezone.utc)
            assert after.endswith("[root-locked]\n")
        assert run("deploy", "new", "ROOT")[0] == 1
        assert run("status", "ROOT", "--all")[0] == 0
    assert current() == OLD
    deploy("new")


# ---- what somebody changed by hand in a deployed release


def test_edits_in_the_current_release_are_named_and_stay_in_it(run: Run) -> None:
    deploy("old")
    Path("ROOT/current/spank/task_prolog").write_text("#!/bin/sh\n# fixed at night\n")
    Path("ROOT/current/modules/mine.lua").write_text("-- mine\n")
    before = everything(Path("ROOT/releases", OLD))
    for options in (["--details"], ["--apply", "--details"]):
        code, out, err = run("deploy", "new", "ROOT", *options)
        assert code == (0 if "--apply" in options else 1)
        assert "-# fixed at night\n" in out
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
def test_nothing_is_written_into_a_damaged_release_and_another_one_is_deployed(
    run: Run, edit: Callable[[Path], object]
) -> None:
    deploy("old")
    edit(Path("ROOT/releases", OLD))
    before = everything(Path("ROOT/releases"))
    for options in ([], ["--apply"]):
        code, _, err = run("deploy", "old", "ROOT", *options)
        assert (code, "[release-damaged]" in err) == (1, True)
    assert everything(Path("ROOT/releases")) == before
    assert run("deploy", "new", "ROOT", "--apply")[0] == 0
    assert current() == NEW
