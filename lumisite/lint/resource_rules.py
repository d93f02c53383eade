"""What the site description rules out of a job's size: nodes, time, GPUs, cores, memory, ports, and binding of CPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lumisite.lint.job import BadLine, Job
from lumisite.lint.step import SrunStep, read_count, usable_cores, usable_cpus
from lumisite.site.cpu_list import format_cpu_list
from lumisite.site.nodes import NodeKind
from lumisite.site.versions import parse_version_range
from lumisite.text import counted, minutes_of, nearest_name

# ---------------------------------------------------------------- what a partition has


def unknown_partition(job: Job) -> Iterator[BadLine]:
    """A partition whose name is almost one of this site."""
    known = (*job.site.partitions, *job.site.other_partitions)
    first = {name: step for step in reversed(job.allocation_and_sruns) for name in step.partition_names}
    for name, step in first.items():
        near = nearest_name(name.lower().replace("_", "-"), known, 0.89)
        if "partition" in step.options and name[0].isalpha() and name not in known and near:
            line = step.options["partition"].line
            yield BadLine(line, name, "no partition of this site", f"#SBATCH --partition={near}")


def too_many_nodes(job: Job) -> Iterator[BadLine]:
    """More nodes than a job can have in any of its partitions."""
    for step in job.allocation_and_sruns:
        limits = [partition.max_nodes for partition in step.partitions if partition.max_nodes is not None]
        option = step.first("nodes", "ntasks")
        if option and step.nodes and limits and len(limits) == len(step.partitions) and step.nodes > max(limits):
            reason = f"{step.nodes} nodes in a partition where jobs have at most {max(limits)}: the job never starts"
            right = f"#SBATCH --nodes={max(limits)}, or another partition"
            yield BadLine(option.line, f"--{option.name}", reason, right)


def too_long(job: Job) -> Iterator[BadLine]:
    """More time than a job can have in any of its partitions."""
    for step in job.allocation_and_sruns:
        limits = [partition.max_time for partition in step.partitions if partition.max_time is not None]
        most = max(limits, key=minutes_of, default="")
        option = step.options.get("time")
        if option and limits and len(limits) == len(step.partitions) and minutes_of(option.value) > minutes_of(most):
            reason = f"{option.value} in a partition where jobs have at most {most}"
            yield BadLine(option.line, "--time", reason, f"#SBATCH --time={most}, or another partition")


def too_many_gpus(job: Job) -> Iterator[BadLine]:
    """More GPUs than a node has."""
    described = any(kind.gpus for kind in job.site.node_kinds.values())
    for step in job.allocation_and_sruns if described else ():
        if not step.kinds or step.gpus is None or (step.gpus[0].name == "gpus" and not step.number("nodes")):
            continue
        option, count = step.gpus
        most = max(len(kind.gpus) for kind in step.kinds)
        if count > most:
            reason = f"{count} of each node, which has {most} GPUs: the job never starts"
            right = f"at most {most} of each node" if most else "a partition whose nodes have GPUs"
            yield BadLine(option.line, f"--{option.name}", reason, right)


def too_many_cores(job: Job) -> Iterator[BadLine]:
    """More CPUs, in Slurm's unit, than jobs get of a node."""
    for step in job.allocation_and_sruns:
        option, cpus = step.cpus_per_node
        counts = [usable_cpus(kind, step) for kind in step.kinds]
        if not option or not counts or 0 in counts or cpus <= max(counts):
            continue
        unit = "hardware threads" if any(kind.cpu == "thread" for kind in step.kinds) else "cores"
        reason = f"{cpus} {unit} of a node of which jobs get {max(counts)}: the job never starts"
        each = min(usable_cpus(kind, step) // max(len(kind.gpus), 1) for kind in step.kinds)
        right = f"#SBATCH --cpus-per-task={each}" + (" with one task for each GPU" if step.kinds[0].gpus else "")
        yield BadLine(option.line, f"--{option.name}", reason, right)


def visible_gpus(job: Job) -> Iterator[BadLine]:
    """Some of a job's GPUs by number, exported for all that the script starts."""
    gpus = job.allocation.gpus_per_node or 0
    names = {name for gpu in job.gpus for name in (*gpu.visible, f"{gpu.torch}_VISIBLE_DEVICES".upper())}
    for setting, value in job.in_force(names) if gpus and job.allocation.kinds else ():
        numbers = set(value.split(",")) if re.fullmatch(r"\d{1,3}(?:,\d{1,3})*", value) else set()
        exported = setting.command.spot == "batch" and setting.command.values[:1] == ("export",)
        if numbers and exported and numbers != set(map(str, range(gpus))):
            right = "without this line; each task picks its GPU by its local rank"
            yield BadLine(setting.line, f"{setting.name}={value}", f"not the {gpus} GPUs that the job has", right)


def tensor_parallel(job: Job) -> Iterator[BadLine]:
    """A model split in more parts than a node of the job has GPUs, so that each layer waits for the network."""
    most = job.allocation.gpus_per_node or max((len(kind.gpus) for kind in job.allocation.kinds), default=0)
    right = f"tensor parallelism of {most}, and pipeline parallelism over the nodes"
    for value, line in job.option_values(r"--tensor[-_](?:model[-_])?parallel(?:[-_]size)?|-tp"):
        parts = read_count(job.resolved(value))
        if most and parts and parts > most:
            reason = f"{parts} parts of each layer, but a node of the job has {most} GPUs"
            yield BadLine(line, "tensor-parallel-size", reason, right)


#: How Slurm reads sizes: in MiB, or with a unit (sbatch(1), --mem).
_SIZE = re.compile(r"(\d{1,12})([KMGT]?)B?", re.IGNORECASE)
_UNIT_KIB = {"K": 1, "": 1 << 10, "M": 1 << 10, "G": 1 << 20, "T": 1 << 30}
_MEMORY = ("mem", "mem-per-gpu", "mem-per-cpu")


def _memory(step: SrunStep) -> tuple[str, int, int] | None:
    """Return the option that says how much memory of a node a step asks for, its line, and how much that is in MiB."""
    own = [option for option in step.own if option.name in _MEMORY]
    option = own[-1] if own else step.first(*_MEMORY)
    size = _SIZE.fullmatch(option.value) if option else None
    if not option or not size or not step.kinds:
        return None
    cpus = (step.tasks_per_node or 1) * (step.number("cpus-per-task") or 1)
    times = {"mem": 1, "mem-per-gpu": _gpus(step), "mem-per-cpu": cpus}[option.name]
    return f"--{option.name}", option.line, int(size[1]) * _UNIT_KIB[size[2].upper()] * times // 1024


def _gpus(step: SrunStep) -> int:
    """Return how many GPUs of a node a step gets, at least one."""
    return min(step.gpus_per_node or 1, *(len(kind.gpus) for kind in step.kinds)) or 1


def memory_of_node(job: Job) -> Iterator[BadLine]:
    """More memory than jobs can have of any node; what is asked for by GPU or CPU may spread over more nodes."""
    for step in job.allocation_and_sruns:
        found = _memory(step) if step.command is None or any(map(step.has_own, _MEMORY)) else None
        if found is None:
            continue
        name, line, memory = found
        most = max(
            min(partition.memory_mib or kind.memory_mib, kind.memory_mib)
            for partition in step.partitions
            for kind in job.site.kinds_of(*step.partition_names).values()
        )
        on_one_node = name == "--mem" or step.first("nodes", "gpus-per-node", "gres", "ntasks-per-node")
        if memory > most and on_one_node:
            reason = f"{_size(memory)} of memory on a node of which jobs get {_size(most)}: the job never starts"
            yield BadLine(line, name, reason, f"#SBATCH --mem={_option(most)}, or --mem=0 for all of a whole node")


def memory_of_others(job: Job) -> Iterator[BadLine]:
    """More memory than goes with the GPUs of a job, where others would have the rest of the node."""
    step = job.allocation if job.directives or len(job.steps) != 1 else job.steps[0]
    found = _memory(step) if step.shares_nodes and step.gpus_per_node else None
    if found is None or not all(kind.gpus for kind in step.kinds):
        return
    name, line, memory = found
    gpus = _gpus(step)
    share = max(kind.memory_mib // len(kind.gpus) for kind in step.kinds)
    if gpus * share < memory <= max(kind.memory_mib for kind in step.kinds):
        reason = f"{_size(memory)} of memory for {counted(gpus, 'GPU')}, whose share is {_size(gpus * share)}"
        right = f"#SBATCH --mem-per-gpu={_option(share)}, so that others can have the other GPUs of the node"
        yield BadLine(line, name, reason, right)


def _size(mib: int) -> str:
    return f"{mib // 1024} GiB" if mib % 1024 == 0 else f"{mib} MiB"


def _option(mib: int) -> str:
    return f"{mib // 1024}G" if mib % 1024 == 0 else f"{mib}M"


#: Releases of Slurm whose srun reads SRUN_CPUS_PER_TASK alone (CHANGELOG/slurm-22.05.md, slurm-23.11.md).
_NOT_PASSED_ON = parse_version_range(">=22.05,<23.11")


def srun_without_cpus(job: Job) -> Iterator[BadLine]:
    """`--cpus-per-task` on `#SBATCH` alone, where the site's Slurm does not pass it on to srun (22.05 to 23.02)."""
    slurm = job.site.platforms[job.site.platform].slurm
    passed_on = any(setting.name == "SRUN_CPUS_PER_TASK" for setting in job.settings)
    if slurm is None or slurm not in _NOT_PASSED_ON or job.allocation.value("cpus-per-task") in ("", "1") or passed_on:
        return
    for step in job.sruns:
        if step.command and not step.has_own("cpus-per-task") and not step.has_own("cpu-bind"):
            reason = f"this Slurm ({slurm}) does not pass --cpus-per-task on to srun: each task gets one core"
            yield BadLine(step.command.line, "srun", reason, "srun --cpus-per-task=$SLURM_CPUS_PER_TASK …")


# ---------------------------------------------------------------- ports


def fixed_port(job: Job) -> Iterator[BadLine]:
    """A fixed port, which another job may have where nodes are shared."""
    right = 'export MASTER_PORT="1${SLURM_JOB_ID:0-4}"'
    for line, port in _ports(job) if job.allocation.shares_nodes else ():
        yield BadLine(line, port, "another job on the node may use this port", right)


def _ports(job: Job) -> Iterator[tuple[int, str]]:
    """Yield the numbers that MASTER_PORT and options of launchers have; of `--master_port $MASTER_PORT` the former."""
    for setting, value in job.in_force(("MASTER_PORT",)):
        if re.fullmatch(r"[1-9]\d*", value):
            yield setting.line, value
    for word in job.words:
        if found := re.fullmatch(r"\$\{MASTER_PORT:?=(\d+)\}", word.value):
            yield word.line, found[1]
    for value, line in job.option_values(r"--(?:master[-_]port|main[-_]process[-_]port|rdzv[-_]endpoint)"):
        found = re.fullmatch(r"(?:.*[^:]:)?([1-9]\d*)", job.resolved(value))
        if found and "MASTER_PORT" not in value:
            yield line, found[1]


# ---------------------------------------------------------------- binding of CPUs

_NUMBER, _MASK = r"(?:0[xX][0-9a-fA-F]{1,4}|\d{1,5})", r"(?:0[xX])?[0-9a-fA-F]{1,128}"
_BIND = re.compile(rf"(?:.*,)?(?:(map)_cpu[:=]({_NUMBER}(?:,{_NUMBER})*)|(mask)_cpu[:=]({_MASK}(?:,{_MASK})*))")


def cpu_bind_and_count(job: Job) -> Iterator[BadLine]:
    """A list of masks or CPUs, and a number of cores, on one srun."""
    reason = "a list of masks or CPUs does not go together with --cpus-per-task on one srun"
    right = "srun --cpu-bind=mask_cpu:… without -c; the number of cores belongs into #SBATCH"
    for step in job.sruns:
        bind = step.first("cpu-bind")
        if bind and step.has_own("cpus-per-task") and re.search(r"\b(?:mask|map)_cpu", bind.value):
            yield BadLine(bind.line, "--cpu-bind", reason, right)


def mask_outside(job: Job) -> Iterator[BadLine]:
    """CPU numbers in a job that shares its node, which gets other cores each time."""
    for step, line, kind, _ in _bindings(job):
        cores, whole = (job.allocation if job.directives else step).cpus_per_node[1], usable_cores(kind)
        if step.shares_nodes and 0 < cores < whole:
            reason = f"{cores} of {whole} cores: which ones the job gets is not known before"
            right = "no --cpu-bind, or --cpu-bind=cores; or a whole node by --exclusive"
            yield BadLine(line, "--cpu-bind", reason, right)


def _bindings(job: Job) -> Iterator[tuple[SrunStep, int, NodeKind, list[set[int]]]]:
    """Yield steps on nodes of one kind with a list of CPUs: the line of it, and the CPUs of each task of a node."""
    for step in job.sruns:
        found = _BIND.fullmatch(step.value("cpu-bind"))
        kinds = [kind for kind in step.kinds if kind.l3]
        # Together with a number of cores it is wrong in any case.
        if found and len(kinds) == 1 and not step.has_own("cpus-per-task"):
            form, words = (text for text in found.groups() if text)
            yield step, step.options["cpu-bind"].line, kinds[0], [_cpus(form, word) for word in words.split(",")]


def _cpus(form: str, word: str) -> set[int]:
    """Return the CPUs of a word of the list: a number, which is decimal without `0x`, or a mask."""
    if form == "map":
        return {int(word, 16 if word[:2].lower() == "0x" else 10)}
    mask = int(word, 16)
    return {cpu for cpu in range(mask.bit_length()) if mask >> cpu & 1}


def _groups(kind: NodeKind) -> dict[int, int]:
    """Return the L3 group that each CPU of a node is in."""
    return {cpu: at for at, group in enumerate(kind.l3) for cpu in (*group.cores, *(group.siblings or ()))}


def reserved_cores(job: Job) -> Iterator[BadLine]:
    """CPUs that jobs never get, or that the node does not have."""
    for _, line, kind, cpus in _bindings(job):
        reserved = set(kind.reserved or ())
        if wrong := set().union(*cpus) - (_groups(kind).keys() - reserved):
            names = format_cpu_list(wrong)
            reason = f"CPUs {names} are not for jobs: srun refuses the step, or leaves its tasks unbound"
            right = f"a list without {format_cpu_list(reserved)}, or no --cpu-bind with the module, which sets it"
            yield BadLine(line, "--cpu-bind", reason, right)


#: A program that may choose the GPU of a task, and a variable by which a step itself does.
_CHOOSER = re.compile(r"gpu[\w.-]*$|\.sh$|select|VISIBLE_DEVICES=(?![\"'\\]*\$\{?SLURM_LOCALID\b)")


def mask_order(job: Job) -> Iterator[BadLine]:
    """CPUs of each task near another GPU than that of its number, where no option or program chooses another."""
    reason = "the order of the cores is not that of the GPUs next to them"
    for step, line, kind, cpus in _bindings(job):
        near = [gpu.l3 for gpu in kind.gpus]
        of_tasks = [{_groups(kind).get(cpu) for cpu in task} for task in cpus]
        chosen = "gpu-bind" in step.options or any(map(_CHOOSER.search, step.command.values if step.command else ()))
        if chosen or None in near or not step.tasks_per_node == len(of_tasks) == len(near):
            continue
        if any(len(groups) != 1 for groups in of_tasks):
            continue
        free = [set(kind.l3[at or 0].cores).difference(kind.reserved or ()) for at in near]
        if all(free) and len(set(near)) == len(near) and [{at} for at in near] != of_tasks:
            numbers = ",".join(map(str, map(min, free)))
            right = f"srun --cpu-bind=map_cpu:{numbers}, or no --cpu-bind with the module, which sets it"
            yield BadLine(line, "--cpu-bind", reason, right)
