"""A job script as rules see it: its commands with variables put in, its steps, and the variables that it sets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

from lumisite.findings.finding import Value
from lumisite.images.lock import LockedImage
from lumisite.lint.options import SrunStep, read_options
from lumisite.lint.script import ShellCommand, Word, is_shell, read_commands, read_directives
from lumisite.site.model import Site
from lumisite.vendors import gpu_of
from lumisite.vendors.model import GpuVendor

_CONTAINER_PREFIX = re.compile(r"^(?:SINGULARITYENV|APPTAINERENV)_")
#: Longer values are no name or path; values of values could grow without end.
_VALUE_LIMIT = 1 << 12
_SEPARATORS = ("hetjob", "packjob")
_VARIABLE = re.compile(r"(?<!\\)\$(?:\{(\w+)\}|(\w+))")


class BadLine(NamedTuple):
    """A bad line: what in it is bad, and the values for its sentence."""

    line: int
    subject: str
    values: Mapping[str, Value]


def bad_line(line: int, subject: str = "", **values: Value) -> BadLine:
    """Return what a rule found."""
    return BadLine(line, subject, values)


class ScriptSetting(NamedTuple):
    """A variable that a script sets, for itself or for a program or container that it starts."""

    name: str
    value: str
    line: int
    command: ShellCommand


class Job:
    """A job script, read for rules; `locked` is what was read in images, by their paths."""

    def __init__(self, site: Site, text: str, locked: Mapping[str, LockedImage] | None = None) -> None:
        """Read the script."""
        text = text.replace("\r\n", "\n")
        self.site = site
        self.locked = locked or {}
        self.text = text
        self.directives = tuple(read_directives(text))
        self._read = tuple(read_commands(text)) if is_shell(text) else ()

    @cached_property
    def commands(self) -> tuple[ShellCommand, ...]:
        """All commands of the script, in order, with the words that variables without quotes stand for."""
        found = []
        for command in self._read:
            words: list[Word] = []
            for word in command.words:
                text = self._texts.get(word.raw.strip("${}")) if _VARIABLE.fullmatch(word.raw) else None
                words += text or (word,)
            found.append(ShellCommand(command.assignments, tuple(words), command.documents, command.spot))
        return tuple(found)

    @cached_property
    def _texts(self) -> dict[str, tuple[Word, ...]]:
        """The words of variables that were set once, to more than one word, with the lines on which these are."""
        found: dict[str, tuple[Word, ...]] = {}
        assignments = (assignment for command in self._read for assignment in command.assignments)
        for name, word in assignments:
            if name not in self._known:
                continue
            lines = enumerate(word.inner.split("\n"), word.line)
            words: list[Word] = []
            for piece, number in (
                (piece, number) for number, text in lines for piece in re.findall(r"[^\s\\]\S*", text)
            ):
                own = piece in (f"${name}", f"${{{name}}}")  # what is added to
                words += found.get(name, ()) if own else (Word(piece, number),)
            found[name] = tuple(words)
        return {name: words for name, words in found.items() if len(words) > 1}

    @cached_property
    def components(self) -> tuple[tuple[tuple[str, int], ...], ...]:
        """The words of directives, of each component of a heterogeneous job."""
        found: list[list[tuple[str, int]]] = [[]]
        for word, line in self.directives:
            if word in _SEPARATORS:
                found.append([])
            else:
                found[-1].append((word, line))
        return tuple(map(tuple, found))

    @cached_property
    def allocation(self) -> SrunStep:
        """What `#SBATCH` lines ask for, as a step that has all of it; of a heterogeneous job nothing is known."""
        several = len(self.components) > 1
        return SrunStep(None, {}, read_options(() if several else self.directives, stop=False))

    @cached_property
    def steps(self) -> tuple[SrunStep, ...]:
        """All sruns; a script without one runs as a step of one task."""
        steps = []
        for command in self.commands:
            if words := command.words_after("srun", first=4):
                options = read_options(self.resolved_words(words), stop=True)
                steps.append(SrunStep(command, options, {**self.allocation.merged, **options}))
        return tuple(steps) or (self.allocation,)

    @property
    def requests(self) -> tuple[SrunStep, ...]:
        """All that asks Slurm for something: the allocation, and each step."""
        return (self.allocation, *self.steps)

    @cached_property
    def _steps_by_command(self) -> dict[int, SrunStep]:
        return {id(step.command): step for step in self.steps if step.command}

    def step_of(self, command: ShellCommand) -> SrunStep | None:
        """Return the step that a command is, if it is one."""
        return self._steps_by_command.get(id(command))

    @cached_property
    def node_counts(self) -> Mapping[int, frozenset[int | None]]:
        """How many nodes the steps of each command have, by its `id`; those of all steps by 0."""
        counts: dict[int, set[int | None]] = {0: set()}
        for step in self.steps:
            counts.setdefault(id(step.command), set()).add(step.nodes)
            counts[0].add(step.nodes)
        return {command: frozenset(found) for command, found in counts.items()}

    @cached_property
    def partitions(self) -> frozenset[str]:
        """All partitions that the job and its steps name outright, or lead to."""
        return frozenset(name for step in self.requests for name in step.partitions(self.site))

    @cached_property
    def for_this_site(self) -> bool:
        """Whether the script may be for this machine: not where it names partitions, and none of these."""
        return not self.partitions or not self.partitions.isdisjoint(self.site.partitions)

    @cached_property
    def gpus(self) -> tuple[GpuVendor, ...]:
        """What is known of the GPUs of the site."""
        return (gpu_of(self.site.gpu_vendor),) if self.site.gpu_vendor else ()

    @cached_property
    def misspelt(self) -> Mapping[str, str]:
        """Variables that nothing reads, with those that are meant."""
        return {name: meant for gpu in self.gpus for name, meant in gpu.misspelt.items()}

    @cached_property
    def caches(self) -> frozenset[str]:
        """Variables that name directories of caches and databases."""
        of_site = {setting.name for setting in self.site.settings if setting.directory is not None}
        return frozenset(of_site | {cache.variable for gpu in self.gpus for cache in gpu.caches})

    @cached_property
    def settings(self) -> tuple[ScriptSetting, ...]:
        """All variables that are set, by assignment, `env` or `--env`, without a prefix for the container."""
        return tuple(setting for command in self.commands for setting in _settings(command))

    def settings_of(self, *names: str) -> Iterator[ScriptSetting]:
        """Yield the settings of some variables."""
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
        values: dict[str, set[str]] = {}
        known: dict[str, str] = {}
        settings = [setting for command in self._read for setting in _settings(command)]
        for setting in settings:
            values[setting.name] = _after(values.get(setting.name, set()), setting)
        for name, (value, *others) in values.items():
            if others or len(value) > _VALUE_LIMIT or "$(" in value or "`" in value:
                continue
            value = _VARIABLE.sub(lambda found: known.get(found[1] or found[2], found[0]), value)
            if len(value) <= _VALUE_LIMIT and name not in variables_in(value):
                known[name] = value
        return known

    def resolved(self, value: str) -> str:
        """Return a text with what variables were set to, where the script says it in plain text."""
        return _VARIABLE.sub(lambda found: self._known.get(found[1] or found[2], found[0]), value)

    def resolved_words(self, words: Iterable[Word]) -> list[tuple[str, int]]:
        """Return words as the program gets them, with their lines."""
        return [(self.resolved(word.value), word.line) for word in words]

    def option_values(self, pattern: str) -> Iterator[tuple[str, int]]:
        """Yield the values of an option of any program, `--option=VALUE` or `--option VALUE`, with their lines."""
        for command in self.commands:
            for word, following in zip(command.words, (*command.values[1:], ""), strict=False):
                option, equals, value = word.value.partition("=")
                if re.fullmatch(pattern, option):
                    yield (value if equals else following), word.line


def variables_in(value: str) -> list[str]:
    """Return the names of the variables in a text."""
    return re.findall(r"\$\{?(\w+)", value)


def _settings(command: ShellCommand) -> Iterator[ScriptSetting]:
    for name, word in command.assignments:
        yield ScriptSetting(_CONTAINER_PREFIX.sub("", name), word.value, word.line, command)
    values = command.values
    for index, word in enumerate(command.words):
        named = index and (values[index - 1] == "--env" or values[0] == "env")
        found = re.match(r"--(?:env|export)=(.*)", word.value, re.DOTALL)
        pairs = word.value if named else found[1] if found else ""
        for name, equals, text in (pair.partition("=") for pair in pairs.split(",")):
            if equals and name.isidentifier():
                yield ScriptSetting(name, text, word.line, command)


def _after(before: set[str], setting: ScriptSetting) -> set[str]:
    """Return the values that a variable may have, where one that is made of the only one before is in its place."""
    times = variables_in(setting.value).count(setting.name)
    (known, *others) = before or {""}
    if not times or not before or others or len(known) * times > _VALUE_LIMIT or setting.name in variables_in(known):
        return {*before, setting.value}
    return {_VARIABLE.sub(lambda found: known if setting.name in (found[1], found[2]) else found[0], setting.value)}
