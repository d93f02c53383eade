"""The nodes of jobs: disjoint sets for a few jobs, or a whole machine divided into jobs of few nodes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from lumisite.errors import ToolError
from lumisite.text import some
from lumisite.validate.run.slurm import BUSY, FREE, RESERVED, describe_nodes

#: More nodes than these are divided, into jobs of so many.
MOST_NODES, STEP_NODES = 64, 16


def choose_node_sets(
    nodes: Mapping[str, str],
    size: int,
    count: int,
    *,
    reserved: bool = False,
    only: Collection[str] | None = None,
    avoid: Collection[str] = (),
    reasons: Mapping[str, str] = {},
) -> list[tuple[str, ...]]:
    """Choose up to `count` disjoint sets of `size` nodes: free ones first, then busy ones, never drained ones.

    `nodes` are those of a partition, with their states. `reserved`: the job goes into a reservation, so its nodes are
    those to be had; `only` leaves no others, `avoid` leaves these out. Raises `ToolError` with Slurm's `reasons` for
    nodes if there is not a single set.
    """
    states = {
        name: "left out" if name in avoid or (only is not None and name not in only) else state
        for name, state in nodes.items()
    }
    usable = [*FREE, *BUSY, *(RESERVED if reserved else ())]
    names = sorted((name for name in states if states[name] in usable), key=lambda name: (states[name] in BUSY, name))
    if sets := [tuple(names[first : first + size]) for first in range(0, len(names) - size + 1, size)]:
        return sets[:count]
    others = describe_nodes({name: state for name, state in states.items() if name not in names}, reasons)
    why = f": {some(others, between=', ')}" if others else ""
    todo = "wait until nodes are back, or use fewer with --nodes"
    raise ToolError(f"{size} nodes are needed and {len(names)} are usable{why} ({todo})")


def machine_sets(nodes: Sequence[str], size: int) -> list[tuple[str, ...]]:
    """Return sets of `size` nodes, or a few less: all nodes, then the first of each set, and so on up to one set.

    So each two nodes are joined by a chain of sets, however many there are.

    >>> machine_sets("abcd", 2)
    [('a', 'b'), ('c', 'd'), ('a', 'c')]
    """
    sets = _divide(nodes, size)
    return sets if len(sets) == 1 else [*sets, *machine_sets([names[0] for names in sets], size)]


def _divide(nodes: Sequence[str], size: int) -> list[tuple[str, ...]]:
    """Return disjoint sets, none of one node alone, on which nothing between nodes can be measured."""
    starts = [*range(0, len(nodes), size)]
    if len(nodes) - starts[-1] == 1 and len(starts) > 1:
        starts[-1:] = [len(nodes) - 2] if size > 2 else []
    ends = [*starts[1:], len(nodes)]
    return [tuple(nodes[start:end]) for start, end in zip(starts, ends, strict=True)]
