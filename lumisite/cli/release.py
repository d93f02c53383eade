"""`diff`, `deploy`, `rollback` and `releases`: from a rendered tree to what users load, and back."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from lumisite.cli.parser import add_json_option

if TYPE_CHECKING:
    from lumisite.cli.parser import Commands
    from lumisite.release.deploy import Plan
    from lumisite.release.root import Actor


def add_commands(commands: Commands) -> None:
    """Add the commands of the release room."""
    diff = commands.add_parser("diff", help="what deploying a rendered tree would change")
    _add_out_and_root(diff)
    diff.add_argument("--full", action="store_true", help="show the whole diff of every file")
    add_json_option(diff)
    diff.set_defaults(call=_diff)

    deploy = commands.add_parser("deploy", help="put a rendered tree into a deployment root")
    _add_out_and_root(deploy)
    deploy.add_argument("--apply", action="store_true", help="write; without it, only show what would change")
    deploy.add_argument(
        "--set-edits-aside",
        action="store_true",
        help="go on over files that were edited by hand in ROOT; they stay in their release's folder",
    )
    deploy.add_argument("--full", action="store_true", help="show the whole diff of every file")
    deploy.set_defaults(call=_deploy)

    rollback = commands.add_parser("rollback", help="go one release back, at once")
    rollback.add_argument("root", metavar="ROOT", type=Path, help="the deployment root")
    rollback.set_defaults(call=_rollback)

    releases = commands.add_parser("releases", help="what is deployed: releases, inputs, and whether they are whole")
    releases.add_argument("root", metavar="ROOT", type=Path, help="the deployment root")
    add_json_option(releases)
    releases.set_defaults(call=_releases)


def _add_out_and_root(command: argparse.ArgumentParser) -> None:
    command.add_argument("out", metavar="OUT", type=Path, help="a tree that `lumisite render` wrote")
    command.add_argument("root", metavar="ROOT", type=Path, help="the deployment root")


def _diff(arguments: argparse.Namespace) -> int:
    from lumisite.release.deploy import load_out, plan_deploy
    from lumisite.release.diff import to_json

    plan = plan_deploy(load_out(arguments.out), arguments.root)
    if arguments.json:
        edited = {str(release.path): [str(fault) for fault in release.faults] for release in plan.edited}
        _print_json({**to_json(plan.difference), "edited": edited})
    else:
        _show(plan, full=arguments.full)
    _tell_edits(plan)
    return 1 if plan.difference or plan.edited else 0


def _deploy(arguments: argparse.Namespace) -> int:
    from lumisite.release.deploy import apply_plan, load_out, plan_deploy
    from lumisite.release.files import make_directories
    from lumisite.release.root import locked, read_root

    out = load_out(arguments.out)
    plan = plan_deploy(out, arguments.root)
    if not arguments.apply:
        _show(plan, full=arguments.full)
        _tell_edits(plan)
        if plan.nothing_to_do:
            return 0
        if not plan.is_damaged:
            options = "--apply --set-edits-aside" if plan.edited else "--apply"
            _say(f"nothing was written; run again with {options} to deploy it")
        return 1
    make_directories(Path(os.path.realpath(arguments.root)))
    actor = _actor()
    with locked(read_root(arguments.root).path, actor):
        plan = plan_deploy(out, arguments.root)
        _show(plan, full=arguments.full)
        told = apply_plan(plan, actor, set_edits_aside=arguments.set_edits_aside)
    _print([told])
    return 0


def _rollback(arguments: argparse.Namespace) -> int:
    from lumisite.release.deploy import roll_back
    from lumisite.release.diff import meaning_lines, summary
    from lumisite.release.root import existing_root, locked, read_root
    from lumisite.release.tree import fault_lines

    actor = _actor()
    with locked(existing_root(arguments.root).path, actor):
        done = roll_back(read_root(arguments.root), actor)
    _print([f"rolled back {done.before.release} -> {done.after.release}"])
    if done.difference:
        _print([summary(done.difference), *meaning_lines(done.difference)])
    if done.before.faults:
        _say(f"{done.before.path}: is not as it was deployed, and stays so:{fault_lines(done.before.faults)}")
    if not done.logged:
        _say(f"{done.root.path}/history: could not be written; the link was moved all the same")
    return 0


def _releases(arguments: argparse.Namespace) -> int:
    from lumisite.release.releases import list_releases, table_lines, to_json
    from lumisite.release.root import existing_root
    from lumisite.release.tree import fault_lines

    listed = list_releases(existing_root(arguments.root))
    if arguments.json:
        _print_json(to_json(listed))
    elif listed:
        _print(table_lines(listed))
        _say("* current   < where rollback goes   others: kept for the jobs that started with them")
    else:
        _say(f"{arguments.root}: no release yet")
    for release in listed:
        if release.faults and not arguments.json:
            _say(f"{release.release}: is not as it was deployed:{fault_lines(release.faults, most=5)}")
    return 1 if any(release.role == "current" and release.state != "whole" for release in listed) else 0


def _show(plan: Plan, *, full: bool) -> None:
    from lumisite.release.diff import file_lines, meaning_lines

    difference = plan.difference
    if not difference:
        _print([f"no difference to {plan.root.current}"])
        if difference.provenance:
            _say(f"different without an effect: {', '.join(difference.provenance)}")
        return
    if plan.current is None and plan.root.current:
        _say(f"{plan.root.release(plan.root.current)}: is missing, though {plan.root.path}/current names it")
    _print([f"release {difference.old or '(none)'} -> {difference.new}", *meaning_lines(difference), ""])
    _print(file_lines(difference, full=full))


def _tell_edits(plan: Plan) -> None:
    from lumisite.release.deploy import edits_text

    if plan.edited:
        _say(edits_text(plan))


def _actor() -> Actor:
    import pwd
    import time

    from lumisite.release.root import Actor
    from lumisite.release.tree import utc

    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = f"uid {os.getuid()}"
    return Actor(f"{user}@{os.uname().nodename}", os.getpid(), utc(time.time()))


def _print(lines: Iterable[str]) -> None:
    """Print to stdout, odd characters spelled out; a reader that has left does not stop a deploy half-way."""
    text = "".join(f"{line}\n" for line in lines)
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_json(document: object) -> None:
    import json

    _print([json.dumps(document, indent=2)])


def _say(text: str) -> None:
    print(text, file=sys.stderr)
