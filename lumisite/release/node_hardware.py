"""What a node has less of than its kind: GPUs, network adapters, speed and MTU of its high-speed interfaces."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress

from lumisite.findings.catalogue import make_finding
from lumisite.findings.finding import Finding
from lumisite.findings.writers import sentences
from lumisite.machine.host import DiskTree
from lumisite.machine.live import read_topology
from lumisite.machine.topology import TopologyError, recognise, topology_of
from lumisite.machine.tree import first_line, names_of, resolve
from lumisite.site.model import Site
from lumisite.site.scalars import full_pci_bus
from lumisite.vendors import fabrics_of

_NET = "/sys/class/net"


def recognised(site: Site, host: DiskTree) -> tuple[str, frozenset[str]] | None:
    """Return the kind that a node is by its cores and the GPUs that it has, with the addresses of those it lacks."""
    with suppress(TopologyError):
        seen = read_topology(host)
        present = {gpu.pci_bus for gpu in seen.gpus}
        for name, platform in itertools.product(site.node_kinds, site.platforms.values()):
            buses = platform.gpu_bus_ids.get(name, ())
            if recognise(seen, [topology_of(name, site.node_kinds[name], buses)]):
                return name, frozenset(map(full_pci_bus, buses)) - present
    return None


def gpu_faults(site: Site, host: DiskTree) -> Iterator[Finding]:
    """Yield the GPUs that are not on the bus of a node which is of a kind in everything else."""
    kind, missing = recognised(site, host) or ("", frozenset())
    if missing:
        count, vendor = len(site.node_kinds[kind].gpus), site.vendor_of(kind)
        fewer = make_finding("node-gpus", actual=f"not at {', '.join(sorted(missing))}", expected=f"{count} {vendor}")
        yield make_finding("node-lost-gpus", "node kind", differences=(f"{kind} ({sentences([fewer])})",), kind=kind)


def adapter_faults(site: Site, host: DiskTree) -> Iterator[Finding]:
    """Yield the adapters that a node of a known kind lacks, unless as many interfaces are missing with them."""
    folders = dict.fromkeys(fabric.folder for fabric in fabrics_of(str(site.fabric.carrier)))
    present = {name for folder in folders for name in names_of(host, folder)}
    most = max(
        (len(kind.adapters or site.fabric.adapters or kind.nics) for kind in site.node_kinds.values()), default=0
    )
    found = recognised(site, host) if 0 < len(present) < most or site.fabric.adapters else None
    if found is None or not present:
        return
    kind = site.node_kinds[found[0]]
    named = {*map(str, site.fabric.adapters if kind.adapters is None else kind.adapters)}
    counted, expected = (present & named, len(named)) if named else (present, len(kind.nics))
    without = [nic for nic in kind.nics if resolve(host, f"{_NET}/{nic.interface}").entry is None]
    if expected - len(counted) > len(without):
        yield make_finding(
            "host-adapters-missing",
            "adapters",
            actual=len(counted),
            expected=expected,
            missing=tuple(sorted(named - present)),
            present=tuple(sorted(present)),
        )


def link_faults(site: Site, host: DiskTree, interfaces: Iterable[str]) -> Iterator[Finding]:
    """Yield the interfaces with less speed or MTU than is described, else than most of the node's others have."""
    names = [name for name in interfaces if first_line(host, f"{_NET}/{name}/operstate") != "down"]
    for code, file, stated in (
        ("host-interface-slow", "speed", site.fabric.speed_mbit),
        ("host-interface-mtu", "mtu", site.fabric.mtu),
    ):
        texts = {name: first_line(host, f"{_NET}/{name}/{file}") or "" for name in names}
        found = {name: int(text) for name, text in texts.items() if text.isdecimal() and len(text) < 10 and int(text)}
        usual, count = Counter(found.values()).most_common(1)[0] if found else (0, 0)
        expected = stated or (usual if 2 * count > len(found) else 0)
        for name, actual in found.items():
            if actual < expected:
                yield make_finding(code, name, actual=actual, expected=expected)
