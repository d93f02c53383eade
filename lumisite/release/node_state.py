"""What is wrong with a node itself: mounts, folders, interfaces; and who may read what.

Whether others may read something is judged by its mode alone; what an access control list grants beyond that is not.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from lumisite.machine.host import (
    DiskTree,
    Mount,
    has_address,
    mount_of,
    names_of_this_node,
    partition_of_this_job,
    silent_paths,
)
from lumisite.machine.live import read_facts, read_topology
from lumisite.machine.reach import reach
from lumisite.machine.topology import TopologyError, recognise, topology_of
from lumisite.machine.tree import resolve, text_of
from lumisite.site.kinds import fingerprint_of
from lumisite.site.model import Site
from lumisite.site.scalars import TASK
from lumisite.vendors import drivers_of

READ, WRITE, ENTER = 0o4, 0o2, 0o1
_NET = "/sys/class/net"
#: What Linux calls an interface that can be used; some drivers never say more than `unknown` (RFC 2863).
_UP = ("up", "unknown", "")
_LINE_BYTES = 256
#: How long a file system may take to answer, in seconds.
SILENT_S = 10.0


@dataclass(frozen=True, order=True)
class HostFault:
    """What is wrong with one path of the host: what was `expected`, what is there, and what to do.

    `alone` where only this node can be meant. Of several faults with one `cause`, the first one tells it.
    """

    path: str
    expected: str
    found: str
    remedy: str
    alone: bool = field(default=False, compare=False)
    cause: str = field(default="", compare=False)

    def __str__(self) -> str:
        """Give one line."""
        return f"{self.path}: {self.found}; {self.expected} is expected; {self.remedy}"


def permitted(host: DiskTree, path: str, real: str, what: str, need: int) -> HostFault | None:
    """Say where others may not read or pass: the first folder on the way, or the path itself."""
    folder = ""
    for part in real.split("/")[1:-1]:
        folder = f"{folder}/{part}"
        mode = host.mode(folder)
        if mode is not None and not mode & ENTER:
            found, remedy = f"{folder} has mode {mode:04o}, which shuts users out", f"chmod o+x {folder}"
            return HostFault(path, what, found, remedy, cause=folder)
    mode = host.mode(real)
    if mode is None or mode & need == need:
        return None
    rights = "".join(letter for letter, bit in (("r", READ), ("w", WRITE), ("x", ENTER)) if need & bit)
    found = f"has mode {mode:04o}, which shuts users out"
    return HostFault(path, what, found, f"chmod o+{rights} {real}", cause=real)


def shared_faults(site: Site, bound: frozenset[str], host: DiskTree, mounts: tuple[Mount, ...]) -> Iterator[HostFault]:
    """Say through which shared file systems among the `bound` paths users reach none, or not all that links lead to."""
    for one in site.file_systems:
        found = reach(host, mounts, one.path) if one.kind == "shared" and one.path in bound else None
        if found is None:
            continue
        what = f"a shared file system ({one.why})"
        for folder, link in found.missing.items():
            text = (
                f"no file system is mounted at {folder}, where {link} leads: it is an empty folder of this node's own"
            )
            yield HostFault(one.path, what, f"{text} root file system", f"mount {folder}", True, folder)
        for point, mount in found.points.items():
            if mount.kind == "autofs" and host.look(f"{point}/.") is None:
                text = f"its automounter mounts nothing at {point}"
                yield HostFault(one.path, what, text, f"`automount -m` has its map; mount {point}", True, point)
        if not found.points and not found.missing and resolve(host, found.real).entry is not None:
            where = "it" if found.real == one.path else found.real
            text = f"no file system is mounted there, {where} is a folder of this node's own root file system"
            yield HostFault(one.path, what, text, f"mount {found.real}", True, found.real)


def silent_faults(site: Site, host: DiskTree, mounts: tuple[Mount, ...]) -> Iterator[HostFault]:
    """Say which file systems of this very node do not answer: whoever looks at one waits for ever."""
    if host.name.strip("/"):
        return
    whys: dict[str, str] = {}
    for one in site.file_systems:
        found = reach(host, mounts, one.path)
        if found and not found.mounted:  # else it is asked by its own name
            whys |= dict.fromkeys(found.points, f"users reach it through {one.path}")
    whys |= {one.path: one.why for one in site.file_systems}
    for path in silent_paths([*whys], SILENT_S):
        found_text = f"has not answered within {SILENT_S:g} s, and nothing else was looked at"
        remedy = f"`dmesg` says what its client waits for; mount {path} anew"
        yield HostFault(path, f"a file system ({whys[path]})", found_text, remedy, alone=True)


def local_faults(site: Site, host: DiskTree, mounts: tuple[Mount, ...]) -> Iterator[HostFault]:
    """Say to which file systems for private caches users cannot write."""
    for one in site.file_systems:
        place = resolve(host, one.path)
        if not one.writable or place.entry is None:
            continue
        what = f"a folder that users can write to ({one.why})"
        mount = mount_of(mounts, place.path)
        if mount is not None and mount.read_only:
            remedy = f"mount -o remount,rw {mount.point}"
            yield HostFault(one.path, what, "is mounted read-only", remedy, alone=True)
        if fault := permitted(host, one.path, place.path, what, WRITE | ENTER):
            remedy = f"chmod 1777 {place.path}" if fault.cause == place.path else fault.remedy
            yield HostFault(fault.path, what, fault.found, remedy, alone=True, cause=fault.cause)


def interface_faults(site: Site, host: DiskTree) -> Iterator[HostFault]:
    """Say which high-speed interfaces are not there, are down, or have no address; none on a node without that network.

    Which ones a node must have is known of its kind; of a kind that is not recognised, only those that it has count.
    """
    place = resolve(host, _NET)
    names = host.names(place.path) if place.entry is not None else ()
    there = frozenset(names).intersection(site.fabric.interfaces)
    if not names or not (there or compute_node(site, host)):
        return
    what = "a high-speed interface of this node"
    for name in site.fabric.interfaces:
        if name not in there:
            if name in _expected(site, host, there):
                others = f" ({_NET} has {', '.join(sorted(names))})"
                remedy = f"`lspci` and `dmesg` say whether its adapter is seen; bring {name} back"
                yield HostFault(name, what, f"is not there{others}", remedy, alone=True)
            continue
        state = (text_of(host, f"{_NET}/{name}/operstate", _LINE_BYTES) or "").strip()
        if state not in _UP:
            remedy = f"look at its cable and switch port, then `ip link set {name} up`"
            yield HostFault(name, what, f"is {state}", remedy, alone=True)
        elif not host.name.strip("/") and not has_address(name):
            yield HostFault(name, what, "has no address", f"give it its address; `ip address show {name}`", alone=True)


def _expected(site: Site, host: DiskTree, there: frozenset[str]) -> frozenset[str]:
    kinds = {name: frozenset(nic.interface for nic in kind.nics) for name, kind in site.node_kinds.items()}
    known = [nics for nics in kinds.values() if nics >= there]
    with suppress(TopologyError):
        seen = read_topology(host)
        for name, platform in itertools.product(kinds, site.platforms.values()):
            kind = topology_of(name, site.node_kinds[name], platform.gpu_bus_ids.get(name, ()))
            if recognise(seen, [kind]):
                return kinds[name]
    # A kind of which no interface is described may have any number of them.
    return min(known, key=len) if known and all(kinds.values()) else there


def kind_faults(site: Site, host: DiskTree) -> Iterator[HostFault]:
    """Say what a compute node has otherwise than nodes of each kind that it may be; in a job, those of its partition.

    Then its tasks get no CPU masks. Nothing is said of a copy without the kernel's files.
    """
    live = not host.name.strip("/")
    mine = site.kinds_of(partition_of_this_job()) if live else {}
    node = read_facts(host, drivers_of(site))
    if not (mine or compute_node(site, host)) or not (live or node.present):
        return
    known = {name: fingerprint_of(site, name) for name in mine or site.node_kinds}
    differing = {name: list(one.differences(node)) for name, one in known.items()}
    if not all(differing.values()):
        return
    lost = next((name for name, one in known.items() if one.lost_gpus(node)), None)
    remedy = (
        f"`dmesg` and `lspci` say why {lost} nodes have more"
        if lost
        else "if such nodes are meant to be here, describe their kind, render and deploy; if not, repair this one"
    )
    found = ", ".join(f"{name} ({'; '.join(texts)})" for name, texts in differing.items())
    expected = "a node of a described kind, whose tasks get CPU masks,"
    yield HostFault("node kind", expected, f"this node is none of {found}", remedy, alone=lost is not None)


def compute_node(site: Site, host: DiskTree) -> bool:
    """Tell whether a host has what the site says that compute nodes alone have."""
    alone = [bind.path for bind in site.binds if bind.where == TASK]
    return any(resolve(host, path).entry is not None for path in alone)


def name_of(site: Site, host: DiskTree) -> str | None:
    """Give a compute node's name: what Slurm or the kernel calls this one, or what a copy has in /etc/hostname."""
    live = not host.name.strip("/")
    slurm, kernel = names_of_this_node() if live else ("", "")
    if not compute_node(site, host) and not slurm:
        return None
    if live:
        return slurm or kernel
    lines = (text_of(host, "/etc/hostname", _LINE_BYTES) or "").split()
    return lines[0].partition(".")[0] if lines and lines[0].isprintable() else None
