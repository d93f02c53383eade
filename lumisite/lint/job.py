"""What a job script asks of Slurm, and what it sets for its programs: what rules are written on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from lumisite.images.lock import LockedImage
from lumisite.lint.shell import Command, Part, Script, Word
from lumisite.lint.slurm import Step, read_options
from lumisite.site.ledger import decided_by_image
from lumisite.site.model import Site
from lumisite.vendors import gpu_of
from lumisite.vendors.model import Gpu

_CONTAINER_PREFIX = re.compile(r"^(?:SINGULARITYENV|APPTAINERENV)_")
#: Longer values are no name or path; values of values could grow without end.
_VALUE_LIMIT = 1 << 12
#: Words that variables stand for, in all commands of a script.
_EXPANSION_LIMIT = 1 << 16
_VARIABLE = re.compile(r"(?<!\\)\$(?:\{(\w+)\}|(\w+))")


class Told(NamedTuple):
    """What a rule says of a line: why it is bad, and what would be right; `source` where that is not the rule's own."""

    line: int
    reason: str
    right: str
    source: str = ""


@dataclass(frozen=True)
class Setting:
    """A variable that a script sets, for itself or for a program or container that it starts."""

    name: str
    word: Word
    line: int
    command: Command

    @property
    def value(self) -> str:
        """The value as it stands there, without quotes."""
        return self.word.value


@dataclass(frozen=True)
class Job:
    """A job script, read for rules; `locked` is what was read in images, by their paths."""

    site: Site
    script: Script
    locked: Mapping[str, LockedImage] = field(default_factory=dict)

    @cached_property
    def commands(self) -> tuple[Command, ...]:
        """All commands of the script, in order, with the texts and arrays that variables without quotes stand for."""
        left, found = _EXPANSION_LIMIT, []
        for command in self.script.commands:
            words: list[Word] = []
            for word in command.words:
                inside = self._stands_for(word) if left > 0 else [word]
                left -= len(inside) - 1
                words += inside
            found.append(replace(command, words=tuple(words)))
        return tuple(found)

    def _stands_for(self, word: Word) -> list[Word]:
        array = re.fullmatch(r"\$\{(\w+)\[[@*]\]\}", word.value)
        text = _VARIABLE.fullmatch(word.value) if word.bare else None
        if array:
            arrays = [one.word for one in self._set.get(array[1], ()) if one.value.startswith("(")]
            return [inside for one in arrays for inside in one.words]
        name = (text[1] or text[2]) if text else ""
        inside = self._set[name][0].word.words if name in self._known else ()
        return list(inside) if len(inside) > 1 else [word]

    @cached_property
    def allocation(self) -> Step:
        """What `#SBATCH` lines ask for, as a step that has all of it; of a heterogeneous job nothing is known."""
        several = any(word in ("hetjob", "packjob") for word, _ in self.script.directives)
        return Step(None, {}, read_options(() if several else self.script.directives, stop=False))

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """All sruns; a script without one runs as a step of one task."""
        found = ((command, command.behind("srun", first=4)) for command in self.commands)
        own = [(command, read_options(self.given(words), stop=True)) for command, words in found if words]
        return tuple(Step(command, one, {**self.allocation.merged, **one}) for command, one in own) or (
            self.allocation,
        )

    def given(self, words: Iterable[Word]) -> list[tuple[str, int]]:
        """Give words as the program gets them, with their lines."""
        return [(self.resolved(word.value), word.line) for word in words]

    @property
    def partitions(self) -> frozenset[str]:
        """All partitions that the job and its steps name outright, or lead to."""
        return frozenset(name for step in (self.allocation, *self.steps) for name in step.reached(self.site))

    @cached_property
    def here(self) -> bool:
        """Whether the script may be for this machine: not where it names partitions, and none of these."""
        return not self.partitions or not self.partitions.isdisjoint(self.site.partitions)

    @cached_property
    def gpus(self) -> tuple[Gpu, ...]:
        """What is known of the GPUs that it may get: those of its partitions, else all that the site has."""
        site = self.site
        own = list(map(site.vendor_of, site.kinds_of(*self.partitions)))
        every = [one.gpu for one in site.stacks.values()]
        return tuple(gpu_of(name) for name in dict.fromkeys(own if any(own) else every) if name)

    @cached_property
    def misspelt(self) -> Mapping[str, str]:
        """Variables that nothing reads, with those that are meant."""
        return {wrong: right for gpu in self.gpus for wrong, right in gpu.misspelt.items()}

    @cached_property
    def caches(self) -> frozenset[str]:
        """Variables that name directories of caches and databases."""
        own = {setting.name for setting in self.site.settings if setting.directory is not None}
        return frozenset(own | {cache.variable for gpu in self.gpus for cache in gpu.caches})

    def own_directory(self, name: str) -> str:
        """Give the line that leads a cache to a directory of the node, of each rank where ranks must not share it."""
        place = next(iter(self.site.private_places), None)
        local = "$TMPDIR/${USER}" if place is None else place.job_folder or f"{place.path}/${{USER}}"
        folder = re.sub(r"_(?:PATH|DIR)$", "", name).lower().replace("_", "-")
        own = (setting.directory or "" for setting in self.site.settings if setting.name == name)
        rank = "/${SLURM_LOCALID}" if any("{rank}" in directory for directory in own) else ""
        return f"export {name}={local}/{folder}{rank}"

    def made_in_task(self, name: str) -> str:
        """Give that line, and where it belongs: a batch script makes directories on one node, and is no rank.

        A directory that only some images need is left to the helper, which knows the image.
        """
        if any(decided_by_image(self.site, one) for one in self.site.settings if one.name == name):
            return f"unset {name}"
        line = self.own_directory(name)
        return (
            f"in each task: {line}, and mkdir -p it"
            if "SLURM_LOCALID" in line
            else f"{line}, and mkdir -p it in the task"
        )

    @cached_property
    def settings(self) -> tuple[Setting, ...]:
        """All variables that are set, by assignment, `env` or `--env`, without a prefix for the container."""
        return tuple(setting for command in self.commands for setting in _settings(command))

    def named(self, *names: str) -> Iterator[Setting]:
        """Give the settings of some variables."""
        return (setting for setting in self.settings if setting.name in names)

    @property
    def words(self) -> Iterator[Word]:
        """All words, values of assignments among them."""
        for command in self.commands:
            yield from command.words
            yield from (word for _, word in command.assignments)

    @cached_property
    def _set(self) -> dict[str, list[Setting]]:
        """All settings of each variable, as they are written."""
        found: dict[str, list[Setting]] = {}
        for setting in (one for command in self.script.commands for one in _settings(command)):
            found.setdefault(setting.name, []).append(setting)
        return found

    @cached_property
    def _known(self) -> dict[str, str]:
        """What variables were set to, with other variables put in, but not those that have several values."""
        known: dict[str, str] = {}
        for name, settings in self._set.items():
            value, *others = {one.value for one in settings}
            if others or len(value) > _VALUE_LIMIT or "$(" in value or "`" in value:
                continue
            value = _VARIABLE.sub(lambda found: known.get(found[1] or found[2], found[0]), value)
            if len(value) <= _VALUE_LIMIT and name not in variables_in(value):
                known[name] = value
        return known

    def resolved(self, value: str) -> str:
        """Put in what variables were set to, where the script says it in plain text."""
        return _VARIABLE.sub(lambda found: self._known.get(found[1] or found[2], found[0]), value)

    def option_values(self, pattern: str, commands: Iterable[Command] = ()) -> Iterator[tuple[str, int]]:
        """Give the values of an option of any program, `--option=VALUE` or `--option VALUE`, with the option's lines.

        `commands` are those to look at, all where there are none.
        """
        for command in commands or self.commands:
            for word, following in zip(command.words, (*command.values[1:], ""), strict=False):
                option, equals, value = word.value.partition("=")
                if re.fullmatch(pattern, option):
                    yield (value if equals else following), word.line


def variables_in(value: str) -> list[str]:
    """Give the names of the variables in a text."""
    return re.findall(r"\$\{?(\w+)", value)


def _settings(command: Command) -> Iterator[Setting]:
    for name, word in command.assignments:
        yield Setting(_CONTAINER_PREFIX.sub("", name), word, word.line, command)
    values = command.values
    for at, word in enumerate(command.words):
        named = at and (values[at - 1] == "--env" or values[0] == "env")
        found = re.match(r"--(?:env|export)=(.*)", word.value, re.DOTALL)
        given = word.value if named else found[1] if found else ""
        for name, equals, text in (pair.partition("=") for pair in given.split(",")):
            if equals and name.isidentifier():
                yield Setting(name, Word((Part("", text, word.line),)), word.line, command)
