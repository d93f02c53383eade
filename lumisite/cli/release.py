"""`diff`, `deploy`, `rollback` and `releases`: from a rendered tree to what users load, and back."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from pathlib import Path
from typing import Any

from lumisite.cli.arguments import add_details, add_json, add_out, add_root
from lumisite.cli.parser import tell
from lumisite.cli.plain import show
from lumisite.errors import refused, shown
from lumisite.release.deploy import Plan, apply_plan, edits_text, load_out, plan_deploy, roll_back
from lumisite.release.diff import compare, file_lines, meaning_lines, summary_lines, to_json
from lumisite.release.files import make_directories
from lumisite.release.root import existing_root, list_releases, locked, read_root
from lumisite.release.tree import fault_lines, owner_of
from lumisite.text import columns


def add_diff(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `diff`."""
    add_out(parser)
    add_root(parser)
    add_details(parser)
    add_json(parser)


def add_deploy(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `deploy`."""
    add_out(parser)
    add_root(parser)
    parser.add_argument("--apply", action="store_true", help="write; without it, only show what would change")
    parser.add_argument(
        "--set-edits-aside",
        action="store_true",
        help=(
            "go on over files that were edited by hand in ROOT; they stay in their release's folder, or, where that "
            "release is deployed again and made whole, are kept in ROOT/set-aside"
        ),
    )
    parser.add_argument("--change-site", action="store_true", help="go on over a root that is of another site than OUT")
    add_details(parser)


def add_rollback(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rollback`."""
    add_root(parser)
    parser.add_argument(
        "release", metavar="ID", nargs="?", default="", help="the release to go to (default: the one before)"
    )


def add_releases(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `releases`."""
    add_root(parser)
    add_json(parser)


def run_diff(arguments: argparse.Namespace) -> int:
    """Show what deploying a tree would change."""
    plan = plan_deploy(load_out(arguments.out, os.geteuid()), arguments.root)
    if arguments.json:
        edited = {str(release.path): [str(fault) for fault in release.faults] for release in plan.edited}
        tell({**to_json(plan.difference), "edited": edited}, (), as_json=True)
    else:
        _show(plan, arguments)
    if plan.edited:
        _say(edits_text(plan))
    elif plan.difference and not arguments.json:
        _say(_how_to_deploy(plan, arguments))
    return 1 if plan.difference or plan.edited else 0


def run_deploy(arguments: argparse.Namespace) -> int:
    """Show what would change, and with `--apply` do it."""
    out = load_out(arguments.out, os.geteuid())
    plan = plan_deploy(out, arguments.root, os.geteuid(), any_site=arguments.change_site)
    if not arguments.apply:
        _show(plan, arguments)
        if plan.edited:
            _say(edits_text(plan))
        if plan.nothing_to_do:
            return 0
        _say(f"nothing was written; {_how_to_deploy(plan, arguments)}")
        return 1
    try:
        make_directories(Path(os.path.realpath(arguments.root)))
    except OSError as error:
        raise refused("make the folder", error) from error
    with locked(read_root(arguments.root).path, by := _user()):
        plan = plan_deploy(out, arguments.root, os.geteuid(), any_site=arguments.change_site)
        told = apply_plan(plan, by, set_edits_aside=arguments.set_edits_aside)
    _show(plan, arguments)  # by now a reader that has left stops nothing half-way
    print(told)
    if not plan.nothing_to_do:
        _say(f"whether it fits: {_command('status', arguments.root)}")
        if plan.root.current not in ("", plan.out.manifest.release):
            _say(f"go back: {_command('rollback', arguments.root)}")
    return 0


def _how_to_deploy(plan: Plan, arguments: argparse.Namespace) -> str:
    options = [*["--set-edits-aside"] * bool(plan.edited), *["--change-site"] * plan.is_of_another_site]
    only = f", where users of {shown(plan.site)} shall get it" * plan.is_of_another_site
    return f"deploy it{only}: {_command('deploy', arguments.out, arguments.root, '--apply', *options)}"


def run_rollback(arguments: argparse.Namespace) -> int:
    """Go back."""
    root = existing_root(arguments.root, os.geteuid()).path
    with locked(root, by := _user()):
        before, after, logged = roll_back(now := read_root(root), by, arguments.release)
    print(f"rolled back {now.current or '(none)'} -> {after.path.name}")
    if before.manifest.release and (difference := compare(before, after)):
        show("\n".join(summary_lines(difference)))
    if now.current and before.faults:
        _say(f"{before.path}: is not as it was deployed, and stays so:{fault_lines(before.faults)}")
    if not logged:
        _say(f"{root}/history: could not be written; the link was moved all the same")
    _say(f"whether it fits: {_command('status', arguments.root)}")
    return 0


def run_releases(arguments: argparse.Namespace) -> int:
    """List the releases of a root."""
    listed = list_releases(existing_root(arguments.root))
    if arguments.json:
        told = [{**one.pop("stacks"), **one, "faults": list(map(str, one["faults"]))} for one in map(dict, listed)]
        tell(told, (), as_json=True)
    elif listed:
        stacks = dict.fromkeys(stack for one in listed for stack in one["stacks"])
        names = ("release", "deployed", "site", "platform", *stacks, "lumisite", "inputs", "state")
        print("\n".join(columns([("", *map(str.upper, names)), *(_row(one, names) for one in listed)])))
        _say("* current   < where rollback goes   others: kept for the jobs that started with them")
    else:
        _say(f"{arguments.root}: no release yet")
    for one in listed:
        if one["faults"] and not arguments.json:
            _say(f"{one['release']}: is not as it was deployed:{fault_lines(one['faults'], most=5)}")
    return 1 if any(one["role"] == "current" and one["state"] != "whole" for one in listed) else 0


def _row(release: dict[str, Any], names: tuple[str, ...]) -> tuple[str, ...]:
    stacks = {stack: ",".join(versions) for stack, versions in release["stacks"].items()}
    short = {**dict.fromkeys(names, ""), **release, **stacks, "inputs": release["inputs"][:12]}
    mark = {"current": "*", "before": "<"}.get(release["role"], " ")
    return (mark, *(shown(short[name] or "-") for name in names))


def _show(plan: Plan, arguments: argparse.Namespace) -> None:
    """Print what users will notice; all of it, and the files, only on request."""
    difference = plan.difference
    if not difference:
        print(f"no difference to {plan.root.current}")
        return
    if plan.current is None and plan.root.current:
        _say(f"{plan.root.release(plan.root.current)}: is missing, though {plan.root.path}/current names it")
    first = f"release {difference.old or '(none)'} -> {difference.new}"
    if arguments.details or arguments.full:
        show("\n".join([first, *meaning_lines(difference), "", *file_lines(difference, full=arguments.full)]))
    else:
        show("\n".join([first, *summary_lines(difference)]))
        if difference.old and not getattr(arguments, "apply", False):
            _say(f"all of it: {_command('diff', arguments.out, arguments.root, '--details')}")


def _command(*words: object) -> str:
    return shlex.join(["lumisite", *map(str, words)])


def _user() -> str:
    return f"{owner_of(os.getuid())}@{os.uname().nodename}"


def _say(text: str) -> None:
    print(text, file=sys.stderr)
