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

    def fits(self, value: str) -> bool:
        """Return whether a value is one of these, whatever its case."""
        return any(fnmatch.fnmatchcase(value.lower(), pattern.lower()) for pattern in self.patterns)


def evidence_of(setting: Setting) -> tuple[Evidence, ...]:
    """Return an entry's evidence; its `source` counts as evidence without a known effect."""
    if setting.source is None:
        return setting.evidence
    by: Literal["documented", "inferred"] = "documented" if setting.confirmed else "inferred"
    return (*setting.evidence, Evidence(effect="unknown", by=by, source=setting.source))


def _patterns(setting: Setting, evidence: Evidence) -> tuple[str, ...]:
    if evidence.of is not None:
        return tuple(evidence.of.split("|"))
    return ("*",) if setting.value is None else (glob.escape(setting.value),)


def harms(site: Site, name: str | None = None) -> Iterator[Harm]:
    """Yield what is known to do harm, of all variables or of one, in ledger order."""
    for setting in site.settings:
        for evidence in setting.evidence if name in (None, setting.name) else ():
            if evidence.effect == "harmful":
                yield Harm(setting, _patterns(setting, evidence), evidence)


def rank(setting: Setting) -> int:
    """Return the rank of an entry among others: the best effect that its own value is known for."""
    effects = [evidence.effect for evidence in evidence_of(setting) if is_about_entry(setting, evidence)]
    return min(map(EFFECTS.index, effects), default=len(EFFECTS))


def checked(setting: Setting) -> str:
    """Return when an entry's value was last measured, and on which platform; `never` if it was not."""
    measured = [
        found for found in setting.evidence if found.by == "measured" and found.effect != "unknown" and found.date
    ]
    latest = max(measured, key=lambda found: str(found.date), default=None)
    if latest is None:
        return "never"
    return f"{latest.date} on platform {latest.platform}" if latest.platform else str(latest.date)


def sets(setting: Setting) -> bool:
    """Return whether an entry gives its variable a value."""
    return not setting.leave and not setting.unset


def is_about_entry(setting: Setting, evidence: Evidence) -> bool:
    """Return whether evidence is about what the entry sets; of what is worked out on the node, `*` alone is."""
    if evidence.of is None:
        return True
    return covers(_patterns(setting, evidence), setting)


def covers(patterns: tuple[str, ...], setting: Setting) -> bool:
    """Return whether patterns of values fit what an entry sets; what is worked out on the node, `*` alone fits."""
    if setting.value is None:
        return "*" in patterns
    return any(fnmatch.fnmatchcase(setting.value, pattern) for pattern in patterns)


def documented_beyond(setting: Setting, measured: Evidence) -> bool:
    """Return whether somebody documents an effect for more nodes than were measured; no number means any."""
    most = measured.nodes.most if measured.nodes is not None else None
    return any(
        found.by != "measured"
        and found.effect in ("needed", "helps")
        and (found.nodes is None or found.nodes.most is None or (most is not None and found.nodes.most > most))
        for found in setting.evidence
    )


def remark(setting: Setting) -> Finding | None:
    """Return for which jobs an entry is that is set although it was measured inert; none for all others."""
    inert = [found for found in setting.evidence if found.effect == "inert" and found.by == "measured" and found.nodes]
    if not sets(setting) or not any(is_about_entry(setting, found) for found in inert):
        return None
    recommended = [
        found for found in setting.evidence if found.by != "measured" and found.effect in ("needed", "helps")
    ]
    sized = any(found.nodes for found in recommended)
    code = "inert-on-fewer-nodes" if sized else "inert-where-measured"
    return make_finding(code, setting.name, size=str(inert[0].nodes), metric=inert[0].metric)


def evidence_text(evidence: Evidence) -> str:
    """Format evidence as one line, without its source."""
    parts = [
        f"platform {evidence.platform}" if evidence.platform else "",
        str(evidence.image or ""),
        f"{evidence.nodes} node{'' if str(evidence.nodes) == '1' else 's'}" if evidence.nodes else "",
        f"{evidence.runs} run{'' if evidence.runs == 1 else 's'}" if evidence.runs else "",
        str(evidence.date or ""),
    ]
    values = f"{evidence.of}: " if evidence.of else ""
    what = f": {evidence.what}" if evidence.what else ""
    where = ", ".join(filter(None, parts))
    by = f"{evidence.by} ({evidence.metric})" if evidence.metric else evidence.by
    known = f"effect not measured ({by} only)" if evidence.effect == "unknown" else f"{evidence.effect}, {by}"
    return f"{values}{known}{what}{f' ({where})' if where else ''}"
