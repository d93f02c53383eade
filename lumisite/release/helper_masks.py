"""The CPU masks that the helper looks up: a table for each node kind, worked out before any job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lumisite.node.masks import TABLE_TASKS, MaskError, Request, TaskMask, cpu_masks
from lumisite.node.topology import topology_of
from lumisite.site.model import NodeKind


@dataclass(frozen=True)
class MaskRow:
    """Masks of a whole node for one number of tasks and threads, by `SLURM_LOCALID`; each holds `cpus` CPUs or more."""

    key: str
    cpus: int
    masks: tuple[str, ...]


@dataclass(frozen=True)
class NearCpus:
    """CPUs (kernel numbers) near one GPU; `key` is `kind/threads/gpu`."""

    key: str
    cpus: tuple[int, ...]


@dataclass(frozen=True)
class KindPlan:
    """A node kind as the prolog needs it; `usable` are the CPUs that tasks may have, by threads of each core (1, 2)."""

    name: str
    gpus: int
    usable: tuple[tuple[int, ...], tuple[int, ...]]
    rows: tuple[MaskRow, ...]
    near: tuple[NearCpus, ...]


def plan_kind(name: str, kind: NodeKind) -> KindPlan:
    """Plan the table of a node kind; a number of tasks that has no sound answer is left out."""
    topology = topology_of(name, kind)
    answers: dict[tuple[int, int], tuple[TaskMask, ...]] = {}
    for tasks in sorted({*TABLE_TASKS, len(kind.gpus)} - {0}):
        for threads in (1, 2):
            try:
                found = cpu_masks(topology, Request(tasks, threads))
            except MaskError:
                continue
            if all(answer.pu_os for answer in found):
                answers[tasks, threads] = found
    return KindPlan(
        name=name,
        gpus=len(kind.gpus),
        usable=(_usable(answers, 1), _usable(answers, 2)),
        rows=tuple(
            MaskRow(
                f"{name}/{tasks}/{threads}",
                min(len(answer.pu_os) for answer in found),
                tuple(answer.mask or "" for answer in found),
            )
            for (tasks, threads), found in answers.items()
        ),
        near=tuple(
            NearCpus(f"{name}/{threads}/{answer.gpus[0]}", answer.pu_os)
            for threads in (1, 2)
            for answer in answers.get((len(kind.gpus), threads), ())
            if answer.gpus
        ),
    )


def _usable(answers: Mapping[tuple[int, int], tuple[TaskMask, ...]], threads: int) -> tuple[int, ...]:
    return answers[1, threads][0].pu_os if (1, threads) in answers else ()
