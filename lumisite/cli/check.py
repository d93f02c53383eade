"""`check`: the faults of a site description, or of the deployed release on a node."""

from __future__ import annotations

import argparse
from pathlib import Path

from lumisite.cli.arguments import add_json
from lumisite.cli.output import print_note, print_result, warn_untried
from lumisite.errors import ResolveError, SiteError
from lumisite.findings.finding import Finding, Place, Severity
from lumisite.findings.writers import advice, message
from lumisite.site.load import load_plans, load_site
from lumisite.text import counted


def add_check(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `check`."""
    parser.description = (
        "Read a site description and print every fault as file:line:column: key: what is wrong, or as JSON with file,"
        " line, column, key and message. Exit 0 when there is none, 2 otherwise. With --host, check the deployed "
        "release against this node instead: exit 1 when something that its modules need is not there as they need it, "
        "5 when only this node can be meant."
    )
    parser.add_argument(
        "file",
        metavar="FILE",
        nargs="?",
        default="",
        help="a YAML file, or an embedded site's name (default: as for --site)",
    )
    parser.add_argument("--host", action="store_true", help="check the deployed release of the site against this node")
    parser.add_argument("--root", metavar="ROOT", help="with --host: the deployment root (default: the site's)")
    parser.add_argument(
        "--host-root", metavar="DIR", help="with --host: the root of the node, or of a copy of it (default: /)"
    )
    parser.add_argument(
        "--other-node",
        metavar="FILE",
        action="append",
        default=[],
        type=Path,
        help="with --host: what --json printed on another node of the kind; a fault of all of them drains no node",
    )
    parser.add_argument("--site", metavar="NAME|FILE", help="the same as FILE")
    add_json(parser)


def run_check(arguments: argparse.Namespace) -> int:
    """Print all faults, or a line with what was read."""
    if arguments.host:
        from lumisite.cli.check_host import check_deployed

        return check_deployed(
            arguments.file,
            arguments.root,
            arguments.host_root or "/",
            arguments.other_node,
            as_json=arguments.json,
        )
    of_host = (("--root", arguments.root), ("--host-root", arguments.host_root), ("--other-node", arguments.other_node))
    for option, value in of_host:
        if value:
            advice = "give --host too, or leave it out"
            raise ResolveError(Finding("keys-contradict", Severity.FAULT, "goes with --host only", advice, option))
    try:
        loaded = load_site(arguments.file)
        plans = load_plans(loaded)
    except SiteError as error:
        print_result(list(map(_fault_row, error.findings)), [str(error)], as_json=arguments.json)
        print_note(counted(len(error.findings), "fault"))
        return error.exit_code
    if arguments.json:
        print("[]")
        return 0
    site = loaded.site
    releases = [f"{len(stack.releases)} {stack.title}" for stack in site.stacks.values()]
    warn_untried(site)
    counts = {"image family": site.families, "setting": site.settings, "module": site.modules, "plan": plans}
    print(
        f"{loaded.file}: no faults: {counted(len(site.platforms), 'platform')}, "
        + (f"{' and '.join(releases)} releases, " if releases else "")
        + ", ".join(counted(len(things), name) for name, things in counts.items() if things or name != "plan")
    )
    return 0


def _fault_row(finding: Finding) -> dict[str, object]:
    """Return a fault as `check --json` prints it."""
    location = finding.place or Place("")
    return {
        "file": location.file,
        "line": location.line,
        "column": location.column,
        "key": finding.subject,
        "code": finding.code,
        "message": message(finding),
        "advice": advice(finding),
    }
