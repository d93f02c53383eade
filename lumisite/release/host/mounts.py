"""The file systems of a node: each one answers, is mounted, and can be written where jobs write."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lumisite.findings.finding import Severity
from lumisite.machine.host import silent_paths
from lumisite.machine.mounts import mount_of
from lumisite.machine.reach import reach
from lumisite.machine.tree import is_under, resolve
from lumisite.release.host.node import ENTER, WRITE, HostFinding, Node
from lumisite.site.entries import FileSystem

#: How long a file system may take to answer, in seconds.
SILENT_S = 10.0


def silent_mounts(node: Node) -> Iterator[HostFinding]:
    """Yield the file systems of this very node that do not answer: whoever looks at one waits for ever."""
    users: dict[str, str] = {}
    for system in node.site.file_systems if node.is_live else ():
        found = reach(node.host, node.mounts, system.path)
        users |= dict.fromkeys((*(found.points if found else ()), system.path), system.why)
    for path in silent_paths([*users], SILENT_S):
        text = f"no answer within {SILENT_S:g} s, and nothing else was checked"
        yield _of_mount(path, users[path], text, "look into `dmesg` for its client, and mount it again", path)


def shared_mounts(node: Node) -> Iterator[HostFinding]:
    """Yield the shared file systems that users do not reach, or not as far as links lead, or that are read-only.

    One with software alone may be that.
    """
    site = node.site
    software = [site.root, *(str(folder.path) for folder in (site.images.folders if site.images else ()))]
    for system in site.file_systems:
        found = reach(node.host, node.mounts, system.path) if system.kind == "shared" else None
        if found is None:
            continue
        if not any(is_under(path, system.path) for path in software):
            yield from (_read_only(system, point) for point, mount in found.points.items() if mount.read_only)
        if not (system.where or is_under(site.root, system.path)):
            continue
        for folder, link in found.missing.items():
            text = f"no file system is mounted at {folder}, where {link} leads"
            yield _of_mount(system.path, system.why, text, f"mount {folder}", folder)
        if not found.points and not found.missing and node.exists(found.real):
            text = f"no file system is mounted at {found.real}, it is a folder of this node's root file system"
            yield _of_mount(system.path, system.why, text, f"mount {found.real}", found.real)


def cache_mounts(node: Node) -> Iterator[HostFinding]:
    """Yield the file systems for private caches to which users cannot write, or from which nothing can be run."""
    for system in node.site.file_systems:
        folder = resolve(node.host, system.path)
        if not system.writable or folder.entry is None:
            continue
        mount = mount_of(node.mounts, folder.path)
        if mount is not None and mount.read_only:
            yield _read_only(system, mount.point)
        elif mount is not None and "noexec" in mount.options:
            text = "mounted noexec: what frameworks compile there does not load"
            yield _of_mount(system.path, system.why, text, f"mount -o remount,exec {mount.point}", mount.point)
        elif closed := node.shut_out(system.path, folder.path, WRITE | ENTER, system.why):
            advice = f"chmod 1777 {closed.at}" if closed.at == folder.path else closed.advice
            yield replace(closed, advice=advice, severity=Severity.NODE)


def _read_only(system: FileSystem, point: str) -> HostFinding:
    text, advice = f"mounted read-only at {point}", f"mount -o remount,rw {point}"
    return _of_mount(system.path, system.why, text, advice, point)


def _of_mount(path: str, why: str, text: str, advice: str, at: str) -> HostFinding:
    text = f"{text}; needed for {why}"
    return HostFinding("host-mount", Severity.NODE, text, advice, path, at=at, needed_by=why)
