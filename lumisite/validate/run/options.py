"""The request that the options of `validate` make: folder, image and nodes, checked before any job is submitted."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

from lumisite import __version__
from lumisite.errors import ResolveError, ToolError
from lumisite.findings import writers
from lumisite.images.lock import unlike_lock
from lumisite.paths import MODULES, current
from lumisite.site.load import LoadedSite, is_file
from lumisite.site.model import Site
from lumisite.validate.run import slurm
from lumisite.validate.run.folder import SAMPLES, image_mark, lines_of
from lumisite.validate.run.jobscript import validation_of
from lumisite.validate.run.plan import MOST_NODES, STEP_NODES, choose_node_sets, machine_sets, site_digest, with_specs
from lumisite.validate.run.request import KEPT_OPTIONS, RunRequest
from lumisite.validate.verdict.jobs_needed import FIRST_AFTER, LEAST_BEFORE, NODE_SETS

#: Jobs of a run, by its purpose; those of a baseline come from several days.
JOBS = {"validate": FIRST_AFTER, "baseline": LEAST_BEFORE}
#: Prints a note.
Note = Callable[[str], None]


def new_request(arguments: SimpleNamespace, loaded: LoadedSite, note: Note) -> RunRequest:
    """Decide all that a run needs; `arguments` are the options by their names.

    Raises `ResolveError`, and `ToolError` for what the system refuses, such as a damaged baseline to add to.
    """
    stamp = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{os.getpid() % 1000:03}"
    purpose = "baseline" if arguments.baseline else "validate"
    folder = real_path(arguments.out or f"lumisite-runs/{stamp[:15]}-{purpose}")
    # An unknown probe is reported before Slurm is queried.
    request = with_specs(_make_request(arguments, loaded, purpose, str(folder), stamp), loaded)
    if not arguments.dry_run:
        require_shared(loaded.site, folder, "--out")
        require_deployed(loaded.site)
    if ignored := slurm.ignored_options():
        note(f"{', '.join(ignored)} of this shell not passed to sbatch (use the options of validate, or --sbatch)")
    if not request.image_digest:
        note(f"{request.image} is not there on this node: jobs look for it on theirs")
    if request.into and (path := Path(request.into) / SAMPLES).exists():
        lines_of(path, torn=True)
    if replaced := unlike_lock(loaded, request.image, request.image_digest):
        note(writers.sentence(replaced))
    return with_nodes(request, arguments, note)


def _make_request(arguments: SimpleNamespace, loaded: LoadedSite, purpose: str, folder: str, stamp: str) -> RunRequest:
    """Return the request that the options make, with made-up names of nodes."""
    site, validation = loaded.site, validation_of(loaded.site)
    nodes = tuple(f"node{number}" for number in range(arguments.nodes or validation.nodes))
    sets, step_nodes = node_sets_of(arguments, nodes)
    image = arguments.image or validation.image
    return RunRequest(
        lumisite=__version__,
        site=site.name,
        platform=site.platform,
        purpose=purpose,
        image=image,
        image_digest=image_mark(image),
        started=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        backend=validation.backend,
        partition=arguments.partition or validation.partition,
        folder=folder,
        site_file=str(real_path(arguments.site)) if is_file(arguments.site) else arguments.site,
        site_digest=site_digest(loaded),
        stamp=stamp,
        # Each set of a machine is measured once, unless more jobs are requested.
        jobs=len(sets) * (arguments.jobs or 1) if step_nodes else arguments.jobs or JOBS[purpose],
        node_sets=sets,
        probes=tuple(arguments.probe),
        specs={},
        sbatch=tuple(arguments.sbatch),
        **{name: getattr(arguments, name) for name in KEPT_OPTIONS},
        env=dict(map(parse_assignment, arguments.env)),
        before=real_paths(arguments.before),
        into=str(real_path(arguments.into)) if arguments.into else None,
        step_nodes=step_nodes,
    )


def parse_assignment(text: str) -> tuple[str, str]:
    """Return the name and the value of a variable that is to be set. Raises `ResolveError`."""
    name, equals, value = text.partition("=")
    if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or not value.isprintable():
        raise ResolveError(f"--env: {text!r} does not set a variable (NCCL_ALGO=Ring would)")
    return name, value


def node_sets_of(arguments: SimpleNamespace, nodes: tuple[str, ...]) -> tuple[tuple[tuple[str, ...], ...], int | None]:
    """Return the sets of nodes that jobs have, and of how many nodes each is where the nodes are divided."""
    if arguments.step_nodes is None and len(nodes) <= MOST_NODES:
        return (nodes,), None
    size = min(arguments.step_nodes or STEP_NODES, len(nodes))
    return tuple(machine_sets(nodes, size)), size


def real_path(name: str | Path) -> Path:
    """Return a path without links. Links in a circle stay, for what opens the path to report."""
    return Path(os.path.realpath(name))


def real_paths(names: Sequence[str]) -> tuple[str, ...]:
    """Return paths without links."""
    return tuple(str(real_path(name)) for name in names)


def require_shared(site: Site, folder: Path, what: str) -> None:
    """Refuse a folder that not all nodes see, or whose name a container's bind or an #SBATCH line would cut."""
    if not re.fullmatch(r"[\w./+@=-]+", str(folder)):
        raise ResolveError(
            f"{what}: {str(folder)!r} has characters that separate binds (use letters, digits and ._+@=-)"
        )
    shared = [file_system.path for file_system in site.file_systems if file_system.kind == "shared"]
    places = [folder, *folder.parents]
    if not any(real_path(path) in places for path in shared):
        raise ResolveError(f"{what}: {folder} is not on a file system that all nodes see (have {', '.join(shared)})")


def require_deployed(site: Site) -> None:
    """Refuse to submit jobs that could not load the site's module."""
    if not Path(current(site.root, MODULES)).is_dir():
        raise ToolError(
            f"{site.root}: nothing is deployed here, or this node does not see it: jobs could not load the module "
            f"(`lumisite render`, then `lumisite deploy OUT {site.root} --apply`)"
        )


def with_nodes(request: RunRequest, arguments: SimpleNamespace, note: Note) -> RunRequest:
    """Choose the nodes; what is only printed where there is no Slurm leaves them to Slurm."""
    if arguments.dry_run and not slurm.is_installed():
        return request
    only = slurm.expand(arguments.nodelist) if arguments.nodelist else None
    avoid = slurm.expand(arguments.avoid) if arguments.avoid else []
    if request.reservation:
        reserved = slurm.nodes_of_reservation(request.reservation)
        only = [name for name in reserved if only is None or name in only]
    nodes = slurm.nodes_of(request.partition)
    size = len(request.nodes) if request.step_nodes else len(request.node_sets[0])
    count = 1 if request.step_nodes else min(arguments.node_sets or NODE_SETS, request.jobs)
    reasons = slurm.reasons_of([name for name, state in nodes.items() if state not in slurm.IN_SERVICE])
    sets = choose_node_sets(
        nodes, size, count, reserved=bool(request.reservation), only=only, avoid=avoid, reasons=reasons
    )
    if len(sets) < count:
        note(
            f"only {len(sets)} of {count} disjoint sets of {size} nodes available: with one set alone, a slow node "
            "looks like a slow system"
        )
    if request.step_nodes:
        sets = machine_sets(sets[0], len(request.node_sets[0]))
    return replace(request, node_sets=tuple(sets))
