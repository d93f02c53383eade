"""Rules for the entries of the settings ledger; each yields (key path, message) for every fault."""

from __future__ import annotations

from lumisite.site.decode import Faults
from lumisite.site.entries import Bind, Setting
from lumisite.site.evidence import covers, harms, policy_faults, sets
from lumisite.site.ledger import (
    STEP_CONDITIONS,
    decided_by_image,
    depends_on_image,
    describe_conditions,
    exclude,
    given_conditions,
    image_conditions,
)
from lumisite.site.model import Site
from lumisite.site.scalars import TASK, is_file_name

#: What an entry of the ledger can do to its variable.
_FORMS = ("value", "directory", "computed", "unset", "leave")
#: Variables that lumisite itself manages; a ledger entry for one would fight with it.
OWN_VARIABLES = ("PATH", "SLURM_TASK_PROLOG", "BASH_ENV", "ENV", "IFS", "LD_PRELOAD", "MODULEPATH")


def conditions_can_be_known(site: Site) -> Faults:
    """What takes effect before the step, or before the image, asks for nothing that only those tell."""
    lists: dict[str, tuple[Bind | Setting, ...]] = {"binds": site.binds, "settings": site.settings}
    for here, one in ((f"{name}[{index}]", one) for name, many in lists.items() for index, one in enumerate(many)):
        if one.where == TASK and isinstance(one, Bind) and depends_on_image(site, one.when):
            right = "the family's `modules`, or a plan of the image, say what an image gets"
            yield f"{here}.when", f"the task prolog binds before any image is known ({right})"
        for condition in given_conditions(one.when) if one.where != TASK else ():
            path, module = f"{here}.when.{condition}", site.modules.get(one.where)
            if condition in STEP_CONDITIONS:
                yield path, f"the module {one.where} cannot know this before the step exists (where: task)"
            elif condition in image_conditions(site):
                right = "where: task, which the image decides"
                yield path, f"the module {one.where} is loaded before any image is known ({right})"
            elif condition in site.stacks and module is not None and condition not in module.version:
                yield path, f"versions of {one.where} do not tell (they are made of: {', '.join(module.version)})"


def settings_say_one_thing(site: Site) -> Faults:
    """Each entry sets, unsets or leaves its variable, and can win somewhere."""
    always: dict[str, int] = {}
    for index, setting in enumerate(site.settings):
        here = f"settings[{index}]"
        forms = [one for one in _FORMS if getattr(setting, one) not in (None, False)]
        if len(forms) != 1:
            said = " and ".join(forms) if forms else "nothing"
            yield here, f"{setting.name} says {said} (one of {', '.join(_FORMS)} would be right)"
        if setting.with_directories and setting.directory is None:
            yield f"{here}.with_directories", f"{setting.name} names no directory that these could be in"
        if not all(map(is_file_name, (setting.directory or "x").replace("{rank}", "0").split("/"))):
            yield f"{here}.directory", f"{setting.directory!r} is not a relative path of plain names"
        for number, name in enumerate(setting.with_directories if setting.directory is not None else ()):
            if not is_file_name(name):
                yield f"{here}.with_directories[{number}]", f"{name!r} is not a plain name"
        if not setting.evidence and setting.source is None:
            yield here, f"{setting.name} has no evidence (`evidence:`, or `source:` alone where no effect is known)"
        for key, message in policy_faults(setting):
            yield f"{here}.{key}", message
        if setting.where == TASK and ";" in (setting.value or ""):
            yield f"{here}.value", "contains ';', which separates what the helper remembers of its own settings"
        if setting.computed and decided_by_image(site, setting):
            inside = image_conditions(site)
            yield (
                f"{here}.computed",
                f"is worked out before any image is known (no {', '.join(inside[:-1])} or {inside[-1]} in `when`)",
            )
        if setting.where != TASK and (setting.directory or setting.computed or setting.unset):
            yield here, "a module can only set a value or leave it (where: task)"
        if setting.name in OWN_VARIABLES or setting.name.startswith("LUMISITE") or "_BIND" in setting.name:
            yield f"{here}.name", f"{setting.name} is not for the ledger: lumisite manages it itself, or it is unsafe"
        if setting.name in always:
            yield here, f"never wins: settings[{always[setting.name]}] sets {setting.name} without conditions before it"
        elif not given_conditions(setting.when):
            always[setting.name] = index


def settings_do_no_harm(site: Site) -> Faults:
    """No entry sets a value where another entry's evidence says that it does harm; its `when` leaves that out."""
    for index, setting in enumerate(site.settings):
        for harm in harms(site, setting.name) if sets(setting) else ():
            if harm.setting is setting or not covers(harm.patterns, setting):
                continue
            if not exclude(setting.when, harm.evidence.when):
                where = describe_conditions(harm.evidence.when)
                right = f"a `when` that leaves out {where}" if where != "always" else "`leave: yes`"
                message = f"{setting.name} does harm as it is set here: {where} ({right} would be right)"
                yield f"settings[{index}]", message
