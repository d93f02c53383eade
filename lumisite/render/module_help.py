"""What the template of `module help` needs: a module's versions, binds and variables, and those that it loads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lumisite.findings.writers import message
from lumisite.render.templates import filled, make_environment
from lumisite.site.evidence import rank, remark
from lumisite.site.ledger import Decision, conditions_of, describe_action, describe_condition
from lumisite.site.model import Site
from lumisite.site.scalars import TASK

#: Entries of a list, each with its reason or nothing.
Listing = list[tuple[str, str]]


@dataclass(frozen=True)
class TaskVariable:
    """A variable that tasks get: what becomes of it, why, in which jobs, and what is known of its effect."""

    text: str
    why: str
    conditions: Mapping[str, str]
    remark: str


def help_text(
    templates: Mapping[str, str],
    site: Site,
    decision: Decision,
    name: str,
    title: str,
    notices: Sequence[str],
    provides: Iterable[tuple[str, str]],
    loads: Sequence[str],
    versions: Sequence[tuple[str, str]],
) -> str:
    """Return the text for a module `name`.

    `provides` are host libraries and paths, `loads` other modules' full names, `versions` what each stands for.
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
        "image_stacks": [site.stacks[stack].title for stack in site.gpu_stacks],
        "task_binds": _binds(decision, TASK),
        "task_variables": _task_variables(decision),
        "mpi": [(family.title, family.mpi) for family in site.families.values() if family.mpi],
        "support": support(site),
    }
    return make_environment(templates).get_template("_help.txt.j2").render(help=data)


def _binds(decision: Decision, module: str) -> Listing:
    return [(bind.spec, str(bind.why)) for bind in decision.bound_by(module)]


def _variables(site: Site, decision: Decision, name: str) -> Listing:
    """Return what a module itself sets."""
    entries = [(f"{entry.name} {describe_action(entry)}", str(entry.why)) for entry in decision.set_by(name)]
    if site.modules[name].helper:
        entries.append(("SLURM_TASK_PROLOG = the helper", "srun runs it before each task"))
    return entries


def _task_variables(decision: Decision) -> list[TaskVariable]:
    """Return what a task gets, what matters most first."""
    found = []
    for verdict in sorted(decision.settings, key=lambda verdict: rank(verdict.entry)):
        setting = verdict.entry
        if verdict.applies and setting.where == TASK and not setting.leave:
            conditions = conditions_of(setting.when) if verdict.outcome == "may win" else {}
            words = {name: describe_condition(value) for name, value in conditions.items()}
            note = remark(setting)
            action = f"{setting.name} {describe_action(setting)}"
            found.append(TaskVariable(action, str(setting.why), words, message(note) if note else ""))
    return found


def support(site: Site) -> str:
    """Return whom to ask."""
    return f"Support: {site.support.name}\n  {site.support.contact}"


def paragraph(text: str) -> str:
    """Fill lines of 78 characters."""
    return filled(text).rstrip("\n")
