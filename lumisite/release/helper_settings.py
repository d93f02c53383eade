"""The settings ledger as the helper's scripts look it up: rules in order, for the prolog and for the wrapper.

A script finds its rule by the key `stack/nodes/gpus/partition` of the step: `nodes` is `one`, `several` or `unknown`,
`gpus` is `gpu` or `cpu`, and a partition that the site does not describe is `other`. The wrapper also asks what the
image holds. The prolog comes before any image: where an entry depends on the image, it leaves the variable to the
wrapper, so that what it sets is right for every image.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from lumisite.site.entries import Setting, When
from lumisite.site.scalars import TASK
from lumisite.site.settings import Decision, depends_on_image
from lumisite.site.versions import Version, VersionRange

Action = Literal["set", "unset", "leave", "image", "directory", "master-address", "master-port", "one-gpu"]

_FUNCTIONS: Mapping[Action, str] = {
    "set": "offer",
    "unset": "withdraw",
    "leave": "leave",
    "image": "leave",
    "directory": "want_directory",
    "master-address": "master_address",
    "master-port": "master_port",
    "one-gpu": "one_gpu",
}
_TESTS = {">=": "-ge", "<=": "-le", ">": "-gt", "<": "-lt", "==": "-eq", "!=": "-ne"}

#: Said where the ledger knows a variable but no entry holds.
NOTHING_APPLIES = "no entry of the ledger applies here"


@dataclass(frozen=True)
class Rule:
    """One case of a variable: `patterns` are matched against the script's key, the first rule that fits counts.

    `rocm`, `families` and `plugin` are what the image must hold, empty where that does not matter: comparisons of
    `[`, names in blanks, and yes or no.
    """

    patterns: tuple[str, ...]
    action: Action
    value: str
    why: str
    rocm: str = ""
    families: str = ""
    plugin: str = ""

    @property
    def always(self) -> bool:
        """Whether it fits every key."""
        return all(not pattern.strip("*/") for pattern in self.patterns)

    @property
    def function(self) -> str:
        """The function of the scripts that does it."""
        return _FUNCTIONS[self.action]

    @property
    def word(self) -> str:
        """Its value as one word of sh; the number of the task on its node is put in where the value asks for it."""
        return rank_word(self.value) if self.action == "directory" else shlex.quote(self.value)


@dataclass(frozen=True)
class Variable:
    """A variable of the ledger with its rules, in order; the last one fits everything."""

    name: str
    rules: tuple[Rule, ...]

    @property
    def only_left(self) -> bool:
        """Whether the prolog never touches it, and only says so."""
        return all(rule.function == "leave" for rule in self.rules)


def rank_word(text: str) -> str:
    """Write a path as one word of sh, with the task's number on its node for `{rank}`.

    >>> rank_word("aiter/{rank}")
    "aiter/"$ls_local_id"''"
    """
    return '"$ls_local_id"'.join(map(shlex.quote, text.split("{rank}"))) if "{rank}" in text else shlex.quote(text)


def prolog_variables(stacks: Mapping[str, Decision]) -> tuple[Variable, ...]:
    """Give the rules of the prolog for each variable that tasks get, by stack."""
    return _variables({name: _cases(decision, _for_prolog) for name, decision in stacks.items()})


def wrapper_variables(stacks: Mapping[str, Decision]) -> tuple[Variable, ...]:
    """Give the rules of the wrapper for each variable of which some entry depends on the image."""
    settings = [one.setting for decision in stacks.values() for one in decision.settings]
    names = {setting.name for setting in settings if setting.where == TASK and depends_on_image(setting.when)}
    found = _variables({name: _cases(decision, _for_wrapper) for name, decision in stacks.items()})
    return tuple(variable for variable in found if variable.name in names)


@dataclass(frozen=True)
class _Case:
    """A rule without its key: what the compute node must find for it to hold."""

    when: tuple[str | None, bool | None, tuple[str, ...] | None]
    rule: Rule

    @property
    def last(self) -> bool:
        return self.when == (None, None, None) and not (self.rule.rocm or self.rule.families or self.rule.plugin)


def _cases(decision: Decision, rule_of: Callable[[Setting], Rule]) -> dict[str, tuple[_Case, ...]]:
    """Give the cases of each variable that the task sets, in ledger order; the last always holds."""
    cases: dict[str, list[_Case]] = {one.setting.name: [] for one in decision.settings if one.setting.where == TASK}
    for verdict in decision.settings:
        if verdict.applies and verdict.setting.name in cases:
            when = verdict.setting.when
            rule = rule_of(verdict.setting)
            cases[verdict.setting.name].append(_Case((when.nodes, when.gpus, when.partition), rule))
    nothing = _Case((None, None, None), Rule((), "leave", "", NOTHING_APPLIES))
    return {name: tuple(found if found and found[-1].last else [*found, nothing]) for name, found in cases.items()}


def _for_prolog(setting: Setting) -> Rule:
    if depends_on_image(setting.when):
        return Rule((), "image", "", f"the image decides: {setting.why}")
    return Rule((), *_action(setting), setting.why)


def _for_wrapper(setting: Setting) -> Rule:
    when: When = setting.when
    return Rule(
        (),
        *_action(setting),
        setting.why,
        rocm=" ".join(rocm_tests(when.rocm)) if when.rocm is not None else "",
        families=f" {' '.join(when.family)} " if when.family is not None else "",
        plugin=plugin_word(when.plugin),
    )


def _action(setting: Setting) -> tuple[Action, str]:
    if setting.where != TASK:
        return "leave", ""
    if setting.value is not None:
        return "set", setting.value
    if setting.directory is not None:
        return "directory", setting.directory
    if setting.computed is not None:
        return setting.computed, ""
    return ("unset" if setting.unset else "leave"), ""


def rocm_tests(wanted: VersionRange) -> Iterable[str]:
    """Write a range as comparisons of `[` with one number, which `rocm_number` makes of a release."""
    for sign, version in wanted.bounds:
        yield f"{_TESTS[sign]} {rocm_number(version)}"


def rocm_number(version: Version) -> int:
    """Give a release as one number that shells compare: 6.2.4 is 6002004; a suffix does not count.

    >>> from lumisite.site.versions import parse_version
    >>> rocm_number(parse_version("6.10"))
    6010000
    """
    major, minor, patch = (*version.order.release, 0, 0)[:3]
    return (major * 1000 + minor) * 1000 + patch


def rocm_word(rocm: Version | None) -> str:
    """Write a release as the wrapper compares it; empty where it is not known."""
    return "" if rocm is None else str(rocm_number(rocm))


def plugin_word(plugin: bool | None) -> str:
    """Write yes or no, or nothing where it is not known."""
    return "" if plugin is None else "yes" if plugin else "no"


def _variables(cases: Mapping[str, dict[str, tuple[_Case, ...]]]) -> tuple[Variable, ...]:
    names = next(iter(cases.values()), {})
    return tuple(Variable(name, tuple(_rules({key: found[name] for key, found in cases.items()}))) for name in names)


def _rules(by_key: Mapping[str, tuple[_Case, ...]]) -> Iterable[Rule]:
    """Write the same cases of several stacks once; stacks that all agree become `*`."""
    groups: dict[tuple[_Case, ...], list[str]] = {}
    for key, cases in by_key.items():
        groups.setdefault(cases, []).append(key)
    for cases, keys in groups.items():
        for case in cases:
            nodes, gpus, partitions = case.when
            rule = case.rule
            patterns = step_patterns(keys, by_key, nodes, gpus, partitions)
            yield Rule(patterns, rule.action, rule.value, rule.why, rule.rocm, rule.families, rule.plugin)


def step_patterns(
    keys: Sequence[str],
    all_keys: Iterable[str],
    nodes: str | None,
    gpus: bool | None,
    partitions: Sequence[str] | None,
) -> tuple[str, ...]:
    """Give shell patterns of the keys of a step."""
    kind = "*" if gpus is None else "gpu" if gpus else "cpu"
    return tuple(
        f"{key}/{nodes or '*'}/{kind}/{partition}"
        for key in (("*",) if set(keys) == set(all_keys) else keys)
        for partition in partitions or ("*",)
    )
