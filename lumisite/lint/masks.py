"""Lists of CPUs and masks by hand: reserved cores, cores that are far from the GPUs, or not the job's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from lumisite.lint.job import BadLine, Job, bad_line
from lumisite.lint.options import Option, SrunStep, usable_cores
from lumisite.site.cpus import format_cpu_list
from lumisite.site.nodes import NodeKind

_NUMBER, _MASK = r"(?:0[xX][0-9a-fA-F]{1,4}|\d{1,5})", r"(?:0[xX])?[0-9a-fA-F]{1,128}"
_BIND = re.compile(rf"(?:.*,)?(?:(map)_cpu[:=]({_NUMBER}(?:,{_NUMBER})*)|(mask)_cpu[:=]({_MASK}(?:,{_MASK})*))")
_GPU_MAP = re.compile(r"(?:.*,)?map(?:_gpu)?:(\d{1,3}(?:,\d{1,3})*)")
_LOCAL_RANK = re.compile(r"\$\{?SLURM_LOCALID\}?")
#: A program that may choose the GPU of a task.
_WRAPPER = re.compile(r"gpu[\w.-]*$|\.sh$|^\S*select\S*$")


class CpuBinding(NamedTuple):
    """A `--cpu-bind` with CPUs in plain text: those of each task of a node, in the order of local ranks."""

    step: SrunStep
    option: Option
    kind: NodeKind
    cpus: tuple[frozenset[int], ...]


def _bindings(job: Job) -> Iterator[CpuBinding]:
    """Yield the bindings of steps on nodes of one kind whose cores are described."""
    for step in job.steps:
        option = step.options.get("cpu-bind")
        found = _BIND.fullmatch(option.value) if option else None
        kinds = [kind for kind in step.node_kinds(job.site) if kind.l3]
        # Together with a number of cores it is wrong in any case.
        if option and found and len(kinds) == 1 and "cpus-per-task" not in step.options:
            form, words = (text for text in found.groups() if text)
            yield CpuBinding(step, option, kinds[0], tuple(_cpus(form, word) for word in words.split(",")))


def _cpus(form: str, word: str) -> frozenset[int]:
    """Return the CPUs of a word of the list: a number, which is decimal without `0x`, or a mask."""
    if form == "map":
        return frozenset({int(word, 16 if word[:2].lower() == "0x" else 10)})
    mask = int(word, 16)
    return frozenset(cpu for cpu in range(mask.bit_length()) if mask >> cpu & 1)


def _places(kind: NodeKind) -> dict[int, int]:
    """Return the L3 group that each CPU of a node is in."""
    return {cpu: at for at, group in enumerate(kind.l3) for cpu in (*group.cores, *(group.siblings or ()))}


def reserved_cores(job: Job) -> Iterator[BadLine]:
    """CPUs that jobs never get, or that the node does not have."""
    for _, option, kind, cpus in _bindings(job):
        reserved = set(kind.reserved or ())
        if wrong := set().union(*cpus) - (_places(kind).keys() - reserved):
            values = {"cpus": format_cpu_list(wrong), "reserved": format_cpu_list(reserved)}
            yield bad_line(option.line, "--cpu-bind", **values)


def mask_order(job: Job) -> Iterator[BadLine]:
    """CPUs of each task near another GPU than its own, where each task has one GPU of a whole node."""
    names = "|".join(name for gpu in job.gpus for name in gpu.visible) or "(?!)"
    chosen = set(re.findall(rf"\b(?:{names})=[\"'\\]*([^\s;\"'\\]*)", job.text))
    for step, option, kind, cpus in _bindings(job):
        places = _places(kind)
        groups = [{places.get(cpu) for cpu in task} for task in cpus]
        near = [kind.gpus[gpu].l3 for gpu in _gpus_of_tasks(step, kind, chosen)]
        if None in near or len(near) != len(groups) or any(len(group) != 1 for group in groups):
            continue
        free = [set(kind.l3[at or 0].cores).difference(kind.reserved or ()) for at in near]
        if all(free) and len(set(near)) == len(near) and [{at} for at in near] != groups:
            yield bad_line(option.line, "--cpu-bind", expected="map_cpu:" + ",".join(map(str, map(min, free))))


def _gpus_of_tasks(step: SrunStep, kind: NodeKind, chosen: set[str]) -> list[int]:
    """Return the GPU of each task of a node: by local rank, or as `--gpu-bind` has it; none where that is not known.

    `chosen` are the GPUs that a script sets for programs by a variable.
    """
    gpus, bind = list(range(len(kind.gpus))), step.merged.get("gpu-bind")
    wrapped = not chosen and any(map(_WRAPPER.search, step.command.values if step.command else ()))
    if bind and (found := _GPU_MAP.fullmatch(bind.value)):
        gpus = [int(gpu) for gpu in found[1].split(",") if int(gpu) < len(gpus)]
    elif wrapped or (bind and "none" not in bind.value) or not all(map(_LOCAL_RANK.fullmatch, chosen)):
        return []
    return gpus if step.tasks_per_node == len(gpus) == len(kind.gpus) else []


def mask_outside(job: Job) -> Iterator[BadLine]:
    """CPU numbers in a job that shares its node, which gets other cores each time; or fewer masks than tasks.

    Tasks may share masks where the masks have all usable cores of the node, and no fewer cores than tasks.
    """
    for step, option, kind, cpus in _bindings(job):
        partitions = [job.site.partitions[name] for name in step.partitions(job.site)]
        shared = not any(partition.whole_nodes for partition in partitions) and "exclusive" not in step.merged
        asked = job.allocation if job.directives else step
        cores, whole, tasks = asked.cores_per_node[1], usable_cores(kind), step.tasks_per_node or 1
        if partitions and shared and 0 < cores < whole:
            yield bad_line(option.line, "--cpu-bind", cores=cores, whole=whole)
        elif tasks > len(cpus) and (tasks > whole or len(frozenset().union(*cpus)) < whole):
            yield bad_line(option.line, "--cpu-bind", tasks=tasks, masks=len(cpus))
