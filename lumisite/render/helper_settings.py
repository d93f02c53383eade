"""The settings ledger as the helper's scripts follow it: for each variable a chain of calls, by step and stack.

The prolog comes before any image: where an entry depends on the image, it leaves the variable to the wrapper, so that
what it sets is right for every image. The wrapper also asks what the image holds.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from lumisite.render.shell_text import Chain, Where, variable, with_reason
from lumisite.site.entries import Setting, When
from lumisite.site.ledger import Decision, Verdict, depends_on_image
from lumisite.site.model import Site
from lumisite.site.scalars import TASK
from lumisite.site.versions import Version

_TESTS = {">=": "-ge", "<=": "-le", ">": "-gt", "<": "-lt", "==": "-eq", "!=": "-ne"}

#: Said where the ledger knows a variable but no entry holds.
NOTHING_APPLIES = "no entry of the ledger applies here"


def prolog_chains(site: Site, stacks: Mapping[str, Decision]) -> Iterable[Chain]:
    """Give what the prolog does with each variable that some entry sets before the image is known, or takes away."""
    return _chains(stacks, _names(site, _acts), _for_prolog)


def left_chains(site: Site, stacks: Mapping[str, Decision]) -> Iterable[Chain]:
    """Give what the prolog says of the other variables."""
    acted = _names(site, _acts)
    names = [name for name in _names(site, lambda setting: True) if name not in acted]
    return _chains(stacks, names, _for_words)


def wrapper_chains(site: Site, stacks: Mapping[str, Decision]) -> Iterable[Chain]:
    """Give what the wrapper does with each variable of which some entry depends on the image.

    Its rules decide among themselves, since they ask what the image holds, so each is a chain of its own.
    """
    names = _names(site, lambda setting: depends_on_image(setting.when))
    for name, chain in zip(names, _chains(stacks, names, _for_wrapper), strict=True):
        yield ((Where(), f"ls_variable {variable(name)}"),)
        yield from ((rule,) for rule in chain)


def rank_word(text: str) -> str:
    """Write a path as one word of sh, with the task's number on its node for `{rank}`.

    >>> rank_word("aiter/{rank}")
    'aiter/"$ls_local_id"'
    """
    return '"$ls_local_id"'.join(shlex.quote(part) if part else "" for part in text.split("{rank}"))


def rocm_word(rocm: Version | None) -> str:
    """Write a release as the wrapper compares it: 6.2.4 is 6002004; a suffix does not count; empty where not known.

    >>> from lumisite.site.versions import parse_version
    >>> rocm_word(parse_version("6.10"))
    '6010000'
    """
    if rocm is None:
        return ""
    major, minor, patch = (*rocm.order.release, 0, 0)[:3]
    return str((major * 1000 + minor) * 1000 + patch)


def plugin_word(plugin: bool | None) -> str:
    """Write yes or no, or nothing where it is not known."""
    return "" if plugin is None else "yes" if plugin else "no"


def step_of(when: When, stacks: tuple[str, ...] = ()) -> Where:
    """Give the part of conditions that only the step tells."""
    gpus = () if when.gpus is None else ("gpu" if when.gpus else "cpu",)
    return Where(stacks, (when.nodes,) if when.nodes else (), gpus, when.partition or ())


def _names(site: Site, wanted: Callable[[Setting], bool]) -> list[str]:
    """Give the variables of tasks of which some entry is wanted, in ledger order."""
    return list(dict.fromkeys(one.name for one in site.settings if one.where == TASK and wanted(one)))


def _acts(setting: Setting) -> bool:
    return _action(setting)[0] != "leave" and not depends_on_image(setting.when)


def _for_prolog(name: str, setting: Setting | None) -> str:
    if setting is None:
        return f"no_entry {variable(name)}"
    action, word = ("leave", "''") if depends_on_image(setting.when) else _action(setting)
    return with_reason([action, variable(name), word], _reason(setting))


def _for_words(name: str, setting: Setting | None) -> str:
    return with_reason(["left", name], _reason(setting))


def _reason(setting: Setting | None) -> str:
    if setting is None:
        return NOTHING_APPLIES
    return f"the image decides: {setting.why}" if depends_on_image(setting.when) else str(setting.why)


def _for_wrapper(name: str, setting: Setting | None) -> str:
    when = When() if setting is None else setting.when
    image = (
        "" if when.rocm is None else " ".join(f"{_TESTS[sign]} {rocm_word(one)}" for sign, one in when.rocm.bounds),
        "" if when.family is None else f" {' '.join(when.family)} ",
        plugin_word(when.plugin),
    )
    action, word = _action(setting)
    why = NOTHING_APPLIES if setting is None else str(setting.why)
    return with_reason(["ls_rule", *map(shlex.quote, image), action, word], why)


def _action(setting: Setting | None) -> tuple[str, str]:
    """Give the function of the scripts that does what an entry says, and its value as one word of sh."""
    if setting is None or setting.where != TASK:
        return "leave", "''"
    if setting.value is not None:
        return "offer", shlex.quote(setting.value)
    if setting.directory is not None:
        return "want_directory", rank_word(setting.directory)
    if setting.computed is not None:
        return setting.computed.replace("-", "_"), "''"
    return "withdraw" if setting.unset else "leave", "''"


def _chains(
    stacks: Mapping[str, Decision], names: Iterable[str], line_of: Callable[[str, Setting | None], str]
) -> Iterator[Chain]:
    """Write the chain of each variable for several stacks as one; where all agree, the stack does not matter."""
    for name in names:
        stacks_of: dict[Chain, tuple[str, ...]] = {}
        for stack, decision in stacks.items():
            chain = tuple(_links(name, decision.settings, line_of))
            stacks_of[chain] = (*stacks_of.get(chain, ()), stack)
        if len(stacks_of) == 1:
            yield next(iter(stacks_of))
        else:
            yield tuple((replace(where, stack=own), line) for chain, own in stacks_of.items() for where, line in chain)


def _links(
    name: str, verdicts: Iterable[Verdict[Setting]], line_of: Callable[[str, Setting | None], str]
) -> Iterator[tuple[Where, str]]:
    """Give what is done with a variable, in ledger order; the last link always holds."""
    for verdict in verdicts:
        setting = verdict.entry
        if setting.name == name and verdict.applies:
            where = step_of(setting.when)
            yield where, line_of(name, setting)
            if where == Where() and (line_of is not _for_wrapper or not depends_on_image(setting.when)):
                return
    yield Where(), line_of(name, None)
