"""Which images a script runs, and what is wrong with running them so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from lumisite.lint.job import Job, Told
from lumisite.lint.shell import Command
from lumisite.render.runtimes import (
    ACTION_FLAGS,
    ACTION_VALUED,
    ACTION_VALUED_LETTERS,
    ACTIONS,
    GLOBAL_VALUED,
    RUNTIMES,
)
from lumisite.site.images import Holds, holds_by_name, told_releases
from lumisite.site.model import Site


@dataclass(frozen=True)
class Start:
    """A container that a script starts: `image` is its path as far as the script tells it, empty where it does not."""

    action: str
    image: str
    line: int
    command: Command


def holds_of(site: Site, path: str) -> Holds:
    """What an image holds, as its name tells it; a name alone is a file beside the script."""
    placed = path if "/" in path else f"./{path}"
    return replace(holds_by_name(site, placed), stacks=told_releases(site, placed))


def starts_of(job: Job) -> Iterator[Start]:
    """Give every container that is started by a command, or by a text that is kept for one."""
    for command in job.commands:
        words = command.behind(*RUNTIMES)
        start = _start(job.given(words), command) if words else None
        if start:
            yield start


def _start(words: list[tuple[str, int]], command: Command) -> Start | None:
    """Step over options as the runtime does; an option that is not known hides the image."""
    action, valued, only_words = "", False, False
    for at, (word, line) in enumerate(words):
        if valued:
            valued = False
        elif not action:
            if not word.startswith("-") and word not in ACTIONS:
                return None
            action = word if word in ACTIONS else ""
            valued = word in GLOBAL_VALUED
        elif word == "--":
            only_words = True
        elif not word.startswith("-") or only_words:
            return Start(action, _image(word, words[at + 1 :]), line, command)
        elif word.startswith("--"):
            valued = word in ACTION_VALUED
            if not valued and "=" not in word and word not in ACTION_FLAGS:
                return Start(action, "", line, command)
        else:
            letter = next((at for at, one in enumerate(word) if at and one in ACTION_VALUED_LETTERS), None)
            valued = letter == len(word) - 1
    return None


def _image(word: str, rest: list[tuple[str, int]]) -> str:
    """The word where an image is expected; a variable there may be more options, and the image follows."""
    if word.startswith("$") and not word.endswith(".sif"):
        return next((text for text, _ in rest if text.endswith(".sif")), word)
    return word


def image_outside_range(job: Job) -> Iterator[Told]:
    """An image with a release that the GPU driver does not support."""
    partitions = [job.site.partitions[name] for name in job.partitions if name in job.site.partitions]
    if partitions and not any(job.site.node_kinds[one.node_kind].gpus for one in partitions):
        return
    platform, validated = job.site.platforms[job.site.platform], job.site.validation
    for start in starts_of(job):
        for stack, version in holds_of(job.site, start.image).stacks.items():
            here, title = platform.stacks.get(stack), job.site.stacks[stack].title
            if here is not None and not here.has(version):
                example = f", such as {validated.image}" if validated else ""
                yield Told(
                    start.line,
                    f"{start.image.rpartition('/')[2]} has {title} {version}, "
                    f"but the GPU driver of this system supports {here.runs}",
                    f"an image with {title} {here.runs}{example}",
                )


def skipped_runscript(job: Job) -> Iterator[Told]:
    """`exec` of an image that is prepared by its runscript, in a job with GPUs: to install packages it does as well."""
    gpus = any(step.asks_for_gpus for step in (job.allocation, *job.steps))
    for start in starts_of(job) if gpus else ():
        family = holds_of(job.site, start.image).family
        if start.action == "exec" and family and job.site.families[family].activation == "runscript":
            image = start.image.rpartition("/")[2]
            yield Told(
                start.line,
                f"exec skips the runscript of {image}, and what that does about the GPUs that a task sees",
                f"{job.site.command} run … {image} …",
            )
