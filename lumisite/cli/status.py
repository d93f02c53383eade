"""`status`: what is deployed, whether it fits this machine, what is waiting, and what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from lumisite.cli.commands import Command
from lumisite.cli.options import PATH, host_root_option, json_option, require_directory
from lumisite.cli.output import print_json, print_lines, print_note, print_table
from lumisite.cli.policy import OTHERWISE, describe_policy
from lumisite.cli.site_choice import required_site, site_of_root
from lumisite.errors import LumisiteError
from lumisite.findings.exit_code import exit_code
from lumisite.findings.finding import Finding, Severity
from lumisite.findings.writers import subject_and_message
from lumisite.machine.host import DiskTree
from lumisite.release.host.checks import check_release
from lumisite.release.policy import read_policy
from lumisite.release.root import Root, existing_root, inspect_release, list_releases, release_row
from lumisite.release.tree import RenderedTree, fault_lines
from lumisite.site.load import LoadedSite, load_site
from lumisite.text import printable

_MOST_FAULTS = 5


@click.command(cls=Command)
@click.argument("root", metavar="[ROOT]", required=False, type=PATH, help="The deployment root (default: the site's).")
@click.option("--all", "all_releases", is_flag=True, help="List all releases in ROOT instead.")
@click.option("--site", metavar="NAME|FILE", default="", help="The site (default: the one that the release is of).")
@host_root_option
@json_option
def command(root: Path | None, all_releases: bool, site: str, host_root: str, as_json: bool) -> int:
    """Print which release users load, of which site, and whether it is whole and fits this node.

    Also what of the site description is not deployed yet, and the next command. The exit code is that of `check
    --host`, 1 where rollback would go to a release that is not whole, and 4 where the site of the release is not known
    (--site names it).
    """
    require_directory(host_root)
    name = site if root else required_site(site)
    loaded = load_site(name) if name else None
    found = existing_root(root or Path(loaded.site.root if loaded else ""))
    if all_releases:
        return _print_releases(found, as_json=as_json)
    release = inspect_release(found, found.current) if found.current else None
    if release and not name and (name := site_of_root(found)):
        loaded = load_site(name)
    if release:
        code, status = _status(found, release, name, loaded, DiskTree(host_root))
    else:
        code, status = 1, {"root": str(found.path), "release": None, "next": _first_command(found, name)}
    if as_json:
        print_json(status)
    elif release:
        print_table(_rows(status))
        print_lines([f"next        {status['next']}"])  # on one line, since users copy it
    else:
        print_lines([f"{status['root']}: no release is deployed", f"next: {status['next']}"])
    return code


# ---------------------------------------------------------------- all releases


def _print_releases(root: Root, *, as_json: bool) -> int:
    """Print the releases of a root, and return 1 where the current one is not whole."""
    rows = list_releases(root)
    if as_json:
        print_json([row["stacks"] | _without_stacks(row) | {"faults": _messages(row["faults"])} for row in rows])
    elif rows:
        stacks = dict.fromkeys(stack for row in rows for stack in row["stacks"])
        names = ("release", "deployed", "site", "platform", *stacks, "lumisite", "inputs", "state")
        print_table([("", *map(str.upper, names)), *(_row(row, names) for row in rows)])
        print_note("* current  < previous (rollback target)")
    else:
        print_note(f"{root.path}: no release yet")
    for row in rows:
        if row["faults"] and not as_json:
            faults = fault_lines(row["faults"], most=_MOST_FAULTS)
            print_note(f"{row['release']}: not as it was deployed:{faults}")
    return 1 if any(row["role"] == "current" and row["state"] != "whole" for row in rows) else 0


def _without_stacks(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "stacks"}


def _row(release: dict[str, Any], names: tuple[str, ...]) -> tuple[str, ...]:
    stacks = {stack: ",".join(versions) for stack, versions in release["stacks"].items()}
    values = {**dict.fromkeys(names, ""), **release, **stacks, "inputs": release["inputs"][:12]}
    mark = {"current": "*", "before": "<"}.get(release["role"], " ")
    return (mark, *(printable(values[name] or "-") for name in names))


# ---------------------------------------------------------------- the current release


def _first_command(root: Root, site: str) -> str:
    """Return the commands for a root without a current release."""
    quoted = shlex.quote(str(root.path))
    if list_releases(root):
        return f"lumisite status {quoted} --all, then lumisite rollback {quoted} ID"
    render = f"lumisite render --site {shlex.quote(site) if site else 'NAME|FILE'}"
    return f"{render}, then lumisite deploy OUT {quoted} --apply"


def _status(
    root: Root, release: RenderedTree, name: str, loaded: LoadedSite | None, host: DiskTree
) -> tuple[int, dict[str, Any]]:
    """Return the exit code and the keys of the JSON; `name` is that of the site as it was given."""
    quoted = shlex.quote(str(root.path))
    row = release_row(root, release)
    target = inspect_release(root, root.before) if root.before and root.release(root.before).exists() else None
    back = f"lumisite rollback {quoted}"
    if not target or target.faults:
        back = f"lumisite deploy OUT {quoted} --apply"
    status: dict[str, Any] = {"root": str(root.path), "release": root.current}
    status |= {key: row[key] for key in ("site", "platform", "stacks", "deployed", "by", "lumisite", "state")}
    status |= {
        "before": target and target.path.name,
        "before_faults": _messages(target.faults if target else ()),
        "policy": _policy_line(root),
        "fits": None,
        "faults": [],
        "waiting": [],
    }
    if loaded is None:
        if not row["site"]:
            return 1, status | {"faults": _messages(release.faults), "next": back}
        text = f"{root.path}: has a release of site {printable(row['site'])}, which is not embedded"
        return 4, status | {"faults": [text], "next": f"lumisite status {quoted} --site FILE"}
    try:
        checked = check_release(loaded, root.path, host, release=release)
    except LumisiteError as error:  # such as a release for what the site description does not have
        return 1, status | {"fits": False, "faults": [str(error)], "next": back}
    pending = list(checked.pending)
    if (now := loaded.site.platform) != (before := release.manifest.platform):
        text = f"platform is {now} now, and release {release.path.name} is for {before}"
        pending.append(Finding("not-deployed", Severity.INFO, text, subject=loaded.file))
    code = exit_code(checked.findings)
    if checked.findings:
        described = "" if Path(name).is_relative_to(root.path) else f" {shlex.quote(name)}"  # else the root knows it
        check = f"lumisite check{described} --host --root {quoted}"
        next_command = checked.drain or check if row["state"] == "whole" else back
    elif target and target.faults:
        code, next_command = 1, f"undo the edits in {target.path}: rollback refuses to go there"
    elif pending:
        render = f"lumisite render --site {shlex.quote(name)} --out site-out"
        next_command = f"{render}, then lumisite deploy site-out {quoted}"
    else:
        next_command = "nothing"
    status |= {"fits": not checked.findings, "faults": _messages(checked.findings), "waiting": _messages(pending)}
    return code, status | {"next": next_command}


def _policy_line(root: Root) -> str:
    """Return for whom the helper is on, and what is wrong with the file that says so."""
    policy = read_policy(root.path)
    if policy is None:
        return f"none: {OTHERWISE}"
    faults = "".join(f" ({subject_and_message(fault)})" for fault in policy.faults[:1])
    return f"{describe_policy(policy.lines)}{faults}"


def _messages(findings: Iterable[Finding]) -> list[str]:
    """Return a line for each finding, for JSON."""
    return list(map(subject_and_message, findings))


def _rows(status: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the status in rows, as much as fits on a screen."""
    stacks = ", ".join(f"{stack} {' '.join(versions)}" for stack, versions in status["stacks"].items())
    faults = status["faults"]
    check = "unknown" if status["fits"] is None else "passed" if status["fits"] else f"failed ({len(faults)})"
    edited = "; ".join(status["before_faults"][:_MOST_FAULTS])
    return [
        ("root", f"{status['root']} of site {printable(status['site'] or '-')}"),
        ("release", f"{status['release']}, {status['state']}"),
        ("for", f"platform {printable(status['platform'] or '-')}{f', {stacks}' if stacks else ''}"),
        ("deployed", f"{status['deployed']}{' by ' + status['by'] if status['by'] else ''}"),
        ("previous", (status["before"] or "none") + (f", not as it was deployed: {edited}" if edited else "")),
        ("policy", status["policy"]),
        ("host check", check),
        *(("", fault) for fault in faults[:_MOST_FAULTS]),
        *([("", f"and {len(faults) - _MOST_FAULTS} more")] if len(faults) > _MOST_FAULTS else []),
        ("pending", "; ".join(status["waiting"]) or "nothing"),
    ]
