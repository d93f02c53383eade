"""A node by the site description and the release that is deployed, and which of its faults are those of all nodes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lumisite.findings.finding import Finding, Severity
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
from lumisite.site.load import LoadedSite
from lumisite.text import drain_command


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


def check_release(
    loaded: LoadedSite,
    root_path: Path | None,
    host: DiskTree,
    others: Sequence[frozenset[tuple[str, str]]] = (),
    release: RenderedTree | None = None,
) -> Checked:
    """Check a host by a site and the deployed `release` of a root (default: the site's), which is read if not given.

    `others` have the path and the code of each fault on other nodes of the kind. Before anything is deployed, the
    host is checked by the site alone.
    """
    node = Node(loaded.site, host)
    checked = _checked(loaded, root_path, node, release)
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


def _checked(loaded: LoadedSite, root_path: Path | None, node: Node, release: RenderedTree | None) -> Checked:
    site, path = loaded.site, root_path or Path(loaded.site.root)
    if root_path is None and not os.path.lexists(path):
        # Where the file system that holds the release is not mounted, that is the cause.
        everything = frozenset(system.path for system in site.file_systems)
        unmounted = list(shared_faults(node, everything))
        if any(is_under(site.root, fault.finding.subject) for fault in unmounted):
            return Checked("", unmounted)
    faults = list(map(HostFault, root_doubts(path))) if path.exists() else []
    if faults and not os.access(path, os.R_OK | os.X_OK, effective_ids=True):
        return Checked("", faults)
    root = existing_root(path) if root_path is not None or path.exists() else None
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
