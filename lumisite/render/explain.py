"""Why a setting, a bind or a module is what it is: value, rule, reason and source, and what lost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from lumisite.errors import ResolveError
from lumisite.findings.finding import Finding, Severity
from lumisite.machine.tree import is_under
from lumisite.site.decode import unknown_name
from lumisite.site.entries import FileSystem, HostPath, Setting
from lumisite.site.images import Holds
from lumisite.site.ledger import (
    Situation,
    Verdict,
    decide,
    depends_on_image,
    describe_action,
    describe_conditions,
    image_conditions,
    of_modules,
)
from lumisite.site.load import LoadedSite
from lumisite.site.model import Site
from lumisite.site.scalars import TASK
from lumisite.site.selection import PLATFORM, Combination, Selection, module_version, option_of


@dataclass(frozen=True)
class Reference:
    """A source that an entry names, so that a reader can open it; `place` is what the entry says behind its name."""

    id: str
    place: str
    title: str
    address: str
    date: str

    def __str__(self) -> str:
        return f"{self.id}: {self.title}{f', {self.place}' if self.place else ''} <{self.address}>"


@dataclass(frozen=True)
class EntryOutcome:
    """One entry of the site description that speaks about a name, and what became of it."""

    key: str
    outcome: str
    value: str
    rule: str
    where: str
    why: str
    source: str
    evidence: str = ""
    needs: tuple[str, ...] = ()
    sources: tuple[Reference, ...] = ()

    def __str__(self) -> str:
        lines = [f"  {self.outcome}: {self.value}", f"    entry   {self.key}, {self.rule}"]
        lines += [f"    set by  {self.where}"] if self.where else []
        lines += [f"    why     {self.why}"]
        lines += [f"    evidence {self.evidence}"] if self.evidence else []
        lines += [f"    needs   {need}" for need in self.needs]
        for number, text in enumerate([str(source) for source in self.sources] or [self.source]):
            lines.append(f"    {'' if number else 'source':8}{text}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Explanation:
    """All entries about one name, the winner first."""

    name: str
    kind: Literal["setting", "bind", "module"]
    situation: str
    entries: tuple[EntryOutcome, ...]

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
    if partition is not None and partition not in site.partitions:
        raise ResolveError(unknown_name("--partition", partition, "partition", site.name, site.partitions))
    situation = replace(
        of_modules(site, selection.default).with_image(inside),
        nodes=nodes,
        gpus=None if partition is None else bool(site.kind_of(partition).gpus),
        partition=partition,
        kind=None if partition is None else site.partitions[partition].node_kind,
    )
    decision = decide(site, situation)
    known = _known(site, situation, holds)
    if settings := [_entry(site, verdict) for verdict in decision.settings if verdict.entry.name == name]:
        return _explained(name, "setting", known, settings)
    if name.startswith("/"):
        paths = [verdict.entry.path for verdict in decision.binds]
        if binds := [
            _entry(site, verdict)
            for verdict in decision.binds
            if is_under(name, verdict.entry.path) or name == verdict.entry.target
        ]:
            return _explained(name, "bind", known, binds)
        raise ResolveError(unknown_name(name, name, "bind", site.name, paths))
    if name.partition("/")[0] in site.modules:
        return _explain_module(site, selection.default, name)
    names = [*site.modules, *site.stacks, *dict.fromkeys(setting.name for setting in site.settings)]
    raise ResolveError(unknown_name(name, name, "setting, bind, module or component", site.name, names))


def _known(site: Site, situation: Situation, holds: Holds | None) -> str:
    """Describe a situation; of an image that was asked about also what is not known."""
    words = {True: "yes", False: "no"}
    known = {item: str(words.get(value, value)) for item, value in situation.known().items()}
    if holds is not None:
        known = {**dict.fromkeys((item for item in image_conditions(site) if item != "family"), "not known"), **known}
    return ", ".join(f"{item} {value}" for item, value in known.items())


def _explained(name: str, kind: Literal["setting", "bind"], situation: str, entries: list[EntryOutcome]) -> Explanation:
    """Sort the winner first; where another may win before it, it wins otherwise."""
    order = ("may win", "wins", "lost", "does not apply", "not bound")
    ranked = sorted(entries, key=lambda entry: order.index(entry.outcome))
    if ranked[0].outcome == "may win":
        ranked = [replace(entry, outcome="wins otherwise") if entry.outcome == "wins" else entry for entry in ranked]
    return Explanation(name, kind, situation, tuple(ranked))


def _entry(site: Site, verdict: Verdict[Setting] | Verdict[HostPath]) -> EntryOutcome:
    entry = verdict.entry
    by_image = depends_on_image(site, entry.when)
    setter = "the wrapper, which sees the image" if by_image else "the task prolog"
    conditions = describe_conditions(entry.when)
    lost = f"; {verdict.reason}" if verdict.holds is False else ""
    name = entry.name if isinstance(entry, Setting) else None
    needs = tuple(f"{need.this}: {need.partner}" for need in site.needs if need.variable == name)
    return EntryOutcome(
        key=verdict.key,
        outcome=verdict.outcome,
        value=f"{entry.name} {describe_action(entry)}" if isinstance(entry, Setting) else entry.spec,
        rule=conditions if isinstance(entry, FileSystem) else f"when: {conditions}{lost}",
        where="" if entry.where is None else setter if entry.where == TASK else f"the module {entry.where}",
        why=entry.why,
        source=str(entry.source) + ("" if entry.confirmed else " (not confirmed for this site)"),
        evidence=str(entry.evidence or "") if isinstance(entry, Setting) else "",
        needs=needs,
        sources=tuple(references(site, str(entry.source))),
    )


def references(site: Site, text: str) -> Iterator[Reference]:
    """Yield the sources that a text names, each place once; none where the site has no table of them."""
    for part in dict.fromkeys(part.strip() for part in text.split(";")):
        name, _, place = part.partition(" ")
        if name in site.sources:
            source = site.sources[name]
            yield Reference(name, place, source.title, source.address, source.date or "")


def _explain_module(site: Site, releases: Combination, name: str) -> Explanation:
    base, _, version = name.partition("/")
    module = site.modules[base]
    chosen = module_version(site, module, releases)
    if version and version != chosen:
        made = () if module.version == (PLATFORM,) else module.version
        options = ", ".join(["--platform", *map(option_of, made)])
        message, advice = f"the chosen releases give {base}/{chosen}", f"choose other releases with {options}"
        raise ResolveError(Finding("release-unavailable", Severity.FAULT, message, advice, name))
    decision = decide(site, of_modules(site, releases))
    binds = ", ".join(bind.spec for bind in decision.bound_by(base)) or "nothing"
    entry = EntryOutcome(
        key=f"modules.{base}",
        outcome=f"{base}/{chosen}",
        value=f"binds {binds}",
        rule=f"version by {' and '.join(module.version)}",
        where=f"loads {', '.join(module.loads)}" if module.loads else "",
        why=module.summary,
        source=f"template modulefiles_src/{module.template}.lua.j2",
    )
    known = [f"platform {releases.platform}", *(f"{stack} {version}" for stack, version in releases.releases.items())]
    return Explanation(name, "module", ", ".join(known), (entry,))
