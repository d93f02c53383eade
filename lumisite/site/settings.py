"""The settings ledger: which entry wins for a variable in a given situation, and why the others lost.

One code path decides for rendering and explains for `lumisite why`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Literal

from lumisite.site.entries import Setting, When
from lumisite.site.model import Site
from lumisite.site.scalars import Place
from lumisite.site.versions import Version, VersionRange

#: Conditions about what is inside an image. No module and no prolog can judge them, which come before it.
IMAGE_CONDITIONS = ("rocm", "family", "plugin")


@dataclass(frozen=True)
class Situation:
    """What is known where a setting is decided; `None` means that only the compute node will tell.

    `family`, `rocm` and `plugin` are those of the image that runs.
    """

    platform: str
    cpe: Version
    family: str | None = None
    rocm: Version | None = None
    plugin: bool | None = None
    nodes: Literal["one", "several"] | None = None
    gpus: bool | None = None
    partition: str | None = None


Outcome = Literal["wins", "may win", "lost", "does not apply"]


@dataclass(frozen=True)
class Verdict:
    """What became of one ledger entry: `index` is its place in the ledger, `reason` says why in words."""

    index: int
    setting: Setting
    outcome: Outcome
    reason: str


def default_family(site: Site, rocm: Version) -> str:
    """The family of an image that no family recognises; the site's rules make sure that there is exactly one."""
    return next(
        name for name, family in site.families.items() if family.default_for is not None and rocm in family.default_for
    )


def judge_settings(site: Site, situation: Situation, names: Iterable[str] | None = None) -> tuple[Verdict, ...]:
    """Judge every entry (or those of `names`) in ledger order; an entry that surely applies ends the race."""
    wanted = None if names is None else set(names)
    decided: dict[str, int] = {}
    verdicts = []
    for index, setting in enumerate(site.settings):
        if wanted is not None and setting.name not in wanted:
            continue
        holds, reason = judge_conditions(setting.when, situation)
        if holds is False:
            verdicts.append(Verdict(index, setting, "does not apply", reason))
        elif setting.name in decided:
            verdicts.append(Verdict(index, setting, "lost", f"settings[{decided[setting.name]}] comes first"))
        elif holds:
            decided[setting.name] = index
            verdicts.append(Verdict(index, setting, "wins", reason))
        else:
            verdicts.append(Verdict(index, setting, "may win", reason))
    return tuple(verdicts)


def module_settings(site: Site, situation: Situation, module: str) -> tuple[Setting, ...]:
    """The entries that `module` itself sets in this situation."""
    return tuple(
        verdict.setting
        for verdict in judge_settings(site, situation)
        if verdict.outcome == "wins" and verdict.setting.where == Place(module) and verdict.setting.value is not None
    )


def judge_conditions(when: When, situation: Situation) -> tuple[bool | None, str]:
    """Tell whether conditions hold: yes, no, or `None` when the situation leaves it open; and why."""
    left_open = []
    for name, wanted in given_conditions(when).items():
        actual = getattr(situation, name)
        if actual is None:
            left_open.append(f"{name} is {_said(wanted)}")
        elif not _fits(wanted, actual):
            return False, f"needs {name} {_said(wanted)}, here it is {_said(actual)}"
    if left_open:
        return None, f"where {' and '.join(left_open)}"
    return True, describe_conditions(when)


def depends_on_image(when: When) -> bool:
    """Tell whether conditions are about what is inside the image."""
    return any(getattr(when, name) is not None for name in IMAGE_CONDITIONS)


def describe_conditions(when: When) -> str:
    """Write conditions as a person would say them.

    >>> describe_conditions(When(nodes="several", gpus=True))
    'nodes several, gpus yes'
    """
    return ", ".join(f"{name} {_said(wanted)}" for name, wanted in given_conditions(when).items()) or "always"


def describe_action(setting: Setting) -> str:
    """Say what an entry does to its variable, after the variable's name."""
    if setting.value is not None:
        return f"= {setting.value}"
    if setting.directory is not None:
        return f"= a private node-local directory, {setting.directory}"
    if setting.computed is not None:
        return f"= {setting.computed.replace('-', ' ')}, worked out on the node"
    return "is taken away" if setting.unset else "is left alone"


def given_conditions(when: When) -> dict[str, VersionRange | tuple[str, ...] | str | bool]:
    """The conditions that are given, by name."""
    return {item.name: value for item in fields(when) if (value := getattr(when, item.name)) is not None}


def _fits(wanted: VersionRange | tuple[str, ...] | str | bool, actual: Version | str | bool) -> bool:
    if isinstance(wanted, VersionRange):
        return isinstance(actual, Version) and actual in wanted
    return actual in wanted if isinstance(wanted, tuple) else actual == wanted


def _said(value: VersionRange | Version | tuple[str, ...] | str | bool) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return " or ".join(value) if isinstance(value, tuple) else str(value)
