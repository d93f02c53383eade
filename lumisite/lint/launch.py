"""How a script starts programs: ports, hosts and the size of the world, what a container gets, libraries by hand."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lumisite.lint.job import Job, Told, variables_in
from lumisite.lint.shell import Command
from lumisite.lint.slurm import usable_cores
from lumisite.render.runtimes import RUNTIMES

_STARTERS_OF_TASKS = re.compile(r"(?:^|/)(?:torchrun|accelerate|deepspeed)$|torch\.distributed\.(?:run|launch)")
_CUTTING = re.compile(
    r"\$\{SLURM_(?:JOB_|STEP_)?NODELIST[^}\w]|NODELIST.*\|\s*(?:cut|sed|awk|tr|grep|perl|python\w*)\b|"
    r"^\$\{?SLURM_(?:JOB_|STEP_)?NODELIST\}?$",
    re.DOTALL,
)
_WORLD = re.compile(r"\$\{?SLURM_(?:NTASKS|NPROCS|NNODES|JOB_NUM_NODES)\}?")
_PORT_OPTION = r"--(?:master[-_]port|main[-_]process[-_]port|rdzv[-_]endpoint)"
_MKTEMP = r"(?<!\\)(?:\$\(|`)[^)`$]{0,200}\bmktemp\b"
_CONDA = re.compile(r"(?<!\\)\$\{?WITH_CONDA\b")


def misnamed_variable(job: Job) -> Iterator[Told]:
    """A variable that nothing reads, in place of one that has another name."""
    for setting in job.named(*job.misspelt):
        name = job.misspelt[setting.name]
        right = job.own_directory(name) if name in job.caches else f"export {name}=…"
        yield Told(setting.line, f"nothing reads {setting.name}, so that {name} keeps its default", right)


def cache_by_mktemp(job: Job) -> Iterator[Told]:
    """`mktemp` in the batch script, for the directory of a cache or for a variable that such a one is made of."""
    caches = job.caches | {name for name, right in job.misspelt.items() if right in job.caches}
    made: dict[str, set[int]] = {}
    for setting in job.settings:
        if setting.command.spot == "batch" and re.search(_MKTEMP, setting.value):
            made[setting.name] = {setting.line}
        else:
            lines = set().union(*(made.get(name, ()) for name in variables_in(setting.value)))
            made[setting.name] = made.get(setting.name, set()) | lines
    found = {line: name for name, lines in made.items() if name in caches for line in lines}
    inside = re.compile(rf"\b(?:{'|'.join(sorted(caches))})=[\"'\\]*{_MKTEMP}") if caches else re.compile(r"(?!)")
    batch = [word for command in job.commands if command.spot == "batch" for word in command.words]
    parts = [part for word in batch for part in word.parts if part.quote != "'"]
    found |= {line: text.partition("=")[0] for part in parts for text, line in part.matches(inside)}
    for line, name in found.items():
        right = job.made_in_task(job.misspelt.get(name, name))
        yield Told(line, "mktemp in the batch script makes a folder on the first node only", right)


def gpu_flag(job: Job) -> Iterator[Told]:
    """The flag for GPUs of another vendor than the nodes have."""
    site = job.site
    kinds = site.kinds_of(*job.partitions)
    right = {flag for kind in kinds for flag in site.gpu_flags(kind)}
    others = {flag for kind in site.node_kinds for flag in site.gpu_flags(kind)} - right
    for word in (word for command in job.commands for word in command.behind(*RUNTIMES) or () if right):
        if word.value.removeprefix("--") in others and word.value.startswith("--"):
            yield Told(
                word.line,
                f"{word.value} is for other GPUs than those of {', '.join(sorted(kinds))} nodes",
                f"--{' or --'.join(sorted(right))}, or no flag at all: tasks have it by the module",
            )


def fixed_port(job: Job) -> Iterator[Told]:
    """A fixed port meets that of another job where nodes are shared."""
    partitions = (job.site.partitions[name] for name in job.partitions if name in job.site.partitions)
    # Nothing of a node is left to others where all its cores are asked for, or all of it.
    cores = max((usable_cores(kind) for kind in job.allocation.node_kinds(job.site) if kind.gpus), default=None)
    alone = all(one.whole_nodes for one in partitions) or "exclusive" in job.allocation.merged
    alone |= cores is not None and job.allocation.cores_per_node[1] >= cores
    for line, port in () if alone else (*_set_ports(job), *_given_ports(job)):
        if port != "0":
            right = 'export MASTER_PORT="1${SLURM_JOB_ID:0-4}"'
            yield Told(line, f"port {port} may be taken by another job on the node", right)


def _set_ports(job: Job) -> Iterator[tuple[int, str]]:
    """MASTER_PORT as a number, or with one for where it is not set before; a number to count from is not the port."""
    counted = any("$(" in setting.value for setting in job.named("MASTER_PORT"))
    for setting in () if counted else job.named("MASTER_PORT"):
        if found := re.fullmatch(r"(\d+)|\$\{\w+:?[-=](\d+)\}", job.resolved(setting.value)):
            yield setting.line, found[1] or found[2]
    for word in job.words:
        if found := re.fullmatch(r"\$\{MASTER_PORT:?=(\d+)\}", word.value):
            yield word.line, found[1]


def _given_ports(job: Job) -> Iterator[tuple[int, str]]:
    """The port in options of a launcher; where it is that of MASTER_PORT, the line that sets this says it."""
    for value, line in job.option_values(_PORT_OPTION):
        found = re.fullmatch(r"(?:.*[^:]:)?([1-9]\d*)", job.resolved(value))
        if found and "MASTER_PORT" not in value:
            yield line, found[1]


def with_conda(job: Job) -> Iterator[Told]:
    """`$WITH_CONDA` in what a container gets, or in the batch script itself, expanded by a shell outside."""
    given = [value for command in job.commands if _takes_script(command) for value in command.values]
    kept = {name for value in given for name in re.findall(r"(?<!\\)\$\{?(\w+)", value)}
    for command in job.commands:
        batch = command.spot == "batch"
        alone = batch and job.script.directives and command.values[:1] and _CONDA.match(command.values[0])
        words = list(command.words) if _takes_script(command) or alone else []
        words += [word for name, word in command.assignments if name in kept]
        parts = [part for word in words for part in word.parts]
        parts += command.documents if batch else []
        outside = batch or (command.spot == "task" and command.names_any(*RUNTIMES))
        for part in (part for part in parts if outside and part.quote != "'"):
            for _, line in part.matches(_CONDA):
                yield Told(
                    line,
                    "$WITH_CONDA is expanded outside of the container, where it is empty",
                    "bash -c '$WITH_CONDA; python …' in single quotes, or \\$WITH_CONDA in double ones",
                )


def _takes_script(command: Command) -> bool:
    return command.names_any("srun", "bash", "sh", *RUNTIMES)


def world_size(job: Job) -> Iterator[Told]:
    """The number of nodes as WORLD_SIZE, where nothing starts one process for each GPU."""
    gpus = max(step.gpus_per_node or 1 for step in job.steps)
    one_each = gpus > 1 and all(step.tasks_per_node == 1 for step in job.steps)
    values = (value for command in job.commands for value in command.values)
    for setting in job.named("WORLD_SIZE") if one_each and not any(map(_STARTERS_OF_TASKS.search, values)) else ():
        if _WORLD.fullmatch(setting.value):
            yield Told(
                setting.line,
                f"one task on each node makes WORLD_SIZE the number of nodes, and {gpus} GPUs of a node train as one",
                f"#SBATCH --ntasks-per-node={gpus}, or torchrun --nproc-per-node={gpus}, which sets WORLD_SIZE itself",
            )


def rdzv_literal(job: Job) -> Iterator[Told]:
    """A variable that reaches the launcher as it stands there."""
    for value, line in job.option_values(r"--rdzv[-_](?:id|endpoint)", job.script.commands):
        if escaped := re.search(r"\\(\$\{?\w+\}?)", value):
            yield Told(
                line,
                f"{escaped[1]} after a backslash stays as it is, so that every job has the same rendezvous",
                f"--rdzv_id={escaped[1]} without the backslash, as nothing else in the single quotes has one",
            )


def nodelist(job: Job) -> Iterator[Told]:
    """The first node by cutting the list, which holds for one node only."""
    if (nodes := job.allocation.merged.get("nodes")) and nodes.value == "1":
        return
    kept = {setting.name: setting for setting in job.settings}
    hosts = [value for value, _ in job.option_values(r"--(?:rdzv[-_]endpoint|master[-_]addr)")]
    named = [kept[name] for value in hosts for name in variables_in(value) if name in kept]
    for setting in (*job.named("MASTER_ADDR"), *named):
        via = re.fullmatch(r"\$\{?(\w+)\}?", setting.value)
        made = kept.get(via[1], setting) if via else setting
        if "scontrol" not in made.value and _CUTTING.search(made.value):
            yield Told(
                made.line,
                "the list of nodes may read nid[005001-005004,005010], which no cutting takes apart",
                'export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
            )


def old_library(job: Job) -> Iterator[Told]:
    """The directory of a library in another version than the host has."""
    parts, module = [part for word in job.words for part in word.parts], job.site.helper_module
    for library in job.site.platforms[job.site.platform].libraries.values():
        folder, _, version = library.rpartition("/")
        pinned = re.compile(rf"{re.escape(folder)}/\d[\w.]*")
        for found, line in (hit for part in parts for hit in part.matches(pinned)):
            if found.rpartition("/")[2].rstrip(".") != version:
                yield Told(
                    line,
                    f"{found} is not what this system has ({library}), so that the network plugin falls back to TCP",
                    f"module load {module}, which binds what fits" if module else library,
                )
