"""Plan a run: which nodes, how many jobs, which steps."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from lumisite.errors import ToolError
from lumisite.validate.probes.probe import Group
from lumisite.validate.run.script import JobPlan
from lumisite.validate.run.slurm import BUSY, FREE, RESERVED, Node


def choose_node_sets(
    nodes: Sequence[Node],
    size: int,
    wanted: int,
    taken: Sequence[tuple[str, ...]] = (),
    *,
    reserved: bool = False,
    only: Collection[str] | None = None,
    avoid: Collection[str] = (),
) -> list[tuple[str, ...]]:
    """Choose up to `wanted` disjoint sets of `size` nodes: free ones first, then busy ones, never drained ones.

    `taken` are the sets that a run has measured on: it gets other nodes if there are any, else its own sets again, for
    of two that share no node, each confirms what was seen on the other. `reserved`: the job goes into a reservation, so
    its nodes are those to be had; `only` leaves no others, `avoid` leaves these out. Raises `ToolError` if there is not
    a single set.
    """
    order = [*FREE, *(RESERVED if reserved else ()), *BUSY]
    states = {
        node.name: "left out" if node.name in avoid or (only is not None and node.name not in only) else node.state
        for node in nodes
    }
    usable = sorted((name for name in states if states[name] in order), key=lambda name: (states[name] in BUSY, name))
    others = [name for name in usable if not any(name in names for names in taken)]
    sets = [tuple(others[first : first + size]) for first in range(0, len(others) - size + 1, size)]
    sets = sets or [names for names in dict.fromkeys(taken) if set(usable).issuperset(names)]
    if sets:
        return sets[:wanted]
    if taken:
        left = ", ".join(sorted(usable)) or "none"
        raise ToolError(
            f"{size} nodes are needed on which this run has not measured yet, or one of its own sets "
            f"(can be had: {left})"
        )
    out = [f"{name} is {state}" for name, state in states.items() if name not in usable]
    shown = ", ".join(out[:4]) + (f" and {len(out) - 4} more" if len(out) > 4 else "")
    raise ToolError(f"{size} nodes are needed and {len(usable)} can be had" + (f": {shown}" if shown else ""))


def plan_jobs(
    stamp: str,
    folder: str,
    node_sets: Sequence[tuple[str, ...]],
    jobs: int,
    contents: Callable[[tuple[str, ...]], Sequence[Group]],
) -> list[JobPlan]:
    """Give the jobs: each has all probes of its node set, which `contents` gives, and the sets take turns."""
    plans = []
    for number in range(jobs):
        nodes = node_sets[number % len(node_sets)]
        run = f"{stamp}-{number + 1:02}"
        plans.append(JobPlan(run, nodes, tuple(contents(nodes)), f"{folder}/jobs/{run}"))
    return plans
