"""Find jobs that ask for more memory than nodes have, or than goes with their GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lumisite.site.model import NodeKind
from lumisite.validate.lint.job import Job, Step
from lumisite.validate.lint.machine import Hit, Machine
from lumisite.validate.lint.options import Option

_OPTIONS = ("mem", "mem-per-gpu", "mem-per-cpu")
_PER_NODE = ("nodes", "gpus-per-node", "gres", "ntasks-per-node")
#: How Slurm reads sizes: in MiB, or with a unit (sbatch(1), --mem).
_SIZE = re.compile(r"(\d{1,12})([KMGT]?)B?", re.IGNORECASE)
_UNIT_KIB = {"K": 1, "": 1 << 10, "M": 1 << 10, "G": 1 << 20, "T": 1 << 30}


def more_than_node(job: Job, machine: Machine) -> Iterator[Hit]:
    """More memory than any node of the partitions has."""
    for step in () if job.elsewhere(machine.partitions) else _asking(job):
        kinds = _kinds(step, machine)
        option, asked = _asked(step, kinds)
        most = max((kind.memory_mib for kind in kinds), default=0)
        if option and kinds and asked is not None and asked > most and _on_one_node(step, option):
            yield option.line, {"asked": _said(asked), "most": _said(most), "right": _option(most)}


def _on_one_node(step: Step, option: Option) -> bool:
    """Whether what is asked for by GPU or CPU cannot be spread over more nodes."""
    return option.name == "mem" or not step.merged.keys().isdisjoint(_PER_NODE)


def more_than_share(job: Job, machine: Machine) -> Iterator[Hit]:
    """More memory than goes with the GPUs of a job, where others would have the rest of the node."""
    for step in () if job.elsewhere(machine.partitions) else _asking(job, own_allocation=True):
        kinds = _kinds(step, machine)
        option, asked = _asked(step, kinds)
        gpus = _gpus(step, kinds)
        shared = bool(step.partitions) and all(name in machine.shared for name in step.partitions)
        if not (option and asked and gpus and shared and "exclusive" not in step.merged):
            continue
        if asked > max(kind.memory_mib for kind in kinds):
            continue  # said by the other rule
        share = max(kind.memory_mib // len(kind.gpus) for kind in kinds)
        if asked > gpus * share:
            fields = {"asked": _said(asked), "gpus": f"{gpus} GPU{'s' if gpus > 1 else ''}"}
            yield option.line, {**fields, "share": _said(gpus * share), "each": _said(share), "right": _option(share)}


def _asking(job: Job, *, own_allocation: bool = False) -> Iterator[Step]:
    """Give the allocations, and the steps that ask for memory themselves; those in an allocation may share unevenly."""
    yield from job.allocations
    for step in job.steps:
        if any(name in step.own for name in _OPTIONS) and ("partition" in step.own or not own_allocation):
            yield step


def _kinds(step: Step, machine: Machine) -> list[NodeKind]:
    """Give the node kinds that a step may run on: all with GPUs where it names no partition and asks for GPUs."""
    site = machine.site
    if step.partitions:
        known = [site.partitions[name].node_kind for name in step.partitions if name in site.partitions]
        return [site.node_kinds[name] for name in known] if len(known) == len(step.partitions) else []
    return [kind for kind in site.node_kinds.values() if kind.gpus] if step.asks_for_gpus else []


def _asked(step: Step, kinds: list[NodeKind]) -> tuple[Option | None, int | None]:
    """Give how much memory of a node is asked for, in MiB, and the option that says so; its own goes first."""
    for options in (step.own, step.merged):
        for name in _OPTIONS:
            if option := options.get(name):
                found = _SIZE.fullmatch(option.value)
                times = {"mem": 1, "mem-per-gpu": _gpus(step, kinds) or 1, "mem-per-cpu": _cpus(step)}[name]
                return option, int(found[1]) * _UNIT_KIB[found[2].upper()] * times // 1024 if found else None
    return None, None


def _gpus(step: Step, kinds: list[NodeKind]) -> int | None:
    """How many GPUs of a node a step asks for, which are no more than the node has."""
    most = min((len(kind.gpus) for kind in kinds), default=0)
    each, tasks = step.number("gpus-per-task"), step.tasks_per_node
    asked = step.gpus_per_node or (each * tasks if each and tasks else None)
    return min(asked, most) if asked and most else None


def _cpus(step: Step) -> int:
    """How many CPUs of a node a step asks for at least."""
    return (step.tasks_per_node or 1) * (step.number("cpus-per-task") or 1)


def _said(mib: int) -> str:
    return f"{mib // 1024} GiB" if mib % 1024 == 0 else f"{mib} MiB"


def _option(mib: int) -> str:
    return f"{mib // 1024}G" if mib % 1024 == 0 else f"{mib}M"
