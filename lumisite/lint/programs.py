"""How a script starts programs: ports, hosts and the size of the world, what a container gets, libraries by hand."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lumisite.lint.images import contents_of, starts_of
from lumisite.lint.job import BadLine, Job, bad_line, variables_in
from lumisite.lint.options import read_count, usable_cores
from lumisite.lint.script import with_lines
from lumisite.render.runtimes import RUNTIMES
from lumisite.vendors import all_gpus

_STARTERS_OF_TASKS = re.compile(r"(?:^|/)(?:torchrun|accelerate|deepspeed)$|torch\.distributed\.(?:run|launch)")
_CUTTING = re.compile(
    r"\$\{SLURM_(?:JOB_|STEP_)?NODELIST[^}\w]|NODELIST.*\|\s*(?:cut|sed|awk|tr|grep|perl|python\w*)\b|"
    r"^\$\{?SLURM_(?:JOB_|STEP_)?NODELIST\}?$",
    re.DOTALL,
)
_WORLD = re.compile(r"\$\{?SLURM_(?:NTASKS|NPROCS|NNODES|JOB_NUM_NODES)\}?")
_PORT_OPTION = r"--(?:master[-_]port|main[-_]process[-_]port|rdzv[-_]endpoint)"
#: What makes an environment of Python that takes what pip installs.
_ENVIRONMENT = re.compile(r"(?:^|/)(?:venv|virtualenv)$|^(?!.*(?:conda|mamba|forge)).*/bin/activate\b")
#: What has pip install elsewhere: options of its own or of a container that can be written, or another pip.
_ELSEWHERE = re.compile(
    r"^--(?:target|prefix|root|dry-run|python|overlay|writable|fakeroot|home|no-home)\b|^-[tH]$|/pip3?$"
)
_CONDA_ACTIVE = re.compile(
    r"(?:\S*(?:conda|mamba) activate|(?:source|\.) (?:\S*(?:conda|mamba|forge)\S*/bin/)?activate)(?!\S) ?(?P<name>\S*)"
    r"|\S*(?:conda|mamba) deactivate"
)
_CONDA = re.compile(r"(?<!\\)\$\{?WITH_CONDA\b")


def gpu_flag(job: Job) -> Iterator[BadLine]:
    """The flag for GPUs of another vendor than the nodes have, or one that does harm on this site."""
    site = job.site
    named = site.kinds_of(*job.partitions)
    kinds = tuple(sorted(name for name, kind in (named or site.node_kinds).items() if kind.gpus))
    expected = {f"--{flag}" for kind in kinds for flag in site.gpu_flags(kind)}
    others = {f"--{gpu.flag}" for gpu in all_gpus() if gpu.flag and gpu not in job.gpus} - expected
    avoided = {f"--{flag}" for runtime in site.runtimes.values() for flag in runtime.avoid}
    for word, line in (option for start in starts_of(job) for option in start.options) if kinds else ():
        if word in others:
            advised = {"expected": tuple(sorted(expected))} if expected else {}
            yield bad_line(line, word, kinds=kinds, **advised)
        elif word in avoided:
            yield bad_line(line, word, runtime=site.command)


def fixed_port(job: Job) -> Iterator[BadLine]:
    """A fixed port, which another job may have where nodes are shared."""
    partitions = (job.site.partitions[name] for name in job.partitions if name in job.site.partitions)
    # Nothing of a node is left to others where all its cores are asked for, or all of it.
    cores = max((usable_cores(kind) for kind in job.allocation.node_kinds(job.site) if kind.gpus), default=0)
    alone = all(partition.whole_nodes for partition in partitions) or "exclusive" in job.allocation.merged
    alone |= 0 < cores <= job.allocation.cores_per_node[1]
    for line, port in () if alone else (*_set_ports(job), *_ports_of_options(job)):
        if port != "0":
            yield bad_line(line, port)


def _set_ports(job: Job) -> Iterator[tuple[int, str]]:
    """MASTER_PORT as a number, or with one for where it is not set before; a number to count from is not the port."""
    settings = tuple(job.settings_of("MASTER_PORT"))
    counted = any("$(" in setting.value for setting in settings)
    for setting in () if counted else settings:
        if found := re.fullmatch(r"(\d+)|\$\{\w+:?[-=](\d+)\}", job.resolved(setting.value)):
            yield setting.line, found[1] or found[2]
    for word in job.words:
        if found := re.fullmatch(r"\$\{MASTER_PORT:?=(\d+)\}", word.value):
            yield word.line, found[1]


def _ports_of_options(job: Job) -> Iterator[tuple[int, str]]:
    """The port in options of a launcher; where it is that of MASTER_PORT, the line that sets this is found."""
    for value, line in job.option_values(_PORT_OPTION):
        found = re.fullmatch(r"(?:.*[^:]:)?([1-9]\d*)", job.resolved(value))
        if found and "MASTER_PORT" not in value:
            yield line, found[1]


def with_conda(job: Job) -> Iterator[BadLine]:
    """`$WITH_CONDA` in what a container gets, or in the batch script itself, expanded by the shell outside."""
    scripted = [command for command in job.commands if command.names_any("srun", "bash", "sh", *RUNTIMES)]
    known = set(map(id, scripted))
    values = " ".join(value for command in scripted for value in command.values)
    expanded = set(re.findall(r"(?<!\\)\$\{?(\w+)", values))
    for command in (command for command in job.commands if command.spot == "batch"):
        starts_job = job.directives and command.values[:1] and _CONDA.match(command.values[0])
        words = [*command.documents, *(word for name, word in command.assignments if name in expanded)]
        words += command.words if id(command) in known or starts_job else ()
        for word in words:
            for _, line in word.matches(_CONDA):
                yield bad_line(line, "$WITH_CONDA")


def world_size(job: Job) -> Iterator[BadLine]:
    """The number of nodes as WORLD_SIZE, where nothing starts one process for each GPU, or a number by hand."""
    gpus = max(step.gpus_per_node or 1 for step in job.steps)
    one_each = gpus > 1 and all(step.tasks_per_node == 1 for step in job.steps)
    started = any(_STARTERS_OF_TASKS.search(value) for command in job.commands for value in command.values)
    totals = {(step.nodes or 0) * (step.tasks_per_node or 0) for step in job.steps if step.command}
    for setting in job.settings_of("WORLD_SIZE") if not started else ():
        if one_each and _WORLD.fullmatch(setting.value):
            yield bad_line(setting.line, "WORLD_SIZE", gpus=gpus)
        elif (size := read_count(setting.value)) and totals and not totals & {0, size}:
            yield bad_line(setting.line, "WORLD_SIZE", tasks=max(totals))


def rdzv_literal(job: Job) -> Iterator[BadLine]:
    """A variable that reaches the launcher as it is written."""
    for value, line in job.option_values(r"--rdzv[-_](?:id|endpoint)"):
        if escaped := re.search(r"\\(\$\{?\w+\}?)", value):
            yield bad_line(line, escaped[1])


def nodelist(job: Job) -> Iterator[BadLine]:
    """The first node by cutting the list, which holds for one node only."""
    if (nodes := job.allocation.merged.get("nodes")) and nodes.value == "1":
        return
    settings = {setting.name: setting for setting in job.settings}
    hosts = [value for value, _ in job.option_values(r"--(?:rdzv[-_]endpoint|master[-_]addr)")]
    named = [settings[name] for value in hosts for name in variables_in(value) if name in settings]
    for setting in (*job.settings_of("MASTER_ADDR"), *named):
        via = re.fullmatch(r"\$\{?(\w+)\}?", setting.value)
        made = settings.get(via[1], setting) if via else setting
        if "scontrol" not in made.value and _CUTTING.search(made.value):
            yield bad_line(made.line, made.name)


def old_library(job: Job) -> Iterator[BadLine]:
    """The directory of a library in another version than the host has."""
    for library in job.site.platforms[job.site.platform].libraries.values():
        folder, _, version = library.rpartition("/")
        pinned = re.compile(rf"{re.escape(folder)}/(\d[\w.]*)")
        for word in job.words:
            for found, line in with_lines(pinned, word.raw, word.line):
                if found[1].rstrip(".") != version:
                    yield bad_line(line, found[0], library=library, module=job.site.helper_module)


def pip_in_job(job: Job) -> Iterator[BadLine]:
    """`pip install` that ends in the home directory, where all images and later jobs find it."""
    started = job.directives or any(step.command for step in job.steps)
    owned = any(_ENVIRONMENT.search(value) for command in job.commands for value in command.values)
    settled = owned or any(job.settings_of("PYTHONUSERBASE", "PIP_TARGET", "PIP_PREFIX", "VIRTUAL_ENV"))
    for command in job.commands if started and not settled else ():
        words = command.words_after("pip", "pip3") or ()
        contained = command.spot == "container" or command.names_any(*RUNTIMES)
        elsewhere = any(map(_ELSEWHERE.search, command.values))
        if words and words[0].value == "install" and not elsewhere and (contained or "--user" in command.values):
            yield bad_line(words[0].line, "pip install", runtime=job.site.command)


def host_conda(job: Job) -> Iterator[BadLine]:
    """A conda environment of the host that is active when a container starts, which does not have it."""
    active: tuple[str, int] | None = None
    for command in job.commands:
        text = " ".join(command.values)
        if command.spot == "batch" and (found := _CONDA_ACTIVE.match(text)):
            active = (found["name"] or "base", command.line) if found["name"] is not None else None
        starts = command.names_any(*RUNTIMES) and not {"exec", "run"}.isdisjoint(command.values)
        if active and starts and not {"-e", "--cleanenv", "--containall", "-C"}.intersection(command.values):
            yield bad_line(active[1], active[0], runtime=job.site.command)
            return


def mpi_type(job: Job) -> Iterator[BadLine]:
    """A type of MPI that the image of a step does not have."""
    for start in starts_of(job):
        step = job.step_of(start.command)
        option = step.merged.get("mpi") if step else None
        family = contents_of(job, start.image).family
        needed = job.site.families[family].mpi if family else None
        if option and needed and option.value not in (needed, "none"):
            yield bad_line(option.line, f"--mpi={option.value}", expected=needed, image=start.name)
