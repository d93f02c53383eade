"""What a job script asks of Slurm, and what it sets for its programs: what rules are written on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from lumisite.lint.shell import Command, Part, Script, Word
from lumisite.lint.slurm import Option, Step, read_options
from lumisite.site.model import Site

_CONTAINER_PREFIX = re.compile(r"^(?:SINGULARITYENV|APPTAINERENV)_")
#: Longer values are no name or path; values of values could grow without end.
_VALUE_LIMIT = 1 << 12
_VARIABLE = re.compile(r"(?<!\\)\$(?:\{(\w+)\}|(\w+))")
_OTHER_SITES = re.compile(r"(?:--nv|nvidia-smi|cuda(?:toolkit)?(?:/.*)?|--container-(?:image|mounts)(?:=.*)?)")


@dataclass(frozen=True, order=True)
class Finding:
    """A bad line of a script: why, and what would be right; `source` is where this is known from."""

    line: int
    rule: str
    reason: str
    right: str
    source: str


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
    """A job script, read for rules; `outer` is the script that writes or submits it."""

    site: Site
    script: Script
    outer: Job | None = None

    @property
    def jobs(self) -> Iterator[Job]:
        """The job itself, and those that it writes or submits."""
        yield self
        for script in self.script.jobs:
            yield from Job(self.site, script, self).jobs

    @property
    def commands(self) -> tuple[Command, ...]:
        """All commands of the script, in order."""
        return self.script.commands

    @cached_property
    def kept(self) -> tuple[Command, ...]:
        """Texts and arrays that are kept in variables for a command or its options."""
        found = [
            replace(command, assignments=(), words=word.words, documents=[])
            for command in self.commands
            for _, word in command.assignments
        ]
        return tuple(one for one in found if len(one.words) > 1 or (one.words and one.values[0].startswith("-")))

    @property
    def calls(self) -> tuple[Command, ...]:
        """All commands, and what is kept in variables for one."""
        return (*self.commands, *self.kept)

    @cached_property
    def components(self) -> tuple[dict[str, Option], ...]:
        """The options of `#SBATCH` lines, for each component of a heterogeneous job; sbatch's own go before them."""
        parts: list[list[tuple[str, int]]] = [[]]
        for word, line in self.script.directives:
            if word in ("hetjob", "packjob"):
                parts.append([])
            else:
                parts[-1].append((self.resolved(word), line))
        own = read_options(self.given(self.script.submitted), stop=True)
        return tuple({**read_options(part, stop=False), **own} for part in parts)

    @property
    def allocations(self) -> tuple[Step, ...]:
        """What each component asks for, as a step that has all of it."""
        return tuple(Step(None, {}, component) for component in self.components)

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """All sruns; a script without one runs as a step of one task."""
        own = [self._step(command, words) for command in self.commands if (words := command.behind("srun", first=4))]
        kept = [self._step(command, words) for command in self.kept if (words := command.behind("srun", first=1))]
        return (*own, *kept) or self.allocations

    def _step(self, command: Command, words: Iterable[Word]) -> Step:
        own = read_options(self.given(words), stop=True)
        group = own["het-group"].value if "het-group" in own else "0"
        component = self.components[int(group)] if group.isdigit() and int(group) < len(self.components) else {}
        return Step(command, own, {**component, **own})

    def given(self, words: Iterable[Word]) -> list[tuple[str, int]]:
        """Give words as the program gets them, with their lines: a variable without quotes may be several."""
        found: list[tuple[str, int]] = []
        for word in words:
            if named := re.fullmatch(r"\$\{(\w+)\[[@*]\]\}", word.value):
                arrays = [setting.word for setting in self.named(named[1]) if setting.value.startswith("(")]
                found += [(self.resolved(one.value), one.line) for array in arrays for one in array.words]
                continue
            value = self.resolved(word.value)
            several = word.bare and word.value.startswith("$") and value != word.value
            found += [(one, word.line) for one in (value.split() if several else [value])]
        return found

    @property
    def partitions(self) -> frozenset[str]:
        """All partitions that the job and its steps name outright."""
        return frozenset(name for step in (*self.allocations, *self.steps) for name in step.partitions)

    @cached_property
    def here(self) -> bool:
        """Whether the script may be for this machine: not where it names partitions, and none of these.

        Where it names none, a constraint, a quality of service or what belongs to CUDA or Pyxis is of another machine.
        """
        if self.partitions:
            return not self.partitions.isdisjoint(self.site.partitions)
        if any("constraint" in component or "qos" in component for component in self.components):
            return False
        return not any(map(_OTHER_SITES.fullmatch, self.values))

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
    def _known(self) -> dict[str, str]:
        """What variables were set to, with other variables put in, but not those that have several values."""
        known = dict(self.outer._known) if self.outer else {}
        several: set[str] = set()
        first: dict[str, str] = {}
        for setting in self.settings:
            if first.setdefault(setting.name, setting.value) != setting.value:
                several.add(setting.name)
            if len(setting.value) > _VALUE_LIMIT or "$(" in setting.value or "`" in setting.value:
                continue
            value = _VARIABLE.sub(lambda found: known.get(found[1] or found[2], found[0]), setting.value)
            if len(value) <= _VALUE_LIMIT and setting.name not in variables_in(value):
                known[setting.name] = value
        return {name: value for name, value in known.items() if name not in several}

    def resolved(self, value: str) -> str:
        """Put in what variables were set to, where the script says it in plain text."""
        return _VARIABLE.sub(lambda found: self._known.get(found[1] or found[2], found[0]), value)

    def option_values(self, pattern: str, *, kept: bool = True) -> Iterator[tuple[str, int]]:
        """Give the values of an option of any program, `--option=VALUE` or `--option VALUE`, with the option's lines.

        `kept`: those that are kept in variables, too.
        """
        for command in self.calls if kept else self.commands:
            for word, following in zip(command.words, (*command.values[1:], ""), strict=False):
                option, equals, value = word.value.partition("=")
                if re.fullmatch(pattern, option):
                    yield (value if equals else following), word.line

    @property
    def values(self) -> Iterator[str]:
        """All words of commands, and of texts that are kept for one."""
        return (value for command in self.calls for value in command.values)


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
