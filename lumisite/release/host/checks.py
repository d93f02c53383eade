"""`check --host`: a node by the site description and the release that is deployed there.

`CHECKS` is the table of all that is checked of a node itself; `bound_paths` has what the release hands to containers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lumisite.errors import ResolveError
from lumisite.findings.finding import Finding, Severity
from lumisite.machine.host import DiskTree
from lumisite.machine.tree import is_under
from lumisite.release.host.bound_paths import bound_paths, check_bound
from lumisite.release.host.cpus_and_gpus import gpu_devices, kind_of_node
from lumisite.release.host.mounts import cache_mounts, shared_mounts, silent_mounts
from lumisite.release.host.network import adapter_devices, interfaces, missing_network
from lumisite.release.host.node import HostFinding, Node
from lumisite.release.host.runtime import runtime
from lumisite.release.host.system import clock, kernel, locked_memory, memory, task_prolog
from lumisite.release.policy import Policy, read_policy
from lumisite.release.root import existing_root, inspect_release
from lumisite.release.tree import RenderedTree
from lumisite.release.trust import root_doubts
from lumisite.render.manifest import NO_MANIFEST, Manifest, is_rendered_from
from lumisite.render.stored_plans import other_images
from lumisite.site.load import LoadedSite
from lumisite.site.model import Site
from lumisite.text import drain_command, printable, suggestion

#: All that is checked of a node, beside what a release binds. Of several findings with one cause the first is reported.
CHECKS: Sequence[Callable[[Node], Iterator[HostFinding]]] = (
    shared_mounts,
    cache_mounts,
    kind_of_node,
    gpu_devices,
    missing_network,
    adapter_devices,
    interfaces,
    memory,
    kernel,
    clock,
    runtime,
    task_prolog,
    locked_memory,
)


@dataclass(frozen=True)
class Checked:
    """What is wrong with a node and the release that is deployed (empty: none), after how many checks.

    `notes` are no faults, `pending` is what a new release would change; `drain` is the command that drains the node,
    where something is wrong with it alone.
    """

    release: str
    findings: Sequence[HostFinding]
    notes: Sequence[Finding] = ()
    pending: Sequence[Finding] = ()
    checks: int = 0
    drain: str | None = None


def check_release(
    loaded: LoadedSite, root_path: Path | None, host: DiskTree, release: RenderedTree | None = None
) -> Checked:
    """Check a host by a site and the deployed `release` of a root (default: the site's), which is read if not given.

    Before anything is deployed, the host is checked by the site alone. Raises `ResolveError` when the release is not of
    this site.
    """
    site, path = loaded.site, root_path or Path(loaded.site.root)
    node = Node(site, host)
    if root_path is None and not path.exists():
        # Where the file system that holds the release is not mounted, that is the cause.
        unmounted = list(shared_mounts(node))
        if any(is_under(site.root, finding.subject) for finding in unmounted):
            return _summary(node, "", unmounted)
    root = existing_root(path) if root_path is not None or path.exists() else None
    policy = read_policy(path) or Policy(())
    of_root = [*(root_doubts(path) if root else ()), *policy.faults]
    if release is None and root is not None and root.current:
        release = inspect_release(root, root.current)
    if release is None:
        found, checks = check_node(replace(node, policy=policy.lines), NO_MANIFEST)
        text = "no release is deployed, so the node is checked by the site description alone"
        note = Finding("not-deployed", Severity.INFO, text, f"lumisite deploy OUT {path} --apply", str(path))
        return replace(_summary(node, "", [*of_root, *found], checks), notes=[note])
    name, manifest = release.path.name, release.manifest
    of_root += [replace(fault, subject=str(release.path / fault.subject)) for fault in release.faults]
    if not manifest.release:
        return _summary(node, name, of_root)
    _require_same_site(site, manifest)
    found, checks = check_node(replace(node, platform=manifest.platform, policy=policy.lines), manifest)
    checked = _summary(node, name, [*of_root, *found], checks)
    if is_rendered_from(manifest, loaded):
        return checked
    text = f"changed since release {name} was rendered"
    return replace(checked, pending=[Finding("not-deployed", Severity.INFO, text, subject=loaded.file)])


def _summary(node: Node, release: str, findings: Iterable[Finding], checks: int = 0) -> Checked:
    """Tell faults from notes, and what drains the node; without a name it is no node that Slurm could drain."""
    known = [one if isinstance(one, HostFinding) else HostFinding(**vars(one)) for one in findings]
    if not node.name:
        known = [replace(one, severity=Severity.FAULT) if one.severity is Severity.NODE else one for one in known]
    faults = [one for one in known if one.severity is not Severity.INFO]
    reasons = dict.fromkeys(one.subject for one in faults if one.severity is Severity.NODE)
    drain = drain_command([node.name], ", ".join(reasons)) if reasons else None
    return Checked(release, faults, [one for one in known if one.severity is Severity.INFO], (), checks, drain)


def check_node(node: Node, manifest: Manifest) -> tuple[list[Finding], int]:
    """Check a node, or a copy of its tree; without a release (`NO_MANIFEST`) by the site description alone.

    Returns the findings by path, and how many checks there were. What is below a file system that is not mounted
    follows from that.
    """
    if silent := list(silent_mounts(node)):
        return [*silent], len(node.site.file_systems)
    node = replace(node)  # reads the mounts once more, with what an automounter has mounted for that
    bound = bound_paths(node.site, manifest)
    found = [finding for check in CHECKS for finding in check(node)]
    found += filter(None, (check_bound(node, one) for one in bound))
    unmounted = {finding.at for finding in shared_mounts(node)}
    first: dict[str, Finding] = {}
    for finding in found:
        if not any(is_under(finding.at, at) and finding.code != "host-mount" for at in unmounted):
            first.setdefault(finding.at or f"{finding.code} {finding.subject} {finding.message}", finding)
    findings = [*first.values(), *other_images(manifest.plans, node.host)]
    return sorted(findings, key=lambda one: (one.subject, one.code)), len(bound) + len(CHECKS)


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
