"""How many processes a job starts, and on which nodes: launchers of processes below srun, or without it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from lumisite.lint.job import BadLine, Job, bad_line
from lumisite.lint.options import SrunStep, read_count

_PROGRAMS = ("torchrun", "accelerate", "deepspeed", "torch.distributed.run", "torch.distributed.launch")
#: What has the words after it as arguments of its own: a program or module of Python, or a list of packages.
_OF_PYTHON = re.compile(r"(?:^| )(?:\S+\.py|pip3?|python[\d.]*(?: -[a-zA-Z]+)* -m \S+)(?: |$)")
_MEETING = ("rdzv_endpoint", "master_addr", "main_process_ip", "standalone", "hostfile", "config_file", "rdzv_conf")
_SETTINGS = ("PET_RDZV_ENDPOINT", "PET_MASTER_ADDR")
_OF_NODES = re.compile(r"\$\{?\w*(?:NNODES|NUM_NODES|NODES|COUNT)\w*\}?", re.IGNORECASE)
_TENSOR = r"--tensor[-_](?:model[-_])?parallel(?:[-_]size)?|-tp"


class Launch(NamedTuple):
    """A launcher that starts the processes of a node, with its options by name, each with its value and line.

    `step` is the srun that starts it, once for each task; none where the batch script itself does. `spot` is that of
    its command.
    """

    program: str
    line: int
    options: Mapping[str, tuple[str, int]]
    step: SrunStep | None
    spot: str

    @property
    def several(self) -> bool:
        """Whether it is told to start processes on several nodes, and does so on as many."""
        given = next((self.options[name][0] for name in ("nnodes", "num_machines") if name in self.options), "1")
        told = _OF_NODES.search(given) or (read_count(given) or 0) > 1
        return bool(told and self.step and self.step.nodes and self.step.nodes > 1)

    def number(self, *names: str) -> int | None:
        """Return the number that the first of some options sets outright."""
        counts = (read_count(self.options[name][0]) for name in names if name in self.options)
        return next(filter(None, counts), None)

    def line_of(self, *names: str) -> int:
        """Return the line of the first of some options, else its own."""
        return next((self.options[name][1] for name in names if name in self.options), self.line)

    def processes(self, gpus: int | None) -> int | None:
        """Return how many processes it starts on a node with so many GPUs, as far as the script has it."""
        if self.program == "accelerate":
            return None
        names = ("num_gpus",) if self.program == "deepspeed" else ("nproc_per_node",)
        given = next((self.options[name][0] for name in names if name in self.options), None)
        if given is None:
            return gpus if self.program == "deepspeed" else 1
        return self.number(*names) or (gpus if re.search(r"gpu|auto", given, re.IGNORECASE) else None)


def launches(job: Job) -> Iterator[Launch]:
    """Yield the launchers that commands start; what srun starts follows it, in scripts that it has as arguments."""
    step: SrunStep | None = None
    for command in job.commands:
        if command.spot == "batch":
            step = job.step_of(command)
        index = next((at for at, name in enumerate(command.programs) if name in _PROGRAMS), None)
        words = command.words_after(*_PROGRAMS)
        if index is not None and words is not None and not _OF_PYTHON.search(" ".join(command.programs[:index])):
            options = _options(job.resolved_words(words))
            yield Launch(command.programs[index], command.words[index].line, options, step, command.spot)


def _options(words: list[tuple[str, int]]) -> dict[str, tuple[str, int]]:
    """Return options up to the program, which is a file of Python or comes after `-m`."""
    found: dict[str, tuple[str, int]] = {}
    for index, (word, line) in enumerate(words):
        if word.endswith(".py") or word in ("-m", "--module"):
            break
        if option := re.match(r"--([A-Za-z][\w-]*)(?:=(.*))?$", word, re.DOTALL):
            after = words[index + 1][0] if index + 1 < len(words) and words[index + 1][0][:1] != "-" else ""
            found[option[1].replace("-", "_")] = (after if option[2] is None else option[2], line)
    return found


def launcher_per_task(job: Job) -> Iterator[BadLine]:
    """A launcher that starts a process for each GPU, in each of several tasks of a node."""
    for launch in launches(job):
        step = launch.step
        processes = launch.processes(step.gpus_per_node) if step else None
        tasks = step.tasks_per_node if step else None
        if step and tasks and tasks > 1 and processes and processes > 1:
            names = ("ntasks-per-node", "ntasks")
            option = next((step.merged[name] for name in names if name in step.merged), None)
            line = option.line if option else launch.line
            yield bad_line(line, launch.program, tasks=tasks, processes=processes, all=tasks * processes)


def too_many_processes(job: Job) -> Iterator[BadLine]:
    """More processes on a node than the job has GPUs there."""
    for launch in launches(job):
        gpus = (launch.step or job.allocation).gpus_per_node
        processes = launch.processes(None)
        names = ("nproc_per_node", "num_gpus")
        if gpus and processes and processes > gpus:
            yield bad_line(launch.line_of(*names), launch.program, processes=processes, gpus=gpus)


def launcher_nodes(job: Job) -> Iterator[BadLine]:
    """A number of nodes that is not that of the step, so that each node trains alone or waits for others."""
    by_variables = any(setting.name.startswith("PET_N") for setting in job.settings)
    for launch in () if by_variables else launches(job):
        nodes = launch.step.nodes if launch.step else None
        if launch.step is None or nodes is None:
            continue
        known = {"nnodes", "nproc_per_node", "standalone"} & launch.options.keys()
        if launch.program in ("accelerate", "deepspeed") or not known:
            continue
        given = launch.options.get("nnodes", ("1", 0))[0]
        given = str(job.allocation.nodes or given) if _OF_NODES.search(given) else given
        count = read_count(given)
        if count is not None and count != nodes and max(nodes, count) > 1:
            yield bad_line(launch.line_of("nnodes", "standalone"), "--nnodes", given=count, nodes=nodes)


def no_rendezvous(job: Job) -> Iterator[BadLine]:
    """A launcher on several nodes that is not told where they meet, or, where it is static, which node this is."""
    for launch in () if any(job.settings_of(*_SETTINGS)) else launches(job):
        if not launch.several:
            continue
        if not any(name in launch.options for name in _MEETING):
            yield bad_line(launch.line, launch.program, nodes=launch.step.nodes if launch.step else None)
        elif "master_addr" in launch.options and not {"node_rank", "rdzv_endpoint"} & launch.options.keys():
            yield bad_line(launch.line_of("master_addr"), launch.program, rank="--node_rank")


def tensor_parallel(job: Job) -> Iterator[BadLine]:
    """A model split in more parts than a node has GPUs, so that each layer waits for the network."""
    kinds = [kind for step in job.requests for kind in step.node_kinds(job.site)]
    most = job.allocation.gpus_per_node or max((len(kind.gpus) for kind in kinds), default=0)
    for value, line in job.option_values(_TENSOR):
        parts = read_count(job.resolved(value))
        if most and parts and parts > most:
            yield bad_line(line, "tensor-parallel-size", parts=parts, gpus=most)
