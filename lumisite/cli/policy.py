"""`policy`: for whom the helper of a deployment root is on, from the next step on."""

from __future__ import annotations

import fnmatch
import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from lumisite.cli.commands import Command
from lumisite.cli.options import json_option, root_argument
from lumisite.cli.output import print_note, print_result
from lumisite.cli.site_choice import site_of_root
from lumisite.errors import DifferenceError, ResolveError, refused
from lumisite.release.policy import NAME, WORDS, Policy, PolicyLine, change_policy, policy_path, read_policy
from lumisite.release.root import Root, existing_root
from lumisite.release.tree import user_and_node
from lumisite.site.load import load_site
from lumisite.text import columns, nearest_name

#: What the words mean, and what holds where no line fits a step.
_MEANINGS = {
    "on": "sets binds, variables and CPU masks",
    "observe": "changes nothing; the system log says what it would set (journalctl -t lumisite)",
    "off": "does nothing",
}
OTHERWISE = "on for who has loaded the module, else off"


@click.command(cls=Command)
@root_argument
@click.argument(
    "word",
    metavar="[on|observe|off]",
    required=False,
    type=click.Choice(WORDS),
    help="The new policy (default: print it).",
)
@click.option(
    "--partition", "partitions", metavar="P", multiple=True, help="Only for steps in this partition; several times."
)
@click.option(
    "--account", "accounts", metavar="A", multiple=True, help="Only for steps of this account; several times."
)
@json_option
def command(root: Path, word: str | None, partitions: tuple[str, ...], accounts: tuple[str, ...], as_json: bool) -> int:
    """Print or change for whom the srun helper is on.

    It is `on`, `observe` (it decides, changes nothing, and writes to the system log what it would have set) or `off`.
    The next step obeys; nothing is rendered. A word for all jobs replaces the policy; a word for a partition or account
    comes before the lines that there are, and the first line that fits a step counts. Where none fits, and without a
    policy, the helper is on for users who have loaded the module and off otherwise.
    """
    found = existing_root(root, os.geteuid() if word else None)
    names = [*(("partition", name) for name in partitions), *(("account", name) for name in accounts)]
    if not word:
        if names:
            raise ResolveError("WORD: none is given for these names (on, observe or off)")
        policy = read_policy(found.path)
        if policy and policy.faults:
            raise DifferenceError(policy.faults[0])
    else:
        _check_names(names, found)
        lines = [PolicyLine(word, *name) for name in names] or [PolicyLine(word)]
        try:
            policy = change_policy(found.path, lines, user_and_node())
        except OSError as error:
            raise refused("write", error) from error
    result: dict[str, Any] = {"root": str(found.path), "policy": policy and [asdict(line) for line in policy.lines]}
    print_result(result, _lines(found, policy), as_json=as_json)
    return 0


def _check_names(names: Iterable[tuple[str, str]], root: Root) -> None:
    """Raise `ResolveError` for a name that cannot be written, or that the site of the root's releases does not have."""
    known = site_of_root(root)
    site = load_site(known).site if known else None
    for scope, name in names:
        if not NAME.fullmatch(name):
            remedy = "use letters, digits and . _ @ + -"
            raise ResolveError(f"{name}: cannot be written into a policy as {scope} ({remedy})")
        if site is None:
            continue
        partitions = (*site.partitions, *site.other_partitions)
        if scope == "partition" and name not in partitions:
            near = nearest_name(name, partitions)
            remedy = f"did you mean {near}?" if near else "or add it to `other_partitions` of the site description"
            raise ResolveError(f"{name}: no partition of site {site.name} ({remedy})")
        if scope == "account" and site.accounts and not any(fnmatch.fnmatchcase(name, one) for one in site.accounts):
            raise ResolveError(f"{name}: no account of site {site.name} (`sacctmgr show account` lists the accounts)")


def _lines(root: Root, policy: Policy | None) -> Iterator[str]:
    """Yield the policy as people read it, and what it means."""
    if policy is None:
        yield f"{policy_path(root.path)}: none, so the helper is {OTHERWISE}"
        yield f"next: lumisite policy {shlex.quote(str(root.path))} observe"
        return
    yield f"{policy_path(root.path)}: the first line that fits a step counts"
    rows = [(line.word, _jobs(line), _MEANINGS[line.word]) for line in policy.lines]
    rows += [] if any(line.scope == "default" for line in policy.lines) else [("", "all other jobs", OTHERWISE)]
    yield from columns(rows)


def _jobs(line: PolicyLine) -> str:
    return "all other jobs" if line.scope == "default" else f"{line.scope} {line.name}"


def note_policy(root: Path) -> None:
    """Print a note where the helper is not on for all jobs: what it sets would be reported as missing in theirs."""
    policy = read_policy(root)
    if policy is not None and any(line.word != "on" for line in policy.lines):
        described = f"{policy_path(root)}: {describe_policy(policy.lines)}"
        print_note(f"{described}: jobs for which it is not on fail the checks of what it sets")


def describe_policy(policy: Sequence[PolicyLine]) -> str:
    """Return a policy on one line."""
    return "; ".join(f"{line.word} for {_jobs(line)}" for line in policy) or OTHERWISE
