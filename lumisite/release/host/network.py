"""The high-speed network of a node: adapters with their device files, and interfaces.

Sources: Documentation/ABI/testing/sysfs-class-net of Linux; RFC 2863 for `operstate`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from lumisite.findings.finding import Severity
from lumisite.machine.host import has_address
from lumisite.machine.ldcache import glob
from lumisite.machine.tree import first_line, names_of
from lumisite.release.host.node import HostFinding, Node
from lumisite.text import some
from lumisite.vendors import fabrics_of

_NET = "/sys/class/net"
#: What Linux calls an interface that can be used; some drivers never say more than `unknown`.
_UP = ("up", "unknown", "")


def missing_network(node: Node) -> Iterator[HostFinding]:
    """Yield the adapters that a compute node lacks, else its interfaces; a copy without /sys says nothing of them."""
    names = names_of(node.host, _NET)
    if not names or not node.is_compute:
        return
    kinds = [node.site.node_kinds[name] for name in node.fitting or node.site.node_kinds]
    # Each kind that it may be has these.
    expected = frozenset.intersection(*(frozenset(nic.interface for nic in kind.nics) for kind in kinds))
    missing = sorted(expected.difference(names))
    if text := _missing_adapters(node, len(missing)):
        advice = "`lspci -k` shows each adapter and its driver; `dmesg` shows what that says"
        yield HostFinding("host-device", Severity.NODE, text, advice, "adapters")
        return
    for name in missing:
        text = f"missing (this node has {some(names, 8, ', ')})"
        yield _of_interface(name, text, "`lspci` and `dmesg` show whether its adapter is recognised")


def _missing_adapters(node: Node, missing_interfaces: int) -> str:
    """Return that a node of a known kind has no adapters, or more of them are missing than interfaces; else nothing."""
    fabrics = fabrics_of(str(node.site.fabric.carrier))
    if not fabrics or len(node.fitting) != 1:
        return ""
    kind = node.site.node_kinds[next(iter(node.fitting))]
    named = node.site.fabric.adapters if kind.adapters is None else kind.adapters
    expected = len(named or kind.nics)
    present = [name for fabric in fabrics for name in names_of(node.host, fabric.folder)]
    found = [name for name in present if not named or name in named]
    if expected and not present:
        return f"none of {fabrics[0].title} in {fabrics[0].folder}, expected {expected}: no driver has them"
    if expected - len(found) > missing_interfaces:
        return f"{len(found)} adapters, expected {expected} (this node has {some(present, 8, ', ')})"
    return ""


def adapter_devices(node: Node) -> Iterator[HostFinding]:
    """Yield the device files that are missing by which libraries open adapters; a copy without /dev says nothing."""
    if not node.fitting or not names_of(node.host, "/dev"):
        return
    for fabric in fabrics_of(str(node.site.fabric.carrier)):
        adapters = len(names_of(node.host, fabric.folder))
        for pattern in fabric.devices:
            files = len(glob(node.host, pattern))
            if files < adapters:
                text = f"{files} files for {adapters} adapters; libraries cannot open them"
                advice = "`lsmod` shows whether the driver's module for users is loaded"
                yield HostFinding("host-device", Severity.NODE, text, advice, pattern)


def interfaces(node: Node) -> Iterator[HostFinding]:
    """Yield the high-speed interfaces that are down, without an address, or slow."""
    fabric = node.site.fabric
    names = [name for name in fabric.interfaces if node.exists(f"{_NET}/{name}")]
    states = {name: first_line(node.host, f"{_NET}/{name}/operstate") or "" for name in names}
    for name, state in states.items():
        if state not in _UP:
            advice = f"check its cable and switch port, then `ip link set {name} up`"
            yield _of_interface(name, f"{state}, expected up", advice)
        elif node.is_live and not has_address(name):
            advice = f"`ip address show {name}` shows its state; assign its address"
            yield _of_interface(name, "no address", advice)
    up = [name for name, state in states.items() if state != "down"]
    yield from _slow(node, up, "speed", fabric.speed_mbit, "{} Mbit/s", "`ethtool {}` shows what was negotiated")
    yield from _slow(node, up, "mtu", fabric.mtu, "MTU {}", "ip link set {} mtu {}")


def _slow(
    node: Node, names: Sequence[str], file: str, stated: int | None, form: str, advice: str
) -> Iterator[HostFinding]:
    """Yield the interfaces with less in a file of theirs than is described, else than most of the node's have."""
    texts = {name: first_line(node.host, f"{_NET}/{name}/{file}") or "" for name in names}
    found = {name: int(text) for name, text in texts.items() if re.fullmatch("[1-9][0-9]{0,8}", text)}
    usual, count = Counter(found.values()).most_common(1)[0] if found else (0, 0)
    expected = stated or (usual if 2 * count > len(found) else 0)
    for name, actual in found.items():
        if actual < expected:
            text = f"{form.format(actual)}, expected {form.format(expected)}"
            yield _of_interface(name, text, advice.format(name, expected))


def _of_interface(name: str, text: str, advice: str) -> HostFinding:
    return HostFinding("host-interface", Severity.NODE, text, advice, name)
