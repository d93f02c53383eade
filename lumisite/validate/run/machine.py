"""Divide a machine into jobs of few nodes, with a tree of jobs for what is between them, and count their cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lumisite.site.model import Site
from lumisite.text import minutes_of
from lumisite.validate.probes.probe import RANK, ProbeStep
from lumisite.validate.run.script import JobPlan, validation_of

#: More nodes than these are divided, into jobs of so many.
MOST_NODES, STEP_NODES = 64, 16
#: Files and folders that a job leaves beside its steps (job.sh), and each step beside its records; as many as can be.
JOB_FILES, STEP_FILES = 12, 8


def machine_sets(nodes: Sequence[str], size: int) -> list[tuple[str, ...]]:
    """Return sets of `size` nodes, or a few less: all nodes, then the first of each set, and so on up to one set.

    So each two nodes are joined by a chain of sets, however many there are.

    >>> machine_sets("abcd", 2)
    [('a', 'b'), ('c', 'd'), ('a', 'c')]
    """
    found: list[tuple[str, ...]] = []
    level: Sequence[str] = nodes
    while True:
        sets = _divide(level, size)
        found += sets
        if len(sets) == 1:
            return found
        level = [names[0] for names in sets]


def _divide(nodes: Sequence[str], size: int) -> list[tuple[str, ...]]:
    """Return disjoint sets, none of one node alone, on which nothing between nodes can be measured."""
    starts = [*range(0, len(nodes), size)]
    if len(nodes) - starts[-1] == 1 and len(starts) > 1:
        starts[-1:] = [len(nodes) - 2] if size > 2 else []
    ends = [*starts[1:], len(nodes)]
    return [tuple(nodes[start:end]) for start, end in zip(starts, ends, strict=True)]


@dataclass(frozen=True)
class Cost:
    """What jobs cost at most: `ranks` are those of the largest step, `files` what they leave on the shared disk."""

    jobs: int
    nodes: int
    steps: int
    ranks: int
    files: int
    node_hours: float


def cost_of(site: Site, plans: Sequence[JobPlan]) -> Cost:
    """Return what jobs cost, if each takes all of its time."""
    steps = [step for plan in plans for step in plan.steps]
    job_nodes = sum(len(plan.nodes) for plan in plans)
    return Cost(
        jobs=len(plans),
        nodes=len({node for plan in plans for node in plan.nodes}),
        steps=len(steps),
        ranks=max(step.ranks for step in steps),
        files=len(plans) * JOB_FILES + sum(map(_files, steps)),
        node_hours=job_nodes * minutes_of(validation_of(site).time_limit) / 60,
    )


def _files(step: ProbeStep) -> int:
    """Return the files of a step; a node leaves a file of records, and one of reports where ranks work together."""
    return STEP_FILES + len(step.nodes) * (2 if RANK in step.srun.beside else 1)
