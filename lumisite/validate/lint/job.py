"""What a job script asks of Slurm, and what it sets for its programs: what rules are written on."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from lumisite.validate.lint.lexer import Command, Part, Word
from lumisite.validate.lint.options import Option, read_options
from lumisite.validate.lint.shell import Directive, Script, program_at

_CONTAINER_PREFIX = re.compile(r"^(?:SINGULARITYENV|APPTAINERENV)_")
_COMMENT = re.compile(r"(?<!\S)#[^\n]*")
#: Longer values are no name or path; values of values could grow without end.
_VALUE_LIMIT = 1 << 12
_USED = re.compile(r"\$\{?(\w+)")
_VARIABLE = re.compile(r"(?<!\\)\$(?:\{(\w+)\}|(\w+))")


@dataclass(frozen=True)
class Setting:
    """A variable that a script sets, for itself or for a program or container that it starts."""

    name: str
    word: Word
    line: int
    command: Command

    @property
    def spot(self) -> str:
        """Where the command that sets it runs."""
        return self.command.spot

    @property
    def value(self) -> str:
        """The value as it stands there, without quotes."""
        return self.word.value


@dataclass(frozen=True)
class Step:
    """One srun with the options that hold for it: its own, and those of `#SBATCH` where it has none."""

    line: int
    own: Mapping[str, Option]
    merged: Mapping[str, Option]

    def number(self, name: str) -> int | None:
        """Give a number that an option sets outright."""
        option = self.merged.get(name)
        return int(option.value) if option and re.fullmatch(r"\d{1,6}", option.value) else None

    @property
    def nodes(self) -> int | None:
        """How many nodes it has at least; None where the script does not say it in numbers, and for `1-4`."""
        option = self.merged.get("nodes")
        found = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", option.value) if option else None
        tasks, each = self.number("ntasks"), self.number("ntasks-per-node")
        if found:
            least = int(found[1])
            if least == 1 and found[2] not in (None, "1"):
                return None
            return least if tasks is None else min(least, tasks)  # Slurm starts no more nodes than tasks
        return -(-tasks // each) if not option and tasks and each else None

    @property
    def tasks_per_node(self) -> int | None:
        """How many tasks a node gets; None where the script does not say it in numbers."""
        if "ntasks-per-node" in self.merged and ("ntasks" not in self.own or "ntasks-per-node" in self.own):
            return self.number("ntasks-per-node")
        tasks, nodes = self.number("ntasks"), self.number("nodes")
        if "ntasks" not in self.merged:
            return 1
        if tasks is None or ("nodes" in self.merged and not nodes):
            return None
        if nodes is None:
            return tasks if tasks <= 8 else None  # Slurm may spread them
        return -(-tasks // nodes)

    @property
    def gpus_per_node(self) -> int | None:
        """How many GPUs a node gives; None where the script does not say it in numbers."""
        for name, pattern in (("gpus-per-node", r"(?:[\w-]+:)?(\d+)"), ("gres", r"gpu:(?:[\w-]+:)?(\d+)")):
            option = self.merged.get(name)
            if option and (found := re.fullmatch(pattern, option.value)):
                return int(found[1])
        gpus, nodes = self.number("gpus"), self.number("nodes")
        return -(-gpus // nodes) if gpus and nodes else gpus

    @property
    def asks_for_gpus(self) -> bool:
        """Whether any option is about GPUs."""
        gres = self.merged.get("gres")
        return any(name.startswith("gpu") for name in self.merged) or bool(gres and "gpu" in gres.value)

    @property
    def partitions(self) -> tuple[str, ...]:
        """The partitions that are named outright."""
        option = self.merged.get("partition")
        names = option.value.split(",") if option else []
        return tuple(name for name in names if re.fullmatch(r"[\w.-]+", name) and name.lower() != "partition")


@dataclass(frozen=True)
class Job:
    """A job script, read for rules; `outer` is the script that writes or submits it."""

    script: Script
    outer: Job | None = None

    @property
    def jobs(self) -> Iterator[Job]:
        """The job itself, and those that it writes or submits."""
        yield self
        for script in self.script.jobs:
            yield from Job(script, self).jobs

    @cached_property
    def components(self) -> tuple[dict[str, Option], ...]:
        """The options of `#SBATCH` lines, for each component of a heterogeneous job; sbatch's own go before them."""
        parts: list[list[Directive]] = [[]]
        for directive in self.script.directives:
            if directive.value in ("hetjob", "packjob"):
                parts.append([])
            else:
                parts[-1].append(directive)
        own = read_options(self.given(self.script.submitted), stop=True)
        found = [read_options([(self.resolved(one.value), one.line) for one in part], stop=False) for part in parts]
        return tuple({**one, **own} for one in found)

    @property
    def allocations(self) -> tuple[Step, ...]:
        """What each component asks for, as a step that has all of it."""
        return tuple(Step(0, {}, component) for component in self.components)

    @property
    def directives(self) -> dict[str, Option]:
        """The options of the job, or of its first component."""
        return self.components[0]

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """All sruns in order; a script without one runs as a step of one task."""
        return tuple(self._sruns()) or tuple(Step(1, {}, component) for component in self.components)

    def _sruns(self) -> Iterator[Step]:
        for command in self.script.commands:
            at = program_at(command, "srun")
            if at is not None:
                yield self._step(command.words[at].line, self.given(command.words[at + 1 :]))
            for _, word in command.assignments:
                texts = list(texts_of(word))
                if texts and texts[0][0] == "srun":
                    yield self._step(word.line, [(self.resolved(text), line) for text, line in texts[1:]])

    def _step(self, line: int, words: list[tuple[str, int]]) -> Step:
        own = read_options(words, stop=True)
        group = own["het-group"].value if "het-group" in own else "0"
        component = self.components[int(group)] if group.isdigit() and int(group) < len(self.components) else {}
        return Step(line, own, {**component, **own})

    def given(self, words: tuple[Word, ...]) -> list[tuple[str, int]]:
        """Give words as the program gets them: a variable without quotes may be several."""
        found: list[tuple[str, int]] = []
        for word in words:
            if array := re.fullmatch(r"\$\{(\w+)\[[@*]\]\}", word.value):
                found += [(self.resolved(text), line) for text, line in self._arrays.get(array[1], ())]
                continue
            value = self.resolved(word.value)
            bare = len(word.parts) == 1 and not word.parts[0].quote and word.value.startswith("$")
            found += [(one, word.line) for one in (value.split() if bare and value != word.value else [value])]
        return found

    @property
    def partitions(self) -> frozenset[str]:
        """All partitions that the job and its steps name outright."""
        return frozenset(name for step in (*self.allocations, *self.steps) for name in step.partitions)

    def elsewhere(self, partitions: frozenset[str]) -> bool:
        """Whether the script is for another machine: it names partitions, and none of these.

        Where it names none, a constraint, a quality of service or what belongs to CUDA or Pyxis says so.
        """
        if self.partitions:
            return self.partitions.isdisjoint(partitions)
        if any("constraint" in component or "qos" in component for component in self.components):
            return True
        return self.runs(r"^(?:--nv|nvidia-smi|cuda(?:toolkit)?(?:/.*)?|--container-(?:image|mounts)(?:=.*)?)$")

    @cached_property
    def arguments(self) -> tuple[tuple[tuple[str, int], ...], ...]:
        """The words of each command, and of each text that is kept in a variable for a command."""
        commands = [tuple((word.value, word.line) for word in command.words) for command in self.script.commands]
        kept = [tuple(texts_of(word)) for command in self.script.commands for _, word in command.assignments]
        return (*commands, *(texts for texts in kept if len(texts) > 1 or (texts and texts[0][0].startswith("-"))))

    @cached_property
    def settings(self) -> tuple[Setting, ...]:
        """All variables that are set, by assignment, `env` or `--env`, without a prefix for the container."""
        return tuple(setting for command in self.script.commands for setting in _settings(command))

    def named(self, pattern: str) -> Iterator[Setting]:
        """Give the settings whose whole name matches."""
        return (setting for setting in self.settings if re.fullmatch(pattern, setting.name))

    @cached_property
    def words(self) -> tuple[Word, ...]:
        """All words, values of assignments among them."""
        own = [word for command in self.script.commands for word in command.words]
        return tuple(own + [word for command in self.script.commands for _, word in command.assignments])

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
            if len(value) <= _VALUE_LIMIT and setting.name not in _USED.findall(value):
                known[setting.name] = value
        return {name: value for name, value in known.items() if name not in several}

    @cached_property
    def _arrays(self) -> dict[str, list[tuple[str, int]]]:
        found: dict[str, list[tuple[str, int]]] = {}
        for setting in self.settings:
            if setting.value.startswith("("):
                found.setdefault(setting.name, []).extend(texts_of(setting.word))
        return found

    def resolved(self, value: str) -> str:
        """Put in what variables were set to, where the script says it in plain text."""
        return _VARIABLE.sub(lambda found: self._known.get(found[1] or found[2], found[0]), value)

    def runs(self, pattern: str) -> bool:
        """Whether any word of a command matches, or of a text that is kept for one."""
        return any(re.search(pattern, value) for words in self.arguments for value, _ in words)


def texts_of(word: Word) -> Iterator[tuple[str, int]]:
    """Give the words of a text in quotes or of an array, with their lines."""
    for part in word.parts:
        array = not part.quote and part.text.startswith("(")
        inside = _COMMENT.sub("", part.text[1:-1]) if array else part.text
        for number, line in enumerate(inside.split("\n"), start=part.line):
            for found in re.finditer(r"[^\s\\](?:\\.|[^\s\\])*", line):
                yield (found[0].strip("\"'") if array else found[0]), number


def _settings(command: Command) -> Iterator[Setting]:
    for name, word in command.assignments:
        yield Setting(_CONTAINER_PREFIX.sub("", name), word, word.line, command)
    values = command.values
    for at, (value, word) in enumerate(zip(values, command.words, strict=True)):
        named = at and (values[at - 1] == "--env" or values[0] == "env")
        found = re.match(r"--(?:env|export)=(.*)", value, re.DOTALL)
        given = value if named else found[1] if found else ""
        for pair in given.split(",") if given else ():
            name, equals, text = pair.partition("=")
            if equals and name.isidentifier():
                yield Setting(name, Word((Part("", text, word.line),)), word.line, command)
