"""The containers and the launchers of processes that a script starts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from lumisite.images.known import KnownImage, know_unread
from lumisite.lint.job import Job
from lumisite.lint.script import ShellCommand
from lumisite.lint.step import SrunStep, read_count
from lumisite.render.runtimes import (
    ACTION_FLAGS,
    ACTION_VALUED,
    ACTION_VALUED_LETTERS,
    ACTIONS,
    GLOBAL_VALUED,
    RUNTIMES,
)

_LAUNCHERS = ("torchrun", "accelerate", "torch.distributed.run", "torch.distributed.launch")
#: What has the words after it as arguments of its own: a program or module of Python, or a list of packages.
_OF_PYTHON = re.compile(r"(?:^| )(?:\S+\.py|pip3?|python[\d.]*(?: -[a-zA-Z]+)* -m \S+)(?: |$)")
_NUMBER_OF_NODES = re.compile(r"\$\{?\w*(?:NNODES|NUM_NODES|NODES|COUNT)\w*\}?", re.IGNORECASE)


class Start(NamedTuple):
    """A container that a script starts: `image` is its path as far as the script has it, `None` where there is none.

    `options` are the words before it, with their lines.
    """

    action: str
    options: tuple[tuple[str, int], ...]
    image: str | None
    line: int
    command: ShellCommand

    @property
    def name(self) -> str:
        """The image without directories."""
        return (self.image or "").rpartition("/")[2]


def starts_of(job: Job) -> Iterator[Start]:
    """Yield every container that a command starts."""
    for command in job.commands:
        words = job.resolved_words(command.words_after(*RUNTIMES) or ())
        while words and words[0][0].startswith("-"):
            del words[: 2 if words[0][0] in GLOBAL_VALUED else 1]
        if words and words[0][0] in ACTIONS:
            at = _position_of_image([word for word, _ in words])
            image, line = words[at] if at is not None and at < len(words) else ("", words[-1][1])
            yield Start(words[0][0], tuple(words[1:at]), None if at is None else image, line, command)


def _position_of_image(words: list[str]) -> int | None:
    """Return which of the words from an action on is the image: beyond all where an unknown option hides it."""
    at = 1
    while at < len(words):
        word = words[at]
        if word == "--" and at + 1 < len(words):
            return at + 1
        if word.startswith("--"):
            if "=" not in word and word not in (*ACTION_FLAGS, *ACTION_VALUED):
                return len(words)
            at += word in ACTION_VALUED
        elif word.startswith("-"):
            valued = re.search(f"[{ACTION_VALUED_LETTERS}]", word)
            at += valued is not None and valued.end() == len(word)
        elif word.startswith("$") and not word.endswith(".sif"):  # it may be more options
            return next((later for later in range(at, len(words)) if words[later].endswith(".sif")), at)
        else:
            return at
        at += 1
    return None


def known_image(job: Job, image: str | None) -> KnownImage:
    """Return what is known of an image by the lock, else by its name; a name alone is a file beside the script."""
    if not image:
        return KnownImage()
    path = image if "/" in image else f"./{image}"
    return know_unread(job.site, (path, path), job.locked)


class Launch(NamedTuple):
    """A launcher that starts the processes of a node, with its options by name, each with its value and line.

    `step` is the srun that starts it, once for each task; none where the batch script itself does. `spot` is that of
    its command.
    """

    program: str
    line: int
    options: Mapping[str, tuple[str, int]]
    step: SrunStep | None
    spot: str

    def nodes(self, step: SrunStep) -> int | None:
        """Return on how many nodes it is to start processes: what it says, where that may be the number of a step."""
        given = next((self.options[name][0] for name in ("nnodes", "num_machines") if name in self.options), "1")
        return step.nodes if _NUMBER_OF_NODES.search(given) else read_count(given)

    @property
    def on_several_nodes(self) -> bool:
        """Whether it starts processes on several nodes, and runs on as many."""
        return bool(self.step and (self.nodes(self.step) or 1) > 1 and (self.step.nodes or 1) > 1)


def launches_of(job: Job) -> Iterator[Launch]:
    """Yield the launchers that commands start; what srun starts follows it, in scripts that it has as arguments."""
    step: SrunStep | None = None
    for command in job.commands:
        if command.spot in ("batch", "function"):
            step = job.step_of(command)
        index = next((at for at, name in enumerate(command.programs) if name in _LAUNCHERS), None)
        words = command.words_after(*_LAUNCHERS)
        if index is not None and words is not None and not _OF_PYTHON.search(" ".join(command.programs[:index])):
            options = _options(job.resolved_words(words))
            yield Launch(command.programs[index], command.words[index].line, options, step, command.spot)


def _options(words: list[tuple[str, int]]) -> dict[str, tuple[str, int]]:
    """Return options up to the program, which is a file of Python or comes after `-m`."""
    found: dict[str, tuple[str, int]] = {}
    for index, (word, line) in enumerate(words):
        if word.endswith(".py") or word in ("-m", "--module"):
            break
        if option := re.match(r"--([A-Za-z][\w-]*)(?:=(.*))?$", word, re.DOTALL):
            after = words[index + 1][0] if index + 1 < len(words) and words[index + 1][0][:1] != "-" else ""
            found[option[1].replace("-", "_")] = (after if option[2] is None else option[2], line)
    return found
