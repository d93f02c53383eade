"""`check --host`: a node, by the site description and the deployed release; `status` uses the same."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lumisite.cli.arguments import check_root
from lumisite.cli.output import print_note, print_result
from lumisite.cli.site_choice import default_site, recorded_site
from lumisite.errors import LumisiteError, ResolveError
from lumisite.findings.exit_code import exit_code
from lumisite.findings.finding import Finding, Severity
from lumisite.findings.writers import advice, line, message
from lumisite.machine.host import DiskTree
from lumisite.machine.tree import is_under
from lumisite.release.node import HostFault, Node
from lumisite.release.node_check import check_host
from lumisite.release.node_mounts import shared_faults
from lumisite.release.policy import Policy, read_policy
from lumisite.release.root import existing_root, inspect_release
from lumisite.release.tree import RenderedTree
from lumisite.release.trust import root_doubts
from lumisite.render.manifest import NO_MANIFEST, is_rendered_from
from lumisite.site.json_file import parse_json
from lumisite.site.load import LoadedSite, load_site, read_input
from lumisite.text import counted, drain_command, printable


@dataclass(frozen=True)
class Checked:
    """What is wrong with a node and the release that is deployed (empty: none), after how many checks.

    `pending` is what a new release would change; `drain` is the command that drains the node, where something is wrong
    with it alone.
    """

    release: str
    faults: Sequence[HostFault]
    notes: Sequence[Finding] = ()
    pending: Sequence[Finding] = ()
    checks: int = 0
    drain: str | None = None

    @property
    def findings(self) -> list[Finding]:
        """The faults as findings."""
        return [fault.finding for fault in self.faults]


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
    lines = list(map(line, checked.findings))
    if checked.drain:
        # One node cannot tell what all of its kind have.
        only = "" if others else ", if others of its kind pass"
        lines.append(f"to drain this node{only} (command is not executed): {checked.drain}")
    print_result([_entry(fault, checked.drain) for fault in checked.faults], lines, as_json=as_json)
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
    root = existing_root(path)
    named = inspect_release(root, root.current).manifest.site if root.current else ""
    name = recorded_site(named, root.release(root.current)) if named else default_site().name
    if not name:
        raise ResolveError(
            f"{path}: has a release of site {printable(named)}, which is not embedded (name it with --site FILE)"
        )
    return name


def check_release(
    loaded: LoadedSite,
    root_name: str | None,
    host: DiskTree,
    others: Sequence[frozenset[tuple[str, str]]] = (),
    release: RenderedTree | None = None,
) -> Checked:
    """Check a host by a site and the deployed `release` of a root (default: the site's), which is read if not given.

    `others` have the path and the code of each fault on other nodes of the kind. Before anything is deployed, the
    host is checked by the site alone.
    """
    node = Node(loaded.site, host)
    checked = _checked(loaded, root_name, node, release)
    faults, shared = [], []
    for fault in checked.faults:
        finding = fault.finding
        if others and all((finding.subject, finding.code) in other for other in others):
            shared.append(finding.code)
            finding = replace(finding, severity=Severity.FAULT)
        elif node.name is None and finding.severity is Severity.NODE:
            finding = replace(finding, severity=Severity.FAULT)
        faults.append(replace(fault, finding=finding))
    reasons = dict.fromkeys(fault.finding.subject for fault in faults if fault.finding.severity is Severity.NODE)
    drain = drain_command([node.name], ", ".join(reasons)) if node.name and reasons else None
    notes = list(checked.notes)
    if shared:
        text = f"the other nodes have the same: {', '.join(dict.fromkeys(shared))}"
        todo = "check what they share, and the site description"
        notes.append(Finding("same-on-all-nodes", Severity.INFO, text, todo))
    return replace(checked, faults=faults, notes=notes, drain=drain)


def _checked(loaded: LoadedSite, root_name: str | None, node: Node, release: RenderedTree | None) -> Checked:
    site, path = loaded.site, Path(root_name or loaded.site.root)
    if root_name is None and not os.path.lexists(path):
        # Where the file system that holds the release is not mounted, that is the cause.
        everything = frozenset(system.path for system in site.file_systems)
        unmounted = list(shared_faults(node, everything))
        if any(is_under(site.root, fault.finding.subject) for fault in unmounted):
            return Checked("", unmounted)
    faults = list(map(HostFault, root_doubts(path))) if path.exists() else []
    if faults and not os.access(path, os.R_OK | os.X_OK, effective_ids=True):
        return Checked("", faults)
    root = existing_root(path) if root_name is not None or path.exists() else None
    policy = read_policy(path) or Policy(())
    faults += [HostFault(fault) for fault in policy.faults]
    if release is None and root is not None and root.current:
        release = inspect_release(root, root.current)
    if release is None:
        found, checks = check_host(node, NO_MANIFEST, policy.lines)
        text = "no release is deployed, so the node is checked by the site description alone"
        todo = f"lumisite deploy OUT {path} --apply"
        notes = [Finding("not-deployed", Severity.INFO, text, todo, subject=str(path))]
        return _split(Checked("", [*faults, *found], notes, checks=checks))
    name, manifest = release.path.name, release.manifest
    for fault in release.faults:
        faults.append(HostFault(replace(fault, subject=str(release.path / fault.subject))))
    if not manifest.release:
        return Checked(name, faults)
    found, checks = check_host(node, manifest, policy.lines)
    pending = []
    if not is_rendered_from(manifest, loaded):
        text = f"changed since release {name} was rendered"
        pending.append(Finding("not-deployed", Severity.INFO, text, subject=loaded.file))
    return _split(Checked(name, [*faults, *found], pending=pending, checks=checks))


def _split(checked: Checked) -> Checked:
    """Return the same with what is no fault among the notes."""
    notes = [fault.finding for fault in checked.faults if fault.finding.severity is Severity.INFO]
    faults = [fault for fault in checked.faults if fault.finding.severity is not Severity.INFO]
    return replace(checked, faults=faults, notes=[*checked.notes, *notes])


def _printed_faults(file: Path) -> frozenset[tuple[str, str]]:
    """Read what `check --host --json` printed on another node: the path and the code of each fault."""
    remedy = "write it there with `lumisite check --host --json > FILE`"
    entries = parse_json(read_input(file, remedy="expected: what `lumisite check --host --json` prints"), str(file))
    try:
        return frozenset((str(entry["path"]), str(entry["code"])) for entry in entries)
    except (KeyError, TypeError):
        raise LumisiteError(f"{file}: not what `lumisite check --host --json` prints ({remedy})") from None


def _entry(fault: HostFault, drain: str | None) -> dict[str, str]:
    """Return the JSON of a fault; the command that drains the node comes with what is wrong with it alone."""
    entry = {
        "path": fault.finding.subject,
        "code": fault.finding.code,
        "severity": fault.finding.severity.value,
        "expected": fault.needed_by,
        "found": message(fault.finding),
        "remedy": advice(fault.finding),
    }
    return entry | ({"drain": drain} if drain and fault.finding.severity is Severity.NODE else {})
