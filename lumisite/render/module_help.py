"""What `module help` prints, the users' manual: what to type, what a load brings and why, how to switch it off.

Templates hold no words of it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from lumisite.site.evidence import rank, remark
from lumisite.site.ledger import Decision, describe_action
from lumisite.site.model import Site
from lumisite.site.scalars import TASK


def help_text(
    site: Site,
    decision: Decision,
    name: str,
    title: str,
    notices: Iterable[str],
    provides: Iterable[tuple[str, str]],
    loads: Sequence[str],
    versions: Iterable[tuple[str, str]],
) -> str:
    """Give the text for a module `name`.

    `provides` are host libraries and paths, `loads` other modules' full names, `versions` what each stands for.
    """
    module, (own, *needed) = site.modules[name], site.loaded_with([name])
    full = {one.split("/")[0]: one for one in loads}
    brought: list[str] = []
    for one in (*needed, own):  # as a load goes
        by = "" if one == name else f", by {full.get(one, one)}"
        binds = ((bind.spec, bind.why) for bind in decision.bound_by(one))
        brought.append(_listing(f"Appends to {site.runtime.prefix}_BINDPATH{by}:", binds))
        entries = [(f"{entry.name} {describe_action(entry)}", str(entry.why)) for entry in decision.set_by(one)]
        if site.modules[one].helper:
            entries.append(("SLURM_TASK_PROLOG = the helper", "srun runs it before each task"))
        brought.append(_listing(f"Sets, unless you have set it{by}:", entries))
    run = f"{'srun ' if module.helper else ''}{site.command} exec IMAGE COMMAND"
    brings = "each task gets what stands below, no option is needed" if module.helper else "it gets the binds below"
    sections = [
        title,
        paragraph(f"{module.summary}."),
        *map(paragraph, notices),
        _listing("Type:", ((f"module load {name}", ""), (run, brings))),
        *_versions(site, name, tuple(versions)),
        *(_manual(site, name, needed) if module.helper else ()),
        _listing("Loads:", ((one, site.modules[one.split("/")[0]].summary) for one in loads)),
        *brought,
        _listing("Host libraries behind these binds:", ((path, what) for what, path in provides)),
        paragraph("Keeps in LUMISITE_* what an unload takes back; what you had set before stays yours."),
    ]
    if module.helper:
        sections += _helper_help(site, decision)
    else:
        sections.append(paragraph(f"Unload it before `{site.command} build`, which fails on binds."))
    sections.append(support(site))
    return "\n\n".join(section for section in sections if section) + "\n"


def _versions(site: Site, name: str, versions: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Say which version to choose, and what differs."""
    if len(versions) < 2:
        return
    default = versions[0][0]
    named = [stack for stack in site.modules[name].version if stack in site.stacks]
    bound = ", ".join(site.stacks[stack].title for stack in named if stack in site.host_stacks)
    brought = ", ".join(site.stacks[stack].title for stack in named if stack not in site.host_stacks)
    text = f"Versions: without one you get the default, {default}, which is right for nearly all."
    text += f" {bound} in a version says which libraries of the host are bound." if bound else ""
    text += f" Of {brought} the image that runs decides, whatever the version says." if brought else ""
    yield paragraph(text)
    yield _listing("There are:", versions)


def _manual(site: Site, name: str, needed: Iterable[str]) -> Iterator[str]:
    """Say whose commands users run now, how to switch that off, and where to read on."""
    command, real = site.command, site.runtime.executable or "the next one on PATH"
    yield paragraph(
        "`singularity` and `apptainer` are now wrappers, first on PATH: they add what the image that runs takes, and "
        f"start the real {command} ({real}), or the one that a module of yours has put on PATH. `{command} build` "
        f"gets no binds from this. `type {command}` shows which one you have."
    )
    off = "for one step: helper and wrapper do nothing; the modules' binds stay"
    yield _listing(
        "To switch it off:",
        ((f"LUMISITE=off srun {command} ...", off), (f"module unload {name}", "the environment of before comes back")),
    )
    yield _listing(
        "To read on:",
        (
            (f"LUMISITE_VERBOSE=1 srun {command} ...", "each task says what was set and bound, and why"),
            *((f"module help {one}", "") for one in needed),
            ("lumisite why NAME, lumisite env IMAGE", "the same before a job runs, where lumisite is installed"),
        ),
    )


def support(site: Site) -> str:
    """Say whom to ask."""
    return f"Support: {site.support.name}\n  {site.support.contact}"


def _helper_help(site: Site, decision: Decision) -> list[str]:
    """Say what a task gets, what jobs need first."""
    entries = []
    for one in sorted(decision.settings, key=lambda one: rank(one.entry)):
        if one.applies and one.entry.where == TASK and not one.entry.leave:
            notes = "; ".join(filter(None, (one.reason if one.outcome == "may win" else "", remark(one.entry))))
            reason = f"{one.entry.why} ({notes})" if notes else str(one.entry.why)
            entries.append((f"{one.entry.name} {describe_action(one.entry)}", reason))
    mpi = (
        f"MPI inside {family.title} needs `srun --mpi={family.mpi}`. No module sets that, since it would reach "
        "programs outside of containers too."
        for family in site.families.values()
        if family.mpi
    )
    releases = "".join(f"its {site.stacks[stack].title} release, " for stack in site.gpu_stacks)
    return [
        paragraph(
            "Switches the srun helper on (SLURM_TASK_PROLOG). In each task of a job step it does the following. What "
            f"depends on the image ({releases}its family, its plugin) is decided by the image that runs, "
            "whatever the version of this module."
        ),
        _listing("Binds, where the node has it:", ((bind.spec, bind.why) for bind in decision.bound_by(TASK))),
        _listing("Sets, unless you have set it, what jobs need first:", entries),
        *map(paragraph, mpi),
    ]


def paragraph(text: str, indent: str = "") -> str:
    """Fill lines of 78 characters."""
    return textwrap.fill(
        text, width=78, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _listing(title: str, entries: Iterable[tuple[str, str]]) -> str:
    lines = []
    for entry, why in entries:
        lines += [f"  {entry}", *([paragraph(why, " " * 6)] if why else [])]
    return "\n".join([title, *lines]) if lines else ""
