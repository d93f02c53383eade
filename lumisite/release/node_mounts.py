"""What is wrong with the file systems of a node: not mounted, silent, read-only, or closed to users."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lumisite.findings.finding import Finding, Severity
from lumisite.machine.host import mount_of, silent_paths
from lumisite.machine.reach import reach
from lumisite.machine.tree import is_under, resolve
from lumisite.release.node import ENTER, WRITE, HostFault, Node, users_shut_out
from lumisite.site.entries import FileSystem

#: The local folders that every Linux has for all users, with this mode.
FOR_ALL = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108
#: How long a file system may take to answer, in seconds.
SILENT_S = 10.0


def silent_faults(node: Node) -> Iterator[HostFault]:
    """Yield the file systems of this very node that do not answer: whoever looks at one waits for ever."""
    if not node.is_live:
        return
    users: dict[str, str] = {}
    for system in node.site.file_systems:
        found = reach(node.host, node.mounts, system.path)
        if found and not found.mounted:  # else it is asked by its own name
            users |= dict.fromkeys(found.points, system.path)
    users |= {system.path: system.why for system in node.site.file_systems}
    for path in silent_paths([*users], SILENT_S):
        text = f"no answer within {SILENT_S:g} s, and nothing else was checked; needed for {users[path]}"
        yield _fault(path, text, "look into `dmesg` for its client, and mount it again", path, users[path])


def shared_faults(node: Node, bound: frozenset[str]) -> Iterator[HostFault]:
    """Yield the shared file systems among the `bound` paths that users do not reach, or not as far as links lead.

    One that is mounted read-only is a fault too, unless software alone is there.
    """
    for system in node.site.file_systems:
        found = reach(node.host, node.mounts, system.path) if system.kind == "shared" else None
        if found is None:
            continue
        for point, mount in found.points.items():
            if mount.read_only and not _has_software(node, system):
                yield _read_only(system, point)
        if system.path not in bound:
            continue
        for folder, link in found.missing.items():
            text = f"no file system is mounted at {folder}, where {link} leads; needed for {system.why}"
            yield _fault(system.path, text, f"mount {folder}", folder, system.why)
        for point, mount in found.points.items():
            if mount.kind == "autofs" and node.host.look(f"{point}/.") is None:
                text = f"the automounter mounts nothing at {point}; needed for {system.why}"
                yield _fault(system.path, text, f"`automount -m` prints its map; mount {point}", point, system.why)
        if not found.points and not found.missing and resolve(node.host, found.real).entry is not None:
            text = f"no file system is mounted at {found.real}, it is a folder of this node's root file system"
            yield _fault(system.path, f"{text}; needed for {system.why}", f"mount {found.real}", found.real, system.why)


def local_faults(node: Node) -> Iterator[HostFault]:
    """Yield the file systems for private caches to which users cannot write, or from which nothing can be run."""
    for system in node.site.file_systems:
        folder = resolve(node.host, system.path)
        if not system.writable or folder.entry is None:
            continue
        mount = mount_of(node.mounts, folder.path)
        if mount is not None and mount.read_only:
            yield _read_only(system, mount.point)
            continue  # what no mode decides
        if mount is not None and "noexec" in mount.options:
            text = f"mounted noexec: what frameworks compile there does not load; {system.why}"
            yield _fault(system.path, text, f"mount -o remount,exec {mount.point}", mount.point, system.why)
        fault = users_shut_out(node.host, system.path, folder.path, WRITE | ENTER, system.why)
        if fault and fault.at == folder.path:
            advice = f"chmod 1777 {fault.at}"
            if system.path not in FOR_ALL:
                key = f"take `writable: yes` from {system.path} in the site description"
                advice = f"{key}; where users are to write there, `{advice}`"
            fault = replace(fault, finding=replace(fault.finding, advice=advice))
        if fault:
            yield replace(fault, finding=replace(fault.finding, severity=Severity.NODE))


def _has_software(node: Node, system: FileSystem) -> bool:
    """Return whether a file system has the releases or images, which may be mounted read-only on compute nodes."""
    folders = node.site.images.folders if node.site.images else ()
    return any(is_under(path, system.path) for path in (node.site.root, *(str(folder.path) for folder in folders)))


def _read_only(system: FileSystem, point: str) -> HostFault:
    text = f"mounted read-only at {point}; needed for {system.why}"
    return _fault(system.path, text, f"mount -o remount,rw {point}", point, system.why)


def _fault(path: str, text: str, advice: str, at: str, needed_by: str) -> HostFault:
    return HostFault(Finding("host-mount", Severity.NODE, text, advice, subject=path), at, needed_by)
