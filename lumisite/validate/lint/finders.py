"""Find known-bad lines of job scripts, one function for each; what is wrong with them is in `rules`.

Here is what a script asks of Slurm and says to launchers; images, modules, memory and settings have files of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lumisite.validate.lint.job import Job, Step
from lumisite.validate.lint.lexer import Command
from lumisite.validate.lint.machine import Hit, Machine
from lumisite.validate.lint.options import Option

_LAUNCHERS = r"(?:^|/)(?:torchrun|accelerate|deepspeed)$|torch\.distributed\.(?:run|launch)"
_CUTTING = re.compile(
    r"\$\{SLURM_(?:JOB_|STEP_)?NODELIST[^}\w]|NODELIST.*\|\s*(?:cut|sed|awk|tr|grep|perl|python\w*)\b|"
    r"^\$\{?SLURM_(?:JOB_|STEP_)?NODELIST\}?$",
    re.DOTALL,
)
_DEFAULT_PORT = "29500"
_PORT_OPTION = re.compile(r"--(?:master[-_]port|main[-_]process[-_]port|rdzv[-_]endpoint)")
_MKTEMP = re.compile(r"(?<!\\)(?:\$\(|`)[^)`$]{0,200}\bmktemp\b")
_BARE = re.compile(r"(?<!\\)\$\{?WITH_CONDA\b")


def miopen_name(job: Job, machine: Machine) -> Iterator[Hit]:
    """The name of the variable without `_PATH`."""
    for setting in job.named("MIOPEN_USER_DB"):
        yield setting.line, {}


def miopen_mktemp(job: Job, machine: Machine) -> Iterator[Hit]:
    """`mktemp` in the batch script, for a variable of MIOpen or for one that such a variable is made of."""
    made: dict[str, set[int]] = {}
    for setting in job.settings:
        if setting.spot == "batch" and _MKTEMP.search(setting.value):
            made[setting.name] = {setting.line}
        else:
            used = set(re.findall(r"\$\{?(\w+)", setting.value)) & set(made)
            if used:
                made.setdefault(setting.name, set()).update(*(made[name] for name in used))
    for line in sorted({line for name in made if name.startswith("MIOPEN_") for line in made[name]}):
        yield line, {}
    for command in job.script.commands:
        for part in (part for word in command.words for part in word.parts if command.spot == "batch"):
            for found in _MKTEMP.finditer(part.text) if part.quote != "'" else ():
                if re.search(r"\bMIOPEN_\w+=[\"'\\]*$", part.text[: found.start()]):
                    yield part.line + part.text.count("\n", 0, found.start()), {}


def fixed_port(job: Job, machine: Machine) -> Iterator[Hit]:
    """A fixed port meets that of another job where nodes are shared; the default one meets strays on others too."""
    if job.elsewhere(machine.partitions):
        return
    alone = machine.shared.isdisjoint(job.partitions) or any(_takes_nodes(one, machine) for one in job.allocations)
    for line, port in (*_set_ports(job), *_given_ports(job)):
        if port != "0" and (not alone or port == _DEFAULT_PORT):
            by = "what else starts with the default port" if alone else "another job on the node"
            yield line, {"port": port, "by": by}


def _takes_nodes(step: Step, machine: Machine) -> bool:
    """Whether nothing of a node is left to others: all its cores are asked for, or it is asked for as a whole."""
    cores = _cores_of_nodes(step, machine)
    return "exclusive" in step.merged or (cores is not None and _asked_cores(step)[1] >= cores)


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
    for words in job.arguments:
        for at, (word, line) in enumerate(words):
            option, equals, value = word.partition("=")
            if not _PORT_OPTION.fullmatch(option):
                continue
            value = value if equals else words[at + 1][0] if at + 1 < len(words) else ""
            ended = re.fullmatch(r"(?:.*[^:]:)?([1-9]\d*)", job.resolved(value))
            if ended and "MASTER_PORT" not in value:
                yield line, ended[1]


def with_conda(job: Job, machine: Machine) -> Iterator[Hit]:
    """`$WITH_CONDA` in what a container gets, or in the batch script itself, expanded by a shell outside."""
    kept = {
        name
        for command in job.script.commands
        if _takes_script(command)
        for word in command.words
        for name in re.findall(r"(?<!\\)\$\{?(\w+)", word.value)
    }
    for command in job.script.commands:
        outside = command.spot == "batch" or (command.spot == "task" and _in_container(command))
        alone = command.spot == "batch" and job.directives and command.values[:1] and _BARE.match(command.values[0])
        parts = [part for word in command.words for part in word.parts] if _takes_script(command) or alone else []
        parts += [part for name, word in command.assignments if name in kept for part in word.parts]
        for part in (part for part in parts if outside and part.quote != "'"):
            for found in _BARE.finditer(part.text):
                yield part.line + part.text.count("\n", 0, found.start()), {}
        for document in (one for one in command.documents if command.spot == "batch" and not one.quoted):
            for found in _BARE.finditer(document.text):
                yield document.line + document.text.count("\n", 0, found.start()), {}


def _takes_script(command: Command) -> bool:
    return command.names_any("srun", "bash", "sh") or _in_container(command)


def _in_container(command: Command) -> bool:
    return command.names_any("singularity", "apptainer")


def gpu_binding(job: Job, machine: Machine) -> Iterator[Hit]:
    """A binding of GPUs to several tasks without sharing."""
    for step in () if job.elsewhere(machine.partitions) else job.steps:
        flags = step.merged.get("gres-flags")
        if (step.tasks_per_node or 1) < 2 or (flags and "allow-task-sharing" in flags.value):
            continue
        bind = step.merged.get("gpu-bind")
        if bind and re.search(r"(?:^|,)none$", bind.value):
            continue
        for option in (step.merged.get("gpus-per-task"), bind):
            if option and (
                option.name != "gpu-bind" or re.search(r"(?:^|[,:])(?:closest|map|mask|single|per_task)", option.value)
            ):
                yield option.line, {"option": f"--{option.name}"}
                break


def too_many_cores(job: Job, machine: Machine) -> Iterator[Hit]:
    """More cores than jobs get of a node with GPUs."""
    if job.elsewhere(machine.partitions):
        return
    for step in (*job.allocations, *job.steps):
        cores = _cores_of_nodes(step, machine)
        option, asked = _asked_cores(step)
        threads = step.merged.get("hint") or step.merged.get("threads-per-core")
        if cores and threads and threads.value in ("multithread", "2"):
            cores *= 2
        if cores and option and asked > cores:
            yield option.line, {"asked": str(asked), "cores": str(cores)}


def _asked_cores(step: Step) -> tuple[Option | None, int]:
    """How many cores of a node a step asks for, and the option that says so."""
    tasks, each = step.tasks_per_node, step.number("cpus-per-task") or 1
    gpus, by_gpu = step.gpus_per_node, step.number("cpus-per-gpu")
    if gpus and by_gpu:
        return step.merged["cpus-per-gpu"], gpus * by_gpu
    option = step.merged.get("cpus-per-task") or step.merged.get("ntasks-per-node") or step.merged.get("ntasks")
    return (option, tasks * each) if tasks else (None, 0)


def _cores_of_nodes(step: Step, machine: Machine) -> int | None:
    known = [machine.gpu_cores.get(name) for name in step.partitions if name in machine.partitions]
    if known:
        return known[0]
    return min(machine.gpu_cores.values(), default=None) if step.asks_for_gpus else None


def bind_and_count(job: Job, machine: Machine) -> Iterator[Hit]:
    """A list of masks or CPUs, and a number of cores, on one srun."""
    for step in () if job.elsewhere(machine.partitions) else job.steps:
        bind = step.own.get("cpu-bind")
        if bind and "cpus-per-task" in step.own and re.search(r"\b(?:mask|map)_cpu", bind.value):
            yield bind.line, {}


def world_size(job: Job, machine: Machine) -> Iterator[Hit]:
    """The number of nodes as WORLD_SIZE, where nothing starts one process for each GPU."""
    steps = job.steps
    gpus = max(step.gpus_per_node or 1 for step in steps)
    if gpus < 2 or any(step.tasks_per_node != 1 for step in steps) or job.runs(_LAUNCHERS):
        return
    for setting in job.named("WORLD_SIZE"):
        if re.fullmatch(r"\$\{?SLURM_(?:NTASKS|NPROCS|NNODES|JOB_NUM_NODES)\}?", setting.value):
            yield setting.line, {"gpus": str(gpus)}


def rdzv_literal(job: Job, machine: Machine) -> Iterator[Hit]:
    """A variable that reaches the launcher as it stands there."""
    for command in job.script.commands:
        for at, word in enumerate(command.words):
            found = re.match(r"--rdzv[-_](?:id|endpoint)(=.*|$)", word.value, re.DOTALL)
            following = command.values[at + 1] if at + 1 < len(command.words) else ""
            if found and (escaped := re.search(r"\\(\$\{?\w+\}?)", found[1] or following)):
                yield word.line, {"variable": escaped[1]}


def nodelist(job: Job, machine: Machine) -> Iterator[Hit]:
    """The first node by cutting the list, which holds for one node only."""
    if all(component["nodes"].value == "1" if "nodes" in component else False for component in job.components):
        return
    kept = {setting.name: setting for setting in job.settings}
    for setting in (*job.named("MASTER_ADDR"), *(kept[name] for name in _hosts(job) if name in kept)):
        via = re.fullmatch(r"\$\{?(\w+)\}?", setting.value)
        made = kept.get(via[1], setting) if via else setting
        if "scontrol" not in made.value and _CUTTING.search(made.value):
            yield made.line, {}


def _hosts(job: Job) -> Iterator[str]:
    """The variables that options of launchers take for the first node."""
    for words in job.arguments:
        for at, (word, _) in enumerate(words):
            option, equals, value = word.partition("=")
            if re.fullmatch(r"--(?:rdzv[-_]endpoint|master[-_]addr)", option):
                yield from re.findall(
                    r"\$\{?(\w+)", value if equals else "".join(one for one, _ in words[at + 1 : at + 2])
                )


def old_library(job: Job, machine: Machine) -> Iterator[Hit]:
    """The directory of a library in another version than the host has."""
    for library in () if job.elsewhere(machine.partitions) else machine.libraries:
        folder, _, version = library.rpartition("/")
        pinned = re.compile(rf"{re.escape(folder)}/(\d[\w.]*)")
        for word in job.words:
            for part in word.parts:
                for found in pinned.finditer(part.text):
                    if found[1].rstrip(".") != version:
                        line = part.line + part.text.count("\n", 0, found.start())
                        yield line, {"pinned": found[0], "library": library}
