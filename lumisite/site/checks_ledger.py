"""Rules for the entries that say what jobs get: binds and the settings ledger."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from lumisite.site.decode import suggestion
from lumisite.site.entries import Setting, When
from lumisite.site.evidence import HERE, policy_faults, source_ids
from lumisite.site.faults import Faults, is_file_name, unknown
from lumisite.site.ledger import IMAGE_CONDITIONS, depends_on_image, given_conditions
from lumisite.site.model import Site
from lumisite.site.scalars import TASK, Place

#: Variables that lumisite itself manages; a ledger entry for one would fight with it.
OWN_VARIABLES = ("PATH", "SLURM_TASK_PROLOG", "BASH_ENV", "ENV", "IFS", "LD_PRELOAD", "MODULEPATH")


def places_and_conditions_exist(site: Site) -> Faults:
    """Whatever names a module, family, partition or platform names one that is described."""
    for index, system in enumerate(site.file_systems):
        if system.where is not None:
            yield from unknown(f"file_systems[{index}].where", [system.where], site.modules)
    for index, bind in enumerate(site.binds):
        yield from _condition_faults(site, f"binds[{index}]", bind.where, bind.when)
        if bind.where == TASK and depends_on_image(bind.when):
            right = "the family's `modules`, or a plan of the image, say what an image gets"
            yield f"binds[{index}].when", f"the task prolog binds before any image is known ({right})"
    for index, setting in enumerate(site.settings):
        yield from _condition_faults(site, f"settings[{index}]", setting.where, setting.when)
        for number, one in enumerate(setting.evidence):
            here = f"settings[{index}].evidence[{number}].platform"
            yield from unknown(here, [one.platform] if one.platform else (), site.platforms)


def binds_have_one_owner(site: Site) -> Faults:
    """A path is bound in one place: a module that leaves could otherwise take away another's bind."""
    owners: dict[str, str] = {}
    for here, bind in site.host_paths.items():
        if bind.where is not None and owners.setdefault(bind.path, bind.where) != bind.where:
            yield f"{here}.path", f"{bind.path} is bound by {owners[bind.path]} already (one place for each path)"


def lmod_keeps_binds(site: Site) -> Faults:
    """Lmod (8.6 and 8.7, `path_regularize`) writes some binds in another way into a list of paths."""
    for here, bind in site.host_paths.items():
        untidy = next((part for part in bind.spec.split(",") if not _is_tidy(part)), None)
        if bind.where in site.modules and untidy is not None:
            right = "no space and no / at the end, and no empty option, would be right; where: task keeps it"
            yield here, f"Lmod does not keep {untidy!r} as it is in {site.runtime.prefix}_BINDPATH ({right})"


def _is_tidy(entry: str) -> bool:
    return bool(entry) and entry == entry.strip() and not entry.endswith("/") and "//" not in entry


def _condition_faults(site: Site, here: str, where: Place, when: When) -> Faults:
    yield from unknown(f"{here}.where", [where], [TASK, *site.modules])
    yield from unknown(f"{here}.when.platform", when.platform or (), site.platforms)
    yield from unknown(f"{here}.when.family", when.family or (), site.families)
    yield from unknown(f"{here}.when.partition", when.partition or (), site.partitions)
    if where == TASK:
        return
    early = f"the module {where} cannot know this before the step exists (where: task)"
    unseen = f"the module {where} is loaded before any image is known (where: task, which the image decides)"
    for condition in given_conditions(when):
        if condition in ("nodes", "gpus", "partition"):
            yield f"{here}.when.{condition}", early
        if condition in IMAGE_CONDITIONS:
            yield f"{here}.when.{condition}", unseen
    module = site.modules.get(where)
    if module is not None and when.cpe is not None and module.version not in ("cpe", "cpe-rocm"):
        yield f"{here}.when.cpe", f"versions of {where} do not tell (they are made of: {module.version})"


def settings_say_one_thing(site: Site) -> Faults:
    """Each entry sets, unsets or leaves its variable, and can win somewhere."""
    always: dict[str, int] = {}
    for index, setting in enumerate(site.settings):
        here = f"settings[{index}]"
        forms = _forms(setting)
        if len(forms) != 1:
            said = " and ".join(forms) if forms else "nothing"
            yield here, f"{setting.name} says {said} (one of value, directory, computed, unset, leave would be right)"
        yield from _directory_faults(here, setting)
        if not setting.evidence and setting.source is None:
            yield here, f"{setting.name} has no evidence (`evidence:`, or `source:` alone where no effect is known)"
        for key, message in policy_faults(setting):
            yield f"{here}.{key}", message
        if setting.where == TASK and ";" in (setting.value or ""):
            yield f"{here}.value", "contains ';', which separates what the helper remembers of its own settings"
        if setting.computed and depends_on_image(setting.when):
            yield f"{here}.computed", "is worked out before any image is known (no rocm, family or plugin in `when`)"
        if setting.where != TASK and (setting.directory or setting.computed or setting.unset):
            yield here, "a module can only set a value or leave it (where: task)"
        if setting.name in OWN_VARIABLES or setting.name.startswith("LUMISITE") or "_BIND" in setting.name:
            yield f"{here}.name", f"{setting.name} is not for the ledger: lumisite manages it itself, or it is unsafe"
        if setting.name in always:
            yield here, f"never wins: settings[{always[setting.name]}] sets {setting.name} without conditions before it"
        elif not given_conditions(setting.when):
            always[setting.name] = index


def _forms(setting: Setting) -> list[str]:
    given = {
        "value": setting.value is not None,
        "directory": setting.directory is not None,
        "computed": setting.computed is not None,
        "unset": setting.unset,
        "leave": setting.leave,
    }
    return [form for form, present in given.items() if present]


def _directory_faults(here: str, setting: Setting) -> Faults:
    if setting.directory is None:
        if setting.with_directories:
            yield f"{here}.with_directories", f"{setting.name} names no directory that these could be in"
        return
    parts = setting.directory.replace("{rank}", "0").split("/")
    if not all(map(is_file_name, parts)):
        yield f"{here}.directory", f"{setting.directory!r} is not a relative path of plain names"
    for number, name in enumerate(setting.with_directories):
        if not is_file_name(name):
            yield f"{here}.with_directories[{number}]", f"{name!r} is not a plain name"


def sources_are_described(site: Site) -> Faults:
    """Where the site has a table of sources, each `source` is made of its names."""
    if not site.sources:
        for index, setting in enumerate(site.settings):
            if setting.evidence:
                yield f"settings[{index}].evidence", "has sources, which a table `sources` would describe"
        return
    for path, text in _sources(site, ""):
        for name in source_ids(text):
            if name != HERE and name not in site.sources:
                yield path, f"{name} is not in `sources` ({suggestion(name, [*site.sources, HERE])})"


def _sources(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Give each `source` of a description with its key path."""
    if isinstance(value, tuple):
        for index, one in enumerate(value):
            yield from _sources(one, f"{path}[{index}]")
    elif hasattr(value, "items"):
        for name, one in value.items():
            yield from _sources(one, f"{path}.{name}" if path else name)
    elif is_dataclass(value):
        for item in fields(value):
            below, here = getattr(value, item.name), f"{path}.{item.name}" if path else item.name
            if item.name == "source" and below is not None:
                yield here, str(below)
            else:
                yield from _sources(below, here)
