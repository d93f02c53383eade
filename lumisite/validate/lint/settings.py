"""Find variables that scripts set to what hangs, fails or is slow on this site."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from lumisite.site.model import Site
from lumisite.validate.lint.images import image_family, image_rocm, starts_of
from lumisite.validate.lint.job import Job, Setting
from lumisite.validate.lint.machine import Harmful, Hit, Machine
from lumisite.validate.lint.shell import program_at

_WITH_DEFAULT = re.compile(r"\$\{\w+:?[-=]([^{}]*)\}")
_STARTERS = ("srun", "mpirun", "mpiexec", "singularity", "apptainer", "torchrun", "accelerate", "deepspeed")


@dataclass(frozen=True)
class _Reach:
    """What settings of a job reach, worked out once: commands are known by `id`, since two may be equal.

    `places`: the place of each command; `images`: all that the job starts, and those of each command; `nodes`: the
    least number of nodes of all steps, and of those that begin on a line.
    """

    job: Job
    places: Mapping[int, int]
    images: frozenset[str]
    own_images: Mapping[int, frozenset[str]]
    nodes: frozenset[int | None]
    own_nodes: Mapping[int, frozenset[int | None]]


def _reach(job: Job) -> _Reach:
    images: dict[int, set[str]] = {}
    for start in starts_of(job):
        images.setdefault(id(start.command), set()).add(start.image)
    nodes: dict[int, set[int | None]] = {}
    for step in job.steps:
        nodes.setdefault(step.line, set()).add(step.nodes)
    return _Reach(
        job=job,
        places={id(command): at for at, command in enumerate(job.script.commands)},
        images=frozenset().union(*images.values()),
        own_images={place: frozenset(some) for place, some in images.items()},
        nodes=frozenset().union(*nodes.values()),
        own_nodes={line: frozenset(some) for line, some in nodes.items()},
    )


def _set_here(job: Job, machine: Machine, names: Collection[str]) -> Iterator[tuple[Setting, str, _Reach]]:
    """Give the settings of some variables that hold when something is started, with what they set and reach."""
    settings = [] if job.elsewhere(machine.partitions) else [one for one in job.settings if one.name in names]
    reach = _reach(job) if settings else None
    for setting in settings:
        if reach and not _replaced(setting, reach):
            yield setting, _value(job, setting), reach


def harmful_value(job: Job, machine: Machine) -> Iterator[Hit]:
    """A value that is known to do harm, in the situations in which it does."""
    for setting, value, reach in _set_here(job, machine, {entry.name for entry in machine.harmful}):
        for entry in machine.harmful:
            if entry.name == setting.name and "$" not in value and _applies(entry, value, setting, reach, machine.site):
                texts = {"reason": entry.reason, "right": entry.right, "source": entry.source}
                yield setting.line, {"name": setting.name, "value": value, **texts}
                break


def _value(job: Job, setting: Setting) -> str:
    """What a variable is set to, with other variables put in; of `${NAME:-value}` the value."""
    return _WITH_DEFAULT.sub(lambda found: found[1], job.resolved(setting.value))


def _replaced(setting: Setting, reach: _Reach) -> bool:
    """Whether the variable is set again or taken away before anything is started."""
    for command in reach.job.script.commands[reach.places[id(setting.command)] :]:
        if command.names_any(*_STARTERS):
            return False
        again = any(name == setting.name for name, _ in command.assignments)
        gone = command.values[:1] == ("unset",) and setting.name in command.values
        if command is not setting.command and command.spot == setting.spot and (again or gone):
            return True
    return False


def _applies(entry: Harmful, value: str, setting: Setting, reach: _Reach, site: Site) -> bool:
    if not fnmatchcase(value.lower(), entry.value.lower()):
        return False
    if entry.nodes is not None and entry.nodes != _nodes(setting, reach):
        return False
    if entry.rocm is None and entry.families is None:
        return True
    images = reach.own_images.get(id(setting.command), reach.images)
    fits = {_image_fits(entry, image, site) for image in images}
    return True in fits or (False not in fits and entry.applies_to_unknown_image)


def _image_fits(entry: Harmful, image: str, site: Site) -> bool | None:
    """Whether an image is one of those that are harmed; None where its name does not tell."""
    rocm, family = image_rocm(site, image), image_family(site, image)
    answers = [
        *([None if rocm is None else rocm in entry.rocm] if entry.rocm is not None else []),
        *([None if family is None else family in entry.families] if entry.families is not None else []),
    ]
    return False if False in answers else None if None in answers else True


def _nodes(setting: Setting, reach: _Reach) -> Literal["one", "several"] | None:
    """Whether what a setting reaches has one node or several: its own step, or else any step of the job."""
    at = program_at(setting.command, "srun")
    own = reach.own_nodes.get(setting.command.words[at].line) if at is not None else None
    counts = own or reach.nodes
    if any(count is not None and count > 1 for count in counts):
        return "several"
    return "one" if counts == {1} else None
