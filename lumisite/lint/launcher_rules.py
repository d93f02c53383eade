"""Ranks, their rendezvous and the launchers of processes: what the batch script expands, and torchrun and the like."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lumisite.lint.job import BadLine, Job, variables_in
from lumisite.lint.programs import launches_of
from lumisite.lint.script import with_lines
from lumisite.lint.step import read_count
from lumisite.text import counted
from lumisite.vendors import all_gpus

_MASTER = 'export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'

# ---------------------------------------------------------------- what the batch script expands

_OF_TASK = r"(?<!\\)\$\{?SLURM_(?:PROCID|NODEID|LOCALID)\b\}?"
_ANYWHERE = re.compile(_OF_TASK)
_RANK = rf"(?:\w+ENV_)?(?:\w*RANK|{'|'.join(name for gpu in all_gpus() for name in gpu.visible)})"
_SET_TO_IT = re.compile(rf"(?:\b{_RANK}=|--(?:\w+[-_])?rank(?:=|[ \t]+))[\"'\\]*{_OF_TASK}")


def rank_in_batch(job: Job) -> Iterator[BadLine]:
    """The rank of a task, put in by the shell of the batch script, where it is 0.

    All that srun gets is for tasks, and a here-document that is a script. Of what other commands get it is what sets a
    rank, or is an option of that name.
    """
    many = any((step.nodes or 1) > 1 or step.tasks_per_node != 1 for step in job.sruns)
    if not many or any("$0" in step.command.values for step in job.sruns if step.command):  # it starts itself
        return
    reason = "expanded by the shell of the batch script, where it is 0 for all tasks"
    for command in (command for command in job.commands if command.spot == "batch"):
        step = job.step_of(command)
        if step and step.nodes == step.tasks_per_node == 1:
            continue
        found = [match for word in command.words for match in word.matches(_ANYWHERE if step else _SET_TO_IT)]
        for document in command.documents:  # in which single quotes are ordinary characters
            pattern = _ANYWHERE if step or document.raw.startswith("#!") else _SET_TO_IT
            found += [(match[0], line) for match, line in with_lines(pattern, document.raw, document.line)]
        for name, word in command.assignments:
            found += word.matches(_SET_TO_IT)
            if re.fullmatch(_RANK, name) and _ANYWHERE.search(job.resolved(word.value)):
                found.append((name, word.line))
        for text, line in found:
            subject = re.split(r"[= \t]", text)[0]
            right = f"srun bash -c '… {subject} …' in single quotes, or \\$SLURM_… in double quotes and here-documents"
            yield BadLine(line, subject, reason, right)


def rdzv_literal(job: Job) -> Iterator[BadLine]:
    """A variable that reaches the launcher as it is written."""
    reason = "not expanded after a backslash or in single quotes, and every job has the same rendezvous"
    for value, line in job.option_values(r"--rdzv[-_](?:id|endpoint)"):
        if escaped := re.search(r"\\(\$\{?\w+\}?)", value):
            right = f"--rdzv_id={escaped[1]} without the backslash, in the quotes of bash -c"
            yield BadLine(line, escaped[1], reason, right)


_CUT = re.compile(
    r"\$\{SLURM_(?:JOB_|STEP_)?NODELIST[^}\w]|NODELIST.*\|\s*(?:cut|sed|awk|tr|grep|perl|python\w*)\b|"
    r"^\$\{?SLURM_(?:JOB_|STEP_)?NODELIST\}?$",
    re.DOTALL,
)


def nodelist(job: Job) -> Iterator[BadLine]:
    """The first node by cutting the list, which holds for one node only."""
    reason = "a list of nodes may read nid[005001-005004,005010], which cutting does not resolve"
    hosts = [value for value, _ in job.option_values(r"--(?:rdzv[-_]endpoint|master[-_]addr)")]
    hosts += [setting.value for setting in job.settings if setting.name == "MASTER_ADDR"]
    used = {"MASTER_ADDR", *(name for value in hosts for name in variables_in(value))}
    for setting in job.settings if job.allocation.value("nodes") != "1" else ():
        if setting.name in used and "scontrol" not in setting.value and _CUT.search(setting.value):
            yield BadLine(setting.line, setting.name, reason, _MASTER)


_LOCAL = r"(?:localhost|127\.\d+\.\d+\.\d+|0\.0\.0\.0)"
#: What a node says of itself.
_ITSELF = rf"(?:{_LOCAL}|(?:\$\(|`)\s*(?:/bin/)?hostname\b[^)`|]*[)`]|\$\{{?(?:HOSTNAME|SLURMD_NODENAME)\}}?)"


def local_master(job: Job) -> Iterator[BadLine]:
    """An address of the first rank that each node takes for its own."""
    found = []
    for setting, value in job.in_force(("MASTER_ADDR",)):
        pattern = _LOCAL if setting.command.spot == "batch" else _ITSELF
        if re.fullmatch(pattern, value) and job.nodes_reached(setting) == "several":
            found.append((setting.line, f"MASTER_ADDR={value}"))
    for launch in launches_of(job) if not found else ():  # else it is the address that launchers get
        pattern = _LOCAL if launch.spot == "batch" else _ITSELF
        for name in ("rdzv_endpoint", "master_addr", "main_process_ip"):
            value, line = launch.options.get(name, ("", 0))
            if launch.on_several_nodes and re.fullmatch(rf"{pattern}(?::\S*)?", value):
                found.append((line, f"--{name}={value}"))
    for line, subject in found:
        yield BadLine(line, subject, "each node waits for the others at its own address", _MASTER)


# ---------------------------------------------------------------- launchers and threads


def too_many_threads(job: Job) -> Iterator[BadLine]:
    """More threads of OpenMP for a task than any step gives it cores."""
    cores = [step.number("cpus-per-task") or 0 for step in job.steps]
    for setting, value in job.in_force(("OMP_NUM_THREADS",)) if all(cores) else ():
        threads = read_count(value)
        if threads and threads > max(cores):
            reason = f"{threads} threads for a task with {counted(max(cores), 'core')}"
            yield BadLine(setting.line, f"OMP_NUM_THREADS={value}", reason, f"export OMP_NUM_THREADS={max(cores)}")


def launcher_per_task(job: Job) -> Iterator[BadLine]:
    """A launcher that starts several processes, in each of several tasks of a node."""
    for launch in launches_of(job):
        tasks = launch.step.tasks_per_node if launch.step else None
        processes = launch.options.get("nproc_per_node", ("1", 0))[0]
        if tasks and tasks > 1 and processes != "1":
            reason = f"{tasks} tasks of a node start {processes} processes each"
            right = "#SBATCH --ntasks-per-node=1, with all cores of the node"
            yield BadLine(launch.line, launch.program, reason, right)


def launcher_nodes(job: Job) -> Iterator[BadLine]:
    """A number of nodes that is not that of the step, so that each node trains alone or waits for others."""
    for launch in launches_of(job):
        nodes = launch.step.nodes if launch.step else None
        counts = [launch.options[name][1] for name in ("nnodes", "standalone") if name in launch.options]
        if launch.step is None or nodes is None or not counts:
            continue
        given = launch.nodes(job.allocation if job.allocation.nodes else launch.step)
        if given is not None and given != nodes:
            reason = f"{given} for a step on {nodes} nodes"
            yield BadLine(counts[0], "--nnodes", reason, "--nnodes=$SLURM_JOB_NUM_NODES")


def launcher_without_srun(job: Job) -> Iterator[BadLine]:
    """A launcher for several nodes that the batch script runs itself, so that it runs on the first node only."""
    for launch in launches_of(job):
        asked = launch.nodes(job.allocation) or 1
        if launch.step is None and launch.spot != "task" and (job.allocation.nodes or 1) > 1 and asked > 1:
            reason = f"runs on the first node only, and waits for {asked - 1} more that nothing starts"
            yield BadLine(launch.line, launch.program, reason, f"srun --ntasks-per-node=1 … {launch.program} …")


#: How the launchers of several nodes find each other.
_MEETING = ("rdzv_endpoint", "master_addr", "main_process_ip", "standalone", "config_file", "rdzv_conf")


def no_rendezvous(job: Job) -> Iterator[BadLine]:
    """A launcher on several nodes without the address where they meet."""
    by_variable = any(setting.name in ("PET_RDZV_ENDPOINT", "PET_MASTER_ADDR") for setting in job.settings)
    for launch in launches_of(job) if not by_variable else ():
        if launch.on_several_nodes and launch.options.keys().isdisjoint(_MEETING):
            right = "--rdzv_backend=c10d --rdzv_id=$SLURM_JOB_ID --rdzv_endpoint=$MASTER_ADDR:$MASTER_PORT"
            yield BadLine(launch.line, launch.program, "several nodes without the address of a rendezvous", right)
