"""Plan a run: which nodes, how many jobs, which steps, what they cost; whether it may go on.

A large machine is divided into jobs of few nodes, with a tree of jobs for what is between them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle

from lumisite.errors import ResolveError, ToolError
from lumisite.site.load import LoadedSite
from lumisite.site.model import Site
from lumisite.site.selection import resolve_selection
from lumisite.text import minutes_of, some
from lumisite.validate.probes.probe import Target, spec_hash
from lumisite.validate.probes.suite import choose_probes, groups
from lumisite.validate.run.jobscript import JobPlan, validation_of
from lumisite.validate.run.request import RunRequest
from lumisite.validate.run.slurm import BUSY, FREE, RESERVED, describe_nodes


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
    order = [*FREE, *(RESERVED if reserved else ()), *BUSY]
    states = {
        name: "left out" if name in avoid or (only is not None and name not in only) else state
        for name, state in nodes.items()
    }
    usable = sorted((name for name in states if states[name] in order), key=lambda name: (states[name] in BUSY, name))
    sets = [tuple(usable[first : first + size]) for first in range(0, len(usable) - size + 1, size)]
    if sets:
        return sets[:count]
    others = describe_nodes({name: state for name, state in states.items() if name not in usable}, reasons)
    raise ToolError(
        f"{size} nodes are needed and {len(usable)} are usable"
        + (f": {some(others, between=', ')}" if others else "")
        + " (wait until nodes are back, or use fewer with --nodes)"
    )


def target_of(request: RunRequest, loaded: LoadedSite) -> Target:
    """Return what all that a run does follows from."""
    site = loaded.site
    plan = replace(validation_of(site), nodes=len(request.node_sets[0]))
    return Target(site, resolve_selection(site), plan, request.image)


def plans_of(request: RunRequest, loaded: LoadedSite) -> list[JobPlan]:
    """Return all jobs of a run. Raises `ResolveError` for an unknown probe."""
    target = target_of(request, loaded)
    probes = choose_probes(target, request.probes)
    return [
        JobPlan(run, nodes, tuple(groups(probes, target.plan, request.limit, nodes)), f"{request.folder}/jobs/{run}")
        for run, nodes in zip(
            (f"{request.stamp}-{number:02}" for number in range(1, request.jobs + 1)), cycle(request.node_sets)
        )
    ]


def _specs(plans: Sequence[JobPlan]) -> Mapping[str, str]:
    # Jobs of the same shape measure the same.
    found = {group.folder: group for plan in plans for group in plan.groups}
    return {name: spec_hash(group) for name, group in found.items()}


def with_specs(request: RunRequest, loaded: LoadedSite) -> RunRequest:
    """Return the request with the hashes of what is measured."""
    return replace(request, specs=_specs(plans_of(request, loaded)))


def site_digest(loaded: LoadedSite) -> str:
    """Return a hash of the text of a site description."""
    return hashlib.sha256(loaded.data).hexdigest()[:16]


def require_unchanged(request: RunRequest, loaded: LoadedSite, version: str, image_digest: str, folder: str) -> None:
    """Raise `ResolveError` where going on would measure something else than the run began with."""
    changed = ""
    if request.lumisite != version:
        changed = f"begun with lumisite {request.lumisite}, and this is {version}"
    elif request.site_digest != site_digest(loaded):
        changed = f"the site description {request.site_file} has changed since the run began"
    elif request.image_digest != image_digest:
        changed = f"{request.image} is another image than when the run began"
    elif request.specs != _specs(plans_of(request, loaded)):
        changed = "the probes have changed since the run began"
    if changed:
        raise ResolveError(f"{folder}: {changed} (start a new run)")


#: More nodes than these are divided, into jobs of so many.
MOST_NODES, STEP_NODES = 64, 16


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
    """What jobs cost at most: `ranks` are those of the largest step."""

    jobs: int
    nodes: int
    steps: int
    ranks: int
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
        node_hours=job_nodes * minutes_of(validation_of(site).time_limit) / 60,
    )
