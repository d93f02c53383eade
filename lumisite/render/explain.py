"""Why a setting, a bind or a module is what it is: value, rule, reason and source, and what lost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Literal

from lumisite.errors import ResolveError
from lumisite.images.container import covers
from lumisite.render.modules import module_version
from lumisite.site.decode import suggestion
from lumisite.site.entries import Evidence, FileSystem, Setting
from lumisite.site.evidence import checked, evidence_of, evidence_text
from lumisite.site.images import Holds
from lumisite.site.ledger import (
    BindVerdict,
    Decision,
    Situation,
    decide,
    depends_on_image,
    describe_action,
    describe_conditions,
)
from lumisite.site.load import LoadedSite
from lumisite.site.model import Site
from lumisite.site.scalars import TASK
from lumisite.site.selection import Selection, Stack


@dataclass(frozen=True)
class Reference:
    """A source that an entry names, so that a reader can open it; `place` is what the entry says behind its name."""

    id: str
    place: str
    title: str
    address: str
    path: str
    date: str

    def __str__(self) -> str:
        place = "/".join(part for part in (self.path, self.place) if part)
        return f"{self.id}: {self.title}{f', {place}' if place else ''} <{self.address}>"


@dataclass(frozen=True)
class Finding:
    """One piece of evidence; what is not known is empty."""

    effect: str
    by: str
    of: str
    what: str
    platform: str
    image: str
    nodes: str
    runs: int | None
    date: str
    source: str
    text: str


@dataclass(frozen=True)
class Entry:
    """One entry of the site description that speaks about a name, and what became of it."""

    key: str
    outcome: str
    value: str
    rule: str
    where: str
    why: str
    source: str
    checked: str
    evidence: tuple[Finding, ...] = ()
    sources: tuple[Reference, ...] = ()

    def __str__(self) -> str:
        lines = [f"  {self.outcome}: {self.value}", f"    entry   {self.key}, {self.rule}"]
        lines += [f"    set by  {self.where}"] if self.where else []
        lines += [f"    why     {self.why}"]
        lines += [
            f"    {'known   ' if number == 0 else '        '}{one.text}" for number, one in enumerate(self.evidence)
        ]
        listed = [str(one) for one in self.sources] or [self.source]
        lines += [f"    {'source  ' if number == 0 else '        '}{one}" for number, one in enumerate(listed)]
        return "\n".join([*lines, f"    checked {self.checked}"] if self.checked else lines)


@dataclass(frozen=True)
class Explanation:
    """All entries about one name, the winner first."""

    name: str
    kind: Literal["setting", "bind", "module"]
    situation: str
    entries: tuple[Entry, ...]

    def __str__(self) -> str:
        return "\n".join([f"{self.name} ({self.kind}; {self.situation})", *map(str, self.entries)])


def explain(
    loaded: LoadedSite,
    selection: Selection,
    name: str,
    *,
    holds: Holds | None = None,
    nodes: Literal["one", "several"] | None = None,
    partition: str | None = None,
) -> Explanation:
    """Explain `name`: a variable of the ledger, a bound path, or a module with or without its version.

    `holds` is what is known of the image that runs.

    Raises `ResolveError` for a name that the site does not know.
    """
    site = loaded.site
    inside = holds or Holds()
    _known("--family", inside.family, site.families)
    _known("--partition", partition, site.partitions)
    situation = Situation(
        selection.platform,
        selection.cpe[0],
        inside.family,
        inside.rocm,
        inside.plugin,
        nodes,
        None if partition is None else bool(site.kind_of(partition).gpus),
        partition,
    )
    decision = decide(site, situation)
    if any(setting.name == name for setting in site.settings):
        return _explain_setting(site, decision, name)
    if name.startswith("/"):
        return _explain_bind(site, decision, name)
    if name.partition("/")[0] in site.modules:
        return _explain_module(site, selection.stacks[0], name)
    known = [*site.modules, *dict.fromkeys(setting.name for setting in site.settings)]
    raise ResolveError(f"{name}: {site.name} has no setting, bind or module of this name ({suggestion(name, known)})")


def _known(option: str, name: str | None, table: Iterable[str]) -> None:
    if name is not None and name not in table:
        raise ResolveError(f"{option}: {name} is not described ({suggestion(name, table)})")


def _explain_setting(site: Site, decision: Decision, name: str) -> Explanation:
    entries = []
    for verdict in decision.settings:
        setting = verdict.setting
        if setting.name != name:
            continue
        known = evidence_of(setting)
        entries.append(
            Entry(
                key=f"settings[{verdict.index}]",
                outcome=verdict.outcome,
                value=f"{name} {describe_action(setting)}",
                rule=_rule(describe_conditions(setting.when), verdict.reason),
                where=_setter(setting),
                why=setting.why,
                source=_source("; ".join(dict.fromkeys(str(one.source) for one in known)), setting.confirmed),
                checked=checked(setting),
                evidence=tuple(map(_finding, known)),
                sources=tuple(references(site, *(one.source for one in known))),
            )
        )
    return Explanation(name, "setting", _said(decision.situation), _winners_first(entries))


def _explain_bind(site: Site, decision: Decision, path: str) -> Explanation:
    entries = [
        _bind_entry(site, one) for one in decision.binds if covers(one.bind.path, path) or path == one.bind.target
    ]
    if not entries:
        known = [one.bind.path for one in decision.binds]
        raise ResolveError(f"{path}: {site.name} binds no such path ({suggestion(path, known)})")
    return Explanation(path, "bind", _said(decision.situation), _winners_first(entries))


def _bind_entry(site: Site, verdict: BindVerdict) -> Entry:
    bind = verdict.bind
    conditions = describe_conditions(bind.when)
    return Entry(
        key=verdict.key,
        outcome=verdict.outcome,
        value=bind.spec,
        rule=conditions if isinstance(bind, FileSystem) else _rule(conditions, verdict.reason),
        where="" if bind.where is None else "the task prolog" if bind.where == TASK else f"the module {bind.where}",
        why=bind.why,
        source=_source(bind.source, bind.confirmed),
        checked="",
        sources=tuple(references(site, bind.source)),
    )


def _setter(setting: Setting) -> str:
    if setting.where != TASK:
        return f"the module {setting.where}"
    return "the wrapper, which sees the image" if depends_on_image(setting.when) else "the task prolog"


def _finding(one: Evidence) -> Finding:
    return Finding(
        effect=one.effect,
        by=one.by,
        of=one.of or "",
        what=one.what or "",
        platform=one.platform or "",
        image=one.image or "",
        nodes="" if one.nodes is None else str(one.nodes),
        runs=one.runs,
        date=one.date or "",
        source=one.source,
        text=evidence_text(one),
    )


def references(site: Site, *texts: str) -> Iterator[Reference]:
    """Give the sources that texts name, each place once; none where the site has no table of them."""
    seen = set()
    for text in texts:
        for part in text.split(";"):
            name, _, place = part.strip().partition(" ")
            if name in site.sources and (name, place) not in seen:
                seen.add((name, place))
                source = site.sources[name]
                yield Reference(name, place, source.title, source.address, source.path or "", source.date or "")


def _explain_module(site: Site, stack: Stack, name: str) -> Explanation:
    base, _, version = name.partition("/")
    module = site.modules[base]
    chosen = module_version(module, stack)
    if version and version != chosen and version not in module.old_versions:
        raise ResolveError(
            f"{name}: these releases give {base}/{chosen} (choose others with --platform, --cpe, --rocm)"
        )
    decision = decide(site, Situation(stack.platform, stack.cpe))
    binds = ", ".join(bind.spec for bind in decision.bound_by(base)) or "nothing"
    entry = Entry(
        key=f"modules.{base}",
        outcome=f"{base}/{chosen}",
        value=f"binds {binds}",
        rule=f"version by {module.version}"
        + (f", old names {', '.join(module.old_versions)}" * bool(module.old_versions)),
        where=f"loads {', '.join(module.loads)}" if module.loads else "",
        why=module.summary,
        source=f"template modulefiles_src/{module.template}.lua.j2",
        checked="",
    )
    return Explanation(name, "module", f"platform {stack.platform}, cpe {stack.cpe}, rocm {stack.rocm}", (entry,))


def _winners_first(entries: list[Entry]) -> tuple[Entry, ...]:
    order = ("may win", "wins", "lost", "does not apply", "not bound")
    ranked = sorted(entries, key=lambda entry: order.index(entry.outcome))
    if ranked[0].outcome == "may win":
        ranked = [replace(entry, outcome="wins otherwise") if entry.outcome == "wins" else entry for entry in ranked]
    return tuple(ranked)


def _rule(conditions: str, reason: str) -> str:
    return f"when: {conditions}; {reason}" if reason.startswith("needs") else f"when: {conditions}"


def _source(source: str, confirmed: bool) -> str:
    return source if confirmed else f"{source} (not confirmed for this site)"


def _said(situation: Situation) -> str:
    shown = {item.name: getattr(situation, item.name) for item in fields(situation)}
    words = {True: "yes", False: "no"}
    return ", ".join(f"{name} {words.get(value, value)}" for name, value in shown.items() if value is not None)
