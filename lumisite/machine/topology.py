"""What masks need to know of a node: cores with their L3 and NUMA domain, and where each GPU is attached.

A `Topology` comes from a node kind of the site description, from an hwloc XML file or from the live node; the
masks are decided from it alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from lumisite.errors import LumisiteError
from lumisite.site.scalars import full_pci_bus
from lumisite.vendors import all_gpus

if TYPE_CHECKING:
    from lumisite.site.nodes import NodeKind


#: The PUs of one core, what tells its L3 from others (`None`: it has none), the kernel's number of its NUMA domain, and
#: what tells its package from others.
CoreGroup: TypeAlias = tuple[Iterable[int], Hashable, int | None, Hashable]


class TopologyError(LumisiteError):
    """A description of a node that cannot be used; the message names the file and what is wrong in it."""


@dataclass(frozen=True)
class Core:
    """A physical core.

    `core_logical` counts from 0 through the node (hwloc `L#`), `pu_os` are its hardware threads in the kernel's
    numbering (`P#`), in rising order; `l3` and `package` (the socket; `None` for the only one) count from 0, `numa` is
    the kernel's number.
    """

    core_logical: int
    pu_os: tuple[int, ...]
    l3: int | None
    numa: int | None
    package: int | None = None


@dataclass(frozen=True)
class Gpu:
    """A GPU as its libraries see it (which may be a part of a card): its number, and the nearest place that is known.

    `pci_bus` is the whole PCI address in lower case (`0000:c1:00.0`), empty where it is not known. `l3` is only
    set where cores of that L3 are nearer than others of the NUMA domain; both are `None` where nothing is known.
    """

    index: int
    pci_bus: str
    numa: int | None
    l3: int | None


@dataclass(frozen=True)
class Topology:
    """A node. `name` says in messages which one; `reserved` are PUs (kernel numbers) that no task may have."""

    name: str
    cores: tuple[Core, ...]
    gpus: tuple[Gpu, ...]
    reserved: frozenset[int] = frozenset()

    @property
    def pu_os(self) -> frozenset[int]:
        """All PUs, the reserved ones too, in the kernel's numbering."""
        return frozenset(pu for core in self.cores for pu in core.pu_os)


def topology_of(name: str, kind: NodeKind, bus_ids: Sequence[str] = ()) -> Topology:
    """Return the topology of a node kind; `bus_ids` are a platform's, in the order of the GPUs' index.

    Cores are numbered through the L3 groups in the site's order. Where one thread of a core is reserved, the core
    is: its other thread is no place for a task either.
    """
    groups: list[CoreGroup] = []
    for l3, group in enumerate(kind.l3):
        threads = [group.cores, group.siblings] if group.siblings else [group.cores]
        cache = ("own", l3) if group.cache is None else ("shared", group.cache)
        groups += ((pus, cache, group.numa, group.package) for pus in zip(*threads, strict=True))
    cores = cores_of(groups)
    l3_of = {pu: core.l3 for core in cores for pu in core.pu_os}
    near = [None if gpu.l3 is None else l3_of[kind.l3[gpu.l3].cores[0]] for gpu in kind.gpus]
    reserved = frozenset(kind.reserved or ())
    buses = [*map(full_pci_bus, bus_ids), *[""] * len(kind.gpus)]
    return Topology(
        name=name,
        cores=cores,
        gpus=tuple(Gpu(index, buses[index], gpu.numa, near[index]) for index, gpu in enumerate(kind.gpus)),
        reserved=frozenset(pu for core in cores if reserved.intersection(core.pu_os) for pu in core.pu_os),
    )


def cores_of(groups: Iterable[CoreGroup]) -> tuple[Core, ...]:
    """Number the cores of a node, and its L3s and packages, in the order in which they come."""
    rows = list(groups)
    l3s = {l3: number for number, l3 in enumerate(dict.fromkeys(l3 for _, l3, _, _ in rows if l3 is not None))}
    packages: dict[Hashable, int] = {}
    for *_, package in rows:
        packages.setdefault(package, len(packages))
    return tuple(
        Core(logical, tuple(sorted(pus)), l3s.get(l3), numa, packages[package] if len(packages) > 1 else None)
        for logical, (pus, l3, numa, package) in enumerate(rows)
    )


def read_node(name: str, groups: Iterable[CoreGroup], near: Mapping[str, Iterable[Iterable[int]]]) -> Topology:
    """Return a node from what a source says of its cores, and of what is near each GPU, by its PCI address.

    That are sets of PUs, of which the first counts that has a place. GPUs are numbered in the order of their PCI
    addresses, as the vendors' own tools do.
    """
    cores = cores_of(groups)
    gpus = []
    for index, bus in enumerate(sorted(near, key=pci_order)):
        places = (place_of(cores, pus) for pus in near[bus])
        gpus.append(Gpu(index, bus, *next((place for place in places if place != (None, None)), (None, None))))
    return Topology(name, cores, tuple(gpus))


def is_gpu(pci_class: str, pci_vendor: str) -> bool:
    """Return whether a PCI function is a GPU for computing; both numbers are four lower-case hexadecimal digits.

    Which classes are, each vendor's file says.
    """
    return any(pci_vendor == gpu.pci and pci_class in gpu.classes for gpu in all_gpus())


def pci_order(pci_bus: str) -> tuple[int, ...]:
    """Return the sort key of a PCI address: by domain, bus, device and function as numbers."""
    return tuple(int(part, 16) for part in pci_bus.replace(".", ":").split(":"))


def place_of(cores: Sequence[Core], near: Iterable[int]) -> tuple[int | None, int | None]:
    """Return the NUMA domain and the L3 that hold all of the PUs in `near`, each `None` where there is no single one.

    PUs that the node does not have are left out; with none left both are `None`. An L3 that reaches beyond the
    NUMA domain (sub-NUMA clusters) is `None` too: the domain is the nearer place.
    """
    pus = frozenset(near)
    around = [core for core in cores if not pus.isdisjoint(core.pu_os)]
    numa, l3 = _single(core.numa for core in around), _single(core.l3 for core in around)
    if numa is not None and any(core.numa != numa for core in cores if core.l3 == l3):
        return numa, None
    return numa, l3


def _single(places: Iterable[int | None]) -> int | None:
    distinct = set(places)
    return distinct.pop() if len(distinct) == 1 else None


def recognise(seen: Topology, kinds: Iterable[Topology]) -> Topology | None:
    """Find the node kind that a node is, and give the kind's description cut down to what the node showed.

    A file or a live node does not tell which cores the site reserves, and may know a GPU only by its NUMA domain;
    the site does. A kind is the same node when it has every GPU by its bus id, every core with the same PUs, the
    same grouping into NUMA domains and L3s, and no GPU in another place. Any contradiction means another node.
    """
    if not seen.gpus or any(not gpu.pci_bus for gpu in seen.gpus):
        return None
    return next((cut for kind in kinds if _same_node(seen, cut := _cut(kind, seen))), None)


def _cut(kind: Topology, seen: Topology) -> Topology:
    pus, buses = seen.pu_os, {gpu.pci_bus for gpu in seen.gpus}
    cores = (replace(core, pu_os=tuple(pu for pu in core.pu_os if pu in pus)) for core in kind.cores)
    return Topology(
        name=f"{seen.name} ({kind.name})",
        cores=tuple(core for core in cores if core.pu_os),
        gpus=tuple(gpu for gpu in kind.gpus if gpu.pci_bus in buses),
        reserved=kind.reserved | seen.reserved,
    )


def _same_node(seen: Topology, kind: Topology) -> bool:
    """Return whether a node has the places of a kind, which is cut down to the node's PUs and GPUs."""
    known = {gpu.pci_bus: gpu for gpu in kind.gpus}
    if kind.pu_os != seen.pu_os or len(known) != len(seen.gpus):
        return False
    for level in ("core_logical", "numa", "l3"):
        actual, expected = _pus_by(level, seen), _pus_by(level, kind)
        groups = {pus for number, pus in actual.items() if number is not None or level != "l3"}
        if not groups <= set(expected.values()):
            return False
        for gpu in seen.gpus if level != "core_logical" else ():
            number, same = getattr(gpu, level), getattr(known[gpu.pci_bus], level)
            if None not in (number, same) and actual.get(number) != expected.get(same):
                return False
    return True


def _pus_by(level: str, topology: Topology) -> dict[int | None, frozenset[int]]:
    """Return the PUs of each core (`core_logical`), NUMA domain (`numa`) or L3 (`l3`)."""
    found: dict[int | None, set[int]] = {}
    for core in topology.cores:
        found.setdefault(getattr(core, level), set()).update(core.pu_os)
    return {number: frozenset(pus) for number, pus in found.items()}
