"""Plan a run: which nodes, how many jobs, which steps."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from lumisite.errors import ToolError
from lumisite.validate.jobs.script import JobPlan
from lumisite.validate.jobs.slurm import BUSY, FREE, RESERVED, Node
from lumisite.validate.probes.probe import Group


def usable_nodes(
    nodes: Sequence[Node], *, reserved: bool = False, only: Collection[str] | None = None, avoid: Collection[str] = ()
) -> list[Node]:
    """Give the nodes that jobs may go to: free ones first, then busy ones, never drained ones.

    `reserved`: the job goes into a reservation, so its nodes are those to be had; `only` leaves no others, `avoid`
    leaves these out.
    """
    order = [*FREE, *(RESERVED if reserved else ()), *BUSY]
    named = [node for node in nodes if (only is None or node.name in only) and node.name not in avoid]
    usable = [node for node in named if node.state in order]
    return sorted(usable, key=lambda node: (node.state in BUSY, node.name))


def choose_node_sets(
    nodes: Sequence[Node],
    size: int,
    wanted: int,
    *,
    reserved: bool = False,
    only: Collection[str] | None = None,
    avoid: Collection[str] = (),
) -> list[tuple[str, ...]]:
    """Choose up to `wanted` disjoint sets of `size` usable nodes; raises `ToolError` if there is not a single one."""
    usable = usable_nodes(nodes, reserved=reserved, only=only, avoid=avoid)
    names = [node.name for node in usable]
    sets = [tuple(names[first : first + size]) for first in range(0, len(names) - size + 1, size)][:wanted]
    if not sets:
        out = [
            f"{node.name} is {'left out' if _left_out(node.name, only, avoid) else node.state}"
            for node in nodes
            if node not in usable
        ]
        shown = ", ".join(out[:4]) + (f" and {len(out) - 4} more" if len(out) > 4 else "")
        raise ToolError(f"{size} nodes are needed and {len(usable)} can be had" + (f": {shown}" if shown else ""))
    return sets


def _left_out(name: str, only: Collection[str] | None, avoid: Collection[str]) -> bool:
    return name in avoid or (only is not None and name not in only)


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
