"""`policy`: for whom the helper of a deployment root is on, from the next step on."""

from __future__ import annotations

import argparse
import fnmatch
import grp
import os
import re
import shlex
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from lumisite.cli.arguments import add_json, add_release_site, add_root
from lumisite.cli.output import print_note, print_result
from lumisite.cli.site_choice import recorded_site
from lumisite.errors import DifferenceError, ResolveError, ToolError, refused
from lumisite.findings.catalogue import make_finding
from lumisite.machine.program import run_program
from lumisite.release.policy import MODES, NAME, Policy, Rule, change_policy, policy_path, read_policy, to_json
from lumisite.release.root import Root, existing_root, manifests
from lumisite.release.tree import owner_of
from lumisite.site.load import load_site
from lumisite.site.model import Site
from lumisite.text import columns, nearest_name

#: How long Slurm may take to name an account.
_LIMIT_S = 10


def add_policy(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `policy`."""
    parser.description = (
        "Print or change for whom the srun helper is on: `act`, `observe` (it decides, changes nothing, and writes "
        "what it would have done to the journal) or `off`. The next step obeys; nothing is rendered. A mode "
        "without conditions is for everybody and replaces the policy; with conditions it is put before the rules that "
        "there are, and the first rule that fits a step counts. Where none fits, and where the policy is missing or "
        "damaged, the helper acts for users who have loaded the module and is off otherwise."
    )
    add_root(parser)
    parser.add_argument(
        "mode", metavar="MODE", nargs="?", choices=MODES, help="off, observe or act (default: print it)"
    )
    for name, of in (("partition", "in this partition"), ("account", "of this account"), ("group", "of this group")):
        parser.add_argument(
            f"--{name}",
            metavar=name[0].upper(),
            action="append",
            default=[],
            help=f"only steps {of}{' of users' if name == 'group' else ''}; may be given several times",
        )
    parser.add_argument(
        "--share", metavar="PERCENT", type=_percent, help="only this share of the jobs, chosen by their numbers"
    )
    parser.add_argument(
        "--canary", metavar="PERCENT", type=_percent, help="act for this share of the jobs and observe the rest"
    )
    add_release_site(parser)
    add_json(parser)


def _percent(text: str) -> int:
    """Parse a whole number of percent, with its sign or without."""
    if not re.fullmatch(r"([1-9][0-9]?|100)%?", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of percent from 1 to 100")
    return int(text.rstrip("%"))


def run_policy(arguments: argparse.Namespace) -> int:
    """Print the policy, or change it first."""
    changes = bool(arguments.mode or arguments.canary)
    root = existing_root(arguments.root, os.geteuid() if changes else None)
    conditional = any((arguments.partition, arguments.account, arguments.group, arguments.share))
    if arguments.canary and (arguments.mode or arguments.share):
        raise ResolveError("--canary: acts for a share and observes the rest (leave out MODE and --share)")
    if not changes:
        if conditional:
            raise ResolveError("MODE: none is given for these conditions (off, observe or act)")
        policy = read_policy(root.path)
    else:
        rules = tuple(_rules(arguments, _site_of(arguments, root)))
        try:
            policy = change_policy(root.path, rules, f"{owner_of(os.getuid())}@{os.uname().nodename}")
        except OSError as error:
            raise refused("write", error) from error
    result: dict[str, Any] = {"root": str(root.path), "policy": to_json(policy) if policy else None}
    print_result(result, _lines(root, policy), as_json=arguments.json)
    return 0


def _site_of(arguments: argparse.Namespace, root: Root) -> Site | None:
    """Return the site that is named, else that of the releases in the root; `None` where it is not known here."""
    recorded = next((recorded_site(manifest.site) for manifest in manifests(root)), "")
    name = arguments.site or recorded
    return load_site(name).site if name else None


def _rules(arguments: argparse.Namespace, site: Site | None) -> Iterator[Rule]:
    """Yield the rules that the options ask for; raises `ResolveError` for a name that there is not."""
    partitions, accounts = tuple(arguments.partition), tuple(arguments.account)
    for option, names in (("partition", partitions), ("account", accounts)):
        for name in names:
            if not NAME.fullmatch(name):
                raise ResolveError(make_finding("policy-name", name, option=option))
    if site is not None:
        _check_partitions(partitions, site)
    _check_accounts(accounts, site)
    groups = tuple(map(_group, arguments.group))
    if arguments.canary:
        yield Rule("act", partitions, accounts, groups, arguments.canary)
    share = None if arguments.share == 100 else arguments.share
    yield Rule(arguments.mode or "observe", partitions, accounts, groups, share)


def _check_partitions(partitions: Iterable[str], site: Site) -> None:
    known = (*site.partitions, *site.other_partitions)
    for name in partitions:
        if name not in known:
            near = nearest_name(name, known)
            raise ResolveError(make_finding("policy-partition", name, site=site.name, near=near or None))


def _check_accounts(accounts: Iterable[str], site: Site | None) -> None:
    """Ask Slurm for accounts, else the site's patterns."""
    for name in accounts:
        known = _slurm_knows(name)
        if known is None and site is not None and site.accounts:
            known = any(fnmatch.fnmatchcase(name, pattern) for pattern in site.accounts)
        if known is None:
            print_note(f"--account {name}: cannot be checked here, as Slurm has no accounting database that answers")
        elif not known:
            raise ResolveError(make_finding("policy-account", name))


def _slurm_knows(account: str) -> bool | None:
    """Return whether Slurm has an account, `None` where it does not answer."""
    argv = ["sacctmgr", "-nP", "show", "account", f"name={account}", "format=account"]
    try:
        done = run_program(argv, _LIMIT_S, os.environ)
    except (ToolError, OSError, subprocess.TimeoutExpired):
        return None
    return account in done.stdout.decode(errors="replace").split() if done.returncode == 0 else None


def _group(name: str) -> int:
    """Return the number of a group, which is what a task can compare without asking a name server."""
    try:
        return int(name) if name.isascii() and name.isdecimal() and len(name) < 11 else grp.getgrnam(name).gr_gid
    except (KeyError, ValueError):
        raise ResolveError(make_finding("policy-group", name)) from None


def _lines(root: Root, policy: Policy | None) -> list[str]:
    """Return the policy as people read it."""
    if policy is None:
        quoted = shlex.quote(str(root.path))
        otherwise = "so the helper acts for users who have loaded the module and is off otherwise"
        return [f"{policy_path(root.path)}: none, {otherwise}", f"next: lumisite policy {quoted} observe"]
    rows = [("mode", "for"), *((rule.mode, describe_rule(rule)) for rule in policy.rules)]
    return [f"{policy_path(root.path)}, written {policy.time} by {policy.by}", *columns(rows)]


def note_policy(root: Path) -> None:
    """Print a note where the helper is not on for all jobs: what it sets would be reported as missing in theirs."""
    with suppress(DifferenceError):  # `status` reports a damaged one
        policy = read_policy(root)
        if policy is not None and any(rule.mode != "act" for rule in policy.rules):
            rules = describe_policy(policy)
            print_note(f"{policy_path(root)}: {rules}: jobs for which it does not act fail the checks of what it sets")


def describe_policy(policy: Policy) -> str:
    """Return the rules of a policy on one line."""
    return "; ".join(f"{rule.mode} for {describe_rule(rule)}" for rule in policy.rules)


def describe_rule(rule: Rule) -> str:
    """Return for whom a rule is, in words."""
    parts = [f"partition {' or '.join(rule.partitions)}"] if rule.partitions else []
    parts += [f"account {' or '.join(rule.accounts)}"] if rule.accounts else []
    parts += [f"group {' or '.join(map(_group_name, rule.groups))}"] if rule.groups else []
    jobs = "all jobs" if rule.share is None else f"{rule.share} % of the jobs"
    return ", ".join([jobs, *parts])


def _group_name(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)
