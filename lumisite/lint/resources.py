"""What a job asks of Slurm that it cannot get, that others pay for, or that makes its tasks slow."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lumisite.lint.job import BadLine, Job, bad_line
from lumisite.lint.options import Option, SrunStep, usable_cores
from lumisite.site.model import Site
from lumisite.site.nodes import NodeKind

_MEMORY = ("mem", "mem-per-gpu", "mem-per-cpu")
_PER_NODE = ("nodes", "gpus-per-node", "gres", "ntasks-per-node")
#: How Slurm reads sizes: in MiB, or with a unit (sbatch(1), --mem).
_SIZE = re.compile(r"(\d{1,12})([KMGT]?)B?", re.IGNORECASE)
_UNIT_KIB = {"K": 1, "": 1 << 10, "M": 1 << 10, "G": 1 << 20, "T": 1 << 30}


def gpu_binding(job: Job) -> Iterator[BadLine]:
    """A binding of GPUs to several tasks without sharing."""
    gpu = job.gpus[0] if job.gpus else None
    library, visible = (gpu.collectives.title, gpu.visible[0]) if gpu else ("NCCL", "")
    for step in job.steps:
        flags, bind, each = (step.merged.get(name) for name in ("gres-flags", "gpu-bind", "gpus-per-task"))
        shared = flags and "allow-task-sharing" in flags.value
        if (step.tasks_per_node or 1) < 2 or shared or (bind and re.search(r"(?:^|,)none$", bind.value)):
            continue
        hiding = bind and re.search(r"(?:^|[,:])(?:closest|map|mask|single|per_task)", bind.value)
        tres = step.merged.get("tres-per-task") or step.merged.get("ntasks-per-gpu")
        if option := each or (bind if hiding else None) or (None if bind else tres):
            order = _gpu_order(job.site)
            yield bad_line(option.line, f"--{option.name}", library=library, order=order, variable=visible)


def _gpu_order(site: Site) -> str:
    """List the GPUs in the order of the cores next to them, as `--gpu-bind=map` wants them for tasks in that order."""
    gpus = next((kind.gpus for kind in site.node_kinds.values() if kind.gpus), ())
    places = [(gpu.l3 if gpu.l3 is not None else gpu.numa, index) for index, gpu in enumerate(gpus)]
    return ",".join(str(index) for _, index in sorted(places)) or "0"


def too_many_cores(job: Job) -> Iterator[BadLine]:
    """More cores than jobs get of a node with GPUs."""
    for step in job.requests:
        kinds = step.node_kinds(job.site)
        option, cores = step.cores_per_node
        threads = step.merged.get("hint") or step.merged.get("threads-per-core")
        per_core = 2 if threads and threads.value in ("multithread", "2") else 1
        usable = per_core * max((usable_cores(kind) for kind in kinds), default=0)
        if option and usable and all(kind.gpus for kind in kinds) and cores > usable:
            of_gpu_nodes = [kind for kind in job.site.node_kinds.values() if kind.gpus]
            each = min(usable_cores(kind) // len(kind.gpus) for kind in of_gpu_nodes)
            yield bad_line(option.line, f"--{option.name}", cores=cores, usable=usable, each=each)


def cpu_bind_and_count(job: Job) -> Iterator[BadLine]:
    """A list of masks or CPUs, and a number of cores, on one srun."""
    for step in job.steps:
        bind = step.options.get("cpu-bind")
        if bind and "cpus-per-task" in step.options and re.search(r"\b(?:mask|map)_cpu", bind.value):
            yield bad_line(bind.line, "--cpu-bind")


def _most(site: Site, step: SrunStep, kinds: list[NodeKind]) -> int:
    """Return the most memory of a node in MiB that a step can get, of those that it may run on."""
    partitions = [site.partitions[name] for name in step.partitions(site)]
    limits = [
        min(partition.memory_mib or site.node_kinds[name].memory_mib, site.node_kinds[name].memory_mib)
        for partition in partitions
        for name in partition.node_kind
    ]
    return max(limits or [kind.memory_mib for kind in kinds])


def _memory(job: Job) -> Iterator[tuple[SrunStep, list[NodeKind], Option, int]]:
    """Yield the allocation, and the steps that name memory themselves.

    With each: the node kinds that it may run on, the option, and the memory of a node that it asks for, in MiB.
    """
    steps = (step for step in job.steps if not step.options.keys().isdisjoint(_MEMORY))
    for step in (job.allocation, *steps):
        kinds = step.node_kinds(job.site)
        found = (options[name] for options in (step.options, step.merged) for name in _MEMORY if name in options)
        option = next(found, None)
        size = _SIZE.fullmatch(option.value) if option else None
        if kinds and option and size:
            cpus = (step.tasks_per_node or 1) * (step.number("cpus-per-task") or 1)
            times = {"mem": 1, "mem-per-gpu": _gpus(step, kinds) or 1, "mem-per-cpu": cpus}[option.name]
            yield step, kinds, option, int(size[1]) * _UNIT_KIB[size[2].upper()] * times // 1024


def _gpus(step: SrunStep, kinds: list[NodeKind]) -> int | None:
    """How many GPUs of a node a step asks for, which are no more than the node has."""
    most = min(len(kind.gpus) for kind in kinds)
    each, tasks = step.number("gpus-per-task"), step.tasks_per_node
    gpus = step.gpus_per_node or (each * tasks if each and tasks else None)
    return min(gpus, most) if gpus and most else None


def memory_of_node(job: Job) -> Iterator[BadLine]:
    """More memory than any node of the partitions has; what is asked for by GPU or CPU may spread over more nodes."""
    for step, kinds, option, memory in _memory(job):
        most = _most(job.site, step, kinds)
        on_one_node = option.name == "mem" or not step.merged.keys().isdisjoint(_PER_NODE)
        if memory > most and on_one_node:
            yield bad_line(
                option.line, f"--{option.name}", memory=_size(memory), most=_size(most), option=_option(most)
            )


def memory_of_others(job: Job) -> Iterator[BadLine]:
    """More memory than goes with the GPUs of a job, where others would have the rest of the node.

    Steps in an allocation may share it unevenly.
    """
    for step, kinds, option, memory in _memory(job):
        gpus = _gpus(step, kinds)
        names = step.partitions(job.site)
        alone = "exclusive" in step.merged or any(job.site.partitions[name].whole_nodes for name in names) or not names
        inside = step.command is not None and "partition" not in step.options
        if not gpus or alone or inside or memory > max(kind.memory_mib for kind in kinds):
            continue
        share = max(kind.memory_mib // len(kind.gpus) for kind in kinds)
        if memory > gpus * share:
            sizes = {"memory": _size(memory), "share": _size(gpus * share), "option": _option(share)}
            yield bad_line(option.line, f"--{option.name}", gpus=gpus, **sizes)


def _size(mib: int) -> str:
    return f"{mib // 1024} GiB" if mib % 1024 == 0 else f"{mib} MiB"


def _option(mib: int) -> str:
    return f"{mib // 1024}G" if mib % 1024 == 0 else f"{mib}M"
