"""Read the node that lumisite runs on, from the kernel's own files.

Source of the files: Documentation/admin-guide/cputopology.rst and ABI/{stable,testing}/sysfs-* in Linux 6.1. What
is read goes through a `Tree`, so that a captured one, or a dict, stands for a node.
"""

from __future__ import annotations

import fcntl
import os
import re
import socket
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lumisite.machine.topology import Core, Gpu, Topology, TopologyError, is_gpu, pci_order, place_of
from lumisite.site.cpus import CpusetError, parse_number_list

_CPU = "sys/devices/system/cpu"
_NODE = "sys/devices/system/node"
_PCI = "sys/bus/pci/devices"
_STATUS = "proc/self/status"
_SIOCGIFADDR = 0x8915


@dataclass(frozen=True)
class Tree:
    """A file system: `read` gives a file's text or `None` where there is none, `names` what a directory holds.

    Paths have no leading slash; `root` is for messages.
    """

    root: str
    read: Callable[[str], str | None]
    names: Callable[[str], Sequence[str]]


@dataclass(frozen=True)
class LiveNode:
    """A node as the kernel shows it, and the PUs that this process may run on (`Cpus_allowed_list`)."""

    topology: Topology
    allowed: frozenset[int]


def live_tree(root: Path) -> Tree:
    """Give the tree below `root`, `/` for this node; what cannot be read is not there."""

    def read(path: str) -> str | None:
        try:
            return (root / path).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None

    def names(path: str) -> Sequence[str]:
        try:
            return sorted(entry.name for entry in (root / path).iterdir())
        except OSError:
            return ()

    return Tree(str(root).rstrip("/"), read, names)


def read_live(tree: Tree) -> LiveNode:
    """Read cores, L3s, NUMA domains and GPUs of the running kernel; raises `TopologyError`.

    GPUs are numbered in the order of their PCI addresses, which is ROCm's and NVML's order.
    """
    return LiveNode(read_topology(tree), _allowed(tree))


def read_topology(tree: Tree) -> Topology:
    """Read the node alone, which a captured tree has too where it lacks this process; raises `TopologyError`."""
    cores = _cores(tree)
    return Topology(name="this node", cores=cores, gpus=_gpus(tree, cores))


def _cores(tree: Tree) -> tuple[Core, ...]:
    online = _numbers(tree, f"{_CPU}/online")
    numa_of = _numa_of(tree)
    l3s: dict[frozenset[int], int] = {}
    cores: list[Core] = []
    seen: set[int] = set()
    for cpu in online:
        if cpu in seen:
            continue
        threads = frozenset(_siblings(tree, cpu)) & frozenset(online)
        seen |= threads
        shared = _l3_cpus(tree, cpu)
        l3 = l3s.setdefault(shared, len(l3s)) if shared else None
        cores.append(Core(len(cores), tuple(sorted(threads)), l3, numa_of.get(cpu)))
    if not cores:
        raise TopologyError(f"{tree.root}/{_CPU}/online: no CPU is online")
    return tuple(cores)


def _siblings(tree: Tree, cpu: int) -> tuple[int, ...]:
    """Give a core's PUs; `core_cpus_list` is the name since Linux 5.3, the other one older and still there."""
    for name in ("core_cpus_list", "thread_siblings_list"):
        path = f"{_CPU}/cpu{cpu}/topology/{name}"
        if tree.read(path) is not None:
            siblings = _numbers(tree, path)
            if cpu not in siblings:
                raise TopologyError(f"{tree.root}/{path}: CPU {cpu} is not among its own siblings")
            return siblings
    return (cpu,)


def _l3_cpus(tree: Tree, cpu: int) -> frozenset[int]:
    caches = f"{_CPU}/cpu{cpu}/cache"
    for index in sorted(tree.names(caches)):
        if (tree.read(f"{caches}/{index}/level") or "").strip() == "3":
            return frozenset(_numbers(tree, f"{caches}/{index}/shared_cpu_list"))
    return frozenset()


def _numa_of(tree: Tree) -> dict[int, int]:
    nodes = [int(name[4:]) for name in tree.names(_NODE) if re.fullmatch(r"node[0-9]{1,5}", name)]
    return {cpu: node for node in nodes for cpu in _numbers(tree, f"{_NODE}/node{node}/cpulist")}


def _gpus(tree: Tree, cores: Sequence[Core]) -> tuple[Gpu, ...]:
    buses = [name.lower() for name in tree.names(_PCI) if _is_gpu(tree, name)]
    return tuple(_gpu(tree, index, bus, cores) for index, bus in enumerate(sorted(buses, key=pci_order)))


def _is_gpu(tree: Tree, bus: str) -> bool:
    pci_class = tree.read(f"{_PCI}/{bus}/class") or ""
    vendor = tree.read(f"{_PCI}/{bus}/vendor") or ""
    return is_gpu(pci_class.strip()[2:6].lower(), vendor.strip()[2:6].lower())


def _gpu(tree: Tree, index: int, bus: str, cores: Sequence[Core]) -> Gpu:
    """Place a GPU by the CPUs that the firmware calls local; by its NUMA domain where it names none."""
    path = f"{_PCI}/{bus}/local_cpulist"
    local = _numbers(tree, path) if tree.read(path) is not None else ()
    numa, l3 = place_of(cores, local)
    if numa is None and l3 is None:
        said = (tree.read(f"{_PCI}/{bus}/numa_node") or "").strip()
        numa = int(said) if said.isascii() and said.isdecimal() else None
    return Gpu(index, bus, numa, l3)


def _allowed(tree: Tree) -> frozenset[int]:
    for line in (tree.read(_STATUS) or "").splitlines():
        name, _, value = line.partition(":")
        if name == "Cpus_allowed_list":
            return _parsed(tree, _STATUS, value)
    raise TopologyError(f"{tree.root}/{_STATUS}: no Cpus_allowed_list in it")


def _numbers(tree: Tree, path: str) -> tuple[int, ...]:
    text = tree.read(path)
    if text is None:
        raise TopologyError(f"{tree.root}/{path}: cannot be read (a Linux node has it)")
    return tuple(sorted(_parsed(tree, path, text)))


def _parsed(tree: Tree, path: str, text: str) -> frozenset[int]:
    try:
        return frozenset(parse_number_list(text.strip()))
    except CpusetError as error:
        raise TopologyError(f"{tree.root}/{path}: {error}") from None


def slurm_node() -> str:
    """Give what Slurm calls this node, which only a job step is told; empty elsewhere."""
    return os.environ.get("SLURMD_NODENAME", "")


def host_name() -> str:
    """Give the first part of what the kernel calls this node."""
    return socket.gethostname().partition(".")[0]


def has_address(interface: str) -> bool:
    """Tell whether an interface of this node has an address by which others reach it, of IPv4 or IPv6.

    Sources: netdevice(7) for SIOCGIFADDR; proc(5) for if_inet6, where scope 20 is that of the link alone.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        try:
            fcntl.ioctl(one, _SIOCGIFADDR, struct.pack("256s", interface.encode()[:15]))
        except OSError:
            lines = map(str.split, (live_tree(Path("/")).read("proc/net/if_inet6") or "").splitlines())
            return any(len(words) == 6 and words[5] == interface and words[3] != "20" for words in lines)
    return True
