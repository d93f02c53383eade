"""Why a setting, a bind or a module is what it is: value, rule, reason and source, and what lost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Literal

from lumisite.errors import ResolveError
from lumisite.release.modules import module_binds, module_version
from lumisite.site.decode import suggestion
from lumisite.site.load import LoadedSite
from lumisite.site.model import Bind, FileSystem, Site
from lumisite.site.rules import TASK
from lumisite.site.selection import Selection
from lumisite.site.settings import (
    Situation,
    default_family,
    describe_action,
    describe_conditions,
    judge_conditions,
    judge_settings,
)


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

    def __str__(self) -> str:
        lines = [f"  {self.outcome}: {self.value}", f"    entry   {self.key}, {self.rule}"]
        lines += [f"    set by  {self.where}"] if self.where else []
        lines += [f"    why     {self.why}", f"    source  {self.source}"]
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
    family: str | None = None,
    nodes: Literal["one", "several"] | None = None,
    partition: str | None = None,
) -> Explanation:
    """Explain `name`: a variable of the ledger, a bound path, or a module with or without its version.

    Raises `ResolveError` for a name that the site does not know.
    """
    site = loaded.site
    _known("--family", family, site.families)
    _known("--partition", partition, site.partitions)
    situation = Situation(selection.platform, selection.cpe[0], selection.rocm[0], family, nodes, partition)
    if any(setting.name == name for setting in site.settings):
        return _explain_setting(site, situation, name)
    binds: list[Bind | FileSystem] = [*site.file_systems, *site.binds]
    if any(name in (bind.path, getattr(bind, "target", None)) for bind in binds) or name.startswith("/"):
        return _explain_bind(site, situation, name)
    module = name.partition("/")[0]
    if module in site.modules:
        return _explain_module(site, situation, name)
    known = [*site.modules, *dict.fromkeys(setting.name for setting in site.settings)]
    raise ResolveError(f"{name}: {site.name} has no setting, bind or module of this name ({suggestion(name, known)})")


def _known(option: str, name: str | None, table: Iterable[str]) -> None:
    if name is not None and name not in table:
        raise ResolveError(f"{option}: {name} is not described ({suggestion(name, table)})")


def _explain_setting(site: Site, situation: Situation, name: str) -> Explanation:
    entries = []
    for verdict in judge_settings(site, situation, [name]):
        setting = verdict.setting
        checked = f"{setting.checked.date} on platform {setting.checked.platform}" if setting.checked else "never"
        entries.append(
            Entry(
                key=f"settings[{verdict.index}]",
                outcome=verdict.outcome,
                value=f"{name} {describe_action(setting)}",
                rule=_rule(describe_conditions(setting.when), verdict.reason),
                where="the task prolog" if setting.where == TASK else f"the module {setting.where}",
                why=setting.why,
                source=_source(setting.source, setting.confirmed),
                checked=checked,
            )
        )
    return Explanation(name, "setting", _said(situation), _winners_first(entries))


def _explain_bind(site: Site, situation: Situation, path: str) -> Explanation:
    entries = []
    for index, system in enumerate(site.file_systems):
        if path == system.path or path.startswith(f"{system.path}/"):
            outcome = "not bound" if system.where is None else "wins"
            entries.append(_bind_entry(f"file_systems[{index}]", outcome, system.path, "always", system))
    for index, bind in enumerate(site.binds):
        if path in (bind.path, bind.target) or path.startswith(f"{bind.path.rstrip('/')}/"):
            holds, reason = judge_conditions(bind.when, situation)
            outcome = {True: "wins", False: "does not apply", None: "may win"}[holds]
            rule = _rule(describe_conditions(bind.when), reason)
            entries.append(_bind_entry(f"binds[{index}]", outcome, bind.spec, rule, bind))
    if not entries:
        known = [*(system.path for system in site.file_systems), *(bind.path for bind in site.binds)]
        raise ResolveError(f"{path}: {site.name} binds no such path ({suggestion(path, known)})")
    return Explanation(path, "bind", _said(situation), _winners_first(entries))


def _bind_entry(key: str, outcome: str, spec: str, rule: str, item: Bind | FileSystem) -> Entry:
    place = "" if item.where is None else "the task prolog" if item.where == TASK else f"the module {item.where}"
    return Entry(key, outcome, spec, rule, place, item.why, _source(item.source, item.confirmed), "")


def _explain_module(site: Site, situation: Situation, name: str) -> Explanation:
    base, _, version = name.partition("/")
    module = site.modules[base]
    situation = replace(situation, family=situation.family or default_family(site, situation.rocm))
    chosen = module_version(module, situation)
    if version and version != chosen and version not in module.old_versions:
        raise ResolveError(
            f"{name}: these releases give {base}/{chosen} (choose others with --platform, --cpe, --rocm)"
        )
    binds = ", ".join(bind.spec for bind in module_binds(site, base, situation)) or "nothing"
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
    return Explanation(name, "module", _said(situation), (entry,))


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
    return ", ".join(
        f"{item.name} {value}" for item in fields(situation) if (value := getattr(situation, item.name)) is not None
    )
