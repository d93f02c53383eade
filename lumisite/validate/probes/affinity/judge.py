"""Judge `affinity`: where each rank may run, against the masks of the node kind, and which GPU it has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from lumisite.machine.masks import MaskError, Request, cpu_masks, mask_of
from lumisite.machine.topology import Topology, topology_of
from lumisite.site.cpus import CpusetError, format_cpu_list, parse_number_list
from lumisite.text import counted
from lumisite.validate.lines import GateOutcome
from lumisite.validate.probes.probe import Expected, Line, Plan, Record, Target, each, probe
from lumisite.validate.probes.ranks import Fault, judge_records, missing, tell
from lumisite.validate.probes.records import text, texts, whole


@probe("Each rank has the cores next to its GPU.")
def affinity(target: Target) -> Plan:
    """Give the probe."""
    gpu = target.gpu
    known = (
        (
            *each("selecting", gpu.visible),
            *each("runtime", [":".join(gpu.bus_ids)] if gpu.bus_ids else []),
            *each("device", [gpu.control]),
        )
        if gpu
        else ()
    )
    return (target.alone("affinity.py", *known),), judge_records(partial(_judge, expected_topology(target)))


def expected_topology(target: Target) -> Topology:
    """The topology of the partition's node kind, with the bus ids of the platform."""
    buses = target.site.platforms[target.selection.platform].gpu_bus_ids.get(target.kind, ())
    return topology_of(target.kind, target.site.node_kinds[target.kind], buses)


class _Rank:
    """A rank as its record tells it; CPUs are kernel numbers. Raises `CpusetError`."""

    def __init__(self, record: Record) -> None:
        self.record, self.number, self.local = record, whole(record, "rank"), whole(record, "local_rank")
        self.cpus, self.granted = (frozenset(parse_number_list(text(record, key))) for key in ("cpus", "granted"))
        self.mask, self.buses = f"the mask {mask_of(self.cpus)}", texts(record, "gpus")

    def fault(self, cause: str, advice: str = "", verdict: GateOutcome = "fail") -> Fault:
        """Make a fault; without advice, it is about the mask."""
        asked = text(self.record, "slurm", "SLURM_CPU_BIND") or text(self.record, "slurm", "SLURM_CPU_BIND_TYPE")
        if not advice and asked and "mask_cpu:0x" not in asked:
            advice = f"leave --cpu-bind to the helper; this step was started with SLURM_CPU_BIND={asked}"
        advice = advice or "LUMISITE_VERBOSE=1 srun … says which mask the helper chose, or why none"
        return Fault(cause, advice, text(self.record, "host"), self.number, verdict)


def _judge(topology: Topology, records: Sequence[Record], expected: Expected) -> list[Line]:
    """Judge every rank against its mask, and the ranks of a node against each other."""
    faults = missing(records, expected, "the rank")
    nodes: dict[str, list[_Rank]] = {}
    for record in records:
        try:
            rank = _Rank(record)
        except CpusetError as error:
            told = f"what the kernel says of its CPUs cannot be read: {error}"
            place = (text(record, "host"), whole(record, "rank"))
            faults.append(Fault(told, "look at /proc/self/status", *place, "inconclusive"))
        else:
            nodes.setdefault(text(record, "host"), []).append(rank)
    known = True
    for ranks in nodes.values():
        wanted = _wanted(ranks[0].granted, topology, expected.tasks)
        known = known and bool(wanted)
        faults += [fault for rank in ranks for fault in _of_rank(rank, wanted.get(rank.local), topology)]
        faults += [*_of_cpus(ranks, wanted), *_of_gpus(ranks, topology)]
    where = f"{counted(sum(map(len, nodes.values())), 'rank')} on {counted(len(nodes), 'node')}"
    passed = f"{where} have the masks of {topology.name}"
    if not known:
        why = f"there is no table for {counted(expected.tasks, 'task')} on {topology.name}"
        passed = f"{where} share no CPU; {why if topology.gpus else f'{topology.name} has no GPU to be near to'}"
    return tell(faults, passed, expected)


def _wanted(granted: frozenset[int], topology: Topology, tasks: int) -> dict[int, frozenset[int]]:
    """Give the CPUs that each local rank should have, none where the node kind does not tell."""
    if not topology.gpus:
        return {}
    try:
        answers = cpu_masks(topology, Request(tasks, cpus=granted & topology.pu_os or None))
    except MaskError:
        return {}
    return {answer.task: frozenset(answer.pu_os) for answer in answers if answer.pu_os}


def _of_rank(rank: _Rank, wanted: frozenset[int] | None, topology: Topology) -> Iterator[Fault]:
    reserved = rank.cpus & topology.reserved
    if not rank.cpus:
        yield rank.fault("it told no CPUs", "look at /proc/self/status", "inconclusive")
    elif wanted is not None and rank.cpus != wanted:
        near = {core.numa for core in topology.cores if core.numa is not None and rank.cpus.intersection(core.pu_os)}
        numa = format_cpu_list(near) or "unknown"
        yield rank.fault(
            f"it has {rank.mask} (CPUs {format_cpu_list(rank.cpus)}, NUMA domain {numa}), "
            f"expected {mask_of(wanted)} (CPUs {format_cpu_list(wanted)}) as local rank {rank.local} of {topology.name}"
        )
    elif wanted is None and reserved and rank.cpus != topology.pu_os:
        yield rank.fault(f"its mask {mask_of(rank.cpus)} has the reserved CPUs {format_cpu_list(reserved)}")


def _of_cpus(ranks: Sequence[_Rank], wanted: Mapping[int, frozenset[int]]) -> Iterator[Fault]:
    """Name ranks that share CPUs with one before them; one that has a wrong mask has been named already."""
    for index, rank in enumerate(ranks):
        other = next((other for other in ranks[:index] if rank.cpus & other.cpus), None)
        if other is not None and rank.cpus == wanted.get(rank.local, rank.cpus):
            yield rank.fault(
                f"it has {rank.mask} and shares the CPUs {format_cpu_list(rank.cpus & other.cpus)} "
                f"with rank {other.number}, which has {mask_of(other.cpus)}; expected a mask of its own"
            )


def _of_gpus(ranks: Sequence[_Rank], topology: Topology) -> Iterator[Fault]:
    known = {gpu.pci_bus: gpu.index for gpu in topology.gpus if gpu.pci_bus}
    taken: dict[str, int] = {}
    for rank in (rank for rank in ranks if rank.buses):
        # With several to see, programs take the one with their local rank.
        bus = rank.buses[rank.local % len(rank.buses)]
        if known and bus not in known:
            cause = f"its GPU is on bus {bus}, which {topology.name} does not have (expected {', '.join(known)})"
            yield rank.fault(
                cause, "if a maintenance changed the bus ids, write the new ones into the site's platform (gpu_bus_ids)"
            )
        elif known and len(rank.buses) == len(known) and known[bus] != rank.local % len(known):
            cause = f"GPU {rank.local} is on bus {bus}, which {topology.name} has as GPU {known[bus]}"
            yield rank.fault(
                cause, "the order of the GPUs has changed: correct gpu_bus_ids and the order of gpus in the site"
            )
        if bus in taken:
            cause = f"it shares the GPU on bus {bus} with rank {taken[bus]}"
            yield rank.fault(cause, "give each rank a GPU of its own (SLURM_LOCALID)")
        taken.setdefault(bus, rank.number)
