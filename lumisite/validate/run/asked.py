"""What a run was asked: decided once, kept in its run.json, and all that going on with it needs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial

from lumisite.errors import ResolveError, SiteError
from lumisite.site.json_file import decode_values
from lumisite.site.load import LoadedSite
from lumisite.site.selection import resolve_selection
from lumisite.validate.probes.probe import spec_hash
from lumisite.validate.probes.suite import choose_probes, groups
from lumisite.validate.probes.target import Target
from lumisite.validate.run.folder import script_bytes
from lumisite.validate.run.plan import plan_jobs
from lumisite.validate.run.runner import Setting
from lumisite.validate.run.script import JobPlan, Options, validation_of


@dataclass(frozen=True)
class Batch:
    """Jobs that were asked for together: `jobs` on `node_sets` in turn; without `probes` they run all."""

    stamp: str
    jobs: int
    node_sets: tuple[tuple[str, ...], ...]
    probes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Asked:
    """What a run was asked. The first batch is what it began with, later ones are what `--more` added."""

    lumisite: str
    site: str
    platform: str
    purpose: str
    image: str
    image_digest: str
    started: str
    backend: str
    partition: str
    folder: str
    site_file: str
    site_digest: str
    batches: tuple[Batch, ...]
    specs: Mapping[str, str]
    """The short hash of what is measured, by the folder of its steps."""
    account: str | None = None
    reservation: str | None = None
    sbatch: tuple[str, ...] = ()
    limit: int | None = None
    jax_image: str | None = None
    wrapper: str | None = None
    baseline: tuple[str, ...] = ()
    into: str | None = None

    @property
    def node_sets(self) -> list[tuple[str, ...]]:
        """All sets of nodes, in the order in which they were chosen."""
        return list(dict.fromkeys(nodes for batch in self.batches for nodes in batch.node_sets))

    def about(self) -> dict[str, object]:
        """Give run.json."""
        spec = hashlib.sha256(json.dumps(sorted(self.specs.items())).encode()).hexdigest()[:12]
        return asdict(self) | {"node_sets": self.node_sets, "spec": spec}


def parse_asked(about: Mapping[str, object], place: str) -> Asked:
    """Read run.json back; `place` names it in messages. Raises `ResolveError`."""
    try:
        return decode_values(about, Asked, place, (_faults,))
    except SiteError as error:
        raise ResolveError(f"{error.problems[0]} (this lumisite wrote no such file, or it is damaged)") from None


def _faults(asked: Asked) -> Iterator[tuple[str, str]]:
    if not asked.batches:
        yield "batches", "has none"


def site_digest(loaded: LoadedSite) -> str:
    """Tell a site description from another one, by its text."""
    return hashlib.sha256(loaded.data).hexdigest()[:16]


def require_unchanged(asked: Asked, loaded: LoadedSite, version: str, image_digest: str, place: str) -> None:
    """Raise `ResolveError` where going on would measure something else than the run began with."""
    why = ""
    if asked.lumisite != version:
        why = f"it was begun with lumisite {asked.lumisite}, and this is {version}"
    elif asked.site_digest != site_digest(loaded):
        why = f"the site description {asked.site_file} has changed since it began"
    elif asked.image_digest != image_digest:
        why = f"{asked.image} is another image than when it began"
    elif any(asked.specs.get(name, spec) != spec for name, spec in setting_of(asked, loaded)[0].specs.items()):
        why = "the scripts of the probes have changed since it began"
    if why:
        raise ResolveError(f"{place}: {why}: what it measures now is not to be mixed with that (start a new run)")


def setting_of(asked: Asked, loaded: LoadedSite, facts: tuple[str, ...] = ()) -> tuple[Setting, list[JobPlan]]:
    """Give what does not change during a run, and its jobs; `facts` is the command that captures a node.

    Raises `ResolveError` for an unknown probe.
    """
    site = loaded.site
    validation = validation_of(site)
    target = Target(site, resolve_selection(site), validation, asked.image, asked.jax_image, asked.wrapper)
    plans: list[JobPlan] = []
    for batch in asked.batches:
        probes = choose_probes(target, batch.probes)
        contents = partial(groups, probes, validation, asked.limit)
        plans += plan_jobs(batch.stamp, asked.folder, batch.node_sets, batch.jobs, contents)
    setting = Setting(
        site=site,
        options=Options(asked.partition, asked.account, asked.reservation, asked.sbatch, facts),
        image_mark=asked.image_digest,
        specs={
            group.folder: spec_hash([script_bytes(name) for step in group.steps for name in step.part.files], group)
            for plan in plans
            for group in plan.groups
        },
    )
    return setting, plans


def with_specs(asked: Asked, loaded: LoadedSite) -> Asked:
    """Note what is measured."""
    return replace(asked, specs={**asked.specs, **setting_of(asked, loaded)[0].specs})
