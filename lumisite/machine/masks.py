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
from lumisite.findings.catalogue import make_finding
from lumisite.findings.finding import Finding, Value, with_values
from lumisite.machine.topology import Core, Gpu, Topology
from lumisite.site.cpus import format_cpu_list

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

    Without PUs the task must not be bound. `findings` are where the PUs come from, or why there are none.
    """

    task: int
    gpus: tuple[int, ...]
    pu_os: tuple[int, ...]
    findings: tuple[Finding, ...]

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

    finding: Finding
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
        finding = make_finding("cores-of-only-task", cores=len(usable))
        if not pus:
            finding = make_finding("cores-not-granted", where=topology.name, granted=_granted(request))
        return (TaskMask(0, tuple(gpu.index for gpu in gpus), pus, (finding,)),)
    owned = _gpus_of_tasks(request.tasks, gpus)
    pools = {gpu: _pool(topology, gpu) for gpu in topology.gpus}
    claims: dict[_Pool, Counter[int]] = {}
    for task, gpus_of_task in enumerate(owned):
        for gpu in gpus_of_task:
            claims.setdefault(pools[gpu], Counter())[task] += 1
    shares = {pool: _divide(pool, weights, usable, request) for pool, weights in claims.items()}
    far = _far_cores(pools, owned, usable)
    return tuple(
        _task_mask(
            task,
            gpus_of_task,
            [shares[pool][task] for pool in dict.fromkeys(pools[gpu] for gpu in gpus_of_task)],
            far[task],
            usable,
        )
        for task, gpus_of_task in enumerate(owned)
    )


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


def shared_cores(topology: Topology, threads: int) -> Mapping[int, tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]]:
    """Give, by GPU, the PUs near it in the order of their cores, with the GPUs that share them; then those near none.

    For whatever binds tasks at run time on part of a node; nothing where each GPU has cores of its own.
    """
    usable = _usable(topology, MaskRequest(1, threads))
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


def _granted_gpus(topology: Topology, request: MaskRequest) -> tuple[Gpu, ...]:
    if request.gpus is None:
        return topology.gpus
    by_index = {gpu.index: gpu for gpu in topology.gpus}
    unknown = [index for index in request.gpus if index not in by_index]
    if unknown:
        have, subject = format_cpu_list(by_index), f"GPU {format_cpu_list(unknown)}"
        raise MaskError(make_finding("gpu-not-on-node", subject, node=topology.name, known=have))
    if not request.gpus or len(set(request.gpus)) != len(request.gpus):
        raise MaskError(make_finding("gpus-not-once", format_cpu_list(set(request.gpus)), node=topology.name))
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
        raise MaskError(make_finding("no-tasks", node, tasks=tasks))
    foreign = (request.cpus or frozenset()) - topology.pu_os
    if foreign:
        have, subject = format_cpu_list(topology.pu_os), f"CPU {format_cpu_list(foreign)}"
        raise MaskError(make_finding("cpu-not-on-node", subject, node=node, known=have))
    if request.cpus is not None and not request.cpus:
        raise MaskError(make_finding("no-cpu-granted", node))
    cores = len(_usable(topology, MaskRequest(tasks, request.threads)))
    if not cores:
        raise MaskError(make_finding("no-usable-core", node, threads=request.threads))
    if tasks > cores:
        raise MaskError(make_finding("more-tasks-than-cores", node, tasks=tasks, cores=cores))
    if tasks > 1 and not gpus:
        raise MaskError(make_finding("node-without-gpus", node, tasks=tasks))
    if tasks > 1 and tasks % len(gpus) and len(gpus) % tasks:
        even = tuple(count for count in range(1, len(gpus) + 1) if len(gpus) % count == 0)
        named = ",".join(str(gpu.index) for gpu in gpus[:tasks]) if tasks < len(gpus) else None
        values: dict[str, Value] = {"tasks": tasks, "gpus": len(gpus), "even": even, "named": named}
        raise MaskError(with_values(make_finding("tasks-share-unevenly", node), values))


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
        finding = make_finding("cores-near", cores=len(near), where=pool.name)
        return dict.fromkeys(weights, _Share(finding, tuple(near)))
    each = len(near) // sum(weights.values())
    if not each:
        finding = make_finding("cores-too-few", tasks=len(weights), cores=len(near), where=pool.name)
        return dict.fromkeys(weights, _Share(finding))
    shares, start = {}, 0
    for task, weight in weights.items():
        cores = tuple(near[start : start + each * weight])
        finding = make_finding("cores-near", cores=len(cores), of=len(near), where=pool.name)
        shares[task] = _Share(finding, cores)
        start += each * weight
    return shares


def _in_order(pool: _Pool, usable: Mapping[Core, tuple[int, ...]]) -> list[Core]:
    """Return the usable cores of a pool in the order in which they are cut: no share has more L3s than it needs."""
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
    """Return the cores near no GPU by the tasks that they are nearest to."""
    if not all(pool.cores for pool in pools.values()):  # near what a GPU of unknown place is, nobody can tell
        return {}
    near = frozenset(chain.from_iterable(pool.cores for pool in pools.values()))
    around = [[core for gpu in gpus for core in pools[gpu].cores] for gpus in owned]
    sides = [({core.l3 for core in cores} - {None}, {core.package for core in cores}) for cores in around]
    nearest: dict[tuple[int, ...], list[Core]] = {}
    for core in sorted(usable.keys() - near, key=lambda core: (core.package or 0, core.core_logical)):
        on_l3 = tuple(task for task, (l3s, _) in enumerate(sides) if core.l3 in l3s)
        on_package = tuple(task for task, (_, packages) in enumerate(sides) if core.package in packages)
        nearest.setdefault(on_l3 or on_package or tuple(range(len(owned))), []).append(core)
    return nearest


def _why_none(pool: _Pool, request: MaskRequest) -> Finding:
    if not pool.name:
        return make_finding("gpu-place-unknown")
    if not pool.cores:
        return make_finding("no-core-near-gpu", where=pool.name)
    pus = format_cpu_list(pu for core in pool.cores for pu in core.pu_os)
    threads = request.threads if request.threads == 2 else None
    return make_finding("cores-not-granted", where=pool.name, granted=_granted(request), threads=threads, cpus=pus)


def _granted(request: MaskRequest) -> str | None:
    return None if request.cpus is None else format_cpu_list(request.cpus)


def _task_mask(
    task: int,
    owned: Sequence[Gpu],
    shares: Sequence[_Share],
    far: tuple[Core, ...],
    usable: Mapping[Core, tuple[int, ...]],
) -> TaskMask:
    """Return the mask of a task from its shares; a GPU without a near core leaves it none, if it has no far ones."""
    gpus = tuple(gpu.index for gpu in owned)
    missing = tuple(share.finding for share in shares if not share.cores)
    if missing and not far:
        return TaskMask(task, gpus, (), missing)
    cores = chain(chain.from_iterable(share.cores for share in shares), far)
    findings = [share.finding for share in shares]
    for numa in dict.fromkeys(core.numa for core in far):
        count = sum(core.numa == numa for core in far)
        findings.append(make_finding("cores-far", cores=count, numa=numa))
    pus = tuple(sorted(pu for core in cores for pu in usable[core]))
    return TaskMask(task, gpus, pus, tuple(findings))
