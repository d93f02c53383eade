"""`deploy` and `rollback`: from a rendered tree to what users load, and back."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from contextlib import suppress
from pathlib import Path

from lumisite.cli.arguments import add_details, add_json, add_out, add_root
from lumisite.cli.colours import DIFFERENCE, print_lines
from lumisite.cli.difference import file_lines, meaning_lines, summary_lines
from lumisite.cli.output import print_result
from lumisite.errors import ResolveError, refused
from lumisite.release.deploy import (
    KEPT,
    DeployPreview,
    apply_plan,
    load_out,
    old_releases,
    plan_deploy,
    plan_rollback,
    remove_old,
    roll_back,
)
from lumisite.release.diff import Difference, compare, to_json
from lumisite.release.files import make_directories
from lumisite.release.root import existing_root, locked, read_root
from lumisite.release.tree import describe, fault_lines, owner_of
from lumisite.text import printable


def add_deploy(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `deploy`."""
    add_out(parser)
    add_root(parser)
    parser.add_argument("--apply", action="store_true", help="deploy; without it, only show what would change")
    parser.add_argument("--change-site", action="store_true", help="allow a root that belongs to another site")
    parser.add_argument(
        "--keep",
        metavar="N",
        type=int,
        default=KEPT,
        help=f"remove releases but for the newest N ({KEPT}), and those that jobs may use",
    )
    add_details(parser)
    add_json(parser)


def add_rollback(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rollback`."""
    add_root(parser)
    parser.add_argument(
        "release", metavar="ID", nargs="?", default="", help="the release to go to (default: the one before)"
    )


def run_deploy(arguments: argparse.Namespace) -> int:
    """Print what would change, or with `--apply` do it."""
    if arguments.apply and arguments.json:
        raise ResolveError("--json: not with --apply")
    if arguments.keep < 1:
        raise ResolveError("--keep: at least 1")
    out = load_out(arguments.out, os.geteuid())
    plan = plan_deploy(out, arguments.root, os.geteuid(), any_site=arguments.change_site)
    if not arguments.apply:
        return _preview(plan, arguments)
    try:
        make_directories(Path(os.path.realpath(arguments.root)))
    except OSError as error:
        raise refused("create the deployment root", error) from error
    with locked(read_root(arguments.root).path, by := _user()):
        plan = plan_deploy(out, arguments.root, os.geteuid(), any_site=arguments.change_site)
        changed = apply_plan(plan, by)
        removed = remove_old(plan.root, plan.out.manifest.release, arguments.keep) if changed else []
    _print_difference(plan, arguments)  # by now a reader that has left stops nothing half-way
    print(_deployed_line(plan, changed=changed))
    for name in removed:
        print(f"removed {name}")
    if changed:
        _print_edits(plan)
        _print_aside(f"check that it fits: {_command('status', arguments.root)}")
        if plan.root.current not in ("", plan.out.manifest.release):
            _print_aside(f"go back: {_command('rollback', arguments.root)}")
    return 0


def _preview(plan: DeployPreview, arguments: argparse.Namespace) -> int:
    """Print what deploying a tree would change, and return 1 where it would change anything; nothing is written."""
    if arguments.json:
        edited = {str(release.path): [describe(fault) for fault in release.faults] for release in plan.edited}
        removed = old_releases(plan.root, plan.out.manifest.release, arguments.keep)
        print_result({**to_json(plan.difference), "edited": edited, "removed": removed}, (), as_json=True)
    else:
        _print_difference(plan, arguments)
    _print_edits(plan)
    plan.refuse_damage()
    if plan.difference and not arguments.json:
        for name in old_releases(plan.root, plan.out.manifest.release, arguments.keep):
            _print_aside(f"would be removed: {plan.root.release(name)}")
        _print_aside(f"nothing was written; {_how_to_deploy(plan, arguments)}")
    return 1 if plan.difference or plan.edited else 0


def _print_edits(plan: DeployPreview) -> None:
    """Print what was edited in the current release, where another one takes its place."""
    current = plan.current
    if current is not None and current.faults and current is not plan.existing:
        _print_aside(f"{current.path}: not as it was deployed; left as it is:{fault_lines(current.faults)}")


def _deployed_line(plan: DeployPreview, *, changed: bool) -> str:
    before, release = plan.root.current, plan.out.manifest.release
    if not changed:
        same = f" and has the same content as {release}" if before != release else ""
        return f"nothing to do: {before} is deployed{same}"
    return f"deployed {release}" + (f" (before: {before})" if before not in ("", release) else "")


def _how_to_deploy(plan: DeployPreview, arguments: argparse.Namespace) -> str:
    options = ["--change-site"] if plan.is_of_another_site else []
    note = f" (it replaces site {printable(plan.site)} for its users)" if plan.is_of_another_site else ""
    return f"deploy it: {_command('deploy', arguments.out, arguments.root, '--apply', *options)}{note}"


def run_rollback(arguments: argparse.Namespace) -> int:
    """Go back one release, or to the one that is named."""
    root = existing_root(arguments.root, os.geteuid()).path
    with locked(root, by := _user()):
        now = read_root(root)
        before, after = plan_rollback(now, arguments.release)
        if before.manifest.release and (difference := compare(before, after)):
            _print_rollback(difference)
        logged = roll_back(now, by, after.path.name)
    print(f"rolled back {now.current or '(none)'} -> {after.path.name}")
    if now.current and before.faults:
        _print_aside(f"{before.path}: not as it was deployed; left as it is:{fault_lines(before.faults)}")
    if not logged:
        _print_aside(f"{root}/history: could not be written; the link was moved all the same")
    _print_aside(f"check that it fits: {_command('status', arguments.root)}")
    return 0


def _print_rollback(difference: Difference) -> None:
    """Print what a rollback is about to change; a full disk or a reader that has left is no reason not to go back."""
    with suppress(OSError):
        print_lines([f"release {difference.old} -> {difference.new}", *summary_lines(difference)], DIFFERENCE)
        sys.stdout.flush()


def _print_difference(plan: DeployPreview, arguments: argparse.Namespace) -> None:
    """Print what users will notice; all of it, and the files, only on request."""
    difference = plan.difference
    if not difference:
        print(f"no difference to {plan.root.current}")
        return
    if plan.current is None and plan.root.current:
        _print_aside(f"{plan.root.release(plan.root.current)}: missing, though {plan.root.path}/current points to it")
    first = f"release {difference.old or '(none)'} -> {difference.new}"
    if arguments.details or arguments.full:
        lines = [*meaning_lines(difference), "", *file_lines(difference, full=arguments.full)]
        print_lines([first, *lines], DIFFERENCE)
    else:
        print_lines([first, *summary_lines(difference)], DIFFERENCE)
        if difference.old and not arguments.apply:
            _print_aside(f"all of it: {_command('deploy', arguments.out, arguments.root, '--details')}")


def _command(*words: object) -> str:
    return shlex.join(["lumisite", *map(str, words)])


def _user() -> str:
    return f"{owner_of(os.getuid())}@{os.uname().nodename}"


def _print_aside(text: str) -> None:
    print(text, file=sys.stderr)
