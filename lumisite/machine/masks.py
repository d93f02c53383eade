"""Decide which CPUs each task of a node gets: cores near its GPU, inside what was granted, or none with the reason.

The rules, and why they are as they are, stand in docs/explanation/cpu-masks.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from lumisite.errors import LumisiteError
from lumisite.machine.topology import Core, Gpu, Topology
from lumisite.site.cpus import format_cpu_list
from lumisite.text import counted

TABLE_TASKS = (1, 2, 4, 8, 16)
"""The tasks-per-node counts for which tables are made ahead of the job, beside the number of GPUs."""


class MaskError(LumisiteError):
    """A question about masks that has no sound answer for this node; says which question would have one."""


def mask_of(pu_os: Iterable[int]) -> str:
    """Write PUs (kernel numbers) as the mask that `--cpu-bind=mask_cpu` and `taskset` take: lower case, no padding.

    >>> mask_of(range(49, 56))
    '0xfe000000000000'
    """
    return hex(sum(1 << number for number in set(pu_os)))


@dataclass(frozen=True)
class Request:
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

    Without PUs the task must not be bound. `reason` says where the PUs come from, or why there are none.
    """

    task: int
    gpus: tuple[int, ...]
    pu_os: tuple[int, ...]
    reason: str

    @property
    def cpus(self) -> str | None:
        """The CPU list as Slurm and `taskset -c` write it, such as `49-55,113-119`."""
        return format_cpu_list(self.pu_os) if self.pu_os else None

    @property
    def mask(self) -> str | None:
        """The mask as `--cpu-bind=mask_cpu` and `taskset` take it."""
        return mask_of(self.pu_os) if self.pu_os else None


class _Pool(NamedTuple):
    """Cores that are equally near to some GPUs, or one task's share of them; `name` says where they are, or why."""

    name: str
    cores: tuple[Core, ...]


def cpu_masks(topology: Topology, request: Request) -> tuple[TaskMask, ...]:
    """Give one answer for each task, in the order of `SLURM_LOCALID`; raises `MaskError`.

    No two tasks share a core, and no task gets a reserved or a not granted PU. Tasks that share an L3 or a NUMA
    domain get the same number of its cores.
    """
    gpus = _granted_gpus(topology, request)
    usable = _usable(topology, request)
    _check(topology, request, gpus)
    if request.tasks == 1 and len(gpus) == len(topology.gpus):  # every core, near a GPU or not (torchrun, OpenMP)
        pus = tuple(sorted(pu for picked in usable.values() for pu in picked))
        reason = f"the only task: {counted(len(usable), 'core')} that tasks may use"
        if not pus:
            reason = f"{_granted(request)} hold no core of {topology.name} that tasks may use"
        return (TaskMask(0, tuple(gpu.index for gpu in gpus), pus, reason),)
    owned = _gpus_of_tasks(request.tasks, gpus)
    pools = {gpu: _pool(topology, gpu) for gpu in topology.gpus}
    claims: dict[_Pool, Counter[int]] = {}
    for task, own in enumerate(owned):
        for gpu in own:
            claims.setdefault(pools[gpu], Counter())[task] += 1
    shares = {pool: _divide(pool, weights, usable, request) for pool, weights in claims.items()}
    far = _far_cores(pools, owned, usable)
    return tuple(
        _task_mask(
            task, own, [shares[pool][task] for pool in dict.fromkeys(pools[gpu] for gpu in own)], far[task], usable
        )
        for task, own in enumerate(owned)
    )


def mask_tables(topology: Topology) -> Mapping[tuple[int, int], tuple[TaskMask, ...]]:
    """Give the answers for a whole node by (tasks, threads), for the counts that have a sound one for every task.

    For whatever binds tasks at run time without lumisite (the task prolog).
    """
    tables: dict[tuple[int, int], tuple[TaskMask, ...]] = {}
    for tasks in sorted({*TABLE_TASKS, len(topology.gpus)} - {0}):
        for threads in (1, 2):
            try:
                answers = cpu_masks(topology, Request(tasks, threads))
            except MaskError:
                continue
            if all(answer.pu_os for answer in answers):
                tables[tasks, threads] = answers
    return tables


def shared_cores(topology: Topology, threads: int) -> Mapping[int, tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]]:
    """Give, by GPU, the PUs near it in the order of their cores, with the GPUs that share them; then those near none.

    For whatever binds tasks at run time on part of a node; nothing where each GPU has cores of its own.
    """
    usable = _usable(topology, Request(1, threads))
    pools = {gpu: _pool(topology, gpu) for gpu in topology.gpus}
    parts: dict[tuple[int, ...], list[Core]] = {}
    for pool in (pool for pool in dict.fromkeys(pools.values()) if pool.cores):
        gpus = tuple(gpu.index for gpu in topology.gpus if pools[gpu] == pool)
        parts[gpus] = _in_order(pool, usable)
    far = {
        tuple(topology.gpus[at].index for at in tasks): cores
        for tasks, cores in _nearest(pools, [(gpu,) for gpu in topology.gpus], usable).items()
    }
    if not far and all(len(gpus) == 1 for gpus in parts):
        return {}
    rows = [
        (tuple(pu for core in cores for pu in usable[core]), gpus) for gpus, cores in (*parts.items(), *far.items())
    ]
    return {gpu.index: tuple(row for row in rows if gpu.index in row[1] and row[0]) for gpu in topology.gpus}


def _granted_gpus(topology: Topology, request: Request) -> tuple[Gpu, ...]:
    if request.gpus is None:
        return topology.gpus
    by_index = {gpu.index: gpu for gpu in topology.gpus}
    unknown = [index for index in request.gpus if index not in by_index]
    if unknown:
        have = format_cpu_list(by_index) or "none"
        raise MaskError(f"GPU {format_cpu_list(unknown)} is not on {topology.name} (its GPUs: {have})")
    if not request.gpus or len(set(request.gpus)) != len(request.gpus):
        raise MaskError("the granted GPUs must be named once each, and at least one (leave them out for all)")
    return tuple(by_index[index] for index in request.gpus)


def _usable(topology: Topology, request: Request) -> dict[Core, tuple[int, ...]]:
    """Give the cores that tasks may have and, of each, the PUs: the lowest of what is granted and not reserved.

    A core that has fewer of them than `threads` is left out: half a core would make one task slower than its peers.
    """
    given = topology.pu_os - topology.reserved
    if request.cpus is not None:
        given &= request.cpus
    picked = {core: tuple(pu for pu in core.pu_os if pu in given)[: request.threads] for core in topology.cores}
    return {core: pus for core, pus in picked.items() if len(pus) == request.threads}


def _check(topology: Topology, request: Request, gpus: Sequence[Gpu]) -> None:
    """Refuse what no choice of cores can answer, whatever was granted."""
    if request.tasks < 1:
        raise MaskError(f"{request.tasks} tasks on a node (1 or more are right)")
    foreign = (request.cpus or frozenset()) - topology.pu_os
    if foreign:
        have = format_cpu_list(topology.pu_os)
        raise MaskError(f"CPU {format_cpu_list(foreign)} is not on {topology.name} (its CPUs: {have})")
    if request.cpus is not None and not request.cpus:
        raise MaskError("no CPU is granted (leave the list out for all of the node)")
    cores = len(_usable(topology, Request(request.tasks, request.threads)))
    if not cores:
        raise MaskError(f"no core of {topology.name} has {request.threads} threads that tasks may use")
    if request.tasks > cores:
        raise MaskError(f"{request.tasks} tasks on the {cores} cores of {topology.name} that tasks may use")
    if request.tasks > 1 and not gpus:
        raise MaskError(
            f"{topology.name} has no GPU, so no core is nearer to a task than another: "
            "leave the binding to Slurm (--cpu-bind=cores)"
        )
    if request.tasks > 1 and request.tasks % len(gpus) and len(gpus) % request.tasks:
        even = ", ".join(str(count) for count in range(1, len(gpus) + 1) if len(gpus) % count == 0)
        named = ",".join(str(gpu.index) for gpu in gpus[: request.tasks])
        way_out = f"; or name one GPU for each task, such as --gpus {named}" if request.tasks < len(gpus) else ""
        raise MaskError(
            f"{request.tasks} tasks cannot share {len(gpus)} GPUs evenly "
            f"(counts that can: {even} and multiples of {len(gpus)}{way_out})"
        )


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
    """Give the cores near a GPU: those of its L3, or those of its NUMA domain that are near no other GPU's L3."""
    if gpu.l3 is not None:
        return _Pool(f"L3 {gpu.l3}", tuple(core for core in topology.cores if core.l3 == gpu.l3))
    if gpu.numa is None:
        return _Pool("", ())
    taken = {other.l3 for other in topology.gpus if other.l3 is not None}
    cores = (core for core in topology.cores if core.numa == gpu.numa and core.l3 not in taken)
    return _Pool(f"NUMA domain {gpu.numa}", tuple(cores))


def _divide(
    pool: _Pool, weights: Mapping[int, int], usable: Mapping[Core, tuple[int, ...]], request: Request
) -> dict[int, _Pool]:
    """Cut a pool into equal runs of whole cores, by task; `weights` counts the GPUs that a task has in the pool.

    What is left over stays idle: equal tasks are worth more than one core more for the first of them.
    """
    near = _in_order(pool, usable)
    if not near:
        return dict.fromkeys(weights, _Pool(_why_none(pool, request), ()))
    if len(weights) == 1:
        return dict.fromkeys(weights, _Pool(f"{counted(len(near), 'core')} of {pool.name}", tuple(near)))
    each = len(near) // sum(weights.values())
    if not each:
        reason = f"{len(weights)} tasks share the {counted(len(near), 'core')} of {pool.name} that may be used"
        return dict.fromkeys(weights, _Pool(reason, ()))
    shares, start = {}, 0
    for task, weight in weights.items():
        cores = tuple(near[start : start + each * weight])
        shares[task] = _Pool(f"{len(cores)} of the {counted(len(near), 'core')} of {pool.name}", cores)
        start += each * weight
    return shares


def _in_order(pool: _Pool, usable: Mapping[Core, tuple[int, ...]]) -> list[Core]:
    """Give the usable cores of a pool in the order in which they are cut: no share has more L3s than it needs."""
    near = (core for core in pool.cores if core in usable)
    return sorted(near, key=lambda core: (core.l3 is not None, core.l3 or 0, core.core_logical))


def _far_cores(
    pools: Mapping[Gpu, _Pool], owned: Sequence[Sequence[Gpu]], usable: Mapping[Core, tuple[int, ...]]
) -> list[tuple[Core, ...]]:
    """Deal out the cores near no GPU of the node: to the tasks with a GPU on their L3, on their package, or to all.

    The GPUs of some nodes all hang on one NUMA domain of several; the cores of the others are granted too.
    """
    shares: list[tuple[Core, ...]] = [()] * len(owned)
    for tasks, cores in _nearest(pools, owned, usable).items():
        each = len(cores) // sum(len(owned[task]) for task in tasks)
        start = 0
        for task in tasks:
            stop = start + each * len(owned[task])
            shares[task] += tuple(cores[start:stop])
            start = stop
    return shares


def _nearest(
    pools: Mapping[Gpu, _Pool], owned: Sequence[Sequence[Gpu]], usable: Mapping[Core, tuple[int, ...]]
) -> dict[tuple[int, ...], list[Core]]:
    """Give the cores near no GPU by the tasks that they are nearest to."""
    if not all(pool.cores for pool in pools.values()):  # near what a GPU of unknown place is, nobody can tell
        return {}
    near = frozenset(chain.from_iterable(pool.cores for pool in pools.values()))
    around = [[core for gpu in own for core in pools[gpu].cores] for own in owned]
    sides = [({core.l3 for core in cores} - {None}, {core.package for core in cores}) for cores in around]
    nearest: dict[tuple[int, ...], list[Core]] = {}
    for core in sorted(usable.keys() - near, key=lambda core: (core.package or 0, core.core_logical)):
        on_l3 = tuple(task for task, (l3s, _) in enumerate(sides) if core.l3 in l3s)
        on_package = tuple(task for task, (_, packages) in enumerate(sides) if core.package in packages)
        nearest.setdefault(on_l3 or on_package or tuple(range(len(owned))), []).append(core)
    return nearest


def _why_none(pool: _Pool, request: Request) -> str:
    if not pool.name:
        return "where it is attached is not known"
    if not pool.cores:
        return f"{pool.name} has no core that is not near another GPU"
    pus = format_cpu_list(pu for core in pool.cores for pu in core.pu_os)
    with_threads = " with both threads" if request.threads == 2 else ""
    return f"{_granted(request)} hold no core of {pool.name}{with_threads} that tasks may use (its CPUs: {pus})"


def _granted(request: Request) -> str:
    return "the node's CPUs" if request.cpus is None else f"the granted CPUs {format_cpu_list(request.cpus)}"


def _task_mask(
    task: int,
    own: Sequence[Gpu],
    shares: Sequence[_Pool],
    far: tuple[Core, ...],
    usable: Mapping[Core, tuple[int, ...]],
) -> TaskMask:
    """Put a task's shares together; one GPU without a near core leaves a task that has no far ones without a mask."""
    gpus = tuple(gpu.index for gpu in own)
    named = f"GPU {gpus[0]}" if len(gpus) == 1 else f"GPUs {','.join(map(str, gpus))}"
    missing = [share.name for share in shares if not share.cores]
    if missing and not far:
        return TaskMask(task, gpus, (), f"{named}: {'; '.join(missing)}")
    cores = chain(chain.from_iterable(share.cores for share in shares), far)
    reasons = [share.name for share in shares]
    for numa in dict.fromkeys(core.numa for core in far):
        place = "" if numa is None else f"of NUMA domain {numa} "
        reasons.append(f"{counted(sum(core.numa == numa for core in far), 'core')} {place}near no GPU")
    pus = tuple(sorted(pu for core in cores for pu in usable[core]))
    return TaskMask(task, gpus, pus, f"{named}: {', '.join(reasons)}")
