"""A job script as rules see it: its directives, its commands with variables put in, its steps, what it sets."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from itertools import dropwhile
from typing import Literal, NamedTuple

from lumisite.images.lock import LockedImage
from lumisite.lint.script import ShellCommand, Word, is_shell, read_commands, read_directives
from lumisite.lint.slurm_options import Option, read_options
from lumisite.lint.step import SrunStep
from lumisite.render.runtimes import RUNTIMES
from lumisite.site.model import Site
from lumisite.vendors import gpu_of
from lumisite.vendors.model import GpuVendor

_CONTAINER_PREFIX = re.compile(r"^(?:SINGULARITYENV|APPTAINERENV)_")
#: Longer values are no name or path; values of values could grow without end.
_VALUE_LIMIT = 1 << 12
_SEPARATORS = ("hetjob", "packjob")
_VARIABLE = re.compile(r"(?<!\\)\$(?:\{(\w+)\}|(\w+))")
_WITH_DEFAULT = re.compile(r"\$\{\w+:?[-=]([^{}]*)\}")
_STARTERS = ("srun", "mpirun", "mpiexec", "torchrun", "accelerate", "deepspeed", *RUNTIMES)
_UNLOADING = ("unload", "rm", "del", "purge", "reset", "restore")
_MODULE_VERBS = ("load", "add", "swap", "use", *_UNLOADING)


class BadLine(NamedTuple):
    """What a rule yields: a line of a script, what in it is bad, why, and what would be right."""

    line: int
    subject: str
    reason: str
    right: str


class ScriptSetting(NamedTuple):
    """A variable that a script sets, for itself or for a program or container that it starts."""

    name: str
    value: str
    line: int
    command: ShellCommand


class ModuleCommand(NamedTuple):
    """A command that loads modules, and those that were loaded before, each with its line."""

    line: int
    loads: tuple[str, ...]
    before: Mapping[str, int]


class Job:
    """A job script, read for rules; `locked` is what was read in images, by their paths."""

    def __init__(self, site: Site, text: str, locked: Mapping[str, LockedImage] | None = None) -> None:
        """Read the script."""
        self.dos = "\r\n" in text
        self.text = text.replace("\r\n", "\n")
        self.site = site
        self.locked = locked or {}
        self.directives = tuple(read_directives(self.text))
        self._read = tuple(read_commands(self.text)) if is_shell(self.text) else ()

    @property
    def gpus(self) -> tuple[GpuVendor, ...]:
        """What is known of the GPUs of the site."""
        return (gpu_of(self.site.gpu_vendor),) if self.site.gpu_vendor else ()

    @property
    def first_command(self) -> int:
        """The line of the first command, where sbatch stops to read directives; the last line where there is none."""
        lines = self.text.split("\n")
        return next((at for at, line in enumerate(lines, 1) if line.strip() and line.lstrip()[0] != "#"), len(lines))

    # ---------------------------------------------------------------- commands and steps

    @cached_property
    def commands(self) -> tuple[ShellCommand, ...]:
        """All commands of the script, in order, with the words that variables without quotes stand for."""
        return tuple(command.with_words(self._split(word) for word in command.words) for command in self._read)

    def _split(self, word: Word) -> tuple[Word, ...]:
        """Return the words of a variable without quotes, with the line that sets it, where it has several."""
        variable = _VARIABLE.fullmatch(word.raw)
        name = (variable[1] or variable[2]) if variable else ""
        pieces = self._known.get(name, "").split()
        return tuple(Word(piece, self._lines[name]) for piece in pieces) if len(pieces) > 1 else (word,)

    @cached_property
    def requests(self) -> tuple[tuple[Option, ...], ...]:
        """The options of `#SBATCH` lines, of each component of a heterogeneous job."""
        parts: list[list[tuple[str, int]]] = [[]]
        for word, line in self.directives:
            if word in _SEPARATORS:
                parts.append([])
            else:
                parts[-1].append((word, line))
        return tuple(tuple(read_options(words, "sbatch", stop=False)) for words in parts)

    @cached_property
    def allocation(self) -> SrunStep:
        """What `#SBATCH` lines ask for; of a heterogeneous job nothing is known."""
        options = self.requests[0] if len(self.requests) == 1 else ()
        return SrunStep(self.site, None, options, {option.name: option for option in options})

    @cached_property
    def sruns(self) -> tuple[SrunStep, ...]:
        """All sruns, each component of one (`srun … : …`) as a step."""
        steps = []
        for command in self.commands:
            words = self.resolved_words(command.words_after("srun", first=4) or ())
            ends = [at for at, (word, _) in enumerate(words) if word == ":"]
            for begin, end in zip([0, *(at + 1 for at in ends)], [*ends, len(words)], strict=True) if words else ():
                own = read_options(words[begin:end], "srun", stop=True)
                options = {**self.allocation.options, **{option.name: option for option in own}}
                steps.append(SrunStep(self.site, command, own, options))
        return tuple(steps)

    @property
    def steps(self) -> tuple[SrunStep, ...]:
        """All sruns; a script without any is one step of one task."""
        return self.sruns or (self.allocation,)

    @property
    def allocation_and_sruns(self) -> tuple[SrunStep, ...]:
        """All that asks Slurm for something."""
        return (self.allocation, *self.sruns)

    @property
    def option_lists(self) -> tuple[Iterable[Option], ...]:
        """The options of each component of the job and of each srun, as they stand together."""
        return (*self.requests, *(step.own for step in self.sruns))

    def step_of(self, command: ShellCommand) -> SrunStep | None:
        """Return the step that a command is, if it is one: of several components the first."""
        return self._steps_by_command.get(id(command))

    @cached_property
    def _steps_by_command(self) -> dict[int, SrunStep]:
        return {id(step.command): step for step in reversed(self.sruns)}

    @cached_property
    def partitions(self) -> frozenset[str]:
        """All partitions that the job and its steps name outright, or lead to."""
        return frozenset(name for step in self.allocation_and_sruns for name in step.partition_names)

    # ---------------------------------------------------------------- variables

    @cached_property
    def settings(self) -> tuple[ScriptSetting, ...]:
        """All variables that are set, by assignment, `env` or `--env`, without a prefix for the container."""
        return tuple(setting for command in self.commands for setting in _settings(command))

    def in_force(self, names: Collection[str]) -> Iterator[tuple[ScriptSetting, str]]:
        """Yield the settings of some variables that hold when something is started, with what they set.

        Other variables are put in; of `${NAME:-value}` it is the value.
        """
        for setting in self.settings:
            if setting.name in names and not self._replaced(setting):
                yield setting, _WITH_DEFAULT.sub(lambda found: found[1], self.resolved(setting.value))

    def _replaced(self, setting: ScriptSetting) -> bool:
        """Return whether the variable is set again or unset before anything is started."""
        later = dropwhile(lambda command: command is not setting.command, self.commands)
        for command in later:
            if command.names_any(*_STARTERS):
                return False
            again = any(name == setting.name for name, _ in command.assignments)
            gone = command.values[:1] == ("unset",) and setting.name in command.values
            if command is not setting.command and command.spot == setting.command.spot and (again or gone):
                return True
        return False

    def nodes_reached(self, setting: ScriptSetting) -> Literal["one", "several"] | None:
        """Return whether what a setting reaches has one node or several: its own step, or else any step of the job."""
        inside = [step for step in self.sruns if step.command is setting.command]
        counts = {step.nodes for step in inside or self.steps}
        if any(count is not None and count > 1 for count in counts):
            return "several"
        return "one" if counts == {1} else None

    @property
    def words(self) -> Iterator[Word]:
        """All words, values of assignments among them."""
        for command in self.commands:
            yield from command.words
            yield from (word for _, word in command.assignments)

    @cached_property
    def _known(self) -> dict[str, str]:
        """What variables were set to in plain text, with other variables put in; not those with several values."""
        known: dict[str, str] = {}
        unknown: set[str] = set()
        for setting in (setting for command in self._read for setting in _settings(command)):
            name, before = setting.name, known.get(setting.name)
            value = _VARIABLE.sub(lambda found: known.get(found[1] or found[2], found[0]), setting.value)
            replaced = before not in (None, value) and name not in variables_in(setting.value)
            if replaced or name in variables_in(value) or len(value) > _VALUE_LIMIT or "$(" in value or "`" in value:
                unknown.add(name)
                known.pop(name, None)
            elif name not in unknown:
                known[name] = value
        return known

    @cached_property
    def _lines(self) -> dict[str, int]:
        """The line on which each variable was set last."""
        return {setting.name: setting.line for command in self._read for setting in _settings(command)}

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

    # ---------------------------------------------------------------- modules

    @cached_property
    def modules(self) -> tuple[ModuleCommand, ...]:
        """Every command that loads modules; once something was unloaded, none counts as loaded before."""
        found = []
        loaded: dict[str, int] = {}
        for line, verb, names in self._module_commands:
            loads = names[1:] if verb == "swap" else names if verb in ("load", "add") else ()
            if verb in (*_UNLOADING, "swap") or any(name.startswith("-") for name in names):
                loaded = {}
            loads = tuple(name for name in loads if not name.startswith("-"))
            found.append(ModuleCommand(line, loads, loaded))
            loaded = {**loaded, **{name.partition("/")[0]: line for name in loads}}
        return tuple(found)

    @cached_property
    def module_folders(self) -> tuple[tuple[str, int], ...]:
        """The folders that `module use` adds, with their lines."""
        return tuple((name, line) for line, verb, names in self._module_commands if verb == "use" for name in names)

    @property
    def _module_commands(self) -> Iterator[tuple[int, str, tuple[str, ...]]]:
        """Yield line, verb and names of each `module` or `ml`, where `ml NAME` loads."""
        for command in self.commands:
            words = tuple(self.resolved(value) for value in command.values[1:] if not value.startswith("--"))
            if command.values[:1] == ("ml",) and words and words[0] not in _MODULE_VERBS:
                yield command.line, "load", words
            elif command.values[:1] in (("module",), ("ml",)) and words and words[0] in _MODULE_VERBS:
                yield command.line, words[0], words[1:]


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
