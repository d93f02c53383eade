"""The kind of a node: its CPUs, and its GPUs with their driver and device files."""

from __future__ import annotations

from collections.abc import Iterator

from lumisite.findings.finding import Severity
from lumisite.machine.ldcache import glob
from lumisite.machine.tree import names_of
from lumisite.release.host.node import HostFinding, Node
from lumisite.site.node_recognition import NO_GPUS
from lumisite.text import some
from lumisite.vendors import gpu_of


def kind_of_node(node: Node) -> Iterator[HostFinding]:
    """Yield the GPUs that a node lacks which is of a kind in everything else; else how it differs from each kind."""
    if lost := list(_lost_gpus(node)):
        yield from lost
        return
    differing = {name: list(kind.differences(node.facts)) for name, kind in node.kinds.items()}
    if differing and all(differing.values()):
        texts = [f"{name} ({'; '.join(differences)})" for name, differences in differing.items()]
        text = f"this node differs from every described kind: {', '.join(texts)}; its tasks get no CPU masks"
        advice = "if such nodes are expected, describe their kind, render and deploy; otherwise repair this one"
        yield HostFinding("node-of-no-kind", Severity.FAULT, text, advice, "node kind")


def _lost_gpus(node: Node) -> Iterator[HostFinding]:
    usable = {gpu.bus for gpu in node.gpus if gpu.usable}
    kinds = {name: kind for name, kind in node.fitting.items() if kind.gpus not in ("", NO_GPUS)}
    if not kinds or (len(kinds) < len(node.fitting) and not usable):
        return  # or it is as of a kind without GPUs
    name, kind = next(iter(kinds.items()))
    count = int(kind.gpus.split()[0])
    # Addresses before and after an update; with others the node is of no kind.
    known = next((buses for buses in reversed(kind.buses) if usable.issubset(buses)), None if kind.buses else ())
    if known is None or len(usable) >= count:
        return
    gone = sorted({*known} - {gpu.bus for gpu in node.gpus})
    idle = [gpu.bus for gpu in node.gpus if not gpu.usable]
    text, advice = (
        f"{len(usable)} of {count} GPUs of kind {name} can be used",
        "`lspci` and `dmesg` show which GPU is missing",
    )
    if idle and not node.has_driver:
        driver = node.drivers[0]
        text, advice = f"{text}; {driver} is not loaded", f"`modprobe {driver}`; `dmesg` shows why it is not loaded"
    else:
        text += f"; not on the PCI bus: {some(gone, 8, ' ')}" if gone else ""
        text += f"; without a driver: {some(idle, 8, ' ')}" if idle else ""
    yield HostFinding("host-gpus", Severity.NODE, text, advice, "GPUs")


def gpu_devices(node: Node) -> Iterator[HostFinding]:
    """Yield the device files without which no program can use the GPUs; a copy without /dev says nothing of them."""
    usable = sum(gpu.usable for gpu in node.gpus)
    if not usable or not node.site.gpu_vendor or not names_of(node.host, "/dev"):
        return
    vendor = gpu_of(node.site.gpu_vendor)
    advice = f"`udevadm trigger` makes it again; `dmesg | grep {vendor.drivers[0]}` shows what its driver says"
    if not node.exists(vendor.control):
        text = "missing; no program can use the GPUs"
        yield HostFinding("host-device", Severity.NODE, text, advice, vendor.control)
    found = len(glob(node.host, vendor.devices[-1]))
    if found < usable:
        text = f"{found} files for {usable} GPUs"
        yield HostFinding("host-device", Severity.NODE, text, advice, vendor.devices[-1])
