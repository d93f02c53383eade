"""Read the node that lumisite runs on, or a captured one, from the kernel's own files.

Source of the files: Documentation/admin-guide/cputopology.rst and ABI/{stable,testing}/sysfs-* in Linux 6.1.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from lumisite.findings.finding import Finding, Severity
from lumisite.machine.gpus import PCI_DEVICES, gpus_of_node
from lumisite.machine.topology import CoreGroup, Topology, TopologyError, read_node
from lumisite.machine.tree import Tree, names_of, small_text
from lumisite.site.cpu_list import CpusetError, parse_number_list
from lumisite.site.node_recognition import NO_GPUS, NodeFacts

_CPU = "/sys/devices/system/cpu"
_NODE = "/sys/devices/system/node"
_STATUS = "/proc/self/status"


def read_topology(tree: Tree) -> Topology:
    """Read cores, L3s, NUMA domains and the GPUs that can be used; raises `TopologyError`."""
    numa_of = _numa_of(tree)
    near = {gpu.bus: [*_near(tree, gpu.bus, numa_of)] for gpu in gpus_of_node(tree) if gpu.usable}
    node = read_node("this node", _cores(tree, numa_of), near)
    if not node.cores:
        raise _fault(tree, f"{_CPU}/online", "no CPU number in it", "copy the file again from the node")
    return node


def read_facts(tree: Tree, drivers: Mapping[str, Collection[str]]) -> NodeFacts:
    """Read by what a node's kind is known; `drivers` are those of GPUs, by vendor."""
    domains = [name for name in names_of(tree, _NODE) if re.fullmatch(r"node[0-9]{1,5}", name)]
    gpus = gpus_of_node(tree)
    buses = {
        vendor: [gpu.bus for gpu in gpus if gpu.driver in names or gpu.driver is None]
        for vendor, names in drivers.items()
    }
    return NodeFacts(
        present=(small_text(tree, f"{_CPU}/present") or "").strip(),
        online=(small_text(tree, f"{_CPU}/online") or "").strip(),
        domains=(small_text(tree, f"{_NODE}/has_cpu") or "").strip(),
        domain_of={
            int(name[3:]): int(domain[4:])
            for domain in domains
            for name in names_of(tree, f"{_NODE}/{domain}")
            if re.fullmatch(r"cpu[0-9]{1,5}", name)
        },
        gpus=" and ".join(f"{len(mine)} {vendor}" for vendor, mine in buses.items() if mine) or NO_GPUS,
        buses=tuple(bus for mine in buses.values() for bus in mine),
    )


def read_allowed(tree: Tree) -> frozenset[int]:
    """Read the PUs that this process may run on (`Cpus_allowed_list`); raises `TopologyError`."""
    for line in (small_text(tree, _STATUS) or "").splitlines():
        name, _, value = line.partition(":")
        if name == "Cpus_allowed_list":
            return _parsed(tree, _STATUS, value)
    raise _fault(tree, _STATUS, "no Cpus_allowed_list in it", "copy the file again from the node")


def _cores(tree: Tree, numa_of: Mapping[int, int]) -> Iterator[CoreGroup]:
    online = _numbers(tree, f"{_CPU}/online")
    seen: set[int] = set()
    l3_of: dict[int, frozenset[int]] = {}  # one core is asked for all that share its cache
    for cpu in sorted(online):
        if cpu in seen:
            continue
        threads = _siblings(tree, cpu) & online
        seen |= threads
        package = small_text(tree, f"{_CPU}/cpu{cpu}/topology/physical_package_id")
        if cpu not in l3_of:
            shared = _l3_cpus(tree, cpu)
            l3_of |= dict.fromkeys({cpu, *shared}, shared)
        yield threads, l3_of[cpu] or None, numa_of.get(cpu), package


def _siblings(tree: Tree, cpu: int) -> frozenset[int]:
    """Return a core's PUs; `core_cpus_list` is another name of the file since Linux 5.3."""
    path = f"{_CPU}/cpu{cpu}/topology/thread_siblings_list"
    if (text := small_text(tree, path)) is None:
        return frozenset({cpu})
    siblings = _parsed(tree, path, text)
    if cpu not in siblings:
        raise _fault(tree, path, f"CPU {cpu} is not among its own siblings", "copy the files again from one node")
    return siblings


def _l3_cpus(tree: Tree, cpu: int) -> frozenset[int]:
    caches = f"{_CPU}/cpu{cpu}/cache"
    for index in names_of(tree, caches):
        if (small_text(tree, f"{caches}/{index}/level") or "").strip() == "3":
            return _numbers(tree, f"{caches}/{index}/shared_cpu_list")
    return frozenset()


def _numa_of(tree: Tree) -> dict[int, int]:
    nodes = [int(name[4:]) for name in names_of(tree, _NODE) if re.fullmatch(r"node[0-9]{1,5}", name)]
    return {cpu: node for node in nodes for cpu in _numbers(tree, f"{_NODE}/node{node}/cpulist")}


def _near(tree: Tree, bus: str, numa_of: Mapping[int, int]) -> Iterator[Collection[int]]:
    """Yield the CPUs that the firmware calls local to a GPU, if it names any, and those of its NUMA domain."""
    path = f"{PCI_DEVICES}/{bus}/local_cpulist"
    text = small_text(tree, path)
    if text is not None:
        yield _parsed(tree, path, text)
    number = (small_text(tree, f"{PCI_DEVICES}/{bus}/numa_node") or "").strip()
    yield [cpu for cpu, numa in numa_of.items() if str(numa) == number]


def _numbers(tree: Tree, path: str) -> frozenset[int]:
    text = small_text(tree, path)
    if text is None:
        advice = "run this on a Linux node, or give a copy that has the file"
        raise _fault(tree, path, "cannot be read", advice)
    return _parsed(tree, path, text)


def _parsed(tree: Tree, path: str, text: str) -> frozenset[int]:
    try:
        return frozenset(parse_number_list(text.strip()))
    except CpusetError as error:
        raise TopologyError(replace(error.finding, subject=f"{tree.name.rstrip('/')}{path}")) from None


def _fault(tree: Tree, path: str, message: str, advice: str) -> TopologyError:
    file = f"{tree.name.rstrip('/')}{path}"
    return TopologyError(Finding("file-unreadable", Severity.FAULT, message, advice, file))
