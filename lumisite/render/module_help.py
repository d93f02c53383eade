"""What `module help` prints: what to type, what a load does, how to switch it off, what tells more; on one screen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lumisite.machine.masks import mask_tables
from lumisite.machine.topology import topology_of
from lumisite.render.templates import filled
from lumisite.site.ledger import Decision
from lumisite.site.model import Site
from lumisite.site.scalars import TASK
from lumisite.text import counted, some

#: The default, and the next ones.
MOST_VERSIONS = 3
#: Entries of a list, each with its reason or nothing.
Listing = Sequence[tuple[str, str]]


def help_text(
    site: Site,
    decision: Decision,
    name: str,
    title: str,
    notices: Sequence[str],
    versions: Listing,
) -> str:
    """Return the text for a module `name`; `versions` are those that it has, each with what it stands for."""
    module = site.modules[name]
    parts = [title, filled(f"{module.summary}."), *map(filled, notices)]
    parts.append(_listing("Type:", _to_type(site, name)))
    each = ", in each task that srun starts" if module.helper else ""
    does = "".join(f"  - {filled(text, 4).lstrip()}" for text in _effects(site, decision, name))
    parts.append(f"What it does{each}:\n{does}")
    if len(versions) > 1:
        parts.append(_listing("Versions (without one you get the first):", _first_few(versions, name)))
    if module.helper:
        off = [
            ("LUMISITE=off srun ...", "for one step: no settings, no CPU binding; the modules' binds stay"),
            ("LUMISITE_CPU_BIND=off srun ...", "the CPU binding alone; your own `srun --cpu-bind` wins as well"),
            (f"module unload {name}", "your environment is as it was before"),
        ]
        parts.append(_listing("To switch it off:", off))
        parts += [filled(f"MPI inside needs `srun --mpi={mpi}`: {titles}.") for mpi, titles in _mpi_types(site)]
    parts.append(_listing("To read on:", _to_read(site, name)))
    parts.append(support(site))
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def support(site: Site) -> str:
    """Return whom to ask."""
    return f"Support: {site.support.name}\n  {site.support.contact}"


def _listing(title: str, entries: Listing) -> str:
    lines = (f"  {entry}\n{filled(why, 6) if why else ''}" for entry, why in entries)
    return f"{title}\n{''.join(lines)}"


def _to_type(site: Site, name: str) -> Listing:
    by_run = [family.title for family in site.families.values() if family.activation == "runscript"]
    note = f"`run` in place of `exec` for {some(by_run, 2, '; ')}: their runscript prepares them" if by_run else ""
    srun = "srun " if site.modules[name].helper else ""
    return [(f"module load {name}", ""), (f"{srun}{site.command} exec IMAGE COMMAND", note)]


def _effects(site: Site, decision: Decision, name: str) -> Iterator[str]:
    """Yield what a load does, by the module and those that it loads."""
    itself, *needed = site.loaded_with([name])
    modules, helper = [*needed, itself], site.modules[name].helper
    paths = [bind.path for place in [*modules, *([TASK] if helper else [])] for bind in decision.bound_by(place)]
    variables = {setting.name for module in modules for setting in decision.set_by(module)}
    if paths:
        yield f"binds {some(paths, 6, ', ')} into the container"
    if not helper:
        if variables:
            yield f"sets {counted(len(variables), 'environment variable')}; those that you have set stay"
        yield f"unload it before `{site.command} build`, which fails on binds"
        return
    variables |= {
        verdict.entry.name
        for verdict in decision.settings
        if verdict.applies and verdict.entry.where == TASK and not verdict.entry.leave
    }
    yield f"sets {counted(len(variables), 'environment variable')} for network, start-up and caches; yours stay"
    if any(mask_tables(topology_of(kind, node)) for kind, node in site.node_kinds.items()):
        has_gpus = any(node.gpus for node in site.node_kinds.values())
        yield f"binds the task to {'the CPUs near its GPU' if has_gpus else 'CPUs of its own'}, unless you bind it"
    yield (
        "puts wrappers named singularity and apptainer first on PATH, which add what the image that runs takes, and "
        f"start the real {site.command}"
    )


def _first_few(versions: Listing, name: str) -> Listing:
    more = len(versions) - MOST_VERSIONS
    return [*versions[:MOST_VERSIONS], *([(f"and {more} more: module spider {name}", "")] if more > 0 else [])]


def _mpi_types(site: Site) -> Iterator[tuple[str, str]]:
    titles: dict[str, list[str]] = {}
    for family in site.families.values():
        if family.mpi:
            titles.setdefault(family.mpi, []).append(family.title)
    yield from ((mpi, some(names, 2, "; ")) for mpi, names in titles.items())


def _to_read(site: Site, name: str) -> Listing:
    verbose = [("LUMISITE_VERBOSE=1 srun ...", "each node prints what was set and bound")]
    return [
        *(verbose if site.modules[name].helper else []),
        ("lumisite why NAME, lumisite env IMAGE", "one variable or bind with its reason; all that a task will find"),
        *((f"module help {other}", "") for other in site.loaded_with([name])[1:]),
    ]
