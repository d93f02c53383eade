"""The settings ledger and the binds: which entries apply in a given situation, and why the others do not.

One code path decides: what is rendered, what is expected of a system and what `lumisite why` says are read from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from lumisite.findings.finding import Finding, Severity
from lumisite.site.entries import HostPath, Setting, When
from lumisite.site.harmful_values import harms
from lumisite.site.images import Holds
from lumisite.site.model import Site
from lumisite.site.scalars import TASK
from lumisite.site.selection import Combination, Selection
from lumisite.site.versions import Version, VersionRange
from lumisite.text import printable

#: Conditions that are known in the job step only.
STEP_CONDITIONS = ("nodes", "gpus", "partition", "kind", "variable")
#: What a situation has beside what conditions ask for by name.
_NO_CONDITIONS = ("sets",)
#: What conditions that hold, may hold, or do not, make of an entry that no other one comes before.
_OUTCOMES: dict[bool | None, Literal["wins", "may win", "does not apply"]] = {
    True: "wins",
    None: "may win",
    False: "does not apply",
}


@dataclass(frozen=True)
class Situation:
    """What is known where a setting is decided; `None` means that it is known on the compute node only.

    `family`, `plugin`, `libfabric` and the releases of stacks with `gpu` are those of the image that runs; other stacks
    have the release in a module's version. `sets` are the variables that the image sets itself.
    """

    platform: str
    stacks: Mapping[str, Version] = field(default_factory=dict)
    family: str | None = None
    plugin: bool | None = None
    nodes: Literal["one", "several"] | None = None
    gpus: bool | None = None
    partition: str | None = None
    kind: str | None = None
    libfabric: Version | None = None
    sets: Mapping[str, str] = field(default_factory=dict)

    def with_image(self, holds: Holds) -> Situation:
        """Return the situation in which an image runs that holds this."""
        return replace(
            self,
            stacks={**self.stacks, **holds.stacks},
            family=holds.family,
            plugin=holds.plugin,
            libfabric=holds.libfabric,
            sets=holds.sets,
        )

    def known(self) -> dict[str, Any]:
        """Return what is known, by the names that conditions have."""
        conditions = {name: value for name, value in vars(self).items() if name not in _NO_CONDITIONS}
        known = {name: value for name, value in conditions.items() if value is not None}
        return {"platform": known.pop("platform"), **known.pop("stacks"), **known}


E_co = TypeVar("E_co", Setting, HostPath, covariant=True)


@dataclass(frozen=True)
class Verdict(Generic[E_co]):
    """What became of one entry of the site description, and why; `key` is its key path.

    `holds` is whether its conditions hold, `None` where the situation leaves it open.
    """

    key: str
    entry: E_co
    outcome: Literal["wins", "may win", "lost", "does not apply", "not bound"]
    reason: str
    holds: bool | None

    @property
    def applies(self) -> bool:
        """Whether it applies, or may apply where more is known."""
        return self.outcome in ("wins", "may win")


@dataclass(frozen=True)
class Decision:
    """What applies in a situation: every entry of the ledger and every bind, in the order of the site description."""

    settings: tuple[Verdict[Setting], ...]
    binds: tuple[Verdict[HostPath], ...]

    def bound_by(self, module: str) -> tuple[HostPath, ...]:
        """Return what a module (or `task`) binds; open conditions count."""
        return tuple(bind.entry for bind in self.binds if bind.entry.where == module and bind.applies)

    def set_by(self, module: str) -> tuple[Setting, ...]:
        """Return the entries that a module itself sets."""
        won = (
            verdict.entry for verdict in self.settings if verdict.outcome == "wins" and verdict.entry.where == module
        )
        return tuple(setting for setting in won if setting.value is not None)


def decide(site: Site, situation: Situation) -> Decision:
    """Return what becomes of all settings and binds; the first entry that surely applies to a variable wins."""
    decided: dict[str, str] = {}
    settings = []
    for index, setting in enumerate(site.settings):
        key = f"settings[{index}]"
        applies, reason = judge_conditions(setting.when, situation)
        if applies is not False and setting.where == TASK and setting.name in situation.sets:
            applies, reason = False, f"the image itself sets {setting.name}={printable(situation.sets[setting.name])}"
        if applies is not False and setting.name in decided:
            reason = f"{decided[setting.name]} comes first"
            settings.append(Verdict(key, setting, "lost", reason, applies))
            continue
        if applies:
            decided[setting.name] = key
        settings.append(Verdict(key, setting, _OUTCOMES[applies], reason, applies))
    binds = []
    for key, bind in site.host_paths.items():
        applies, reason = judge_conditions(bind.when, situation)
        outcome = "not bound" if bind.where is None else _OUTCOMES[applies]
        binds.append(Verdict(key, bind, outcome, reason, applies))
    return Decision(tuple(settings), tuple(binds))


@dataclass(frozen=True)
class Choice:
    """The entry that decides a variable of a task; `is_open`: on what is not known of the image, so nothing is set."""

    verdict: Verdict[Setting]
    is_open: bool = False


def choose(site: Site, decision: Decision, name: str, *, sees_image: bool) -> Choice | None:
    """Return what decides a variable of a task in a step that is known; `None` where no entry applies.

    Without a wrapper nothing sees the image (`sees_image`). What depends on an unknown image is not set, and an
    exception counts only where it is known to hold.
    """
    for verdict in decision.settings:
        if verdict.entry.name != name or verdict.holds is False:
            continue
        if verdict.holds and (sees_image or not depends_on_image(site, verdict.entry.when)):
            return Choice(verdict)
        if not verdict.entry.leave:
            return Choice(verdict, is_open=True)
    return None


def of_modules(site: Site, combination: Combination) -> Situation:
    """Return the situation that follows from the versions of modules; what the image and the step decide is open."""
    installed = {stack: combination.releases[stack] for stack in site.host_stacks if stack in combination.releases}
    return Situation(combination.platform, installed)


def decide_combinations(site: Site, selection: Selection) -> dict[str, Decision]:
    """Decide for the combinations of a selection, by name; those that differ in images alone share a decision."""
    decided: dict[tuple[Version, ...], Decision] = {}
    found = {}
    for combination in selection.combinations:
        situation = of_modules(site, combination)
        installed = tuple(situation.stacks.values())
        if installed not in decided:
            decided[installed] = decide(site, situation)
        found[combination.name] = decided[installed]
    return found


def default_family(site: Site, releases: Mapping[str, Version]) -> str:
    """Return the family of an image that no family recognises: that of a release, else the site's first one."""
    return next(
        (
            name
            for name, family in site.families.items()
            if any(
                stack in releases and releases[stack] in covered
                for stack, covered in (family.default_for or {}).items()
            )
        ),
        next(iter(site.families)),
    )


def judge_conditions(when: When, situation: Situation) -> tuple[bool | None, str]:
    """Return whether conditions hold, `None` when the situation leaves it open; and why."""
    left_open, known = [], situation.known()
    for name, expected in conditions_of(when).items():
        actual = known.get(name)
        if actual is None:
            left_open.append(f"{name} is {describe_condition(expected)}")
        elif actual not in expected if isinstance(expected, VersionRange | tuple) else actual != expected:
            return False, f"needs {name} {describe_condition(expected)}, here it is {describe_condition(actual)}"
    if left_open:
        return None, f"where {' and '.join(left_open)}"
    return True, describe_conditions(when)


def image_conditions(site: Site) -> tuple[str, ...]:
    """Return the conditions about what is inside an image, which no module and no task prolog can know."""
    return (*([site.gpu_stack] if site.gpu_stack is not None else []), "family", "plugin", "libfabric")


def depends_on_image(site: Site, when: When) -> bool:
    """Return whether conditions are about what is inside the image."""
    return not conditions_of(when).keys().isdisjoint(image_conditions(site))


def harmful_values(
    site: Site, situation: Situation, variables: Mapping[str, str], *, of_image: bool = False
) -> Iterator[Finding]:
    """Yield the variables whose values are known to do harm to tasks, or may where the situation leaves it open.

    They are set in this shell, or `of_image`: by the image itself.
    """
    taken = {one.entry.name for one in decide(site, situation).settings if one.outcome == "wins" and one.entry.unset}
    found: dict[str, Finding] = {}
    for harm in harms(site):
        name, harmful = harm.setting.name, harm.harmful
        value = variables.get(name)
        if value is None or name in taken or harm.setting.where != TASK or not harm.fits(value):
            continue
        applies, reason = judge_conditions(harmful.when, situation)
        where = "" if applies else f"; {reason}"
        if of_image:
            message = f"the image itself sets it to {printable(value)}{where}: {harm.setting.why}"
            advice = "use an image that does not set it, or build this one again without it"
        else:
            message = (
                f"set to {printable(value)} in this shell, and jobs that it submits get it{where}: {harm.setting.why}"
            )
            advice = f"unset {name}" if applies else f"unset {name}, or name the image that runs"
        if applies:
            found[name] = Finding("harmful-value-exported", Severity.FAULT, message, advice, name)
        elif applies is None and harmful.unknown_images and name not in found:
            found[name] = Finding("value-may-harm", Severity.DOUBT, message, advice, name)
    yield from sorted(found.values(), key=lambda one: one.severity is not Severity.FAULT)


def exclude(when: When, other: When) -> bool:
    """Return whether two sets of conditions can never hold together."""
    mine, theirs = conditions_of(when), conditions_of(other)
    return any(not _fit_together(mine[name], theirs[name]) for name in mine.keys() & theirs.keys())


def _fit_together(first: Condition, second: Condition) -> bool:
    if isinstance(first, VersionRange) and isinstance(second, VersionRange):
        return first.overlaps(second)
    if isinstance(first, tuple) and isinstance(second, tuple):
        return not set(first).isdisjoint(second)
    return first == second


def describe_conditions(when: When) -> str:
    """Describe conditions in words.

    >>> describe_conditions(When(nodes="several", gpus=True))
    'nodes several, gpus yes'
    """
    words = (f"{name} {describe_condition(expected)}" for name, expected in conditions_of(when).items())
    return ", ".join(words) or "always"


#: What is worked out on the node, by the name that a site description has for it.
COMPUTED = {
    "master-address": "first node of the job step",
    "master-port": "a port from the ids of the job and the step",
}


def describe_action(setting: Setting) -> str:
    """Describe what an entry does to its variable, as text behind the variable's name."""
    if setting.value is not None:
        return f"= {setting.value}"
    if setting.directory is not None:
        return f"= a private node-local directory, {setting.directory}"
    if setting.computed is not None:
        return f"= {COMPUTED[setting.computed]} (set at run time)"
    return "is unset" if setting.unset else "is not set"


#: What a condition requires: a release, one of some names, one name, yes or no.
Condition: TypeAlias = VersionRange | tuple[str, ...] | str | bool


#: The conditions that are not about a stack.
_OTHERS = tuple(item.name for item in fields(When) if item.name != "stacks")


def conditions_of(when: When) -> dict[str, Condition]:
    """Return the conditions by name, those about a stack by its name."""
    return {**when.stacks, **{name: value for name in _OTHERS if (value := getattr(when, name)) is not None}}


def describe_condition(value: Condition | Version) -> str:
    """Describe what a condition requires."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return " or ".join(value) if isinstance(value, tuple) else str(value)
