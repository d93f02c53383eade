"""What one node has: its fabric, its runtimes, its file systems and its software."""

from __future__ import annotations

import ipaddress
import itertools
import posixpath
import re
from collections.abc import Collection
from dataclasses import dataclass

from lumisite.facts.capture_system import capture_system, interfaces_on_devices, lies_on
from lumisite.facts.facts import Device, Facts, Interface
from lumisite.facts.installed import installed_releases
from lumisite.findings.finding import Finding
from lumisite.init.answer import NodeAnswer
from lumisite.init.known import RUNTIMES
from lumisite.init.slurm import is_name
from lumisite.machine.library_names import numbers_in
from lumisite.machine.tree import names_of, resolve
from lumisite.text import natural
from lumisite.vendors import all_fabrics, fabrics_of
from lumisite.vendors.model import Software

_NET = "/sys/class/net"
#: A line of plugstack.conf (spank(7)).
_PYXIS = re.compile(r"\s*(required|optional)\s+\S*\bspank_pyxis\.so\b")
_VERSION = re.compile(r"[0-9]{1,4}(\.[0-9]{1,4}){1,2}", re.ASCII)


@dataclass(frozen=True)
class Node:
    """A node: its facts, and its answer to the collector (empty, where the facts come from a file)."""

    facts: Facts
    answer: NodeAnswer

    @property
    def name(self) -> str:
        """What the kernel calls it."""
        name = (self.facts.host or "").partition(".")[0]
        return name if is_name(name) else "an unnamed node"

    @property
    def gpus(self) -> tuple[Device, ...]:
        """Its GPUs, where the NUMA domain of each is known: of a node with one domain that one."""
        domains = {group.numa or 0 for group in self.facts.cpus}
        is_alone = len(domains) == 1
        known = all(gpu.numa in domains or (gpu.numa is None and is_alone) for gpu in self.facts.gpus)
        return self.facts.gpus if known else ()

    @property
    def programs(self) -> dict[str, tuple[str, str]]:
        """The container runtimes on its PATH, by name, with their paths and their versions as they print them."""
        found = {name: (self.answer.output(f"{name} path"), self.answer.output(name)) for name in RUNTIMES}
        if (real := self.facts.runtime.real) and not self.answer.files:
            found[posixpath.basename(real)] = (real, self.facts.runtime.package or "")
        return {name: program for name, program in found.items() if name in RUNTIMES and can_be_bound(program[0])}

    @property
    def reads_no_modulefile(self) -> dict[str, dict[str, str]]:
        """What else starts containers, by name: pyxis, a plug-in of srun, and podman-hpc, with the keys of each.

        Source: README.md of pyxis (046f414) for the option and the plug-in's file.
        """
        found = {}
        options = self.answer.lines("/output/srun --help")
        folders = ("/etc/slurm", "/etc/slurm/plugstack.conf.d", "/etc/slurm-llnl/plugstack.conf.d")
        plugged = (line for folder in folders for path in self.answer.below(folder) for line in self.answer.lines(path))
        if "--container-image" in options or any(map(_PYXIS.match, plugged)):
            version = self.answer.output("enroot")
            variant = f"pyxis, enroot {version}" if version else "pyxis"
            found["pyxis"] = {"variant": variant, "emit": "cdi", "question": "cdi-reader"}
        if can_be_bound(self.answer.output("podman-hpc path")):
            found["podman-hpc"] = {"variant": self.answer.output("podman-hpc") or "podman-hpc", "emit": "cdi"}
        return found


@dataclass(frozen=True)
class FoundFabric:
    """The network by which nodes exchange data; `shared` have a device in common with a fast interface."""

    carrier: str
    adapters: tuple[str, ...]
    interfaces: tuple[str, ...]
    management: tuple[str, ...]
    shared: tuple[str, ...] = ()


def node_of(answer: NodeAnswer, site: str, findings: list[Finding]) -> Node:
    """Read a node's answer; where no interface has a device, as in a virtual machine, all of them count."""
    names = [name for name in names_of(answer, _NET) if name != "lo" and is_name(name)]
    return Node(capture_system(answer, site, () if interfaces_on_devices(answer) else names, findings), answer)


def fabric_of(node: Node, address: str | None) -> FoundFabric:
    """Return fast interfaces and those for management; `address` is by which Slurm reaches the node.

    Where all are as fast, the one with that address manages, unless the others are called like it (`eth0`, `eth1`).
    What lies on another one has its speed from that, and counts where that has no address itself.
    """
    facts = node.facts.interfaces
    lower = {name: interface.lower for name, interface in facts.items()}
    below = {name: lies_on(name, lower) for name in facts}
    up = [name for name in sorted(facts, key=natural) if is_name(name) and _is_up(facts[name])]
    alone = {name: facts[name].speed_mbit or 0 for name in up if not (below[name] - {name}).intersection(up)}
    fast = [name for name, speed in alone.items() if speed == max(alone.values())]
    home = {name for name in up if address and _has(facts[name], address)}
    others = [name for name in fast if name not in home]
    pairs = itertools.product(others, home)
    if not any(_stem(name) == _stem(managing) and not below[name] & below[managing] for name, managing in pairs):
        fast = others or fast
    parts = set[str]().union(*(below[name] for name in fast))
    rest = [name for name in up if name not in fast]
    carrier, adapters = _adapters(node, {facts[part].bus for part in parts if part in facts} - {None})
    return FoundFabric(
        carrier,
        adapters,
        tuple(fast),
        tuple(name for name in rest if not below[name].intersection(fast)),
        tuple(name for name in up if any(below[name] & below[other] for other in fast if other != name)),
    )


def _is_up(interface: Interface) -> bool:
    """Return whether an interface can carry data: it is up and, as far as that is known, has an address."""
    return interface.state in ("up", "unknown") and interface.networks != ()


def _has(interface: Interface, address: str) -> bool:
    networks = map(ipaddress.ip_network, interface.networks or ())
    return any(ipaddress.ip_address(address) in network for network in networks)


def _stem(name: str) -> str:
    return name.rstrip("0123456789")


def _adapters(node: Node, buses: Collection[str | None]) -> tuple[str, tuple[str, ...]]:
    """Return what carries data, and its adapters: those at `buses`, where an adapter is also Ethernet."""
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
            return fabric.carriers[0], tuple(sorted(found, key=natural))
    return "tcp", ()


def adapter_near(node: Node, bus: str | None, fabric: FoundFabric) -> str | None:
    """Return the adapter with most of the path of PCI bridges in common with a GPU, if one alone has."""
    gpu = resolve(node.answer, f"/sys/bus/pci/devices/{bus}").path.split("/")
    shared = {}
    for name in fabric.adapters:
        folder = fabrics_of(fabric.carrier)[0].folder
        path = resolve(node.answer, f"{folder}/{name}/device").path.split("/")
        common = posixpath.commonprefix([gpu, path])
        shared[name] = len(common) if any(part.startswith("pci") for part in common) else 0
    best = [name for name, common in shared.items() if common and common == max(shared.values())]
    return best[0] if len(best) == 1 else None


def can_be_bound(path: str) -> bool:
    """Return whether a path of the machine can be written in the description without a question."""
    return re.fullmatch(r"(/[\w.+@=-]+)+", path, re.ASCII) is not None


def has_folder(node: Node, path: str) -> bool:
    """Return whether a node has a folder under a path that its own table of mounts or a link in / names."""
    lines = node.answer.lines("/output/stat")
    return any(line.endswith(f" directory {path}") for line in lines) or resolve(node.answer, path).entry is not None


def releases_of(node: Node, software: Software) -> tuple[list[str], str | None]:
    """Return the releases of software that a node has, the oldest first, and the one that its link names as default."""
    facts = node.facts.stacks.get(software.name)
    if facts is not None and facts.versions:
        return sorted(filter(_VERSION.fullmatch, facts.versions), key=numbers_in), facts.default
    installed = installed_releases(node.answer, software)
    found = sorted(filter(_VERSION.fullmatch, installed.versions), key=numbers_in)
    return found, installed.default if installed.default in found else None


def unclear_releases(node: Node, software: Software) -> list[str]:
    """Return the folders whose names begin as a release and are none (`PRODUCT-12`), where no link leads elsewhere."""
    found = []
    for start in (*software.folders, *software.series):
        folder, prefix = posixpath.split(start)
        for name in names_of(node.answer, folder):
            path, version = f"{folder}/{name}", name.removeprefix(prefix)
            is_one = name.startswith(prefix) and version[:1].isdecimal() and not _VERSION.fullmatch(version)
            if is_one and resolve(node.answer, path).path == path and can_be_bound(path):
                found.append(path)
    return sorted(found)


def module_systems(node: Node) -> list[str]:
    """Return the module system that a node's shells have: by their variables, else by what is installed."""
    lmod, modules = bool(node.answer.output("LMOD_VERSION")), bool(node.answer.output("MODULES_CMD"))
    if not lmod and not modules:
        lmod = has_folder(node, "/usr/share/lmod")
        modules = any(has_folder(node, f"/usr/share/{first}odules") for first in "mM")
    return ["lmod"] if lmod else ["tcl"] if modules else []
