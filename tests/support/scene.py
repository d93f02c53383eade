"""What the tests of deployment share: three rendered trees, a root, and the command line as an admin types it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from lumisite.cli import main
from lumisite.release.tree import load_tree

THIRD = "2026-07-aaaaaaaaaaaa"
Run = Callable[..., tuple[int, str, str]]


def deploy(*names: str) -> None:
    for name in names:
        assert main(["deploy", name, "ROOT", "--apply"]) == 0


def current() -> str:
    link = Path("ROOT/current")
    assert not load_tree(link).faults
    return link.readlink().name


def edit_current() -> None:
    Path("ROOT/current/spank/task_prolog").write_text("#!/bin/sh\n# fixed at night\n")
    Path("ROOT/current/modules/mine.lua").write_text("-- mine\n")
    Path("ROOT/current/spank/task_prolog").chmod(0o700)
