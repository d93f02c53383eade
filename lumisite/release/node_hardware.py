"""What a node has less of than nodes of its kind: GPUs, adapters, interfaces, devices, memory; and its kernel.

Sources: Documentation/ABI/stable/sysfs-devices-system-cpu and sysfs-class-net of Linux; RFC 2863 (operstate);
Documentation/admin-guide/kernel-parameters (clocksource=, tsc=).
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Iterator

from lumisite.findings.finding import Finding, Severity
from lumisite.machine.host import PCI_DRIVERS, has_address
from lumisite.machine.ldcache import glob
from lumisite.machine.tree import first_line, names_of, resolve, small_text
from lumisite.release.node import HostFault, Node
from lumisite.site.kinds import NO_GPUS
from lumisite.text import some
from lumisite.vendors import drivers_of, fabrics_of, gpu_of

_NET = "/sys/class/net"
_CLOCK = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
#: What Linux calls an interface that can be used; some drivers never say more than `unknown`.
_UP = ("up", "unknown", "")
#: A part of the memory that jobs can be given: the kernel's own share is a little more after an update.
_LEAST_MEMORY = 0.98
#: Sources of the time that take a microsecond or more to read, where the processor's own counter takes some 20 ns.
_SLOW_CLOCKS = ("hpet", "acpi_pm")


def hardware_faults(node: Node, platform: str) -> Iterator[HostFault]:
    """Yield all that is wrong with a node itself; `platform` is the one that it should have been updated to."""
    gpus = list(_gpu_faults(node)) if node.has_pci else []
    yield from gpus
    if not gpus:
        yield from _kind_faults(node)
        yield from _gpu_device_faults(node)
    adapters = list(_adapter_faults(node))
    yield from adapters
    if not adapters or _adapters(node):
        yield from _interface_faults(node)
    yield from _memory_faults(node)
    yield from _kernel_faults(node, platform)


# The kind, and GPUs


def _kind_faults(node: Node) -> Iterator[HostFault]:
    """Yield how a node differs from each kind that it may be; its tasks get no CPU masks then."""
    differing = {
        name: [*(kind.differences(node.facts) if node.has_pci else kind.cpu_differences(node.facts))]
        for name, kind in node.kinds.items()
    }
    if differing and all(differing.values()):
        texts = [f"{name} ({'; '.join(differences)})" for name, differences in differing.items()]
        text = f"this node differs from every described kind: {', '.join(texts)}; its tasks get no CPU masks"
        advice = "if such nodes are expected, describe their kind, render and deploy; otherwise repair this one"
        yield HostFault(Finding("node-of-no-kind", Severity.FAULT, text, advice, subject="node kind"))


def _gpu_faults(node: Node) -> Iterator[HostFault]:
    """Yield the GPUs that a node lacks which is of a kind in everything else."""
    usable = {gpu.bus for gpu in node.gpus if gpu.usable}
    counts = {name: int(kind.gpus.split()[0]) for name, kind in node.fitting.items() if kind.gpus not in ("", NO_GPUS)}
    if len(counts) < len(node.fitting) and not usable:
        return  # as it is of a kind without GPUs
    for name, count in counts.items():
        # Of the addresses before and after an update, those that the node has more of; of two, the later ones.
        known = min(reversed(node.fitting[name].buses), key=lambda buses: len({*buses} - usable), default=())
        if len(usable) >= count or (known and not usable.issubset(known)):
            continue
        gone = sorted({*known} - {gpu.bus for gpu in node.gpus})
        idle = [gpu.bus for gpu in node.gpus if not gpu.usable]
        parts = [f"not on the PCI bus: {some(gone, 8, ' ')}"] if gone else []
        parts += [f"without a driver: {some(idle, 8, ' ')}"] if idle else []
        drivers = drivers_of(node.site)[node.site.gpu_vendor or ""]
        advice = "`lspci` and `dmesg` show which GPU is missing"
        if idle and all(resolve(node.host, f"{PCI_DRIVERS}/{driver}").entry is None for driver in drivers):
            parts = [f"{drivers[0]} is not loaded"]
            advice = f"`modprobe {drivers[0]}`; `dmesg` shows why it is not loaded"
        text = "; ".join([f"{len(usable)} of {count} GPUs of kind {name} can be used", *parts])
        yield HostFault(Finding("host-gpus", Severity.NODE, text, advice, "GPUs"))
        return


def _gpu_device_faults(node: Node) -> Iterator[HostFault]:
    """Yield the device files without which no program can use the GPUs; a copy without /dev says nothing of them."""
    usable = len({gpu.bus for gpu in node.gpus if gpu.usable})
    if not usable or not node.site.gpu_vendor or not names_of(node.host, "/dev"):
        return
    vendor = gpu_of(node.site.gpu_vendor)
    advice = f"`udevadm trigger` makes it again; `dmesg | grep {vendor.drivers[0]}` shows what its driver says"
    if resolve(node.host, vendor.control).entry is None:
        yield HostFault(
            Finding("host-device", Severity.NODE, "missing; no program can use the GPUs", advice, vendor.control)
        )
    pattern = vendor.devices[-1]
    found = len(glob(node.host, pattern))
    if found < usable:
        yield HostFault(Finding("host-device", Severity.NODE, f"{found} files for {usable} GPUs", advice, pattern))


# The high-speed network


def _adapters(node: Node) -> list[str]:
    """Return the adapters of the site's fabric."""
    folders = dict.fromkeys(fabric.folder for fabric in fabrics_of(str(node.site.fabric.carrier)))
    return [name for folder in folders for name in names_of(node.host, folder)]


def _adapter_faults(node: Node) -> Iterator[HostFault]:
    """Yield the adapters, and the device files for them, that a node of a known kind lacks.

    Where as many interfaces are missing with them, those are reported.
    """
    fabrics, present = fabrics_of(str(node.site.fabric.carrier)), _adapters(node)
    if not fabrics or len(node.fitting) != 1 or not names_of(node.host, _NET):
        return
    kind = node.site.node_kinds[next(iter(node.fitting))]
    named = [*map(str, node.site.fabric.adapters if kind.adapters is None else kind.adapters)]
    expected = len(named or kind.nics)
    found = [name for name in present if name in named] if named else present
    lost = sum(resolve(node.host, f"{_NET}/{nic.interface}").entry is None for nic in kind.nics)
    advice = "`lspci -k` shows whether an adapter is recognised, and which driver it has; `dmesg` shows what that says"
    if expected and not present:
        text = f"none of {fabrics[0].title} in {fabrics[0].folder}, expected {expected}: no driver has them"
        yield HostFault(Finding("host-adapters", Severity.NODE, text, advice, "adapters"))
    elif expected - len(found) > lost:
        missing = [name for name in named if name not in present]
        which = f"; {some(missing, 8, ', ')} missing" if missing else ""
        text = f"{len(found)} adapters, expected {expected}{which} (this node has {some(present, 8, ', ')})"
        yield HostFault(Finding("host-adapters", Severity.NODE, text, advice, "adapters"))
    devices = [path for fabric in fabrics for pattern in fabric.devices for path in glob(node.host, pattern)]
    patterns = [pattern for fabric in fabrics for pattern in fabric.devices]
    if present and patterns and names_of(node.host, "/dev") and len({*devices}) < min(len(found), expected):
        text = f"{len({*devices})} files for {len(found)} adapters; libraries cannot open them"
        yield HostFault(
            Finding(
                "host-device",
                Severity.NODE,
                text,
                "`lsmod` shows whether the driver's module for users is loaded",
                patterns[0],
            )
        )


def _interface_faults(node: Node) -> Iterator[HostFault]:
    """Yield high-speed interfaces that are missing, down, slow, or without address."""
    names = names_of(node.host, _NET)
    present = frozenset(names).intersection(node.site.fabric.interfaces)
    if not names or not (present or node.is_compute):
        return
    expected = _expected_interfaces(node, present)
    for name in node.site.fabric.interfaces:
        state = first_line(node.host, f"{_NET}/{name}/operstate") or ""
        if name not in present:
            if name in expected:
                text = f"missing (this node has {some(sorted(names), 8, ', ')})"
                yield HostFault(
                    Finding(
                        "host-interface",
                        Severity.NODE,
                        text,
                        "`lspci` and `dmesg` show whether its adapter is recognised",
                        name,
                    )
                )
        elif state not in _UP:
            advice = f"check its cable and switch port, then `ip link set {name} up`"
            yield HostFault(Finding("host-interface", Severity.NODE, f"{state}, expected up", advice, name))
        elif node.is_live and not has_address(name):
            advice = f"`ip address show {name}` shows its state; assign its address"
            yield HostFault(Finding("host-interface", Severity.NODE, "no address", advice, name))
    yield from _link_faults(node, sorted(present))


def _expected_interfaces(node: Node, present: frozenset[str]) -> frozenset[str]:
    every = node.site.node_kinds
    nics = {name: frozenset(nic.interface for nic in kind.nics) for name, kind in every.items()}
    if len(node.fitting) == 1:
        return nics[next(iter(node.fitting))] or present
    known = [interfaces for interfaces in nics.values() if interfaces >= present]
    # A kind of which no interface is described may have any number of them.
    return min(known, key=len) if known and all(nics.values()) else present


def _link_faults(node: Node, interfaces: Iterable[str]) -> Iterator[HostFault]:
    """Yield the interfaces with less speed or MTU than is described, else than most of the node's others have."""
    names = [name for name in interfaces if first_line(node.host, f"{_NET}/{name}/operstate") != "down"]
    rows = (
        (
            "speed",
            node.site.fabric.speed_mbit,
            "{} Mbit/s",
            "`ethtool {}` shows what was negotiated",
        ),
        ("mtu", node.site.fabric.mtu, "MTU {}", "ip link set {} mtu {}"),
    )
    for file, stated, text, advice in rows:
        texts = {name: first_line(node.host, f"{_NET}/{name}/{file}") or "" for name in names}
        found = {name: int(text) for name, text in texts.items() if re.fullmatch("[1-9][0-9]{0,8}", text)}
        usual, count = Counter(found.values()).most_common(1)[0] if found else (0, 0)
        expected = stated or (usual if 2 * count > len(found) else 0)
        for name, actual in found.items():
            if actual < expected:
                message = f"{text.format(actual)}, expected {text.format(expected)}"
                yield HostFault(Finding("host-interface", Severity.NODE, message, advice.format(name, expected), name))


# Memory, clock and kernel


def _memory_faults(node: Node) -> Iterator[HostFault]:
    """Yield memory that is less than what jobs can be given on nodes of the kind, in the partition that has least."""
    least = [
        memory
        for name in node.fitting
        for memory in (
            node.site.node_kinds[name].memory_mib,
            *(one.memory_mib for one in node.site.partitions.values() if name in one.node_kind),
        )
        if memory
    ]
    total = re.search(r"^MemTotal:\s+([0-9]{1,15}) kB", small_text(node.host, "/proc/meminfo") or "", re.MULTILINE)
    if least and total and int(total[1]) // 1024 < _LEAST_MEMORY * min(least):
        text = f"{int(total[1]) // 1024} MiB, and jobs can be given {min(least)} MiB on nodes of this kind"
        advice = "`dmidecode -t memory` and `dmesg` show which module is missing"
        yield HostFault(Finding("host-memory", Severity.NODE, text, advice, "memory"))


def _kernel_faults(node: Node, platform: str) -> Iterator[HostFault]:
    """Yield a kernel that is not the platform's, and a source of the time that is slow to read."""
    release, expected = first_line(node.host, "/proc/sys/kernel/osrelease"), node.site.platforms[platform].kernel
    if node.is_compute and expected and release and release != expected:
        text = f"{release}, expected {expected} (platform {platform})"
        advice = "boot the node with the platform's image, or describe its platform, render and deploy"
        yield HostFault(Finding("host-kernel", Severity.FAULT, text, advice, subject="kernel"))
    clock = first_line(node.host, _CLOCK)
    if clock in _SLOW_CLOCKS:
        text = f"{clock}: reading the time takes a microsecond or more"
        advice = "`dmesg | grep -i tsc` shows why the kernel gave up the processor's counter; reboot the node"
        yield HostFault(Finding("host-clock", Severity.NODE, text, advice, posixpath.basename(_CLOCK)))
