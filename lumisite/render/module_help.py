"""What `module help` prints: each bind and setting with its reason, and whom to ask. Templates hold no words of it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

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
    loads: Iterable[str],
) -> str:
    """Give the text for a module `name`; `provides` are host libraries and paths, `loads` other modules' full names."""
    module, settings = site.modules[name], decision.set_by(name)
    sections = [
        title,
        paragraph(f"{module.summary}."),
        *map(paragraph, notices),
        _listing(
            f"Appends to {site.runtime.prefix}_BINDPATH:", ((bind.spec, bind.why) for bind in decision.bound_by(name))
        ),
        _listing("Host libraries behind these binds:", ((path, what) for what, path in provides)),
        _listing("Loads:", ((full_name, site.modules[full_name.split("/")[0]].summary) for full_name in loads)),
        _listing("Sets, unless you have set it:", ((f"{s.name} {describe_action(s)}", s.why) for s in settings)),
    ]
    if module.helper:
        sections += _helper_help(site, decision)
    else:
        sections.append(paragraph(f"Unload it before `{site.command} build`, which fails on binds."))
    sections.append(support(site))
    return "\n\n".join(section for section in sections if section) + "\n"


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
        paragraph("LUMISITE=off switches the helper off, LUMISITE_VERBOSE=1 makes it say what it does."),
    ]


def paragraph(text: str, indent: str = "") -> str:
    """Fill lines of 78 characters."""
    return textwrap.fill(
        text, width=78, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _listing(title: str, entries: Iterable[tuple[str, str]]) -> str:
    lines = []
    for entry, why in entries:
        lines += [f"  {entry}", paragraph(why, " " * 6)]
    return "\n".join([title, *lines]) if lines else ""
