"""`rollback`: back to a release that was deployed before."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import click

from lumisite.cli.commands import Command
from lumisite.cli.deploy import format_command
from lumisite.cli.options import root_argument
from lumisite.cli.output import DIFFERENCE, print_lines, print_note
from lumisite.release.deploy import plan_rollback, roll_back
from lumisite.release.diff import Difference, compare
from lumisite.release.diff_lines import summary_lines
from lumisite.release.root import existing_root, inspect_release, locked, read_root
from lumisite.release.tree import fault_lines, user_and_node


@click.command(cls=Command)
@root_argument
@click.argument(
    "release", metavar="[ID]", required=False, default="", help="The release to go to (default: the one before)."
)
def command(root: Path, release: str) -> int:
    """Go one release back, or to the one that is named, at once."""
    path = existing_root(root, os.geteuid()).path
    with locked(path, by := user_and_node()):
        now = read_root(path)
        before, after = inspect_release(now, now.current), plan_rollback(now, release)
        if before.manifest.release and (difference := compare(before, after)):
            _print_difference(difference)
        logged = roll_back(now, by, after.path.name)
    print_lines([f"rolled back {now.current or '(none)'} -> {after.path.name}"])
    if now.current and before.faults:
        print_note(f"{before.path}: not as it was deployed; left as it is:{fault_lines(before.faults)}")
    if not logged:
        print_note(f"{path}/history: could not be written; the link was moved all the same")
    print_note(f"check that it fits: {format_command('status', root)}")
    return 0


def _print_difference(difference: Difference) -> None:
    """Print what a rollback is about to change; a full disk or a reader that has left is no reason not to go back."""
    with suppress(OSError):
        print_lines([f"release {difference.old} -> {difference.new}", *summary_lines(difference)], DIFFERENCE)
