"""`check`: the faults of a site description, or of the deployed release on a node."""

from __future__ import annotations

from pathlib import Path

import click

from lumisite.cli.commands import Command
from lumisite.cli.options import PATH, host_root_option, json_option, require_directory
from lumisite.cli.output import print_note, print_result, warn_untried
from lumisite.cli.site_choice import required_site, site_of_root
from lumisite.errors import ResolveError, SiteError
from lumisite.findings.exit_code import exit_code
from lumisite.findings.finding import Finding, Place, Severity
from lumisite.findings.writers import advice, line, message
from lumisite.site.load import load_plans, load_site
from lumisite.text import counted


@click.command(cls=Command)
@click.argument("file", metavar="[FILE]", required=False, default="", help="A YAML file, or an embedded site's name.")
@click.option("--host", is_flag=True, help="Check the deployed release of the site against this node.")
@click.option("--root", metavar="ROOT", type=PATH, help="With --host: the deployment root (default: the site's).")
@host_root_option
@click.option("--site", metavar="NAME|FILE", default="", help="The same as FILE.")
@json_option
def command(file: str, host: bool, root: Path | None, host_root: str, site: str, as_json: bool) -> int:
    """Print every fault of a site description as file:line:column: key: what is wrong.

    As JSON with file, line, column, key and message. Exit 0 when there is none, 2 otherwise. With --host, check the
    deployed release against this node instead: exit 1 when something that its modules need is not there as they need
    it, 5 when only this node can be meant.
    """
    if file and site:
        raise ResolveError(f"--site: FILE is {file} already (leave one out)")
    if host:
        return _check_host(file or site, root, host_root, as_json=as_json)
    if root is not None or host_root != "/":
        raise ResolveError("--root and --host-root: go with --host only (give it too, or leave them out)")
    return _check_file(required_site(file or site), as_json=as_json)


def _check_file(name: str, *, as_json: bool) -> int:
    """Print all faults of a description, or that there are none."""
    try:
        loaded = load_site(name)
        load_plans(loaded)
    except SiteError as error:
        print_result(list(map(_fault_row, error.findings)), [str(error)], as_json=as_json)
        print_note(counted(len(error.findings), "fault"))
        return error.exit_code
    if not as_json:
        warn_untried(loaded.site)
    print_result([], [f"{loaded.file}: no faults"], as_json=as_json)
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


def _check_host(site: str, root: Path | None, host_root: str, *, as_json: bool) -> int:
    """Print one line for each fault of a node; return 0 without one, 5 when only this node can be meant, else 1."""
    from lumisite.machine.host import DiskTree
    from lumisite.release.host.checks import check_release
    from lumisite.release.root import existing_root

    require_directory(host_root)
    deployed = existing_root(root) if root and not site else None
    name = site or (site_of_root(deployed) if deployed else "")
    if not name and deployed and deployed.current:
        raise ResolveError(f"{root}: has a release of a site that is not known here (name it with --site FILE)")
    name = name or required_site("")
    loaded, host = load_site(name), DiskTree(host_root)
    checked = check_release(loaded, root, host)
    lines = list(map(line, checked.findings))
    if checked.drain:
        lines.append(f"to drain this node, if others of its kind pass (command is not executed): {checked.drain}")
    rows = [
        {
            "path": found.subject,
            "code": found.code,
            "severity": found.severity.value,
            "expected": found.needed_by,
            "found": message(found),
            "remedy": advice(found),
        }
        | ({"drain": checked.drain} if checked.drain and found.severity is Severity.NODE else {})
        for found in checked.findings
    ]
    print_result(rows, lines, as_json=as_json)
    for note in (*checked.notes, *checked.pending):
        print_note(line(note))
    where, checks = host.name if host.name.strip("/") else "this node", counted(checked.checks, "check")
    what = f"release {checked.release}" if checked.release else f"site description {loaded.file}"
    if checked.findings:
        print_note(f"{what} on {where}: {counted(len(checked.findings), 'fault')} in {checks}")
    else:
        print_note(f"{what} matches {where}: {checks} passed")
    return exit_code(checked.findings)
