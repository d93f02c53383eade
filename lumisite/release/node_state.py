"""What is wrong with a node itself: mounts, folders, interfaces; and what users may not read.

Whether others may read something is judged by its mode alone; what an access control list grants beyond that is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lumisite.findings.catalogue import make_finding
from lumisite.findings.finding import Finding, Severity
from lumisite.findings.writers import sentences
from lumisite.machine.host import (
    DiskTree,
    Mount,
    has_address,
    mount_of,
    names_of_this_node,
    partition_of_this_job,
    silent_paths,
)
from lumisite.machine.live import read_facts
from lumisite.machine.reach import reach
from lumisite.machine.tree import resolve, text_of
from lumisite.release.node_hardware import adapter_faults, gpu_faults, link_faults, recognised
from lumisite.site.kinds import NO_GPUS, fingerprint_of
from lumisite.site.model import Site
from lumisite.site.scalars import TASK
from lumisite.vendors import drivers_of

#: The local folders that every Linux has for all users, with this mode.
FOR_ALL = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108
READ, WRITE, ENTER = 0o4, 0o2, 0o1
_NET = "/sys/class/net"
#: What Linux calls an interface that can be used; some drivers never say more than `unknown` (RFC 2863).
_UP = ("up", "unknown", "")
_LINE_BYTES = 256
#: How long a file system may take to answer, in seconds.
SILENT_S = 10.0


def users_shut_out(host: DiskTree, path: str, real: str, need: int, needed_by: str) -> Finding | None:
    """Return the finding for a path that others may not read or pass: the first folder on the way, or itself."""
    folder = ""
    for part in real.split("/")[1:-1]:
        folder = f"{folder}/{part}"
        mode = host.mode(folder)
        if mode is not None and not mode & ENTER:
            return _shut_out(path, folder, mode, f"chmod o+x {folder}", needed_by)
    mode = host.mode(real)
    if mode is None or mode & need == need:
        return None
    rights = "".join(letter for letter, bit in (("r", READ), ("w", WRITE), ("x", ENTER)) if need & bit)
    return _shut_out(path, real, mode, f"chmod o+{rights} {real}", needed_by)


def _shut_out(path: str, at: str, mode: int, command: str, needed_by: str) -> Finding:
    return make_finding("users-shut-out", path, at=at, mode=f"{mode:04o}", command=command, needed_by=needed_by)


def shared_faults(site: Site, bound: frozenset[str], host: DiskTree, mounts: tuple[Mount, ...]) -> Iterator[Finding]:
    """Yield the shared file systems among the `bound` paths that users do not reach, or not as far as links lead."""
    for system in site.file_systems:
        found = reach(host, mounts, system.path) if system.kind == "shared" and system.path in bound else None
        if found is None:
            continue
        for folder, link in found.missing.items():
            yield make_finding("host-mount-missing", system.path, at=folder, link=link, needed_by=system.why)
        for point, mount in found.points.items():
            if mount.kind == "autofs" and host.look(f"{point}/.") is None:
                yield make_finding("automount-failed", system.path, at=point, needed_by=system.why)
        if not found.points and not found.missing and resolve(host, found.real).entry is not None:
            yield make_finding("host-mount-missing", system.path, at=found.real, needed_by=system.why)


def silent_faults(site: Site, host: DiskTree, mounts: tuple[Mount, ...]) -> Iterator[Finding]:
    """Yield the file systems of this very node that do not answer: whoever looks at one waits for ever."""
    if host.name.strip("/"):
        return
    users: dict[str, str] = {}
    for system in site.file_systems:
        found = reach(host, mounts, system.path)
        if found and not found.mounted:  # else it is asked by its own name
            users |= dict.fromkeys(found.points, system.path)
    users |= {system.path: system.why for system in site.file_systems}
    for path in silent_paths([*users], SILENT_S):
        yield make_finding("file-system-silent", path, seconds=SILENT_S, needed_by=users[path])


def local_faults(site: Site, host: DiskTree, mounts: tuple[Mount, ...]) -> Iterator[Finding]:
    """Yield the file systems for private caches to which users cannot write."""
    for system in site.file_systems:
        folder = resolve(host, system.path)
        if not system.writable or folder.entry is None:
            continue
        mount = mount_of(mounts, folder.path)
        if mount is not None and mount.read_only:
            yield make_finding("host-mount-read-only", system.path, point=mount.point, needed_by=system.why)
            continue  # what no mode decides
        if fault := users_shut_out(host, system.path, folder.path, WRITE | ENTER, system.why):
            at = fault.values["at"]
            if at == folder.path and system.path not in FOR_ALL:
                mode = fault.values["mode"]
                yield make_finding("local-folder-not-writable", system.path, at=at, mode=mode, needed_by=system.why)
                continue
            command = f"chmod 1777 {at}" if at == folder.path else fault.values["command"]
            yield replace(fault, severity=Severity.NODE, values={**fault.values, "command": command})


def interface_faults(site: Site, host: DiskTree) -> Iterator[Finding]:
    """Yield high-speed interfaces that are missing, down, or without address; none on a node without that network.

    Which ones a node must have is known of its kind; of a kind that is not recognised, only those that it has count.
    """
    folder = resolve(host, _NET)
    names = host.names(folder.path) if folder.entry is not None else ()
    present = frozenset(names).intersection(site.fabric.interfaces)
    if not names or not (present or compute_node(site, host)):
        return
    for name in site.fabric.interfaces:
        if name not in present:
            if name in _expected(site, host, present):
                yield make_finding("host-interface-missing", name, present=tuple(sorted(names)))
            continue
        state = (text_of(host, f"{_NET}/{name}/operstate", _LINE_BYTES) or "").strip()
        if state not in _UP:
            yield make_finding("host-interface-down", name, state=state)
        elif not host.name.strip("/") and not has_address(name):
            yield make_finding("host-interface-without-address", name)
    yield from link_faults(site, host, sorted(present))
    yield from adapter_faults(site, host)


def _expected(site: Site, host: DiskTree, present: frozenset[str]) -> frozenset[str]:
    kinds = {name: frozenset(nic.interface for nic in kind.nics) for name, kind in site.node_kinds.items()}
    known = [nics for nics in kinds.values() if nics >= present]
    if found := recognised(site, host):
        return kinds[found[0]]
    # A kind of which no interface is described may have any number of them.
    return min(known, key=len) if known and all(kinds.values()) else present


def kind_faults(site: Site, host: DiskTree) -> Iterator[Finding]:
    """Yield how a compute node differs from each kind that it may be; in a job, those of its partition.

    Its tasks get no CPU masks then. Nothing is known of a copy without the kernel's files.
    """
    live = not host.name.strip("/")
    kinds = site.kinds_of(partition_of_this_job()) if live else {}
    node = read_facts(host, drivers_of(site))
    if not (kinds or compute_node(site, host)) or not (live or node.present):
        return
    known = {name: fingerprint_of(site, name) for name in kinds or site.node_kinds}
    differing = {name: list(kind.differences(node)) for name, kind in known.items()}
    if not all(differing.values()):
        if node.gpus == NO_GPUS:  # as their drivers have them, which a copy may lack
            yield from gpu_faults(site, host)
        return
    differences = tuple(f"{name} ({sentences(findings)})" for name, findings in differing.items())
    lost = next((name for name, kind in known.items() if kind.lost_gpus(node)), None)
    code = "node-lost-gpus" if lost else "node-of-no-kind"
    yield make_finding(code, "node kind", differences=differences, kind=lost)


def compute_node(site: Site, host: DiskTree) -> bool:
    """Return whether a host has what by the site's description compute nodes alone have."""
    paths = [bind.path for bind in site.binds if bind.where == TASK]
    return any(resolve(host, path).entry is not None for path in paths)


def name_of(site: Site, host: DiskTree) -> str | None:
    """Return a compute node's name: what Slurm or the kernel calls this one, or what a copy has in /etc/hostname."""
    live = not host.name.strip("/")
    slurm, kernel = names_of_this_node() if live else ("", "")
    if not compute_node(site, host) and not slurm:
        return None
    if live:
        return slurm or kernel
    words = (text_of(host, "/etc/hostname", _LINE_BYTES) or "").split()
    return words[0].partition(".")[0] if words and words[0].isprintable() else None
