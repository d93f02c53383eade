"""Rules for binds and for the entries of the settings ledger."""

from __future__ import annotations

from lumisite.findings.catalogue import make_finding
from lumisite.site.decode import Faults, Rule, wrong_type
from lumisite.site.entries import Bind, Setting
from lumisite.site.evidence import covers, harms, sets
from lumisite.site.ledger import (
    STEP_CONDITIONS,
    conditions_of,
    decided_by_image,
    depends_on_image,
    describe_conditions,
    exclude,
    image_conditions,
)
from lumisite.site.model import Site
from lumisite.site.references import PATTERN_SIGNS, shell_sign
from lumisite.site.scalars import TASK, is_file_name

#: What an entry of the ledger can do to its variable.
_FORMS = ("value", "directory", "computed", "unset", "leave")
#: Variables that lumisite itself manages; a ledger entry for one would fight with it.
RESERVED_VARIABLES = ("PATH", "SLURM_TASK_PROLOG", "BASH_ENV", "ENV", "IFS", "LD_PRELOAD", "MODULEPATH")


def nothing_is_left_for_a_shell(site: Site) -> Faults:
    """Paths and values are meant as they are: nothing expands `$NAME`, and no bind is a pattern."""
    for path, bind in site.host_paths.items():
        for key in ("path", "target"):
            if (sign := shell_sign(getattr(bind, key) or "", PATTERN_SIGNS)) and not bind.exact:
                yield make_finding("shell-sign", f"{path}.{key}", sign=sign)
    for index, setting in enumerate(site.settings):
        if (sign := shell_sign(setting.value or "")) and not setting.exact:
            yield make_finding("shell-sign", f"settings[{index}].value", sign=sign)


def modules_keep_their_binds(site: Site) -> Faults:
    """A path is bound in one place: a module that leaves could otherwise take away another's bind.

    Lmod (8.6 and 8.7, `path_regularize`) writes some binds in another way into a list of paths.
    """
    owners: dict[str, str] = {}
    for path, bind in site.host_paths.items():
        if bind.where is not None and owners.setdefault(bind.path, bind.where) != bind.where:
            yield make_finding("bind-repeated", f"{path}.path", path=bind.path, first=owners[bind.path])
        for part in bind.spec.split(",") if bind.where in site.modules else ():
            if not part or part != part.strip() or part.endswith("/") or "//" in part:
                variable = f"{site.runtime.prefix}_BINDPATH"
                yield make_finding("bind-unfit-for-lmod", path, bind=part, variable=variable)
                break


def conditions_can_be_known(site: Site) -> Faults:
    """What takes effect before the step, or before the image is known, has no conditions about those."""
    lists: dict[str, tuple[Bind | Setting, ...]] = {"binds": site.binds, "settings": site.settings}
    for name, entries in lists.items():
        for index, entry in enumerate(entries):
            yield from _condition_faults(site, f"{name}[{index}].when", entry)


def _condition_faults(site: Site, path: str, entry: Bind | Setting) -> Faults:
    if entry.where == TASK:
        if isinstance(entry, Bind) and depends_on_image(site, entry.when):
            yield make_finding("condition-unknowable", path)
        return
    module = site.modules[entry.where]
    for condition in conditions_of(entry.when):
        key, name = f"{path}.{'stacks.' if condition in site.stacks else ''}{condition}", str(entry.where)
        if condition in (*STEP_CONDITIONS, *image_conditions(site)):
            yield make_finding("condition-unknowable", key, module=name, condition=condition)
        elif condition in site.stacks and condition not in module.version:
            yield make_finding("condition-unknowable", key, module=name, stack=condition)


def settings_are_unambiguous(site: Site) -> Faults:
    """Each entry sets, unsets or leaves its variable, and can win somewhere."""
    unconditional: dict[str, int] = {}
    for index, setting in enumerate(site.settings):
        path = f"settings[{index}]"
        yield from _form_faults(path, setting)
        if setting.where == TASK and ";" in (setting.value or ""):
            # It parts what the helper remembers of its own settings.
            yield make_finding("character-unfit", f"{path}.value", value=setting.value, character=";")
        if setting.computed and decided_by_image(site, setting):
            yield make_finding("condition-unknowable", f"{path}.computed", conditions=image_conditions(site))
        if setting.when.libfabric is not None and not setting.leave:
            yield make_finding("condition-unknowable", f"{path}.when.libfabric", conditions=("libfabric",))
        if setting.where != TASK and (setting.directory or setting.computed or setting.unset):
            yield make_finding("setting-unfit-for-module", path)
        if setting.name in RESERVED_VARIABLES or setting.name.startswith("LUMISITE") or "_BIND" in setting.name:
            yield make_finding("name-reserved", f"{path}.name", name=setting.name)
        if setting.name in unconditional:
            yield make_finding("entry-never-used", path, first=f"settings[{unconditional[setting.name]}]")
        elif not conditions_of(setting.when):
            unconditional[setting.name] = index


def _form_faults(path: str, setting: Setting) -> Faults:
    """Yield what is wrong with what an entry does."""
    forms = tuple(form for form in _FORMS if getattr(setting, form) not in (None, False))
    if len(forms) != 1:
        yield make_finding("setting-ambiguous", path, name=setting.name, forms=forms, allowed=_FORMS)
    if not all(map(is_file_name, (setting.directory or "x").replace("{rank}", "0").split("/"))):
        yield wrong_type(str(setting.directory), "plain relative path", "caches/db").finding(f"{path}.directory")
    for number, name in enumerate(setting.with_directories):
        if not is_file_name(name):
            yield wrong_type(name, "plain name", "db").finding(f"{path}.with_directories[{number}]")


def settings_do_no_harm(site: Site) -> Faults:
    """No entry sets a value where it does harm; its `when` leaves that out."""
    for index, setting in enumerate(site.settings):
        for harm in harms(site, setting.name) if sets(setting) else ():
            if covers(harm.patterns, setting) and not exclude(setting.when, harm.harmful.when):
                where = describe_conditions(harm.harmful.when)
                yield make_finding("harmful-value-set", f"settings[{index}]", setting=setting.name, conditions=where)


LEDGER_RULES: tuple[Rule, ...] = (
    conditions_can_be_known,
    nothing_is_left_for_a_shell,
    modules_keep_their_binds,
    settings_are_unambiguous,
    settings_do_no_harm,
)
