"""Judge the `affinity` probe: where each rank may run, against the masks of the node kind, and which GPU it has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lumisite.node.cpuset import mask_of
from lumisite.node.masks import MaskError, Request, cpu_masks
from lumisite.node.topology import Topology
from lumisite.site.cpus import CpusetError, format_cpu_list, parse_number_list
from lumisite.validate.probes.findings import (
    Fault,
    Finding,
    JobShape,
    Record,
    by_rank,
    counted,
    findings,
    missing,
    number,
    rows,
    table,
    text,
)

GATE = "affinity"


@dataclass(frozen=True)
class ExpectedAffinity:
    """The node kind's topology with the platform's bus ids, and the hardware threads of each core that ranks get."""

    topology: Topology
    threads: int = 1


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


def judge_affinity(records: Sequence[Record], expected: ExpectedAffinity, job: JobShape) -> tuple[Finding, ...]:
    """Judge every rank against its mask, and the ranks of a node against each other."""
    faults = missing(records, job, each="gpu", what="the rank")
    nodes: dict[str, list[_Rank]] = {}
    for record in by_rank(records):
        try:
            rank = _read(record)
        except CpusetError as error:
            told = f"what the kernel says of its CPUs cannot be read: {error}"
            faults.append(
                Fault(told, "look at /proc/self/status", text(record, "host"), number(record, "rank"), "inconclusive")
            )
            continue
        nodes.setdefault(rank.node, []).append(rank)
    known = True
    for ranks in nodes.values():
        wanted = _wanted(ranks[0].granted, expected, job.tasks_per_node)
        known = known and bool(wanted)
        faults += [fault for rank in ranks for fault in _of_rank(rank, wanted.get(rank.local), expected.topology)]
        faults += _shared(ranks, wanted)
        faults += _of_gpus(ranks, expected.topology)
    return findings(GATE, faults, _passed(nodes, expected.topology, known, job), job)


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
        rank=number(record, "rank"),
        local=number(record, "local_rank"),
        cpus=cpus,
        granted=frozenset(parse_number_list(granted)) if granted else None,
        numa=tuple(sorted(domain for domain, members in domains.items() if members & cpus)),
        buses=tuple(text(gpu, "bus") for gpu in rows(record, "gpus")),
        asked=text(record, "slurm", "SLURM_CPU_BIND") or text(record, "slurm", "SLURM_CPU_BIND_TYPE"),
    )


def _wanted(granted: frozenset[int] | None, expected: ExpectedAffinity, tasks: int) -> dict[int, frozenset[int]]:
    """Give the CPUs that each local rank should have, none where the node kind does not tell."""
    if not expected.topology.gpus:
        return {}
    if granted is not None:
        granted &= expected.topology.pu_os
    try:
        answers = cpu_masks(expected.topology, Request(tasks, expected.threads, granted or None))
    except MaskError:
        return {}
    return {answer.task: frozenset(answer.pu_os) for answer in answers if answer.pu_os}


def _of_rank(rank: _Rank, wanted: frozenset[int] | None, topology: Topology) -> Iterator[Fault]:
    if not rank.cpus:
        yield Fault("it told no CPUs", "look at /proc/self/status", rank.node, rank.rank, "inconclusive")
        return
    if wanted is not None and rank.cpus != wanted:
        numa = format_cpu_list(rank.numa) or "unknown"
        cause = (
            f"it has the mask {mask_of(rank.cpus)} (CPUs {format_cpu_list(rank.cpus)}, NUMA domain {numa}), "
            f"expected {mask_of(wanted)} (CPUs {format_cpu_list(wanted)}) as local rank {rank.local} of {topology.name}"
        )
        yield Fault(cause, _advice(rank), rank.node, rank.rank)
        return
    reserved = rank.cpus & topology.reserved
    if wanted is None and reserved and rank.cpus != topology.pu_os:
        cause = f"its mask {mask_of(rank.cpus)} has the reserved CPUs {format_cpu_list(reserved)}"
        yield Fault(cause, _advice(rank), rank.node, rank.rank)
    if rank.granted is not None and not rank.cpus <= rank.granted:
        outside = format_cpu_list(rank.cpus - rank.granted)
        cause = f"its mask {mask_of(rank.cpus)} has CPUs {outside}, which its step was not granted"
        yield Fault(cause, _advice(rank), rank.node, rank.rank)


def _shared(ranks: Sequence[_Rank], wanted: dict[int, frozenset[int]]) -> Iterator[Fault]:
    """Name ranks that share CPUs with one before them; one that has a wrong mask has been named already."""
    for index, rank in enumerate(ranks):
        if rank.local in wanted and rank.cpus != wanted[rank.local]:
            continue
        for other in ranks[:index]:
            both = rank.cpus & other.cpus
            if both:
                cause = (
                    f"it has the mask {mask_of(rank.cpus)} and shares the CPUs {format_cpu_list(both)} with rank "
                    f"{other.rank}, which has {mask_of(other.cpus)}; expected a mask of its own"
                )
                yield Fault(cause, _advice(rank), rank.node, rank.rank)
                break


def _of_gpus(ranks: Sequence[_Rank], topology: Topology) -> Iterator[Fault]:
    known = {gpu.pci_bus: gpu.index for gpu in topology.gpus if gpu.pci_bus}
    taken: dict[str, int] = {}
    for rank in ranks:
        if not rank.buses:
            continue
        # With several to see, programs take the one with their local rank.
        bus = rank.buses[rank.local % len(rank.buses)]
        if known and bus not in known:
            cause = f"its GPU is on bus {bus}, which {topology.name} does not have (expected {', '.join(known)})"
            advice = "if a maintenance changed the bus ids, write the new ones into the site's platform (gpu_bus_ids)"
            yield Fault(cause, advice, rank.node, rank.rank)
        elif known and len(rank.buses) == len(known) and known[bus] != rank.local % len(known):
            cause = f"GPU {rank.local} is on bus {bus}, which {topology.name} has as GPU {known[bus]}"
            advice = "the order of the GPUs has changed: correct gpu_bus_ids and the order of gpus in the site"
            yield Fault(cause, advice, rank.node, rank.rank)
        if bus in taken:
            cause = f"it shares the GPU on bus {bus} with rank {taken[bus]}"
            yield Fault(cause, "give each rank a GPU of its own (SLURM_LOCALID)", rank.node, rank.rank)
        taken.setdefault(bus, rank.rank)


def _advice(rank: _Rank) -> str:
    users = rank.asked and "mask_cpu:0x" not in rank.asked
    if users:
        return f"leave --cpu-bind to the helper; this step was started with SLURM_CPU_BIND={rank.asked}"
    return "LUMISITE_VERBOSE=1 srun … says which mask the helper chose, or why none"


def _passed(nodes: dict[str, list[_Rank]], topology: Topology, known: bool, job: JobShape) -> str:
    count = sum(map(len, nodes.values()))
    where = f"{counted(count, 'rank')} on {counted(len(nodes), 'node')}"
    if known:
        return f"{where} have the masks of {topology.name}"
    if topology.gpus:
        return f"{where} share no CPU; there is no table for {counted(job.tasks_per_node, 'task')} on {topology.name}"
    return f"{where} share no CPU; {topology.name} has no GPU to be near to"
