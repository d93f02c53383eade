"""The settings ledger as the helper's scripts follow it: for each variable a chain of calls, by step and stack.

The prolog comes before any image: where an entry depends on the image, it leaves the variable to the wrapper, so that
what it sets is right for every image. The wrapper also asks what the image holds.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from lumisite.render.shell_text import NOTHING, WIDTH, Chain, Where
from lumisite.site.entries import Setting, When
from lumisite.site.images import Holds
from lumisite.site.ledger import (
    Decision,
    Situation,
    Verdict,
    depends_on_image,
    judge_conditions,
)
from lumisite.site.model import Site
from lumisite.site.scalars import TASK
from lumisite.site.versions import Version


def prolog_names(site: Site) -> list[str]:
    """Return the variables of tasks that some entry sets before the image is known, or takes away."""
    return _names(site, partial(_acts, site))


def prolog_chains(site: Site, decisions: Mapping[str, Decision], *, directories: bool) -> Iterable[Chain]:
    """Return what the prolog does with each variable that some entry sets before the image is known, or takes away.

    `directories` selects the variables that name a directory, which has to be made, or all others.
    """

    def is_included(name: str) -> bool:
        return directories == any(setting.directory for setting in site.settings if setting.name == name)

    return _chains(site, decisions, filter(is_included, prolog_names(site)), _for_prolog)


def wrapper_chains(site: Site, decisions: Mapping[str, Decision]) -> Iterable[Chain]:
    """Yield what the wrapper does with each variable of which some entry depends on the image.

    Its rules decide among themselves, since they ask what the image holds, so each is a chain of its own.
    """
    names = _names(site, lambda setting: depends_on_image(site, setting.when))
    for name, chain in zip(names, _chains(site, decisions, names, _for_wrapper), strict=True):
        yield ((Where(), f"ls_variable {name}"),)
        yield from ((rule,) for rule in chain)


def names_left_alone(site: Site, platform: str, holds: Holds) -> tuple[str, ...]:
    """Return the variables that the wrapper leaves alone for an image that was read.

    They are those that the image sets itself, and those that an entry leaves alone for the libfabric in it.
    """
    situation = Situation(platform).with_image(holds)
    unfit = {
        setting.name
        for setting in site.settings
        if setting.when.libfabric is not None
        and holds.libfabric is not None
        and judge_conditions(setting.when, situation)[0] is not False
    }
    return tuple(name for name in _names(site, lambda _: True) if name in holds.sets or name in unfit)


def rank_word(text: str) -> str:
    """Write a path as one word of sh, with the task's number on its node for `{rank}`.

    >>> rank_word("aiter/{rank}")
    'aiter/"$ls_local_id"'
    """
    return '"$ls_local_id"'.join(shlex.quote(part) if part else "" for part in text.split("{rank}"))


def number_of(release: Version) -> str:
    """Write a release as a number: 6.2.4 is 6002004; a suffix does not count.

    >>> from lumisite.site.versions import parse_version
    >>> number_of(parse_version("6.10"))
    '6010000'
    """
    major, minor, patch = (*release.order.release, 0, 0)[:3]
    return str((major * 1000 + minor) * 1000 + patch)


def plugin_word(plugin: bool | None) -> str:
    """Write yes or no, or nothing where it is not known."""
    return "" if plugin is None else "yes" if plugin else "no"


def step_of(when: When, stacks: tuple[str, ...] = ()) -> Where:
    """Return the part of conditions that only the step tells."""
    gpus = () if when.gpus is None else ("gpu" if when.gpus else "cpu",)
    return Where(stacks, (when.nodes,) if when.nodes else (), gpus, when.kind or ())


def _names(site: Site, is_included: Callable[[Setting], bool]) -> list[str]:
    """Return the variables of tasks of which some entry is is_included, in ledger order."""
    return list(
        dict.fromkeys(setting.name for setting in site.settings if setting.where == TASK and is_included(setting))
    )


def _acts(site: Site, setting: Setting) -> bool:
    return not setting.leave and not depends_on_image(site, setting.when)


def _for_prolog(site: Site, name: str, verdict: Verdict[Setting] | None) -> str:
    action, word = _action(verdict)
    if verdict is None or action == "leave" or depends_on_image(site, verdict.entry.when):
        return NOTHING
    if action == "value":
        return f"setting {name} {word}"
    return f"cache {name} {word}" if action == "directory" else f"special_setting {name} {action}"


def _tests(site: Site, when: When) -> Iterator[str]:
    """Yield the comparisons of the image's release."""
    stack = site.gpu_stack
    if stack is not None and stack in when.stacks:
        yield from (f"ls_version {sign} {number_of(release)}" for sign, release in when.stacks[stack].bounds)


def _for_wrapper(site: Site, name: str, verdict: Verdict[Setting] | None) -> str:
    when = When() if verdict is None else verdict.entry.when
    image = (
        " && ".join(_tests(site, when)),
        "" if when.family is None else f" {' '.join(when.family)} ",
        plugin_word(when.plugin),
    )
    action, word = _action(verdict)
    words = ["ls_rule", *map(shlex.quote, image), f"{action} {word}".rstrip()]
    line = " ".join(words)
    return line if len(line) < WIDTH - 16 else " \\\n\t".join(words)


def _action(verdict: Verdict[Setting] | None) -> tuple[str, str]:
    """Return what an entry says is to be done, and its value as one word of sh."""
    if verdict is None or verdict.entry.where != TASK:
        return "leave", ""
    setting = verdict.entry
    if setting.value is not None:
        return "value", shlex.quote(setting.value)
    if setting.directory is not None:
        return "directory", rank_word(setting.directory)
    if setting.computed is not None:
        return setting.computed, ""
    return "unset" if setting.unset else "leave", ""


#: What is written for a variable, and an entry about it or none.
Line: TypeAlias = Callable[[Site, str, Verdict[Setting] | None], str]


def _chains(site: Site, decisions: Mapping[str, Decision], names: Iterable[str], line_of: Line) -> Iterator[Chain]:
    """Write the chain of each variable for several combinations as one; where all agree, it does not ask for them."""
    for name in names:
        stacks_of: dict[Chain, tuple[str, ...]] = {}
        for stack, decision in decisions.items():
            chain = tuple(_links(site, name, decision.settings, line_of))
            stacks_of[chain] = (*stacks_of.get(chain, ()), stack)
        if len(stacks_of) == 1:
            yield next(iter(stacks_of))
        else:
            yield tuple(
                (replace(where, stack=stacks), line) for chain, stacks in stacks_of.items() for where, line in chain
            )


def _links(site: Site, name: str, verdicts: Iterable[Verdict[Setting]], line_of: Line) -> Iterator[tuple[Where, str]]:
    """Yield what is done with a variable, in ledger order; the last link always holds."""
    for verdict in verdicts:
        setting = verdict.entry
        if setting.name == name and verdict.applies:
            if setting.leave and line_of is _for_prolog and depends_on_image(site, setting.when):
                # An exception for some images: the wrapper, which sees them, takes back what the prolog sets for all.
                continue
            if setting.when.libfabric is not None:
                # The wrapper has a list of such variables for each image that was read.
                continue
            where = step_of(setting.when)
            yield where, line_of(site, name, verdict)
            if where == Where() and (line_of is not _for_wrapper or not depends_on_image(site, setting.when)):
                return
    yield Where(), line_of(site, name, None)
