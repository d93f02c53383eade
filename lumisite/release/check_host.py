"""A node by the site description and the release that is deployed."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lumisite.errors import ResolveError
from lumisite.findings.finding import Finding, Severity
from lumisite.machine.host import DiskTree
from lumisite.machine.tree import is_under
from lumisite.release.check_host_node import HostFault, Node
from lumisite.release.check_host_paths import ReleasePaths
from lumisite.release.check_host_table import CHECKS, shared_faults, silent_faults
from lumisite.release.policy import Policy, read_policy
from lumisite.release.root import existing_root, inspect_release
from lumisite.release.tree import RenderedTree
from lumisite.release.trust import root_doubts
from lumisite.render.manifest import NO_MANIFEST, Manifest, is_rendered_from
from lumisite.render.plan_images import other_images
from lumisite.site.load import LoadedSite
from lumisite.site.model import Site
from lumisite.text import drain_command, printable, suggestion


@dataclass(frozen=True)
class Checked:
    """What is wrong with a node and the release that is deployed (empty: none), after how many checks.

    `notes` are no faults, `pending` is what a new release would change; `drain` is the command that drains the node,
    where something is wrong with it alone.
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
    loaded: LoadedSite, root_path: Path | None, host: DiskTree, release: RenderedTree | None = None
) -> Checked:
    """Check a host by a site and the deployed `release` of a root (default: the site's), which is read if not given.

    Before anything is deployed, the host is checked by the site alone. Raises `ResolveError` when the release is not of
    this site.
    """
    checked, node = _checked(loaded, root_path, host, release)
    faults = list(checked.faults)
    if node.name is None:  # no node that Slurm could drain
        faults = [replace(fault, finding=_of_system(fault.finding)) for fault in faults]
    reasons = dict.fromkeys(fault.finding.subject for fault in faults if fault.finding.severity is Severity.NODE)
    drain = drain_command([node.name], ", ".join(reasons)) if node.name and reasons else None
    notes = [*checked.notes, *(fault.finding for fault in faults if fault.finding.severity is Severity.INFO)]
    faults = [fault for fault in faults if fault.finding.severity is not Severity.INFO]
    return replace(checked, faults=faults, notes=notes, drain=drain)


def _of_system(finding: Finding) -> Finding:
    return replace(finding, severity=Severity.FAULT) if finding.severity is Severity.NODE else finding


def _checked(
    loaded: LoadedSite, root_path: Path | None, host: DiskTree, release: RenderedTree | None
) -> tuple[Checked, Node]:
    site, path = loaded.site, root_path or Path(loaded.site.root)
    node = Node(site, host)
    if root_path is None and not os.path.lexists(path):
        # Where the file system that holds the release is not mounted, that is the cause.
        unmounted = list(shared_faults(node))
        if any(is_under(site.root, fault.finding.subject) for fault in unmounted):
            return Checked("", unmounted), node
    faults = list(map(HostFault, root_doubts(path))) if path.exists() else []
    if faults and not os.access(path, os.R_OK | os.X_OK, effective_ids=True):
        return Checked("", faults), node
    root = existing_root(path) if root_path is not None or path.exists() else None
    policy = read_policy(path) or Policy(())
    faults += [HostFault(fault) for fault in policy.faults]
    if release is None and root is not None and root.current:
        release = inspect_release(root, root.current)
    if release is None:
        found, checks = check_node(replace(node, policy=policy.lines), NO_MANIFEST)
        text = "no release is deployed, so the node is checked by the site description alone"
        note = Finding("not-deployed", Severity.INFO, text, f"lumisite deploy OUT {path} --apply", str(path))
        return Checked("", [*faults, *found], [note], checks=checks), node
    name, manifest = release.path.name, release.manifest
    faults += [HostFault(replace(fault, subject=str(release.path / fault.subject))) for fault in release.faults]
    if not manifest.release:
        return Checked(name, faults), node
    _require_same_site(site, manifest)
    found, checks = check_node(replace(node, platform=manifest.platform, policy=policy.lines), manifest)
    text = f"changed since release {name} was rendered"
    pending = [Finding("not-deployed", Severity.INFO, text, subject=loaded.file)]
    current = is_rendered_from(manifest, loaded)
    return Checked(name, [*faults, *found], pending=[] if current else pending, checks=checks), node


def check_node(node: Node, manifest: Manifest) -> tuple[list[HostFault], int]:
    """Check a node, or a copy of its tree; without a release (`NO_MANIFEST`) by the site description alone.

    Returns the faults, by path, and how many checks there were. Of several faults at one path, the first one counts:
    not also what is below it, or needs it.
    """
    if silent := list(silent_faults(node)):
        return silent, len(node.site.file_systems)
    node = replace(node)  # reads the mounts once more, with what an automounter has mounted for that
    paths = ReleasePaths(node, manifest)
    unmounted = list(shared_faults(node))
    found = [fault for check in CHECKS if check is not shared_faults for fault in check(node)]
    found += [*paths.faults(), *map(HostFault, other_images(manifest.plans, node.host))]
    found = [fault for fault in found if not any(is_under(fault.at, lost.at) for lost in unmounted)]
    first: dict[object, HostFault] = {}
    for fault in (*unmounted, *found):
        finding = fault.finding
        key = fault.at or (finding.code, finding.subject, finding.message)
        kept = first.setdefault(key, fault).finding.subject
        if kept != finding.subject and is_under(kept, finding.subject):
            first[key] = fault
    faults = sorted(first.values(), key=lambda fault: (fault.finding.subject, fault.finding.code))
    return faults, len(paths.parts) + len(paths.needed_libraries) + len(CHECKS)


def _require_same_site(site: Site, manifest: Manifest) -> None:
    if manifest.site != site.name:
        text = f"{manifest.release}: release of site {printable(manifest.site)}, not of {site.name}"
        raise ResolveError(f"{text} (name its site with --site)")
    stated: list[tuple[str, str, Collection[str]]] = [("platform", manifest.platform, site.platforms)]
    for stack, versions in manifest.stacks.items():
        releases = site.stacks[stack].releases if stack in site.stacks else ()
        stated += [(f"{stack} release", version, releases) for version in versions]
    for kind, name, known in stated:
        if name not in known:
            text = f"{manifest.release}: for {kind} {printable(name)}, which the site description does not have"
            advice = f"{suggestion(name, known)}; render the description as it is now, and deploy it"
            raise ResolveError(f"{text} ({advice})")
