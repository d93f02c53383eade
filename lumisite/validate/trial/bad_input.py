"""What a trial cannot answer is refused before its first job: each with what would be right."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace

from lumisite.errors import ResolveError
from lumisite.site.entries import Setting as Entry
from lumisite.site.ledger import decide
from lumisite.site.load import LoadedSite
from lumisite.validate.probes.probe import Target
from lumisite.validate.run.asked import Asked
from lumisite.validate.run.script import validation_of
from lumisite.validate.trial.design import NAME, Design, Setting, setting_of

#: The beginnings of names that Slurm, the helper or a runtime makes anew in each task.
MADE_ANEW = ("SLURM_", "LUMISITE", "SINGULARITY", "APPTAINER")
#: What a user says to the helper, by which its masks and its choice of GPUs are tried.
SWITCHES = ("LUMISITE_CPU_BIND", "LUMISITE_GPUS")


def settings_of(
    tried: Sequence[str], unset: Sequence[str], against: Sequence[str], target: Target
) -> tuple[list[Setting], list[Setting]]:
    """Read what is tried, and what the reference sets.

    What ranks have already is tried by doing without it: so the reference is what works today.
    """
    wanted = [setting_of(text) for text in tried]
    reference = [setting_of(text, "--against") for text in against]
    for option, read in (("try", wanted), ("--against", reference)):
        if bare := next((one.name for one in read if one.value is None), None):
            raise ResolveError(f"{option}: {bare} has no value (NAME=VALUE, or `--unset {bare}` to try without it)")
    if bad := next((text for text in unset if not NAME.fullmatch(text)), None):
        raise ResolveError(f"--unset: {bad!r} is no name (--unset NAME would be right)")
    wanted += map(Setting, unset)
    for one in (*wanted, *reference):
        _check_name(one, target)
    given = given_to_ranks(target)
    own = [one.name for one in reference]
    turned = [
        Setting(one.name)
        if one.name not in own and (entry := given.get(one.name)) and entry.value == one.value
        else one
        for one in wanted
    ]
    return turned, reference


def given_to_ranks(target: Target) -> dict[str, Entry]:
    """Give the entries of the ledger that surely give ranks a value here, by variable."""
    situation = replace(target.situation, nodes="several" if target.plan.nodes > 1 else "one")
    won = (one.entry for one in decide(target.site, situation).settings if one.outcome == "wins")
    return {entry.name: entry for entry in won if entry.value is not None}


def unmeasured(target: Target) -> list[Setting]:
    """Give what ranks have here by entries that nobody measured on this platform, as trials of doing without each."""
    platforms = (None, target.site.platform)
    return [
        Setting(name)
        for name, entry in given_to_ranks(target).items()
        if not any(one.by == "measured" and one.of is None and one.platform in platforms for one in entry.evidence)
    ]


def _check_name(setting: Setting, target: Target) -> None:
    if setting.name.startswith(MADE_ANEW) and setting.name not in SWITCHES:
        raise ResolveError(f"try: {setting.name} is made anew in each task, whatever it was before")
    own = [one for one in target.site.settings if one.name == setting.name]
    if any(one.computed or one.directory for one in own):
        raise ResolveError(
            f"try: {setting.name} is worked out by the helper on each node, so no value of it can be compared "
            f"(`lumisite why {setting.name}`)"
        )
    for_value = [one for one in own if one.value == setting.value and setting.value is not None]
    if for_value and target.situation.plugin is False and all(one.when.plugin for one in for_value):
        raise ResolveError(
            f"try: {setting} needs the plugin, which {target.image} does not have ({for_value[0].why}; another --image)"
        )


def check_asked(asked: Asked, loaded: LoadedSite, design: Design) -> Asked:
    """Ask for jobs that are as long as the design may take; raises `ResolveError` where less was asked for."""
    words = dict(re.findall(r"^--?(nodes|N|time|t)[= ]?(\S+)$", "\n".join(asked.sbatch), re.MULTILINE))
    nodes = words.get("nodes", words.get("N"))
    if nodes is not None and nodes != str(design.nodes):
        raise ResolveError(f"--sbatch: {nodes} nodes are another allocation than the design's (--nodes {nodes})")
    minutes = design.job_s // 60 + 1
    given = words.get("time", words.get("t"))
    usual = seconds_of(str(validation_of(loaded.site).time_limit))
    if given is not None and (seconds_of(given) or math.inf) < len(design.slots_of(1)) * design.slot_s:
        raise ResolveError(
            f"--sbatch: {given} is less than an allocation may take ({minutes} minutes; fewer settings, "
            "probes or attempts, or a shorter --limit)"
        )
    if given is None and (usual or 0) < design.job_s:
        return replace(asked, sbatch=(*asked.sbatch, f"--time={minutes}"))
    return asked


def seconds_of(text: str) -> int | None:
    """Read a time as Slurm does, sbatch(1); None for what is none.

    >>> seconds_of("90"), seconds_of("1:30"), seconds_of("00:15:00"), seconds_of("1-2"), seconds_of("x")
    (5400, 90, 900, 93600, None)
    """
    found = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text)
    if found is None:
        return None
    days, *parts = (None if part is None else int(part) for part in found.groups())
    numbers = [part for part in parts if part is not None]
    if days is not None or len(numbers) == 3:
        hours, minutes, seconds = (*numbers, 0, 0)[:3]
    else:
        hours, minutes, seconds = 0, *(*numbers, 0)[:2]
    return (((days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds
