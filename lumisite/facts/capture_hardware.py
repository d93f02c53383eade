"""What the kernel and the distribution say of a node: drivers, interfaces, adapters, CPUs, GPUs, os-release.

Sources: os-release(5); proc(5); Documentation/ABI/{stable,testing}/sysfs-* in Linux 6.1. Which drivers, adapters and
options of the kernel count is the vendors'.
"""

from __future__ import annotations

import contextlib
import ipaddress
import posixpath
import re
import shlex
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from lumisite.facts.facts import Adapter, CpuGroup, Device, Driver, Facts, Interface
from lumisite.findings.finding import Finding, Severity
from lumisite.findings.writers import message as reason
from lumisite.machine.live import read_topology
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
        message, advice = (
            f"no topology: {reason(error.finding)}",
            "capture a running Linux node, or a copy with its /sys",
        )
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


def _number(tree: Tree, path: str) -> int | None:
    """Return a number that the kernel states; -1 means that there is none."""
    text = first_line(tree, path) or ""
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else None


def _os(tree: Tree) -> str | None:
    """Return the name of the operating system by os-release(5)."""
    text = small_text(tree, "/etc/os-release") or small_text(tree, "/usr/lib/os-release") or ""
    for name, equals, value in (line.partition("=") for line in text.splitlines()):
        with contextlib.suppress(ValueError):  # a quote that does not end, or several words
            (word,) = shlex.split(value)
            if equals and name.strip() == "PRETTY_NAME" and word.isprintable():
                return word
    return None


def _drivers(tree: Tree) -> dict[str, Driver]:
    """Read the GPU drivers that are loaded, and which sources of them are installed."""
    sources = names_of(tree, "/usr/src")
    found = {}
    gpus = {name: gpu for gpu in all_gpus() for name in gpu.drivers}
    for name, gpu in gpus.items():
        version, build = (first_line(tree, f"/sys/module/{name}/{file}") for file in ("version", "srcversion"))
        if version is None and name in gpu.stated:
            version = gpu.stated[name].version(small_text(tree, gpu.stated[name].paths) or "")
        installed = tuple(source for source in sources if source.startswith(f"{name}-") and source.isprintable())
        if version or build or installed:
            found[name] = Driver(version, build, installed)
    return found


def _interfaces(tree: Tree, named: Collection[str]) -> dict[str, Interface]:
    """Read the interfaces that have a device behind them, that lie on one that has, or that the site names."""
    found, networks, real = {}, _networks(tree), interfaces_on_devices(tree)
    for name in names_of(tree, _NET):
        folder = f"{_NET}/{name}"
        if name in real or (name in named and name.isprintable() and resolve(tree, folder).entry is not None):
            device, driver = (resolve(tree, f"{folder}/{end}") for end in ("device", "device/driver"))
            found[name] = Interface(
                driver=None if driver.entry is None else posixpath.basename(driver.path),
                state=first_line(tree, f"{folder}/operstate"),
                speed_mbit=_number(tree, f"{folder}/speed"),
                numa=_number(tree, f"{folder}/device/numa_node"),
                bus=None if device.entry is None else _bus(device.path),
                mtu=_number(tree, f"{folder}/mtu"),
                lower=_lower(tree, name) or None,
                networks=None if networks is None else tuple(sorted(networks[name])),
            )
    return found


def interfaces_on_devices(tree: Tree) -> set[str]:
    """Return the interfaces that have a device behind them, or lie on one that has."""
    lower = {name: _lower(tree, name) for name in names_of(tree, _NET) if name.isprintable()}
    devices = {name for name in lower if resolve(tree, f"{_NET}/{name}/device").entry is not None}
    return {name for name in lower if devices & lies_on(name, lower)}


def _lower(tree: Tree, name: str) -> tuple[str, ...]:
    """Return what an interface lies on, sorted.

    Source: `netdev_adjacent_sysfs_add` in Linux' net/core/dev.c, which makes the links `lower_NAME`.
    """
    links = (link for link in names_of(tree, f"{_NET}/{name}") if link.startswith("lower_") and link.isprintable())
    return tuple(sorted(link.removeprefix("lower_") for link in links))


def lies_on(name: str, lower: Mapping[str, Sequence[str] | None]) -> set[str]:
    """Return an interface and all that it lies on: the parts of a bond, what a VLAN or a bridge is made on."""
    found, waiting = set[str](), [name]
    while waiting:
        interface = waiting.pop()
        if interface not in found:
            found.add(interface)
            waiting += lower.get(interface) or ()
    return found


def _networks(tree: Tree) -> defaultdict[str, list[str]] | None:
    """Return the IPv4 networks of each interface by the kernel's table of routes (proc(5)); `None` without a table."""
    text = small_text(tree, "/proc/net/route")
    found = defaultdict[str, list[str]](list)
    for line in (text or "").splitlines()[1:]:
        fields = line.split()
        if len(fields) > 7 and all(re.fullmatch("[0-9A-Fa-f]{8}", fields[at]) for at in (1, 2, 7)):
            target, mask = (ipaddress.IPv4Address(bytes.fromhex(fields[at])[::-1]) for at in (1, 7))
            if int(target) and not int(fields[2], 16):
                with contextlib.suppress(ValueError):  # a mask with holes
                    found[fields[0]].append(str(ipaddress.IPv4Network(f"{target}/{mask}", strict=False)))
    return None if text is None else found


def _bus(path: str) -> str | None:
    """Return the PCI address nearest to a device in its path of sysfs."""
    parts = [part for part in path.split("/") if re.fullmatch(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", part)]
    return parts[-1] if parts else None


def _nics(tree: Tree) -> dict[str, Adapter]:
    """Read the adapters of every class that carries data."""
    found = {}
    for folder in dict.fromkeys(fabric.folder for fabric in all_fabrics()):
        for name in names_of(tree, folder):
            device, driver = (resolve(tree, f"{folder}/{name}/{end}") for end in ("device", "device/driver"))
            if name.isprintable() and device.entry is not None:
                link, state = (first_line(tree, f"{folder}/{name}/ports/1/{file}") for file in ("link_layer", "state"))
                bus = [first_line(tree, f"{device.path}/current_link_{end}") for end in ("speed", "width")]
                found[name] = Adapter(
                    _bus(device.path),
                    _number(tree, f"{folder}/{name}/device/numa_node"),
                    first_line(tree, f"{device.path}/local_cpulist"),
                    kind=posixpath.basename(folder),
                    driver=None if driver.entry is None else posixpath.basename(driver.path),
                    link=link,
                    port=state and state.rpartition(" ")[2],
                    pcie=" x".join(filter(None, bus)) or None,
                )
    return found
