"""What `module help` prints on one screen, and the page with all of it that a release has where that is more.

The templates need a module's versions, binds and variables, and those of the modules that it loads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lumisite.machine.masks import mask_tables
from lumisite.machine.topology import topology_of
from lumisite.render.templates import make_environment
from lumisite.site.ledger import Decision, conditions_of, describe_action, describe_condition
from lumisite.site.model import Site
from lumisite.site.scalars import TASK
from lumisite.text import counted, some

#: With the lines that Lmod puts around it, a screen of 60 holds it.
MOST_LINES = 56
#: The default, and the next ones.
MOST_VERSIONS = 3
#: Entries of a list, each with its reason or nothing.
Listing = list[tuple[str, str]]


@dataclass(frozen=True)
class TaskVariable:
    """A variable that tasks get: what becomes of it, why, in which jobs, and what is known of its effect."""

    text: str
    why: str
    conditions: Mapping[str, str]


class HelpTexts(NamedTuple):
    """What `module help` prints, and the page that has all of it; the page is empty where the help has all."""

    help: str
    page: str


def help_texts(
    templates: Mapping[str, str],
    site: Site,
    decision: Decision,
    name: str,
    title: str,
    notices: Sequence[str],
    provides: Iterable[tuple[str, str]],
    loads: Sequence[str],
    versions: Sequence[tuple[str, str]],
    page: str,
) -> HelpTexts:
    """Return the texts for a module `name`.

    `provides` are host libraries and paths, `loads` other modules' full names, `versions` what each stands for;
    `page` is where a deployed release has the page.
    """
    module, (itself, *needed) = site.modules[name], site.loaded_with([name])
    stacks = [site.stacks[stack] for stack in module.version if stack in site.stacks]
    on_host = {id(site.stacks[stack]) for stack in site.host_stacks}
    full = {full_name.split("/")[0]: full_name for full_name in loads}
    data = {
        "name": name,
        "title": title,
        "summary": module.summary,
        "notices": notices,
        "helper": module.helper,
        "command": site.command,
        "real": site.runtime.executable,
        "bind_variable": f"{site.runtime.prefix}_BINDPATH",
        "versions": versions if len(versions) > 1 else (),
        "bound": ", ".join(stack.title for stack in stacks if id(stack) in on_host),
        "brought": ", ".join(stack.title for stack in stacks if id(stack) not in on_host),
        "modules_below": [(f"module help {other}", "") for other in needed],
        "loads": [(full_name, site.modules[full_name.split("/")[0]].summary) for full_name in loads],
        "brought_by": [
            (
                "" if other == name else f", by {full.get(other, other)}",
                _binds(decision, other),
                _variables(site, decision, other),
            )
            for other in (*needed, itself)  # as a load goes
        ],
        "provides": [(path, what) for what, path in provides],
        "image_stack": None if site.gpu_stack is None else site.stacks[site.gpu_stack].title,
        "task_binds": _binds(decision, TASK),
        "task_variables": _task_variables(decision),
        "mpi": [(family.title, family.mpi) for family in site.families.values() if family.mpi],
        "support": support(site),
    }
    environment = make_environment(templates)
    all_of_it = environment.get_template("_manual.txt.j2").render(help=data)
    if all_of_it.count("\n") <= MOST_LINES:
        return HelpTexts(all_of_it, "")
    short = {**data, **_short(site, decision, (*needed, itself), module.helper), "page": page}
    short["some_versions"] = _first_few(versions, name) if len(versions) > 1 else ()
    return HelpTexts(environment.get_template("_help.txt.j2").render(help=short), all_of_it)


def _short(site: Site, decision: Decision, modules: Sequence[str], helper: bool) -> dict[str, object]:
    """Return what one screen says of the binds, variables and CPUs that a task or container gets."""
    places = (*modules, TASK) if helper else modules
    paths = [bind.path for place in places for bind in decision.bound_by(place)]
    variables = {one.text.split(" ")[0] for one in _task_variables(decision)} if helper else set()
    variables |= {str(setting.name) for other in modules for setting in decision.set_by(other)}
    titles: dict[str, list[str]] = {}
    for family in site.families.values():
        if family.mpi:
            titles.setdefault(family.mpi, []).append(family.title)
    return {
        "some_paths": some(paths, 6, ", "),
        "variable_count": counted(len(variables), "environment variable") if variables else "",
        "has_masks": any(mask_tables(topology_of(name, kind)) for name, kind in site.node_kinds.items()),
        "has_gpus": any(kind.gpus for kind in site.node_kinds.values()),
        "mpi_types": [(mpi, some(names, 2, "; ")) for mpi, names in titles.items()],
        "started_by_run": some(
            [family.title for family in site.families.values() if family.activation == "runscript"], 2, "; "
        ),
    }


def _first_few(versions: Sequence[tuple[str, str]], name: str) -> Listing:
    more = len(versions) - MOST_VERSIONS
    return [*versions[:MOST_VERSIONS], *([(f"and {more} more: module spider {name}", "")] if more > 0 else [])]


def _binds(decision: Decision, module: str) -> Listing:
    return [(bind.spec, str(bind.why)) for bind in decision.bound_by(module)]


def _variables(site: Site, decision: Decision, name: str) -> Listing:
    """Return what a module itself sets."""
    entries = [(f"{entry.name} {describe_action(entry)}", str(entry.why)) for entry in decision.set_by(name)]
    if site.modules[name].helper:
        entries.append(("SLURM_TASK_PROLOG = the helper", "srun runs it before each task"))
    return entries


def _task_variables(decision: Decision) -> list[TaskVariable]:
    """Return what a task gets, in ledger order."""
    found = []
    for verdict in decision.settings:
        setting = verdict.entry
        if verdict.applies and setting.where == TASK and not setting.leave:
            conditions = conditions_of(setting.when) if verdict.outcome == "may win" else {}
            words = {name: describe_condition(value) for name, value in conditions.items()}
            action = f"{setting.name} {describe_action(setting)}"
            found.append(TaskVariable(action, str(setting.why), words))
    return found


def support(site: Site) -> str:
    """Return whom to ask."""
    return f"Support: {site.support.name}\n  {site.support.contact}"
