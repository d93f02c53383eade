"""Settings that the site's ledger knows to hang communicators. What else hangs has no setting to blame."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from lumisite.site.entries import Evidence
from lumisite.site.evidence import harms
from lumisite.site.ledger import Situation, decide, judge_conditions
from lumisite.validate.probes.probe import Record
from lumisite.validate.probes.records import table, text, whole
from lumisite.validate.probes.target import Target


def _in_later_groups(group: int, _doing: str) -> bool:
    return group > 1


def _in_the_first_collective(group: int, doing: str) -> bool:
    return group == 1 and doing != "making"


#: When these hang, which the ledger does not say: by the group, and what was done with it. All need several nodes.
MOMENTS: Mapping[str, Callable[[int, str], bool]] = {
    "FI_MR_CACHE_MONITOR": _in_later_groups,
    "NCCL_NET_GDR_LEVEL": _in_the_first_collective,
}
#: What to do where no setting is to blame.
OTHERWISE = "the step's records have every rank's settings; the probe `transport` keeps the log of NCCL or RCCL"


@dataclass(frozen=True)
class Suspect:
    """A variable that hangs with any value but `needed`, or with one that fits a pattern of `harmful`."""

    name: str
    needed: str | None = None
    harmful: tuple[str, ...] = ()
    advice: str = ""

    def hangs(self, value: str) -> bool:
        """Whether a value is known to hang; empty is not set."""
        if self.needed is not None:
            return value != self.needed
        return any(fnmatchcase(value, pattern) for pattern in self.harmful)


def suspects(target: Target) -> tuple[Suspect, ...]:
    """Give what the ledger knows for the image on several nodes, and what else is shown where none is to blame."""
    if target.plan.backend == "gloo":
        return (Suspect("GLOO_SOCKET_IFNAME"),)
    return (*_from_ledger(target, replace(target.situation, nodes="several")), *map(Suspect, MOMENTS))


def _from_ledger(target: Target, situation: Situation) -> Iterator[Suspect]:
    """What jobs fail without comes before single values that do harm."""
    for verdict in decide(target.site, situation).settings:
        setting = verdict.entry
        needed = next((one for one in setting.evidence if one.effect == "needed"), None)
        if setting.name in MOMENTS and verdict.applies and setting.value is not None and needed is not None:
            advice = _advice("set", f"{setting.name}={setting.value}", needed)
            yield Suspect(setting.name, needed=setting.value, advice=advice)
    for harm in harms(target.site):
        name, evidence = harm.setting.name, harm.evidence
        holds, _ = judge_conditions(evidence.when, situation)
        if name in MOMENTS and (holds or (holds is None and evidence.unknown_images)):
            yield Suspect(name, harmful=harm.patterns, advice=_advice("unset", name, evidence))


def _advice(verb: str, setting: str, evidence: Evidence) -> str:
    what = evidence.what or evidence.effect
    return f"{verb} {setting}: {what} ({evidence.source}); `lumisite why {setting.partition('=')[0]}` has the sources"


def suspicion(record: Record, known: Sequence[Suspect], nodes: int) -> tuple[str, str]:
    """Say which setting of a rank that hangs is to blame, with its value in the container, and what to do."""
    settings = table(record, "settings")
    group, doing = whole(record, "group"), str(record.get("part"))
    for one in known if nodes > 1 else ():
        if one.hangs(text(settings, one.name)) and MOMENTS[one.name](group, doing):
            return f"suspect {_shown(one.name, settings)}", one.advice
    values = ", ".join(_shown(name, settings) for name in dict.fromkeys(one.name for one in known))
    return f"no setting that is known to hang ({values})", OTHERWISE


def _shown(name: str, settings: Record) -> str:
    return f"{name}={settings[name]}" if name in settings else f"{name} (not set)"
