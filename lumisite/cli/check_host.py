"""`check --host`: the deployed release, checked on a node; `status` uses the same."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lumisite.cli.arguments import check_root
from lumisite.cli.output import print_note, print_result
from lumisite.cli.site_choice import default_site, recorded_site
from lumisite.errors import DifferenceError, LumisiteError, ResolveError
from lumisite.findings.catalogue import make_finding
from lumisite.findings.exit_code import exit_code
from lumisite.findings.finding import Finding, Severity
from lumisite.findings.writers import advice, line, message
from lumisite.machine.host import DiskTree, mounts_of
from lumisite.machine.tree import is_under
from lumisite.release.node_check import check_host
from lumisite.release.node_state import name_of, shared_faults
from lumisite.release.policy import policy_path, read_policy
from lumisite.release.root import existing_root, inspect_release
from lumisite.release.tree import RenderedTree
from lumisite.release.trust import root_doubts
from lumisite.render.manifest import sha256_of
from lumisite.site.json_file import parse_json
from lumisite.site.load import LoadedSite, load_site, read_input
from lumisite.text import counted, drain_command


@dataclass(frozen=True)
class Checked:
    """What is wrong with a deployed release on a host, after how many checks, and what a new release would change.

    `drain` is the command that drains the node, where something is wrong with it alone.
    """

    release: str
    faults: Sequence[Finding]
    notes: Sequence[Finding] = ()
    pending: Sequence[Finding] = ()
    checks: int = 0
    drain: str | None = None


def check_deployed(
    site_name: str, root_name: str | None, host_root: str, others: Sequence[Path] = (), *, as_json: bool
) -> int:
    """Print one line for each fault; 0 when there is none, 5 when only this node can be meant, 1 otherwise.

    `others` are files with what this printed as JSON on other nodes of the kind.
    """
    check_root(host_root)
    known = [_printed_faults(file) for file in others]
    loaded, host = load_site(site_name or _site_of(Path(root_name or ""))), DiskTree(host_root)
    checked = check_release(loaded, root_name, host, known)
    lines = [line(fault) for fault in checked.faults]
    if checked.drain:
        # One node cannot tell what all of its kind have.
        only = "" if others else ", if others of its kind pass"
        lines.append(f"to drain this node{only} (command is not executed): {checked.drain}")
    print_result([_entry(fault, checked.drain) for fault in checked.faults], lines, as_json=as_json)
    for note in (*checked.notes, *checked.pending):
        print_note(line(note))
    where = host.name if host.name.strip("/") else "this node"
    checks = counted(checked.checks, "check")
    if checked.faults:
        print_note(f"release {checked.release} on {where}: {counted(len(checked.faults), 'fault')} in {checks}")
    else:
        print_note(f"release {checked.release} matches {where}: {checks} passed")
    return exit_code(checked.faults)


def _site_of(path: Path) -> str:
    """Return the site of the release that is deployed in a root; raise `LumisiteError` where it is not known."""
    root = existing_root(path)
    named = inspect_release(root, root.current).manifest.site if root.current else ""
    name = recorded_site(named) if named else default_site().name
    if not name:
        raise ResolveError(make_finding("site-not-embedded", "--site", root=str(path), site=named))
    return name


def check_release(
    loaded: LoadedSite,
    root_name: str | None,
    host: DiskTree,
    others: Sequence[frozenset[tuple[str, str]]] = (),
    release: RenderedTree | None = None,
) -> Checked:
    """Check the deployed `release` of a root (default: the site's) against a host; it is read where it is not given.

    `others` have the path and the code of each fault on other nodes of the kind. Raises `LumisiteError` where no
    release is deployed.
    """
    checked = _checked(loaded, root_name, host, release)
    name = name_of(loaded.site, host)
    faults, shared = [], []
    for fault in checked.faults:
        if others and all((fault.subject, fault.code) in other for other in others):
            shared.append(fault.code)
            fault = replace(fault, severity=Severity.FAULT)
        elif name is None and fault.severity is Severity.NODE:
            fault = replace(fault, severity=Severity.FAULT)
        faults.append(fault)
    paths = [fault.subject for fault in faults if fault.severity is Severity.NODE]
    drain = drain_command([name], ", ".join(dict.fromkeys(paths))) if name and paths else None
    notes = list(checked.notes)
    if shared:
        notes.append(make_finding("same-on-all-nodes", codes=tuple(dict.fromkeys(shared))))
    return replace(checked, faults=faults, notes=notes, drain=drain)


def _checked(loaded: LoadedSite, root_name: str | None, host: DiskTree, release: RenderedTree | None) -> Checked:
    site = loaded.site
    path = Path(root_name or site.root)
    if root_name is None and not os.path.lexists(path):
        # Where the file system that holds the release is not mounted, that is the cause.
        everything = frozenset(system.path for system in site.file_systems)
        unmounted = list(shared_faults(site, everything, host, mounts_of(host)))
        if any(is_under(site.root, fault.subject) for fault in unmounted):
            return Checked("", unmounted)
    faults = list(root_doubts(path))
    if faults and not os.access(path, os.R_OK | os.X_OK, effective_ids=True):
        return Checked("", faults)
    if release is None:
        root = existing_root(path)
        if not root.current:
            raise LumisiteError(make_finding("root-empty", str(root.path)))
        release = inspect_release(root, root.current)
    name, manifest = release.path.name, release.manifest
    faults += [replace(fault, subject=str(release.path / fault.subject)) for fault in release.faults]
    try:
        read_policy(path)
    except DifferenceError as error:
        faults.append(replace(error.finding, subject=str(policy_path(path)), place=None))
    if not manifest.release:
        return Checked(name, faults)
    found, checks = check_host(site, manifest, host)
    faults += [finding for finding in found if finding.severity is not Severity.INFO]
    notes = [finding for finding in found if finding.severity is Severity.INFO]
    pending = []
    if manifest.inputs.get(loaded.file, "") != sha256_of(loaded.data):
        pending.append(make_finding("site-changed", loaded.file, release=name))
    return Checked(name, faults, notes, pending, checks)


def _printed_faults(file: Path) -> frozenset[tuple[str, str]]:
    """Read what `check --host --json` printed on another node: the path and the code of each fault."""
    entries = parse_json(read_input(file, remedy="expected: what `lumisite check --host --json` prints"), str(file))
    try:
        return frozenset((str(entry["path"]), str(entry["code"])) for entry in entries)
    except (KeyError, TypeError):
        raise LumisiteError(make_finding("other-node-unreadable", str(file))) from None


def _entry(fault: Finding, drain: str | None) -> dict[str, str]:
    """Return the JSON of a fault; the command that drains the node comes with what is wrong with it alone."""
    entry = {
        "path": fault.subject,
        "code": fault.code,
        "expected": str(fault.values.get("needed_by", "")),
        "found": message(fault),
        "remedy": advice(fault),
    }
    return entry | ({"drain": drain} if drain and fault.severity is Severity.NODE else {})
