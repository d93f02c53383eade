"""Decide which CPUs each task of a node gets: cores near its GPU, inside what was granted, or none with the reason.

The rules, and why they are as they are, stand in docs/explanation/cpu-masks.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from lumisite.errors import LumisiteError
from lumisite.findings.finding import Finding, Severity
from lumisite.machine.topology import Core, Gpu, Topology
from lumisite.site.cpu_list import format_cpu_list

TABLE_TASKS = (1, 2, 4, 8, 16)
"""The tasks-per-node counts for which tables are made ahead of the job, beside the number of GPUs."""


class MaskError(LumisiteError):
    """A question about masks that has no sound answer for this node."""


def mask_of(pu_os: Iterable[int]) -> str:
    """Write PUs (kernel numbers) as the mask that `--cpu-bind=mask_cpu` and `taskset` take: lower case, no padding.

    >>> mask_of(range(49, 56))
    '0xfe000000000000'
    """
    return hex(sum(1 << number for number in set(pu_os)))


@dataclass(frozen=True)
class MaskRequest:
    """What a step asks for on one node.

    `tasks` counts tasks on this node; `threads` hardware threads of each core (1 or 2). `cpus` are the granted PUs
    in the kernel's numbering, `gpus` the granted GPUs in task order; `None` means all of the node.
    """

    tasks: int
    threads: int = 1
    cpus: frozenset[int] | None = None
    gpus: tuple[int, ...] | None = None


@dataclass(frozen=True)
class TaskMask:
    """The answer for one task (`SLURM_LOCALID`): its GPUs and its PUs in rising kernel numbers.

    Without PUs the task must not be bound. `why` is where the PUs come from, or why there are none.
    """

    task: int
    gpus: tuple[int, ...]
    pu_os: tuple[int, ...]
    why: tuple[str, ...]

    @property
    def cpus(self) -> str | None:
        """The CPU list as Slurm and `taskset -c` write it, such as `49-55,113-119`."""
        return format_cpu_list(self.pu_os) if self.pu_os else None

    @property
    def mask(self) -> str | None:
        """The mask as `--cpu-bind=mask_cpu` and `taskset` take it."""
        return mask_of(self.pu_os) if self.pu_os else None


class _Pool(NamedTuple):
    """Cores that are equally near to some GPUs; `name` is where they are, empty where that is not known."""

    name: str
    cores: tuple[Core, ...]


class _Share(NamedTuple):
    """One task's share of a pool: its cores, and which of how many they are, or why there are none."""

    why: str
    cores: tuple[Core, ...] = ()


def cpu_masks(topology: Topology, request: MaskRequest) -> tuple[TaskMask, ...]:
    """Return one answer for each task, in the order of `SLURM_LOCALID`; raises `MaskError`.

    No two tasks share a core, and no task gets a reserved or a not granted PU. Tasks that share an L3 or a NUMA
    domain get the same number of its cores.
    """
    gpus = _granted_gpus(topology, request)
    usable = _usable(topology, request)
    _check(topology, request, gpus)
    if request.tasks == 1 and len(gpus) == len(topology.gpus):  # every core, near a GPU or not (torchrun, OpenMP)
        pus = tuple(sorted(pu for picked in usable.values() for pu in picked))
        why = f"the only task, {len(usable)} cores that tasks may use"
        if not pus:
            why = f"no core of {topology.name} is among {_granted(request)} that tasks may use"
        return (TaskMask(0, tuple(gpu.index for gpu in gpus), pus, (why,)),)
    owned = _gpus_of_tasks(request.tasks, gpus)
    pools = {gpu: _pool(topology, gpu) for gpu in topology.gpus}
    _check_far(topology, pools.values(), usable)
    claims: dict[_Pool, Counter[int]] = {}
    for task, gpus_of_task in enumerate(owned):
        for gpu in gpus_of_task:
            claims.setdefault(pools[gpu], Counter())[task] += 1
    shares = {pool: _divide(pool, weights, usable, request) for pool, weights in claims.items()}
    return tuple(
        _task_mask(
            task,
            gpus_of_task,
            [shares[pool][task] for pool in dict.fromkeys(pools[gpu] for gpu in gpus_of_task)],
            usable,
        )
        for task, gpus_of_task in enumerate(owned)
    )


@cache  # a render asks four times for each kind of node
def mask_tables(topology: Topology) -> Mapping[tuple[int, int], tuple[TaskMask, ...]]:
    """Return the answers for a whole node by (tasks, threads), for the counts that have a sound one for every task.

    For whatever binds tasks at run time without lumisite (the task prolog).
    """
    tables: dict[tuple[int, int], tuple[TaskMask, ...]] = {}
    for tasks in sorted({*TABLE_TASKS, len(topology.gpus)} - {0}):
        for threads in (1, 2):
            try:
                answers = cpu_masks(topology, MaskRequest(tasks, threads))
            except MaskError:
                continue
            if all(answer.pu_os for answer in answers):
                tables[tasks, threads] = answers
    return tables


def has_own_cores(topology: Topology) -> bool:
    """Return whether each GPU of a node has cores near it that are near no other: then a part of a node has masks."""
    pools = [_pool(topology, gpu) for gpu in topology.gpus]
    return len(set(pools)) == len(pools)


def _granted_gpus(topology: Topology, request: MaskRequest) -> tuple[Gpu, ...]:
    if request.gpus is None:
        return topology.gpus
    by_index = {gpu.index: gpu for gpu in topology.gpus}
    unknown = [index for index in request.gpus if index not in by_index]
    if unknown:
        have, subject = format_cpu_list(by_index), f"GPU {format_cpu_list(unknown)}"
        message = f"not on {topology.name}, " + (f"whose GPUs are {have}" if have else "which has no GPU")
        raise _refused(message, "name GPUs of the node, or leave the list out for all of them", subject)
    if not request.gpus or len(set(request.gpus)) != len(request.gpus):
        message = f"the granted GPUs of {topology.name} are not named once each"
        advice = "name each GPU once and at least one, or leave the list out for all of them"
        raise _refused(message, advice, format_cpu_list(set(request.gpus)))
    return tuple(by_index[index] for index in request.gpus)


def _usable(topology: Topology, request: MaskRequest) -> dict[Core, tuple[int, ...]]:
    """Return the cores that tasks may have and, of each, the PUs: the lowest of what is granted and not reserved.

    A core that has fewer of them than `threads` is left out: half a core would make one task slower than its peers.
    """
    granted = topology.pu_os - topology.reserved
    if request.cpus is not None:
        granted &= request.cpus
    picked = {core: tuple(pu for pu in core.pu_os if pu in granted)[: request.threads] for core in topology.cores}
    return {core: pus for core, pus in picked.items() if len(pus) == request.threads}


def _check(topology: Topology, request: MaskRequest, gpus: Sequence[Gpu]) -> None:
    """Refuse what no choice of cores can answer, whatever was granted."""
    node, tasks = topology.name, request.tasks
    if tasks < 1:
        raise _refused(f"{tasks} tasks on a node", "give 1 task or more", node)
    foreign = (request.cpus or frozenset()) - topology.pu_os
    if foreign:
        have, subject = format_cpu_list(topology.pu_os), f"CPU {format_cpu_list(foreign)}"
        advice = "name CPUs of the node, or leave the list out for all of them"
        raise _refused(f"not on {node}, whose CPUs are {have}", advice, subject)
    if request.cpus is not None and not request.cpus:
        raise _refused("the list of granted CPUs is empty", "leave the list out for all of the node", node)
    cores = len(_usable(topology, MaskRequest(tasks, request.threads)))
    if not cores:
        message = f"no core has {request.threads} threads that tasks may use"
        raise _refused(message, "use one thread of each core", node)
    if tasks > cores:
        message = f"{tasks} tasks for the {cores} cores that tasks may use"
        raise _refused(message, "start fewer tasks on a node", node)
    if tasks > 1 and not gpus:
        message = "the node has no GPU, so no core is nearer to a task than another"
        raise _refused(message, "leave the binding to Slurm (--cpu-bind=cores)", node)
    if tasks > 1 and tasks % len(gpus) and len(gpus) % tasks:
        even = ", ".join(str(count) for count in range(1, len(gpus) + 1) if len(gpus) % count == 0)
        advice = f"start {even} tasks or a multiple of {len(gpus)}"
        if tasks < len(gpus):
            named = ",".join(str(gpu.index) for gpu in gpus[:tasks])
            advice += f", or name one GPU for each task, such as --gpus {named}"
        raise _refused(f"{tasks} tasks cannot share {len(gpus)} GPUs evenly", advice, node)


def _check_far(topology: Topology, pools: Iterable[_Pool], usable: Iterable[Core]) -> None:
    """Refuse a node on which some cores that may be used are near no GPU: masks would leave them idle."""
    pools = list(pools)
    far = set(usable).difference(*(pool.cores for pool in pools))
    if far and all(pool.cores for pool in pools):  # near what a GPU of unknown place is, nobody can tell
        message = f"{len(far)} cores that tasks may use are near no GPU"
        raise _refused(message, "leave the binding to Slurm (--cpu-bind=cores)", topology.name)


def _refused(message: str, advice: str, subject: str) -> MaskError:
    return MaskError(Finding("value-wrong", Severity.FAULT, message, advice, subject))


def _gpus_of_tasks(tasks: int, gpus: tuple[Gpu, ...]) -> tuple[tuple[Gpu, ...], ...]:
    """Deal the GPUs out in order, in blocks: several GPUs to a task or several tasks to a GPU.

    Blocks, not rounds, because that is what Slurm's `--gpu-bind=single:N` does (srun(1) of 22.05), and because
    neighbouring GPUs are the two halves of one module.
    """
    if tasks >= len(gpus):
        return tuple(gpus[task * len(gpus) // tasks :][:1] for task in range(tasks))
    each = len(gpus) // tasks
    return tuple(gpus[task * each : (task + 1) * each] for task in range(tasks))


def _pool(topology: Topology, gpu: Gpu) -> _Pool:
    """Return the cores near a GPU: those of its L3, or those of its NUMA domain that are near no other GPU's L3."""
    if gpu.l3 is not None:
        return _Pool(f"L3 {gpu.l3}", tuple(core for core in topology.cores if core.l3 == gpu.l3))
    if gpu.numa is None:
        return _Pool("", ())
    near_others = {other.l3 for other in topology.gpus if other.l3 is not None}
    cores = (core for core in topology.cores if core.numa == gpu.numa and core.l3 not in near_others)
    return _Pool(f"NUMA domain {gpu.numa}", tuple(cores))


def _divide(
    pool: _Pool, weights: Mapping[int, int], usable: Mapping[Core, tuple[int, ...]], request: MaskRequest
) -> dict[int, _Share]:
    """Cut a pool into equal runs of whole cores, by task; `weights` counts the GPUs that a task has in the pool.

    What is left over stays idle: equal tasks are worth more than one core more for the first of them.
    """
    near = _in_order(pool, usable)
    if not near:
        return dict.fromkeys(weights, _Share(_why_none(pool, request)))
    if len(weights) == 1:
        return dict.fromkeys(weights, _Share(f"{len(near)} cores of {pool.name}", tuple(near)))
    each = len(near) // sum(weights.values())
    if not each:
        why = f"{len(weights)} tasks share the {len(near)} cores of {pool.name} that may be used"
        return dict.fromkeys(weights, _Share(why))
    shares, start = {}, 0
    for task, weight in weights.items():
        cores = tuple(near[start : start + each * weight])
        shares[task] = _Share(f"{len(cores)} of the {len(near)} cores of {pool.name}", cores)
        start += each * weight
    return shares


def _in_order(pool: _Pool, usable: Mapping[Core, tuple[int, ...]]) -> list[Core]:
    """Return the usable cores of a pool in the order in which they are cut: no share has more L3s than it needs."""
    near = (core for core in pool.cores if core in usable)
    return sorted(near, key=lambda core: (core.l3 is not None, core.l3 or 0, core.core_logical))


def _why_none(pool: _Pool, request: MaskRequest) -> str:
    if not pool.name:
        return "where the GPU is attached is not known"
    if not pool.cores:
        return f"{pool.name} has no core that is not near another GPU"
    threads = " with 2 threads" if request.cpus is not None and request.threads == 2 else ""
    pus = format_cpu_list(pu for core in pool.cores for pu in core.pu_os)
    its_cpus = "" if request.cpus is None else f" (its CPUs are {pus})"
    return f"no core of {pool.name}{threads} is among {_granted(request)} that tasks may use{its_cpus}"


def _granted(request: MaskRequest) -> str:
    return "the node's CPUs" if request.cpus is None else f"the granted CPUs {format_cpu_list(request.cpus)}"


def _task_mask(
    task: int, owned: Sequence[Gpu], shares: Sequence[_Share], usable: Mapping[Core, tuple[int, ...]]
) -> TaskMask:
    """Return the mask of a task from its shares; a GPU without a near core leaves it none."""
    gpus = tuple(gpu.index for gpu in owned)
    missing = tuple(share.why for share in shares if not share.cores)
    if missing:
        return TaskMask(task, gpus, (), missing)
    pus = tuple(sorted(pu for share in shares for core in share.cores for pu in usable[core]))
    return TaskMask(task, gpus, pus, tuple(share.why for share in shares))
