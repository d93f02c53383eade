"""The settings ledger and the binds: which entries apply in a given situation, and why the others do not.

One code path decides: what is rendered, what is expected of a system and what `lumisite why` says are read from it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Generic, Literal, TypeVar

from lumisite.site.entries import HostPath, Setting, When
from lumisite.site.model import Site
from lumisite.site.selection import Selection
from lumisite.site.versions import Version, VersionRange

#: Conditions about what is inside an image. No module and no prolog can judge them, which come before it.
IMAGE_CONDITIONS = ("rocm", "family", "plugin")
#: What conditions that hold, may hold, or do not, make of an entry that no other one comes before.
_OUTCOMES: dict[bool | None, Literal["wins", "may win", "does not apply"]] = {
    True: "wins",
    None: "may win",
    False: "does not apply",
}


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


E_co = TypeVar("E_co", Setting, HostPath, covariant=True)


@dataclass(frozen=True)
class Verdict(Generic[E_co]):
    """What became of one entry of the site description: `key` is its place there, `reason` says why in words."""

    key: str
    entry: E_co
    outcome: Literal["wins", "may win", "lost", "does not apply", "not bound"]
    reason: str

    @property
    def applies(self) -> bool:
        """Whether it holds, or may hold where the situation is known better."""
        return self.outcome in ("wins", "may win")


@dataclass(frozen=True)
class Decision:
    """What applies in a situation: every entry of the ledger and every bind, in the order of the site description."""

    settings: tuple[Verdict[Setting], ...]
    binds: tuple[Verdict[HostPath], ...]

    def bound_by(self, place: str) -> tuple[HostPath, ...]:
        """Give what a module (or `task`) binds; open conditions count."""
        return tuple(one.entry for one in self.binds if one.entry.where == place and one.applies)

    def set_by(self, module: str) -> tuple[Setting, ...]:
        """Give the entries that a module itself sets."""
        won = (one.entry for one in self.settings if one.outcome == "wins" and one.entry.where == module)
        return tuple(setting for setting in won if setting.value is not None)


def decide(site: Site, situation: Situation) -> Decision:
    """Judge all settings and binds of a site; an entry that surely applies ends the race for its variable."""
    decided: dict[str, str] = {}
    settings = []
    for index, setting in enumerate(site.settings):
        key = f"settings[{index}]"
        holds, reason = judge_conditions(setting.when, situation)
        if holds is not False and setting.name in decided:
            settings.append(Verdict(key, setting, "lost", f"{decided[setting.name]} comes first"))
            continue
        if holds:
            decided[setting.name] = key
        settings.append(Verdict(key, setting, _OUTCOMES[holds], reason))
    binds = []
    for key, bind in site.host_paths.items():
        holds, reason = judge_conditions(bind.when, situation)
        binds.append(Verdict(key, bind, "not bound" if bind.where is None else _OUTCOMES[holds], reason))
    return Decision(tuple(settings), tuple(binds))


def decide_stacks(site: Site, selection: Selection) -> dict[str, Decision]:
    """Decide for the stacks of a selection, by name, with all open that only the image and the step tell."""
    by_cpe = {cpe: decide(site, Situation(selection.platform, cpe)) for cpe in selection.cpe}
    return {stack.name: by_cpe[stack.cpe] for stack in selection.stacks}


def default_family(site: Site, rocm: Version) -> str:
    """The family of an image that no family recognises; the site's rules make sure that there is exactly one."""
    return next(
        name for name, family in site.families.items() if family.default_for is not None and rocm in family.default_for
    )


def judge_conditions(when: When, situation: Situation) -> tuple[bool | None, str]:
    """Tell whether conditions hold: yes, no, or `None` when the situation leaves it open; and why."""
    left_open = []
    for name, wanted in given_conditions(when).items():
        actual = getattr(situation, name)
        if actual is None:
            left_open.append(f"{name} is {_said(wanted)}")
        elif actual not in wanted if isinstance(wanted, VersionRange | tuple) else actual != wanted:
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


def _said(value: VersionRange | Version | tuple[str, ...] | str | bool) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return " or ".join(value) if isinstance(value, tuple) else str(value)
