"""What the batch script evaluates once, where each task or node needs a value of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lumisite.lint.job import BadLine, Job, bad_line
from lumisite.lint.launchers import launches
from lumisite.lint.options import read_count
from lumisite.lint.settings import in_force, nodes_reached
from lumisite.vendors import all_gpus

_OF_TASK = r"(?<!\\)\$\{?SLURM_(?:PROCID|NODEID|LOCALID)\b\}?"
_ANYWHERE = re.compile(_OF_TASK)
_LOCAL = r"(?:localhost|127\.\d+\.\d+\.\d+|0\.0\.0\.0)"
#: What a node says of itself.
_ITSELF = r"(?:\$\(|`)\s*(?:/bin/)?hostname\b[^)`|]*[)`]|\$\{?(?:HOSTNAME|SLURMD_NODENAME)\}?"
_HOST_OPTIONS = ("rdzv_endpoint", "master_addr", "main_process_ip")


def rank_in_batch(job: Job) -> Iterator[BadLine]:
    """The rank of a task, put in by the shell of the batch script, where it is 0.

    All that srun gets is for tasks; of what other commands get, a here-document is if it is a script, and what sets a
    rank or is an option of that name.
    """
    started = [step for step in job.steps if step.command is not None]
    many = any((step.nodes or 1) > 1 or step.tasks_per_node != 1 for step in started)
    # A script that starts itself, or a function, by srun runs in tasks too.
    again = any(command.values[:2] == ("export", "-f") for command in job.commands)
    if not many or again or any("$0" in command.values for command in job.commands):
        return
    visible = "|".join(name for gpu in all_gpus() for name in gpu.visible)
    name = rf"(?:\w+ENV_)?(?:\w*RANK|{visible})"
    setting = re.compile(rf"(?:\b{name}=|--(?:\w+[-_])?rank(?:=|[ \t]+))[\"'\\]*{_OF_TASK}")
    for command in (command for command in job.commands if command.spot == "batch"):
        step = job.step_of(command)
        if step and step.nodes == step.tasks_per_node == 1:
            continue
        pattern = _ANYWHERE if command.words_after("srun", first=4) else setting
        found = [match for word in command.words for match in word.matches(pattern)]
        for document in command.documents:  # where single quotes are none
            inside = _ANYWHERE if pattern is _ANYWHERE or document.raw.startswith("#!") else setting
            lines = enumerate(document.raw.split("\n"), document.line)
            found += [(match[0], line) for line, text in lines for match in inside.finditer(text)]
        for assigned, word in command.assignments:
            found += list(word.matches(setting))
            if re.fullmatch(name, assigned) and _ANYWHERE.search(job.resolved(word.value)):
                found.append((assigned, word.line))
        for text, line in found:
            yield bad_line(line, re.split(r"[= \t]", text)[0])


def local_master(job: Job) -> Iterator[BadLine]:
    """An address of the first rank that each node takes for its own."""
    itself = rf"(?:{_LOCAL}|{_ITSELF})"
    own = []
    for setting, value in in_force(job, ("MASTER_ADDR",)):
        pattern = _LOCAL if setting.command.spot == "batch" else itself
        if re.fullmatch(pattern, value) and nodes_reached(job, setting) == "several":
            own.append(bad_line(setting.line, f"MASTER_ADDR={value}"))
    yield from own
    for launch in launches(job) if not own else ():  # else it is the address that launchers get
        pattern = _LOCAL if launch.spot == "batch" else itself
        for name, (value, line) in launch.options.items():
            if name in _HOST_OPTIONS and launch.several and re.fullmatch(rf"{pattern}(?::\S*)?", value):
                yield bad_line(line, f"--{name}={value}")


def visible_gpus(job: Job) -> Iterator[BadLine]:
    """Some of a job's GPUs by number, for all that the script starts, or GPUs that the job has not."""
    gpus = job.allocation.gpus_per_node
    names = {name for gpu in job.gpus for name in (*gpu.visible, f"{gpu.torch}_VISIBLE_DEVICES".upper())}
    for name in names:
        settings = list(in_force(job, (name,)))
        for setting, value in settings if gpus and len({value for _, value in settings}) == 1 else ():
            numbers = re.fullmatch(r"\d{1,3}(?:,\d{1,3})*", value) and set(map(int, value.split(",")))
            exported = setting.command.spot == "batch" and setting.command.values[:1] in ((), ("export",))
            if numbers and exported and numbers != set(range(gpus or 0)):
                yield bad_line(setting.line, f"{name}={value}", gpus=gpus)


def too_many_threads(job: Job) -> Iterator[BadLine]:
    """More threads for each process than it has cores, in all steps; programs of one step may have different ones."""
    processes = {
        id(launch.step): launch.processes(launch.step.gpus_per_node) for launch in launches(job) if launch.step
    }
    cores = [(step.number("cpus-per-task") or 0, processes.get(id(step)) or 1) for step in job.steps]
    shares = [count // parts for count, parts in cores]
    if 0 in shares or any(":" in command.values for command in job.commands):
        return
    each = job.allocation.number("cpus-per-task")
    for setting, value in in_force(job, ("OMP_NUM_THREADS",)):
        threads = read_count(re.sub(r"\$\{?SLURM_CPUS_PER_TASK\}?", str(each or ""), value))
        if threads and threads > max(shares):
            yield bad_line(setting.line, f"OMP_NUM_THREADS={value}", threads=threads, cores=max(shares))
