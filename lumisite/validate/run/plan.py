"""The jobs of a run: what each runs on which nodes, and whether a run may go on."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from itertools import cycle

from lumisite.errors import ResolveError
from lumisite.site.load import LoadedSite
from lumisite.site.model import Site
from lumisite.site.selection import resolve_selection
from lumisite.site.validation import Validation
from lumisite.validate.probes.probe import Group, ProbeStep, Target
from lumisite.validate.probes.suite import choose_probes, groups
from lumisite.validate.run.request import RunRequest


@dataclass(frozen=True)
class JobPlan:
    """One job: its run name, its nodes, what it runs, and where its folder is (seen by all nodes)."""

    run: str
    nodes: tuple[str, ...]
    groups: tuple[Group, ...]
    folder: str
    named: bool = True
    """Whether the job requests these very nodes; what is only printed may leave them to Slurm."""

    @property
    def steps(self) -> tuple[ProbeStep, ...]:
        """All steps, in their order."""
        return tuple(step for group in self.groups for step in group.steps)


def job_name(plan: JobPlan) -> str:
    """Return the name that Slurm has for a job."""
    return f"lumisite-{plan.run}"


def validation_of(site: Site) -> Validation:
    """Return what the site has validated; raises `ResolveError` where it has no `validation`."""
    if site.validation is None:
        raise ResolveError(f"{site.name}: the site has no `validation` (add it; docs/reference/site.md has its keys)")
    return site.validation


def plans_of(request: RunRequest, loaded: LoadedSite) -> list[JobPlan]:
    """Return all jobs of a run. Raises `ResolveError` for an unknown probe."""
    site = loaded.site
    validation = replace(validation_of(site), nodes=len(request.node_sets[0]))
    probes = choose_probes(Target(site, resolve_selection(site), validation, request.image), request.probes)
    plans = []
    for number, nodes in zip(range(1, request.jobs + 1), cycle(request.node_sets)):
        run = f"{request.stamp}-{number:02}"
        steps = groups(probes, validation, request.limit, nodes)
        plans.append(JobPlan(run, nodes, tuple(steps), f"{request.folder}/jobs/{run}"))
    return plans


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
    if changed:
        raise ResolveError(f"{folder}: {changed} (start a new run)")
