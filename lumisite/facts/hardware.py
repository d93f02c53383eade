"""What the kernel and the distribution say of a node: drivers, interfaces, adapters, CPUs, GPUs, os-release.

Sources: os-release(5); proc(5); Documentation/ABI/{stable,testing}/sysfs-* in Linux 6.1. Which drivers, adapters and
options of the kernel count is the vendors'.
"""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import fields, replace

from lumisite.facts.change import Words
from lumisite.facts.facts import Adapter, CpuGroup, Device, Driver, Facts, Interface
from lumisite.findings.finding import Finding, Severity
from lumisite.findings.writers import message as reason
from lumisite.machine.live_node import read_topology
from lumisite.machine.topology import TopologyError
from lumisite.machine.tree import Tree, first_line, names_of, resolve, small_text
from lumisite.site.cpu_list import format_cpu_list
from lumisite.vendors import all_fabrics, all_gpus

_NET = "/sys/class/net"


def capture_hardware(tree: Tree, site: str, named: Collection[str], findings: list[Finding]) -> Facts:
    """Return the facts that the kernel and the distribution tell; a tree without topology has a finding instead of it.

    CPUs come by L3, GPUs in the order of their bus. `site` is its name; `named` are interfaces that count even where
    no device is behind them.
    """
    facts = Facts(
        site,
        host=first_line(tree, "/proc/sys/kernel/hostname") or first_line(tree, "/etc/hostname"),
        os=_os(tree),
        kernel=first_line(tree, "/proc/sys/kernel/osrelease"),
        drivers=_drivers(tree),
        interfaces=_interfaces(tree, named),
        nics=_nics(tree),
    )
    try:
        topology = read_topology(tree)
    except TopologyError as error:
        message = f"no topology: {reason(error.finding)}"
        advice = "capture a running Linux node, or a copy with its /sys"
        findings.append(Finding("facts-incomplete", Severity.DOUBT, message, advice, error.finding.subject))
        return facts
    groups: defaultdict[tuple[int | None, int | None], list[int]] = defaultdict(list)
    by_l3: defaultdict[int | None, list[int]] = defaultdict(list)
    for core in topology.cores:
        by_l3[core.l3] += core.pu_os
        groups[core.l3, core.numa] += core.pu_os
    gpus = ((gpu, None if gpu.l3 is None else format_cpu_list(by_l3[gpu.l3])) for gpu in topology.gpus)
    return replace(
        facts,
        cpus=tuple(CpuGroup(format_cpu_list(pus), numa) for (_, numa), pus in groups.items()),
        gpus=tuple(Device(gpu.pci_bus, gpu.numa, near) for gpu, near in gpus),
        threads_per_core=max(len(core.pu_os) for core in topology.cores),
    )


def _os(tree: Tree) -> str | None:
    """Return the name of the operating system by os-release(5)."""
    text = small_text(tree, "/etc/os-release") or small_text(tree, "/usr/lib/os-release") or ""
    found = re.search(r"^PRETTY_NAME=([\"']?)(.+)\1$", text, re.MULTILINE)
    return found[2] if found else None


def _drivers(tree: Tree) -> dict[str, Driver]:
    """Read the GPU drivers that are loaded, and which sources of them are installed."""
    sources = names_of(tree, "/usr/src")
    found = {}
    for name, stated in ((name, gpu.stated.get(name)) for gpu in all_gpus() for name in gpu.drivers):
        version, build = (first_line(tree, f"/sys/module/{name}/{file}") for file in ("version", "srcversion"))
        if version is None and stated is not None:
            version = stated.version(small_text(tree, stated.paths) or "")
        installed = tuple(source for source in sources if source.startswith(f"{name}-"))
        if version or build or installed:
            found[name] = Driver(version, build, installed)
    return found


# Interfaces and adapters


def interfaces_on_devices(tree: Tree) -> list[str]:
    """Return the interfaces that have a device behind them."""
    return [name for name in names_of(tree, _NET) if resolve(tree, f"{_NET}/{name}/device").entry is not None]


def _interfaces(tree: Tree, named: Collection[str]) -> dict[str, Interface]:
    """Read the interfaces that have a device behind them, or that the site names."""
    found = {}
    known = {*interfaces_on_devices(tree), *named}
    for name in (name for name in names_of(tree, _NET) if name in known):
        folder = f"{_NET}/{name}"
        if resolve(tree, folder).entry is not None:
            found[name] = Interface(
                driver=_name(tree, f"{folder}/device/driver"),
                state=first_line(tree, f"{folder}/operstate"),
                speed_mbit=_number(tree, f"{folder}/speed"),
                numa=_number(tree, f"{folder}/device/numa_node"),
                bus=_bus(tree, f"{folder}/device"),
                mtu=_number(tree, f"{folder}/mtu"),
            )
    return found


def _nics(tree: Tree) -> dict[str, Adapter]:
    """Read the adapters of every class that carries data."""
    found = {}
    for kind in dict.fromkeys(fabric.folder for fabric in all_fabrics()):
        for name in names_of(tree, kind):
            device, port = f"{kind}/{name}/device", f"{kind}/{name}/ports/1"
            if resolve(tree, device).entry is not None:
                pcie = (first_line(tree, f"{device}/current_link_{end}") for end in ("speed", "width"))
                found[name] = Adapter(
                    _bus(tree, device),
                    _number(tree, f"{device}/numa_node"),
                    first_line(tree, f"{device}/local_cpulist"),
                    kind=posixpath.basename(kind),
                    driver=_name(tree, f"{device}/driver"),
                    link=first_line(tree, f"{port}/link_layer"),
                    port=(first_line(tree, f"{port}/state") or "").rpartition(" ")[2] or None,
                    pcie=" x".join(filter(None, pcie)) or None,
                )
    return found


def _name(tree: Tree, link: str) -> str | None:
    """Return the name of what a link leads to."""
    found = resolve(tree, link)
    return None if found.entry is None else posixpath.basename(found.path)


def _number(tree: Tree, path: str) -> int | None:
    """Return a number that the kernel states; -1 means that there is none."""
    text = first_line(tree, path) or ""
    return int(text) if text.isdecimal() else None


def _bus(tree: Tree, link: str) -> str | None:
    """Return the PCI address nearest to a device in its path of sysfs."""
    found = resolve(tree, link)
    buses = re.findall(r"(?<=/)[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7](?=/|$)", found.path)
    return buses[-1] if buses and found.entry else None


# What is compared


def fields_of(thing: Interface | Device) -> Words:
    """Return the fields of an interface or device that are known, with their names."""
    known = {item.name: getattr(thing, item.name) for item in fields(thing) if item.compare}
    return tuple(f"{name} {value}" for name, value in known.items() if value is not None)


def gpu_count(facts: Facts) -> Mapping[str, Words] | None:
    """Return how many GPUs there are; a capture without CPUs knows none, and has said why."""
    return {"GPUs": (str(len(facts.gpus)),)} if facts.cpus else None


def gpu_buses(facts: Facts) -> Mapping[str, Words] | None:
    """Return the PCI addresses of all GPUs."""
    buses = tuple(f"GPU {index} at {gpu.bus}" for index, gpu in enumerate(facts.gpus))
    return {"GPU bus ids": buses} if facts.cpus else None


def gpu_places(facts: Facts) -> Mapping[str, Words] | None:
    """Return which CPUs and NUMA domain each GPU is near."""
    places = (replace(gpu, bus=None) for gpu in facts.gpus)
    return {f"GPU {index}": fields_of(place) for index, place in enumerate(places)} if facts.cpus else None


def cpu_groups(facts: Facts) -> Mapping[str, Words]:
    """Return the hardware threads of a core, the NUMA domains, and the CPUs of each group."""
    if not facts.cpus:
        return {}
    domains = {group.numa for group in facts.cpus}
    counts = (f"{facts.threads_per_core} threads a core", f"{len(domains)} NUMA domains")
    return {"CPUs": (*counts, *(f"group {group.cpus}" for group in facts.cpus))}
