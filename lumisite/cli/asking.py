"""Turn the options of `validate` and `baseline` into what a run is asked."""

from __future__ import annotations

import argparse
import os
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from lumisite import __version__
from lumisite.cli.parser import real_path, say
from lumisite.errors import ResolveError
from lumisite.site.load import LoadedSite, load_site
from lumisite.site.model import Site
from lumisite.text import counted
from lumisite.validate.run import slurm
from lumisite.validate.run.asked import Asked, Batch, parse_asked
from lumisite.validate.run.folder import image_mark, lines_of, open_run, samples_of
from lumisite.validate.run.plan import choose_node_sets, require_unchanged, site_digest, with_specs
from lumisite.validate.run.script import validation_of

#: Jobs of a run, by its purpose: five decide (docs/explanation/verdict.md); ten baseline jobs come from three days.
JOBS = {"validate": 5, "baseline": 4}
NODE_SETS = 2
#: Options that a run keeps from its beginning.
KEPT = ("out", "nodes", "partition", "account", "reservation", "sbatch", "limit", "image", "jax_image", "wrapper")
#: Options that only say which jobs are wanted, which `--more` may.
JOBS_WANTED = ("jobs", "node_sets", "nodelist", "avoid", "probe", "dry_run")


def new_run(arguments: argparse.Namespace) -> Asked:
    """Decide all that a run needs."""
    stamp = _stamp()
    folder = real_path(arguments.out or f"lumisite-runs/{stamp[:15]}-{arguments.command}")
    # An unknown probe is told before Slurm is asked.
    asked, loaded = decided(arguments, str(folder), stamp, arguments.jobs or JOBS[arguments.command])
    require_shared(loaded.site, folder, "--out")
    _before(asked)
    return _with_nodes(asked, arguments)


def decided(arguments: argparse.Namespace, folder: str, stamp: str, jobs: int) -> tuple[Asked, LoadedSite]:
    """Give all that options decide but for the nodes, of which only the number is right. Raises `ResolveError`."""
    loaded = load_site(arguments.site)
    site, validation = loaded.site, validation_of(loaded.site)
    nodes = tuple(f"node{number}" for number in range(arguments.nodes or validation.nodes))
    image = arguments.image or validation.image
    is_file = "/" in arguments.site or arguments.site.endswith((".yaml", ".yml"))
    asked = Asked(
        lumisite=__version__,
        site=site.name,
        platform=site.platform,
        purpose=arguments.command,
        image=image,
        image_digest=image_mark(image),
        started=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        backend=validation.backend,
        partition=arguments.partition or validation.partition,
        folder=folder,
        site_file=str(real_path(arguments.site)) if is_file else arguments.site,
        site_digest=site_digest(loaded),
        batches=(Batch(stamp, jobs, (nodes,), tuple(arguments.probe)),),
        specs={},
        sbatch=tuple(arguments.sbatch),
        **{name: getattr(arguments, name) for name in ("account", "reservation", "limit", "jax_image", "wrapper")},
        baseline=_places(getattr(arguments, "baseline", [])),
        into=str(real_path(arguments.into)) if getattr(arguments, "into", None) else None,
    )
    return with_specs(asked, loaded), loaded


def _stamp() -> str:
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{os.getpid() % 1000:03}"


def _places(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(str(real_path(name)) for name in names)


def _before(asked: Asked) -> None:
    """Say what will be missed later, before jobs are spent on it. Raises what a file that cannot be used raises."""
    if not asked.image_digest:
        say(f"{asked.image} is not there on this node: jobs look for it on theirs")
    if asked.into and samples_of(Path(asked.into)).exists():
        lines_of(samples_of(Path(asked.into)), torn=True)
    jobs = asked.batches[-1].jobs
    if asked.baseline and jobs < JOBS["validate"]:
        say(f"{counted(jobs, 'job')} may be too few to decide: {JOBS['validate']} are right")


def require_shared(site: Site, folder: Path, what: str) -> None:
    """Refuse a folder that not all nodes see, or whose name a container's bind or an #SBATCH line would cut."""
    if not re.fullmatch(r"[\w./+@=-]+", str(folder)):
        raise ResolveError(
            f"{what}: {str(folder)!r} has characters that cut binds (letters, digits and ._+@=- are right)"
        )
    shared = [file_system.path for file_system in site.file_systems if file_system.kind == "shared"]
    places = [folder, *folder.parents]
    if not any(real_path(path) in places for path in shared):
        raise ResolveError(f"{what}: {folder} is not on a file system that all nodes see (have {', '.join(shared)})")


def _with_nodes(asked: Asked, arguments: argparse.Namespace) -> Asked:
    """Choose the nodes of the last batch."""
    *earlier, batch = asked.batches
    only = slurm.expand(arguments.nodelist) if arguments.nodelist else None
    avoid = slurm.expand(arguments.avoid) if arguments.avoid else []
    if asked.reservation:
        reserved = slurm.nodes_of_reservation(asked.reservation)
        only = [name for name in reserved if only is None or name in only]
    nodes = slurm.nodes_of(asked.partition)
    size = len(batch.node_sets[0])
    wanted = min(arguments.node_sets or NODE_SETS, batch.jobs)
    taken = [names for one in earlier for names in one.node_sets]
    sets = choose_node_sets(nodes, size, wanted, taken, reserved=bool(asked.reservation), only=only, avoid=avoid)
    if len(sets) == 1 and set(sets[0]) in [set(names) for names in taken]:
        say("there are no other nodes: a regression that was seen on these is not confirmed by these")
    if len(sets) < wanted:
        say(f"only {len(sets)} of {wanted} node sets of {size} can be had: what one set cannot tell stays open")
    return replace(asked, batches=(*earlier, replace(batch, node_sets=tuple(sets))))


def more_jobs(arguments: argparse.Namespace) -> Asked:
    """Add a batch of jobs to what a run was asked."""
    asked, loaded = _recorded_run(arguments, "--more", KEPT)
    probes = tuple(arguments.probe) or asked.batches[0].probes
    batch = Batch(_stamp(), arguments.jobs or JOBS["validate"], asked.batches[0].node_sets[:1], probes)
    asked = replace(asked, batches=(*asked.batches, batch))
    return _with_nodes(with_specs(asked, loaded), arguments)


def resumed_run(arguments: argparse.Namespace) -> Asked:
    """Give what a run that was interrupted was asked."""
    return _recorded_run(arguments, "--resume", (*KEPT, *JOBS_WANTED))[0]


def _recorded_run(arguments: argparse.Namespace, option: str, decided: Sequence[str]) -> tuple[Asked, LoadedSite]:
    """Give what a run was asked, if it can go on as it began. Raises `ResolveError`."""
    place = str(vars(arguments)[option.strip("-")])
    _, about = open_run(real_path(place))
    given = [name.replace("_", "-") for name in decided if getattr(arguments, name)]
    if given:
        raise ResolveError(f"{option}: --{given[0]} was decided when the run began (leave it out)")
    asked = parse_asked(about, f"{option}: {place}/run.json")
    if asked.purpose != arguments.command:
        raise ResolveError(f"{option}: {place} is a run of `{asked.purpose}` (`lumisite {asked.purpose}` goes on)")
    if real_path(place) != Path(asked.folder):
        raise ResolveError(f"{option}: {place} was moved, it began as {asked.folder} (move it back)")
    loaded = load_site(asked.site_file)
    require_unchanged(asked, loaded, __version__, image_mark(asked.image), f"{option}: {place}")
    baseline = _places(getattr(arguments, "baseline", []))
    return replace(asked, baseline=baseline or asked.baseline), loaded
