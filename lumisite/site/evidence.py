"""What is known of the ledger's entries: how strong it is, what follows from it, and where a reader can look."""

from __future__ import annotations

import fnmatch
import glob
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from lumisite.findings.catalogue import make_finding
from lumisite.findings.finding import Finding
from lumisite.site.entries import Evidence, Setting
from lumisite.site.model import Site

#: The name of a source that every site has: what was read or measured on the machine itself.
HERE = "here"
#: From what matters most to what matters least, as `module help` lists settings.
EFFECTS = ("needed", "helps", "unknown", "inert", "harmful")


@dataclass(frozen=True)
class Harm:
    """Values of a variable that do harm, as `patterns` of the shell, where the conditions of `evidence` hold."""

    setting: Setting
    patterns: tuple[str, ...]
    evidence: Evidence


def evidence_of(setting: Setting) -> tuple[Evidence, ...]:
    """Give an entry's evidence; its `source` says that somebody wrote of it, and nothing of the effect."""
    if setting.source is None:
        return setting.evidence
    by: Literal["documented", "inferred"] = "documented" if setting.confirmed else "inferred"
    return (*setting.evidence, Evidence(effect="unknown", by=by, source=setting.source))


def _patterns(setting: Setting, evidence: Evidence) -> tuple[str, ...]:
    if evidence.of is not None:
        return tuple(evidence.of.split("|"))
    return ("*",) if setting.value is None else (glob.escape(setting.value),)


def harms(site: Site, name: str | None = None) -> Iterator[Harm]:
    """Give all that is known to do harm, of all variables or of one, in ledger order."""
    for setting in site.settings:
        for evidence in setting.evidence if name in (None, setting.name) else ():
            if evidence.effect == "harmful":
                yield Harm(setting, _patterns(setting, evidence), evidence)


def rank(setting: Setting) -> int:
    """Give the place of an entry among others: the best effect that its own value is known for."""
    own = [one.effect for one in evidence_of(setting) if about_own(setting, one)]
    return min((EFFECTS.index(effect) for effect in own), default=len(EFFECTS))


def checked(setting: Setting) -> str:
    """Say when an entry's value was last measured, and on which platform; `never` if it was not."""
    own = [one for one in setting.evidence if one.by == "measured" and one.effect != "unknown" and one.date]
    latest = max(own, key=lambda one: str(one.date), default=None)
    if latest is None:
        return "never"
    return f"{latest.date} on platform {latest.platform}" if latest.platform else str(latest.date)


def sets(setting: Setting) -> bool:
    """Return whether an entry gives its variable a value."""
    return not setting.leave and not setting.unset


def about_own(setting: Setting, one: Evidence) -> bool:
    """Tell whether evidence is about what the entry sets; of what is worked out on the node, `*` alone is."""
    if one.of is None:
        return True
    return covers(_patterns(setting, one), setting)


def covers(patterns: tuple[str, ...], setting: Setting) -> bool:
    """Return whether patterns of values fit what an entry sets; what is worked out on the node, `*` alone fits."""
    if setting.value is None:
        return "*" in patterns
    return any(fnmatch.fnmatchcase(setting.value, pattern) for pattern in patterns)


def documented_beyond(setting: Setting, measured: Evidence) -> bool:
    """Tell whether somebody documents an effect for more nodes than were measured; no number means any."""
    most = measured.nodes.most if measured.nodes is not None else None
    return any(
        one.by != "measured"
        and one.effect in ("needed", "helps")
        and (one.nodes is None or one.nodes.most is None or (most is not None and one.nodes.most > most))
        for one in setting.evidence
    )


def remark(setting: Setting) -> Finding | None:
    """Return for which jobs an entry is that is set although it was measured inert; none for all others."""
    inert = [one for one in setting.evidence if one.effect == "inert" and one.by == "measured" and one.nodes]
    if not sets(setting) or not any(about_own(setting, one) for one in inert):
        return None
    sized = any(one.nodes for one in setting.evidence if one.by != "measured" and one.effect in ("needed", "helps"))
    code = "inert-on-fewer-nodes" if sized else "inert-where-measured"
    return make_finding(code, setting.name, size=str(inert[0].nodes), metric=inert[0].metric)


def evidence_text(one: Evidence) -> str:
    """Write evidence as one line, without its source."""
    where = [
        f"platform {one.platform}" if one.platform else "",
        str(one.image or ""),
        f"{one.nodes} node{'' if str(one.nodes) == '1' else 's'}" if one.nodes else "",
        f"{one.runs} run{'' if one.runs == 1 else 's'}" if one.runs else "",
        str(one.date or ""),
    ]
    said = f"{one.of}: " if one.of else ""
    what = f": {one.what}" if one.what else ""
    place = ", ".join(part for part in where if part)
    by = f"{one.by} ({one.metric})" if one.metric else one.by
    known = f"effect not measured ({by} only)" if one.effect == "unknown" else f"{one.effect}, {by}"
    return f"{said}{known}{what}{f' ({place})' if place else ''}"
