"""`deploy`: from a rendered tree to what users load."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click

from lumisite.cli.commands import Command
from lumisite.cli.options import PATH, json_option, root_argument
from lumisite.cli.output import DIFFERENCE, print_json, print_lines, print_note
from lumisite.errors import ResolveError, refused
from lumisite.findings.writers import subject_and_message
from lumisite.paths import current
from lumisite.release.deploy import DeployPreview, apply_plan, load_out, plan_deploy
from lumisite.release.diff import to_json
from lumisite.release.diff_lines import file_lines, meaning_lines, summary_lines
from lumisite.release.files import make_directories
from lumisite.release.prune import KEPT, old_releases, remove_old
from lumisite.release.root import locked, read_root
from lumisite.release.tree import fault_lines, user_and_node


@click.command(cls=Command)
@click.argument("out", metavar="OUT", type=PATH, help="A tree that `lumisite render` wrote.")
@root_argument
@click.option("--apply", is_flag=True, help="Deploy; without it, only show what would change.")
@click.option(
    "--keep", metavar="N", type=click.IntRange(1), default=KEPT, help=f"Newest releases that stay (default: {KEPT})."
)
@click.option("--details", is_flag=True, help="Show every change and the diff of every file.")
@json_option
def command(out: Path, root: Path, apply: bool, keep: int, details: bool, as_json: bool) -> int:
    """Print what a rendered tree would change in a deployment root, and with --apply deploy it.

    Without --apply nothing is written, and the exit code is 1 where something would change. Older releases are removed,
    but for those that jobs may use.
    """
    if apply and as_json:
        raise ResolveError("--json: not with --apply")
    tree = load_out(out, os.geteuid())
    plan = plan_deploy(tree, root, os.geteuid())
    if not apply:
        return _preview(plan, out, root, keep, details=details, as_json=as_json)
    try:
        make_directories(Path(os.path.realpath(root)))
    except OSError as error:
        raise refused("create the deployment root", error) from error
    with locked(read_root(root).path, by := user_and_node()):
        plan = plan_deploy(tree, root, os.geteuid())
        changed = apply_plan(plan, by)
        removed = remove_old(plan.root, plan.out.manifest.release, keep) if changed else []
    _print_difference(plan, details=details)  # by now a reader that has left stops nothing half-way
    _print_deployed(plan, root, removed, changed=changed)
    return 0


def _preview(plan: DeployPreview, out: Path, root: Path, keep: int, *, details: bool, as_json: bool) -> int:
    """Print what a deploy would do, and return 1 where something would change. Raises `DifferenceError` for damage."""
    removed = old_releases(plan.root, plan.out.manifest.release, keep)
    if as_json:
        edited = {str(release.path): list(map(subject_and_message, release.faults)) for release in plan.edited}
        print_json({**to_json(plan.difference), "edited": edited, "removed": removed})
    elif _print_difference(plan, details=details) and not details and plan.difference.old:
        print_note(f"all of it: {format_command('deploy', out, root, '--details')}")
    _print_edits(plan)
    plan.refuse_damage()
    if plan.difference and not as_json:
        for name in removed:
            print_note(f"would be removed: {plan.root.release(name)}")
        print_note(f"nothing was written; deploy it: {format_command('deploy', out, root, '--apply')}")
    return 1 if plan.difference or plan.edited else 0


def _print_deployed(plan: DeployPreview, root: Path, removed: list[str], *, changed: bool) -> None:
    """Print what was done, and how to go on."""
    before, release = plan.root.current, plan.out.manifest.release
    if not changed:
        same = f" and has the same content as {release}" if before != release else ""
        print_lines([f"nothing to do: {before} is deployed{same}"])
        return
    print_lines([f"deployed {release}" + (f" (before: {before})" if before not in ("", release) else "")])
    for name in removed:
        print_lines([f"removed {name}"])
    _print_edits(plan)
    print_note(f"check that it fits: {format_command('status', root)}")
    if before not in ("", release):
        print_note(f"go back: {format_command('rollback', root)}")


def _print_edits(plan: DeployPreview) -> None:
    """Print what was edited in the current release, where another one takes its place."""
    current = plan.current
    if current is not None and current.faults and current is not plan.existing:
        print_note(f"{current.path}: not as it was deployed; left as it is:{fault_lines(current.faults)}")


def _print_difference(plan: DeployPreview, *, details: bool) -> bool:
    """Print what users will notice; all of it, and the files, only on request. Return whether there is something."""
    difference = plan.difference
    if not difference:
        print_lines([f"no difference to {plan.root.current}"])
        return False
    if plan.current is None and plan.root.current:
        link = current(str(plan.root.path))
        missing = f"{plan.root.release(plan.root.current)}: missing, though {link} points to it"
        print_note(missing)
    lines = [f"release {difference.old or '(none)'} -> {difference.new}"]
    if details:
        lines += [*meaning_lines(difference), "", *file_lines(difference)]
    else:
        lines += summary_lines(difference)
    print_lines(lines, DIFFERENCE)
    return True


def format_command(*words: object) -> str:
    """Return a command of lumisite as it is typed."""
    return shlex.join(["lumisite", *map(str, words)])
