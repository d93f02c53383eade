"""What one node tells of its fabric, its runtime, its file systems and its software."""

from __future__ import annotations

import ipaddress
import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass

from lumisite.binds.copies import numbers_in
from lumisite.facts.capture_system import capture_system
from lumisite.facts.facts import Facts
from lumisite.facts.installed import installed_releases
from lumisite.init.known import LOCAL, RUNTIMES, SHARED, SYSTEM
from lumisite.init.slurm import is_name
from lumisite.init.told import Told
from lumisite.machine.host import parse_mounts
from lumisite.machine.tree import is_under, names_of, resolve
from lumisite.vendors import all_fabrics, fabrics_of
from lumisite.vendors.model import Software

_NET = "/sys/class/net"
#: A line of plugstack.conf (spank(7)).
_PYXIS = re.compile(r"\s*(required|optional)\s+\S*\bspank_pyxis\.so\b")
_VERSION = re.compile(r"[0-9]{1,4}(\.[0-9]{1,4}){1,2}", re.ASCII)


@dataclass(frozen=True)
class Node:
    """A node: its facts, and what it told beside them (nothing, where the facts come from a file)."""

    facts: Facts
    told: Told

    @property
    def name(self) -> str:
        """What the kernel calls it."""
        name = (self.facts.host or "").partition(".")[0]
        return name if is_name(name) else "a node without a name"

    @property
    def programs(self) -> dict[str, tuple[str, str]]:
        """The container runtimes on its PATH, by name, with their paths and what they say of their versions."""
        found = {name: (self.told.said(f"{name} path"), self.told.said(name)) for name in RUNTIMES}
        if (real := self.facts.runtime.real) and not self.told.files:
            found[posixpath.basename(real)] = (real, self.facts.runtime.package or "")
        return {name: one for name, one in found.items() if name in RUNTIMES and can_be_bound(one[0])}

    @property
    def reads_no_modulefile(self) -> dict[str, dict[str, str]]:
        """What else starts containers, by name: pyxis, a plug-in of srun, and podman-hpc, with the keys of each.

        Sources: README.md of pyxis (046f414) for the option and the plug-in's file; docs/software/container-engine of
        eth-cscs/cscs-docs (80abed1) for `--environment`, which takes an EDF.
        """
        found = {}
        options = self.told.lines("/said/srun --help")
        folders = ("/etc/slurm", "/etc/slurm/plugstack.conf.d", "/etc/slurm-llnl/plugstack.conf.d")
        plugged = (line for folder in folders for path in self.told.below(folder) for line in self.told.lines(path))
        if "--container-image" in options or any(map(_PYXIS.match, plugged)):
            version = self.told.said("enroot")
            found["pyxis"] = {"variant": f"pyxis, enroot {version}" if version else "pyxis", "emit": "edf"}
            if "--environment" not in options:
                found["pyxis"]["question"] = "what reads EDFs here? srun has no --environment"
        if can_be_bound(self.told.said("podman-hpc path")):
            found["podman-hpc"] = {"variant": self.told.said("podman-hpc") or "podman-hpc", "emit": "podman-hpc"}
        return found


@dataclass(frozen=True)
class Fabric:
    """The network by which nodes exchange data."""

    carrier: str
    adapters: tuple[str, ...]
    interfaces: tuple[str, ...]
    management: tuple[str, ...]


@dataclass(frozen=True)
class Folder:
    """A file system that users work on; `kind` is `shared` or `node-local`, `type` the kernel's word.

    `writable` is a node-local one in which all users can make directories.
    """

    path: str
    kind: str
    type: str
    writable: bool = False


def node_of(told: Told, site: str, notes: list[str]) -> Node:
    """Read a node's answer."""
    names = [name for name in names_of(told, _NET) if name != "lo" and is_name(name)]
    real = [name for name in names if _devices(told, name)]
    return Node(capture_system(told, site, real or names, notes), told)


def _devices(told: Told, name: str) -> set[str]:
    """Give the interfaces by whose devices one works: itself, the parts of a bond, what a VLAN or a bridge lies on.

    Source: `netdev_adjacent_sysfs_add` in Linux' net/core/dev.c, which makes the links `lower_NAME`.
    """
    found, waiting = dict[str, list[str]](), [name]
    while waiting:
        one = waiting.pop()
        if one not in found:
            found[one] = names_of(told, f"{_NET}/{one}")
            waiting += [below.removeprefix("lower_") for below in found[one] if below.startswith("lower_")]
    return {one for one, here in found.items() if "device" in here}


def fabric_of(node: Node, address: str | None) -> Fabric:
    """Tell fast interfaces from those for management; `address` is by which Slurm reaches the node.

    Where all are as fast, the one with that address manages, unless the others are called like it (`eth0`, `eth1`).
    """
    routes = list(_routes(node))
    routed = {name for name, _ in routes}
    up = {
        name: one.speed_mbit or 0
        for name, one in node.facts.interfaces.items()
        if is_name(name) and one.state in ("up", "unknown") and (name in routed or not node.told.files)
    }
    fast = [name for name, speed in up.items() if speed == max(up.values())]
    home = {name for name, network in routes if address and ipaddress.ip_address(address) in network}
    others = [name for name in fast if name not in home]
    if not {_stem(name) for name in others} & {_stem(name) for name in home}:
        fast = others or fast
    carrier, adapters = _adapters(node, fast)
    return Fabric(carrier, adapters, tuple(fast), tuple(name for name in up if name not in fast))


def _stem(name: str) -> str:
    return name.rstrip("0123456789")


def _routes(node: Node) -> Iterator[tuple[str, ipaddress.IPv4Network]]:
    """Give the networks that an interface is in, of the kernel's table (proc(5), /proc/net/route)."""
    for line in node.told.lines("/proc/net/route")[1:]:
        fields = line.split()
        if len(fields) > 7 and all(re.fullmatch("[0-9A-Fa-f]{8}", fields[at]) for at in (1, 2, 7)):
            target, mask = (ipaddress.IPv4Address(bytes.fromhex(fields[at])[::-1]) for at in (1, 7))
            if int(target) and not int(fields[2], 16):
                yield fields[0], ipaddress.IPv4Network(f"{target}/{mask}", strict=False)


def _adapters(node: Node, fast: list[str]) -> tuple[str, tuple[str, ...]]:
    """Give what carries data, and its adapters: those of the fast interfaces, where an adapter is also Ethernet."""
    parts = set(fast).union(*(_devices(node.told, name) for name in fast))
    buses = {node.facts.interfaces[part].bus for part in parts if part in node.facts.interfaces} - {None}
    for fabric in all_fabrics():
        found = []
        for name, adapter in node.facts.nics.items():
            is_kind = adapter.kind in (None, posixpath.basename(fabric.folder))
            is_driven = fabric.driver in ("", adapter.driver)
            is_up = not fabric.link or (fabric.link == adapter.link and adapter.port == "ACTIVE")
            is_fast = fabric.link != "Ethernet" or adapter.bus in buses
            if is_name(name) and is_kind and is_driven and is_up and is_fast:
                found.append(name)
        if found:
            return fabric.carriers[0], tuple(found)
    return "tcp", ()


def adapter_near(node: Node, bus: str | None, fabric: Fabric) -> str | None:
    """Give the adapter with most of the path of PCI bridges in common with a GPU, if one alone has."""
    gpu = resolve(node.told, f"/sys/bus/pci/devices/{bus}").path.split("/")
    shared = {}
    for name in fabric.adapters:
        folder = fabrics_of(fabric.carrier)[0].folder
        path = resolve(node.told, f"{folder}/{name}/device").path.split("/")
        common = posixpath.commonprefix([gpu, path])
        shared[name] = len(common) if any(part.startswith("pci") for part in common) else 0
    best = [name for name, common in shared.items() if common and common == max(shared.values())]
    return best[0] if len(best) == 1 else None


def folders_of(node: Node, login: Node) -> Iterator[Folder]:
    """Give the file systems that users work on, and the links in / that lead there; the outermost of each alone.

    Shared is what is so by its type, or has on both nodes the same number and time of change.
    """
    here, there = (set(one.told.lines("/said/stat")) for one in (node, login))
    folders = {line.split(" ", 5)[-1] for line in here if " directory /" in line}
    same = {line.split(" ", 5)[-1] for line in here & there if " directory /" in line} if node is not login else set()
    rights = {line[11:]: line for line in node.told.lines("/said/rights")}
    found: dict[str, Folder] = {}
    for mount in sorted(parse_mounts(node.told.lines("/proc/self/mountinfo")), key=lambda one: one.point):
        if mount.point == "/" or mount.point not in folders or any(is_under(mount.point, one) for one in SYSTEM):
            continue
        kind = "shared" if mount.kind in SHARED or mount.point in same else "node-local" if mount.kind in LOCAL else ""
        if kind and not any(is_under(mount.point, one) for one in found) and can_be_bound(mount.point):
            writable = kind == "node-local" and rights.get(mount.point, "")[8:10] in ("wx", "wt")
            found[mount.point] = Folder(mount.point, kind, mount.kind, writable)
    yield from found.values()
    for link in node.told.below("/"):
        there_is = resolve(node.told, link)
        for one in found.values() if there_is.path != link and can_be_bound(link) else ():
            if is_under(there_is.path, one.path) and link not in found:
                yield Folder(link, one.kind, f"a link to {there_is.path}")


def can_be_bound(path: str) -> bool:
    """Tell whether a path of the machine can stand in the description without being asked after."""
    return re.fullmatch(r"(/[\w.+@=-]+)+", path, re.ASCII) is not None


def has_folder(node: Node, path: str) -> bool:
    """Tell whether a node has a folder under a path that its own table of mounts or a link in / names."""
    lines = node.told.lines("/said/stat")
    return any(line.endswith(f" directory {path}") for line in lines) or resolve(node.told, path).entry is not None


def releases_of(node: Node, software: Software) -> tuple[list[str], str | None]:
    """Give the releases of software that stand on the node, the oldest first, and the one that is the default."""
    facts = node.facts.stacks.get(software.name)
    if facts is not None and facts.versions:
        return sorted(filter(_VERSION.fullmatch, facts.versions), key=numbers_in), facts.default
    installed = installed_releases(node.told, software)
    found = sorted(filter(_VERSION.fullmatch, installed.versions), key=numbers_in)
    return found, installed.default if installed.default in found else found[-1] if found else None


def module_systems(node: Node) -> list[str]:
    """Give the module system that a node's shells have: by their variables, else by what is installed."""
    lmod, modules = bool(node.told.said("LMOD_VERSION")), bool(node.told.said("MODULES_CMD"))
    if not lmod and not modules:
        lmod = has_folder(node, "/usr/share/lmod")
        modules = any(has_folder(node, f"/usr/share/{first}odules") for first in "mM")
    return ["lmod"] if lmod else ["tcl"] if modules else []
