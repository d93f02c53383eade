"""Judge `affinity`: where each rank may run, against the masks of the node kind, and which GPU it has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from lumisite.machine.masks import MaskError, Request, cpu_masks, mask_of
from lumisite.machine.topology import Topology, topology_of
from lumisite.site.cpus import CpusetError, format_cpu_list, parse_number_list
from lumisite.validate.probes.probe import Expected, Line, Probe, Record
from lumisite.validate.probes.ranks import Fault, Said, counted, judge_records, missing_ranks, tell
from lumisite.validate.probes.records import rows, table, text, whole
from lumisite.validate.probes.target import Target


def affinity(target: Target) -> Probe:
    """Give the probe."""
    return Probe(
        "affinity",
        "Each rank has the cores next to its GPU.",
        (target.alone("affinity.py"),),
        judge_records(partial(judge, expected_topology(target))),
    )


def expected_topology(target: Target) -> Topology:
    """The topology of the partition's node kind, with the bus ids of the platform."""
    name = target.site.partitions[target.plan.partition].node_kind
    buses = target.site.platforms[target.selection.platform].gpu_bus_ids.get(name, ())
    return topology_of(name, target.site.node_kinds[name], buses)


@dataclass(frozen=True)
class _Rank:
    """A rank as its record tells it; CPUs are kernel numbers."""

    node: str
    rank: int
    local: int
    cpus: frozenset[int]
    granted: frozenset[int] | None
    numa: tuple[int, ...]
    buses: tuple[str, ...]
    asked: str


def judge(topology: Topology, records: Sequence[Record], expected: Expected) -> list[Line]:
    """Judge every rank against its mask, and the ranks of a node against each other."""
    faults = missing_ranks(records, expected, "the rank")
    nodes: dict[str, list[_Rank]] = {}
    for record in records:
        try:
            rank = _read(record)
        except CpusetError as error:
            told = f"what the kernel says of its CPUs cannot be read: {error}"
            place = (text(record, "host"), whole(record, "rank"))
            faults.append(Fault(told, "look at /proc/self/status", *place, "inconclusive"))
            continue
        nodes.setdefault(rank.node, []).append(rank)
    known = True
    for ranks in nodes.values():
        wanted = _wanted(ranks[0].granted, topology, expected.tasks)
        known = known and bool(wanted)
        faults += [fault for rank in ranks for fault in _of_rank(rank, wanted.get(rank.local), topology)]
        faults += _of_cpus(ranks, wanted)
        faults += [Fault(*said, rank.node, rank.rank) for rank, said in _of_gpus(ranks, topology)]
    return tell(faults, _passed(nodes, topology, known, expected.tasks), expected)


def _read(record: Record) -> _Rank:
    cpus = frozenset(parse_number_list(text(record, "cpus")))
    granted = text(record, "granted")
    domains = {
        int(name): frozenset(parse_number_list(cpulist))
        for name, cpulist in table(record, "numa").items()
        if name.isdecimal() and isinstance(cpulist, str)
    }
    return _Rank(
        node=text(record, "host"),
        rank=whole(record, "rank"),
        local=whole(record, "local_rank"),
        cpus=cpus,
        granted=frozenset(parse_number_list(granted)) if granted else None,
        numa=tuple(sorted(domain for domain, members in domains.items() if members & cpus)),
        buses=tuple(text(gpu, "bus") for gpu in rows(record, "gpus")),
        asked=text(record, "slurm", "SLURM_CPU_BIND") or text(record, "slurm", "SLURM_CPU_BIND_TYPE"),
    )


def _wanted(granted: frozenset[int] | None, topology: Topology, tasks: int) -> dict[int, frozenset[int]]:
    """Give the CPUs that each local rank should have, none where the node kind does not tell."""
    if not topology.gpus:
        return {}
    if granted is not None:
        granted &= topology.pu_os
    try:
        answers = cpu_masks(topology, Request(tasks, cpus=granted or None))
    except MaskError:
        return {}
    return {answer.task: frozenset(answer.pu_os) for answer in answers if answer.pu_os}


def _of_rank(rank: _Rank, wanted: frozenset[int] | None, topology: Topology) -> Iterator[Fault]:
    if not rank.cpus:
        yield Fault("it told no CPUs", "look at /proc/self/status", rank.node, rank.rank, "inconclusive")
        return
    causes = []
    if wanted is not None and rank.cpus != wanted:
        numa = format_cpu_list(rank.numa) or "unknown"
        causes.append(
            f"it has the mask {mask_of(rank.cpus)} (CPUs {format_cpu_list(rank.cpus)}, NUMA domain {numa}), "
            f"expected {mask_of(wanted)} (CPUs {format_cpu_list(wanted)}) as local rank {rank.local} of {topology.name}"
        )
    else:
        reserved = rank.cpus & topology.reserved
        if wanted is None and reserved and rank.cpus != topology.pu_os:
            causes.append(f"its mask {mask_of(rank.cpus)} has the reserved CPUs {format_cpu_list(reserved)}")
        outside = rank.cpus - (rank.cpus if rank.granted is None else rank.granted)
        if outside:
            cpus = format_cpu_list(outside)
            causes.append(f"its mask {mask_of(rank.cpus)} has CPUs {cpus}, which its step was not granted")
    for cause in causes:
        yield Fault(cause, _advice(rank), rank.node, rank.rank)


def _of_cpus(ranks: Sequence[_Rank], wanted: Mapping[int, frozenset[int]]) -> Iterator[Fault]:
    """Name ranks that share CPUs with one before them; one that has a wrong mask has been named already."""
    for index, rank in enumerate(ranks):
        if rank.local in wanted and rank.cpus != wanted[rank.local]:
            continue
        other = next((other for other in ranks[:index] if rank.cpus & other.cpus), None)
        if other is not None:
            cause = (
                f"it has the mask {mask_of(rank.cpus)} and shares the CPUs {format_cpu_list(rank.cpus & other.cpus)} "
                f"with rank {other.rank}, which has {mask_of(other.cpus)}; expected a mask of its own"
            )
            yield Fault(cause, _advice(rank), rank.node, rank.rank)


def _of_gpus(ranks: Sequence[_Rank], topology: Topology) -> Iterator[tuple[_Rank, Said]]:
    known = {gpu.pci_bus: gpu.index for gpu in topology.gpus if gpu.pci_bus}
    taken: dict[str, int] = {}
    for rank in (rank for rank in ranks if rank.buses):
        # With several to see, programs take the one with their local rank.
        bus = rank.buses[rank.local % len(rank.buses)]
        if known and bus not in known:
            cause = f"its GPU is on bus {bus}, which {topology.name} does not have (expected {', '.join(known)})"
            advice = "if a maintenance changed the bus ids, write the new ones into the site's platform (gpu_bus_ids)"
            yield rank, (cause, advice)
        elif known and len(rank.buses) == len(known) and known[bus] != rank.local % len(known):
            cause = f"GPU {rank.local} is on bus {bus}, which {topology.name} has as GPU {known[bus]}"
            advice = "the order of the GPUs has changed: correct gpu_bus_ids and the order of gpus in the site"
            yield rank, (cause, advice)
        if bus in taken:
            cause = f"it shares the GPU on bus {bus} with rank {taken[bus]}"
            yield rank, (cause, "give each rank a GPU of its own (SLURM_LOCALID)")
        taken.setdefault(bus, rank.rank)


def _advice(rank: _Rank) -> str:
    if rank.asked and "mask_cpu:0x" not in rank.asked:
        return f"leave --cpu-bind to the helper; this step was started with SLURM_CPU_BIND={rank.asked}"
    return "LUMISITE_VERBOSE=1 srun … says which mask the helper chose, or why none"


def _passed(nodes: Mapping[str, Sequence[_Rank]], topology: Topology, known: bool, tasks: int) -> str:
    where = f"{counted(sum(map(len, nodes.values())), 'rank')} on {counted(len(nodes), 'node')}"
    if known:
        return f"{where} have the masks of {topology.name}"
    if topology.gpus:
        return f"{where} share no CPU; there is no table for {counted(tasks, 'task')} on {topology.name}"
    return f"{where} share no CPU; {topology.name} has no GPU to be near to"
