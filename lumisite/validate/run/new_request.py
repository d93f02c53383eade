"""The request of a new run, from the options of `validate`: its folder, image and nodes, checked before any job."""

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
from lumisite.validate.run.node_sets import MOST_NODES, STEP_NODES, choose_node_sets, machine_sets
from lumisite.validate.run.plan import plans_of, site_digest, validation_of
from lumisite.validate.run.request import RunRequest
from lumisite.validate.run.sbatch_options import passed_on
from lumisite.validate.verdict.jobs_needed import FIRST_AFTER, LEAST_BEFORE, NODE_SETS

#: Jobs of a run, by its purpose; those of a baseline come from several days.
JOBS = {"validate": FIRST_AFTER, "baseline": LEAST_BEFORE}
#: Prints a note.
Note = Callable[[str], None]


def new_request(arguments: SimpleNamespace, loaded: LoadedSite, note: Note) -> RunRequest:
    """Decide all that a run needs; `arguments` are the options by their names.

    Raises `ResolveError`, and `ToolError` for what the system refuses, such as a damaged baseline to add to.
    """
    request = _with_made_up_nodes(arguments, loaded)
    plans_of(request, loaded)  # an unknown probe is reported before Slurm is queried
    if not arguments.dry_run:
        require_shared(loaded.site, Path(request.folder))
        require_deployed(loaded.site)
    if ignored := slurm.ignored_options():
        note(f"{', '.join(ignored)} of this shell not passed to sbatch (use the options of validate, or --sbatch)")
    if not request.image_digest:
        note(f"{request.image} is not there on this node: jobs look for it on theirs")
    if request.into and (path := Path(request.into) / SAMPLES).exists():
        lines_of(path)
    if replaced := unlike_lock(loaded, request.image, request.image_digest):
        note(writers.sentence(replaced))
    if arguments.dry_run and not slurm.is_installed():
        return request
    return replace(request, node_sets=tuple(_node_sets(request, arguments, note)))


def _with_made_up_nodes(arguments: SimpleNamespace, loaded: LoadedSite) -> RunRequest:
    """Return the request that the options make, with as many nodes as it will have."""
    site, validation = loaded.site, validation_of(loaded.site)
    purpose = "baseline" if arguments.baseline else "validate"
    stamp = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{os.getpid() % 1000:03}"
    image = arguments.image or validation.image
    nodes = [f"node{number}" for number in range(arguments.nodes or validation.nodes)]
    step_nodes = None
    if arguments.step_nodes or len(nodes) > MOST_NODES:
        step_nodes = min(arguments.step_nodes or STEP_NODES, len(nodes))
    sets = machine_sets(nodes, step_nodes) if step_nodes else [tuple(nodes)]
    return RunRequest(
        lumisite=__version__,
        site=site.name,
        platform=site.platform,
        purpose=purpose,
        image=image,
        image_digest=image_mark(image),
        started=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        partition=arguments.partition or validation.partition,
        folder=str(real_path(arguments.out or f"lumisite-runs/{stamp[:15]}-{purpose}")),
        site_file=str(real_path(arguments.site)) if is_file(arguments.site) else arguments.site,
        site_digest=site_digest(loaded),
        stamp=stamp,
        # Each set of a machine is measured once, unless more jobs are requested.
        jobs=len(sets) * (arguments.jobs or 1) if step_nodes else arguments.jobs or JOBS[purpose],
        node_sets=tuple(sets),
        probes=tuple(arguments.probe),
        sbatch=passed_on(arguments),
        limit=arguments.limit,
        env=dict(map(parse_assignment, arguments.env)),
        before=real_paths(arguments.before),
        into=str(real_path(arguments.into)) if arguments.into else None,
        step_nodes=step_nodes,
    )


def _node_sets(request: RunRequest, arguments: SimpleNamespace, note: Note) -> list[tuple[str, ...]]:
    """Choose the nodes among those that Slurm has."""
    only = slurm.expand(arguments.nodelist) if arguments.nodelist else None
    avoid = slurm.expand(arguments.avoid) if arguments.avoid else []
    if arguments.reservation:
        reserved = slurm.nodes_of_reservation(arguments.reservation)
        only = [name for name in reserved if only is None or name in only]
    nodes = slurm.nodes_of(request.partition)
    size = len(request.nodes)
    count = 1 if request.step_nodes else min(arguments.node_sets or NODE_SETS, request.jobs)
    reasons = slurm.reasons_of([name for name, state in nodes.items() if state not in slurm.IN_SERVICE])
    sets = choose_node_sets(
        nodes, size, count, reserved=bool(arguments.reservation), only=only, avoid=avoid, reasons=reasons
    )
    if len(sets) < count:
        note(
            f"only {len(sets)} of {count} disjoint sets of {size} nodes available: with one set alone, a slow node "
            "looks like a slow system"
        )
    return machine_sets(sets[0], request.step_nodes) if request.step_nodes else sets


def parse_assignment(text: str) -> tuple[str, str]:
    """Return the name and the value of a variable that is to be set. Raises `ResolveError`."""
    name, equals, value = text.partition("=")
    if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or not value.isprintable():
        raise ResolveError(f"--env: {text!r} does not set a variable (NCCL_ALGO=Ring would)")
    return name, value


def real_path(name: str | Path) -> Path:
    """Return a path without links. Links in a circle stay, for what opens the path to report."""
    return Path(os.path.realpath(name))


def real_paths(names: Sequence[str]) -> tuple[str, ...]:
    """Return paths without links."""
    return tuple(str(real_path(name)) for name in names)


def require_shared(site: Site, folder: Path) -> None:
    """Refuse a folder that not all nodes see, or whose name a container's bind or an #SBATCH line would cut."""
    if not re.fullmatch(r"[\w./+@=-]+", str(folder)):
        todo = "use letters, digits and ._+@=-"
        raise ResolveError(f"--out: {str(folder)!r} has characters that separate binds ({todo})")
    shared = [file_system.path for file_system in site.file_systems if file_system.kind == "shared"]
    if not any(real_path(path) in (folder, *folder.parents) for path in shared):
        raise ResolveError(f"--out: {folder} is not on a file system that all nodes see (have {', '.join(shared)})")


def require_deployed(site: Site) -> None:
    """Refuse to submit jobs that could not load the site's module."""
    if not Path(current(site.root, MODULES)).is_dir():
        raise ToolError(
            f"{site.root}: nothing is deployed here, or this node does not see it: jobs could not load the module "
            f"(`lumisite render`, then `lumisite deploy OUT {site.root} --apply`)"
        )
