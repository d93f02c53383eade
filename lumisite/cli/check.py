"""`check`: the faults of a site description, or of the deployed release on a node."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from lumisite.cli.commands import Command
from lumisite.cli.options import PATH, host_root_option, json_option, require_directory
from lumisite.cli.output import print_note, print_result, warn_untried
from lumisite.cli.site_choice import recorded_site, required_site
from lumisite.errors import LumisiteError, ResolveError, SiteError
from lumisite.findings.exit_code import exit_code
from lumisite.findings.finding import Finding, Place, Severity
from lumisite.findings.writers import advice, line, message
from lumisite.site.json_file import parse_json
from lumisite.site.load import load_plans, load_site, read_input
from lumisite.text import counted, printable


@click.command(cls=Command)
@click.argument(
    "file",
    metavar="[FILE]",
    required=False,
    default="",
    help="A YAML file, or an embedded site's name (default: as for --site of other commands).",
)
@click.option("--host", is_flag=True, help="Check the deployed release of the site against this node.")
@click.option("--root", metavar="ROOT", type=PATH, help="With --host: the deployment root (default: the site's).")
@host_root_option
@click.option(
    "--other-node",
    "other_nodes",
    metavar="FILE",
    type=PATH,
    multiple=True,
    help="With --host: what --json printed on another node of the kind; a fault of all of them drains no node.",
)
@click.option("--site", metavar="NAME|FILE", default="", help="The same as FILE.")
@json_option
def command(
    file: str, host: bool, root: Path | None, host_root: str, other_nodes: Sequence[Path], site: str, as_json: bool
) -> int:
    """Print every fault of a site description as file:line:column: key: what is wrong.

    As JSON with file, line, column, key and message. Exit 0 when there is none, 2 otherwise. With --host, check the
    deployed release against this node instead: exit 1 when something that its modules need is not there as they need
    it, 5 when only this node can be meant.
    """
    if file and site:
        raise ResolveError(f"--site: FILE is {file} already (leave one out)")
    if host:
        return _check_host(file or site, root, host_root, other_nodes, as_json=as_json)
    of_host = {"--root": root, "--host-root": host_root if host_root != "/" else "", "--other-node": other_nodes}
    for option in (option for option, value in of_host.items() if value):
        todo = "give --host too, or leave it out"
        raise ResolveError(Finding("keys-contradict", Severity.FAULT, "goes with --host only", todo, option))
    return _check_file(required_site(file or site, quiet=True), as_json=as_json)


def _check_file(name: str, *, as_json: bool) -> int:
    """Print all faults of a description, or a line with what was read."""
    try:
        loaded = load_site(name)
        plans = load_plans(loaded)
    except SiteError as error:
        print_result(list(map(_fault_row, error.findings)), [str(error)], as_json=as_json)
        print_note(counted(len(error.findings), "fault"))
        return error.exit_code
    site = loaded.site
    counts = [
        (len(site.platforms), "platform"),
        *((len(stack.releases), f"{stack.title} release") for stack in site.stacks.values()),
        (len(site.families), "image family"),
        (len(site.settings), "setting"),
        (len(site.modules), "module"),
        *([(len(plans), "plan")] if plans else []),
    ]
    found = ", ".join(counted(number, name) for number, name in counts)
    if not as_json:
        warn_untried(site)
    print_result([], [f"{loaded.file}: no faults: {found}"], as_json=as_json)
    return 0


def _fault_row(finding: Finding) -> dict[str, object]:
    """Return a fault of a description as JSON."""
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


def _check_host(site: str, root: Path | None, host_root: str, other_nodes: Sequence[Path], *, as_json: bool) -> int:
    """Print one line for each fault of a node; 0 when there is none, 5 when only this node can be meant, 1 otherwise.

    `other_nodes` are files with what this printed as JSON on other nodes of the kind.
    """
    from lumisite.machine.host import DiskTree
    from lumisite.release.host_check import check_release

    require_directory(host_root)
    others = list(map(_printed_faults, other_nodes))
    name = site or (required_site("", quiet=True) if root is None else _site_of(root))
    loaded, host = load_site(name), DiskTree(host_root)
    checked = check_release(loaded, root, host, others)
    lines = list(map(line, checked.findings))
    if checked.drain:
        # One node cannot tell what all of its kind have.
        only = "" if others else ", if others of its kind pass"
        lines.append(f"to drain this node{only} (command is not executed): {checked.drain}")
    rows = [
        {
            "path": fault.finding.subject,
            "code": fault.finding.code,
            "severity": fault.finding.severity.value,
            "expected": fault.needed_by,
            "found": message(fault.finding),
            "remedy": advice(fault.finding),
        }
        | ({"drain": checked.drain} if checked.drain and fault.finding.severity is Severity.NODE else {})
        for fault in checked.faults
    ]
    print_result(rows, lines, as_json=as_json)
    for note in (*checked.notes, *checked.pending):
        print_note(line(note))
    where, checks = host.name if host.name.strip("/") else "this node", counted(checked.checks, "check")
    what = f"release {checked.release}" if checked.release else f"site description {loaded.file}"
    if checked.faults:
        print_note(f"{what} on {where}: {counted(len(checked.faults), 'fault')} in {checks}")
    else:
        print_note(f"{what} matches {where}: {checks} passed")
    return exit_code(checked.findings)


def _site_of(path: Path) -> str:
    """Return the site of the release that is deployed in a root; raise `ResolveError` where it is not known."""
    from lumisite.release.root import existing_root, inspect_release

    root = existing_root(path)
    named = inspect_release(root, root.current).manifest.site if root.current else ""
    name = recorded_site(named, root.release(root.current)) if named else required_site("", quiet=True)
    if not name:
        raise ResolveError(
            f"{path}: has a release of site {printable(named)}, which is not embedded (name it with --site FILE)"
        )
    return name


def _printed_faults(file: Path) -> frozenset[tuple[str, str]]:
    """Read what `check --host --json` printed on another node: the path and the code of each fault."""
    remedy = "write it there with `lumisite check --host --json > FILE`"
    entries = parse_json(read_input(file, remedy="expected: what `lumisite check --host --json` prints"), str(file))
    try:
        return frozenset((str(entry["path"]), str(entry["code"])) for entry in entries)
    except (KeyError, TypeError):
        raise LumisiteError(f"{file}: not what `lumisite check --host --json` prints ({remedy})") from None
