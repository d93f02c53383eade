"""What a job script asks of Slurm, and what it sets for its programs: what rules are written on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from lumisite.validate.lint_shell import Command, Part, Script, Word

#: Options of sbatch and srun that take a value, which may be the next word (srun(1), sbatch(1) of Slurm 24.05).
VALUED = frozenset(
    re.split(
        r"\s+",
        """account chdir comment constraint core-spec cores-per-socket cpu-bind cpu-freq cpus-per-gpu cpus-per-task
        dependency distribution error exclude export gpu-bind gpu-freq gpus gpus-per-node gpus-per-socket gpus-per-task
        gres gres-flags hint input job-name jobid kill-on-bad-exit mail-type mail-user mem mem-bind mem-per-cpu
        mem-per-gpu mpi network nodelist nodes ntasks ntasks-per-core ntasks-per-gpu ntasks-per-node open-mode output
        partition qos relative reservation signal sockets-per-node task-epilog task-prolog tasks-per-node
        threads-per-core time wait wckey""",
    )
)
SHORT = {
    "A": "account",
    "B": "extra-node-info",
    "C": "constraint",
    "D": "chdir",
    "G": "gpus",
    "J": "job-name",
    "N": "nodes",
    "S": "core-spec",
    "c": "cpus-per-task",
    "d": "dependency",
    "e": "error",
    "i": "input",
    "m": "distribution",
    "n": "ntasks",
    "o": "output",
    "p": "partition",
    "q": "qos",
    "r": "relative",
    "t": "time",
    "w": "nodelist",
    "x": "exclude",
}
_CONTAINER_PREFIX = re.compile(r"^(?:SINGULARITYENV|APPTAINERENV)_")
_VARIABLE = re.compile(r"(?<!\\)\$(?:\{(\w+)\}|(\w+))")


@dataclass(frozen=True)
class Option:
    """An option that Slurm gets; `value` is empty for a flag."""

    name: str
    value: str
    line: int


@dataclass(frozen=True)
class Setting:
    """A variable that a script sets, for itself or for a program or container that it starts."""

    name: str
    word: Word
    line: int
    spot: str

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


@dataclass(frozen=True)
class Job:
    """A job script, read for rules."""

    script: Script

    @cached_property
    def directives(self) -> dict[str, Option]:
        """The options of `#SBATCH` lines."""
        words = [(directive.value, directive.line) for directive in self.script.directives]
        return _options(words, stop=False)

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """All sruns in order; a script without one runs as a step of one task."""
        steps = []
        for command in self.script.commands:
            at = _index_of(command, "srun")
            if at is not None:
                words = [(self.resolved(word.value), word.line) for word in command.words[at + 1 :]]
                own = _options(words, stop=True)
                steps.append(Step(command.words[at].line, own, {**self.directives, **own}))
        return tuple(steps) or (Step(1, {}, self.directives),)

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
        return {setting.name: setting.value for setting in self.settings if "$" not in setting.value}

    def resolved(self, value: str) -> str:
        """Put in what variables were set to, where the script says it in plain text."""
        return _VARIABLE.sub(lambda found: self._known.get(found[1] or found[2], found[0]), value)

    def runs(self, pattern: str) -> bool:
        """Whether any word of a command matches."""
        return any(re.search(pattern, value) for command in self.script.commands for value in command.values)


def _index_of(command: Command, program: str) -> int | None:
    """Find a program among the first words of a command, after `time`, `exec` and the like."""
    for at, value in enumerate(command.values[:4]):
        if value.rpartition("/")[2] == program:
            return at
    return None


def _options(words: Iterable[tuple[str, int]], *, stop: bool) -> dict[str, Option]:
    """Read options up to the first other word (`stop`), where the program begins."""
    found: dict[str, Option] = {}
    rest = list(words)
    while rest:
        word, line = rest.pop(0)
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word[2:].partition("=")
            if not equals and name in VALUED and rest and not rest[0][0].startswith("-"):
                value = rest.pop(0)[0]
        elif re.match(r"-[A-Za-z]", word):
            name, value = SHORT.get(word[1], word[1]), word[2:].removeprefix("=")
            if not value and word[1] in SHORT and rest:
                value = rest.pop(0)[0]
        elif stop:
            break
        else:
            continue
        name = {"tasks-per-node": "ntasks-per-node"}.get(name, name)
        found[name] = Option(name, value, line)
    return found


def _settings(command: Command) -> Iterator[Setting]:
    for name, word in command.assignments:
        yield Setting(_CONTAINER_PREFIX.sub("", name), word, word.line, command.spot)
    values = command.values
    for at, (value, word) in enumerate(zip(values, command.words, strict=True)):
        named = at and (values[at - 1] == "--env" or values[0] == "env")
        given = value if named else value.removeprefix("--env=") if value.startswith("--env=") else ""
        for pair in given.split(",") if given else ():
            name, equals, text = pair.partition("=")
            if equals and name.isidentifier():
                yield Setting(name, Word((Part("", text, word.line),)), word.line, "task")
