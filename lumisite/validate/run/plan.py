"""Plan a run: which nodes, how many jobs, which steps, what they cost; whether it may go on; which jobs it waits for.

A large machine is divided into jobs of few nodes, with a tree of jobs for what is between them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle

from lumisite.errors import ResolveError, ToolError
from lumisite.site.load import LoadedSite
from lumisite.site.model import Site
from lumisite.site.selection import resolve_selection
from lumisite.text import minutes_of, some
from lumisite.validate.probes.probe import RANK, Group, ProbeStep, Target, spec_hash
from lumisite.validate.probes.suite import choose_probes, groups, probes_of
from lumisite.validate.run.jobscript import JobPlan, validation_of
from lumisite.validate.run.request import RunRequest
from lumisite.validate.run.slurm import BUSY, FREE, RESERVED, describe_nodes
from lumisite.validate.verdict.system import SystemVerdict


def choose_node_sets(
    nodes: Mapping[str, str],
    size: int,
    count: int,
    used: Sequence[tuple[str, ...]] = (),
    *,
    reserved: bool = False,
    only: Collection[str] | None = None,
    avoid: Collection[str] = (),
    reasons: Mapping[str, str] = {},
) -> list[tuple[str, ...]]:
    """Choose up to `count` disjoint sets of `size` nodes: free ones first, then busy ones, never drained ones.

    `nodes` are those of a partition, with their states. `used` are the sets that a run has measured on: it gets other
    nodes if there are any, else its own sets again, for of two that share no node, each confirms what was seen on the
    other. `reserved`: the job goes into a reservation, so its nodes are those to be had; `only` leaves no others,
    `avoid` leaves these out. Raises `ToolError` with Slurm's `reasons` for nodes if there is not a single set.
    """
    order = [*FREE, *(RESERVED if reserved else ()), *BUSY]
    states = {
        name: "left out" if name in avoid or (only is not None and name not in only) else state
        for name, state in nodes.items()
    }
    usable = sorted((name for name in states if states[name] in order), key=lambda name: (states[name] in BUSY, name))
    fresh = [name for name in usable if not any(name in names for names in used)]
    sets = [tuple(fresh[first : first + size]) for first in range(0, len(fresh) - size + 1, size)]
    sets = sets or [names for names in dict.fromkeys(used) if set(usable).issuperset(names)]
    if sets:
        return sets[:count]
    if used:
        raise ToolError(
            f"{size} nodes are needed that this run has not used, or one of its own node sets; usable: "
            f"{some(sorted(usable), between=', ') or 'none'} (wait until nodes are back)"
        )
    others = describe_nodes({name: state for name, state in states.items() if name not in usable}, reasons)
    raise ToolError(
        f"{size} nodes are needed and {len(usable)} are usable"
        + (f": {some(others, between=', ')}" if others else "")
        + " (wait until nodes are back, or use fewer with --nodes)"
    )


def plan_jobs(
    stamp: str,
    folder: str,
    node_sets: Sequence[tuple[str, ...]],
    jobs: int,
    contents: Callable[[tuple[str, ...]], Sequence[Group]],
) -> list[JobPlan]:
    """Return the jobs: each has all probes of its node set, by `contents`, and the node sets alternate."""
    runs = [f"{stamp}-{number:02}" for number in range(1, jobs + 1)]
    named = zip(runs, cycle(node_sets))
    return [JobPlan(run, nodes, tuple(contents(nodes)), f"{folder}/jobs/{run}") for run, nodes in named]


def target_of(request: RunRequest, loaded: LoadedSite) -> Target:
    """Return what all that a run does follows from."""
    site = loaded.site
    plan = replace(validation_of(site), nodes=len(request.node_sets[0]))
    return Target(site, resolve_selection(site), plan, request.image, request.jax_image, request.wrapper)


def plans_of(request: RunRequest, loaded: LoadedSite) -> list[JobPlan]:
    """Return all jobs of a run. Raises `ResolveError` for an unknown probe."""
    target = target_of(request, loaded)
    validation = target.plan
    plans: list[JobPlan] = []
    for batch in request.batches:
        contents = partial(groups, choose_probes(target, batch.probes), validation, request.limit)
        plans += plan_jobs(batch.stamp, request.folder, batch.node_sets, batch.jobs, contents)
    return plans


def _specs(plans: Sequence[JobPlan]) -> Mapping[str, str]:
    # Jobs of the same shape measure the same.
    found = {group.folder: group for plan in plans for group in plan.groups}
    return {name: spec_hash(group) for name, group in found.items()}


def with_specs(request: RunRequest, loaded: LoadedSite) -> RunRequest:
    """Return the request with the hashes of what is measured."""
    return replace(request, specs={**request.specs, **_specs(plans_of(request, loaded))})


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
    elif any(request.specs.get(name) != spec for name, spec in _specs(plans_of(request, loaded)).items()):
        changed = "the probes have changed since the run began"
    if changed:
        raise ResolveError(f"{folder}: {changed} (start a new run)")


def more_words(verdict: SystemVerdict, probes: Collection[str]) -> tuple[str, ...]:
    """Return the options beside `--more`, empty if no job is missing; `probes` are those that a run can have.

    Only the probes of what is open are run again; nodes that are known to be bad are left out.
    """
    waiting = [metric for metric in verdict.metrics if metric.decides and metric.more_jobs]
    if waiting:
        jobs = max(metric.more_jobs for metric in waiting)
        names = {metric.metric.partition("/")[0] for metric in waiting}
    else:
        jobs = 1
        names = {gate.gate for gate in verdict.gates if not gate.runs}
    names |= {gate.gate for gate in verdict.gates if gate.follows}
    missing = sorted(probes_of(names) & set(probes))
    if not missing:
        return ()
    words = ["--jobs", str(jobs), *(word for name in missing for word in ("--probe", name))]
    return (*words, "--avoid", ",".join(verdict.bad_nodes)) if verdict.bad_nodes else tuple(words)


def hunt_words(verdict: SystemVerdict) -> tuple[str, ...]:
    """Return the options of the run that finds the slow node, empty if none is to be found."""
    nodes = sorted({node for metric in verdict.metrics if metric.decides for node in metric.hunt})
    if not nodes or verdict.slow_nodes:
        return ()
    words = f"--probe pairs --jobs 1 --node-sets 1 --nodes {len(nodes)} --nodelist"
    return (*words.split(), ",".join(nodes))


#: More nodes than these are divided, into jobs of so many.
MOST_NODES, STEP_NODES = 64, 16
#: Files and folders that a job leaves at most beside its steps (jobscript.sh), and each step beside its records.
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
