"""Which images a script runs, and what is wrong with running them so."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from lumisite.images.lock import LockedImage, holds_by_lock
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
from lumisite.vendors import all_vendors
from lumisite.vendors.model import Gpu


@dataclass(frozen=True)
class Start:
    """A container that a script starts: `image` is its path as far as the script tells it, empty where it does not."""

    action: str
    image: str
    line: int
    command: Command


def holds_of(job: Job, path: str) -> Holds:
    """Return what an image holds, as the lock has it, else by its name; a name alone is a file beside the script."""
    locked = locked_at(job, path)
    if locked is not None:
        return holds_by_lock(job.site, path, locked)
    placed = path if "/" in path else f"./{path}"
    return replace(holds_by_name(job.site, placed), stacks=told_releases(job.site, placed))


def locked_at(job: Job, path: str) -> LockedImage | None:
    """Return what the lock knows of an image, by one of its names or by its file."""
    found = job.locked.get(path) or next((one for one in job.locked.values() if path and one.target == path), None)
    return None if found is None or found.fault else found


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
    platform = job.site.platforms[job.site.platform]
    for start in starts_of(job) if _may_have_gpus(job) else ():
        for stack, version in holds_of(job, start.image).stacks.items():
            here, title = platform.stacks.get(stack), job.site.stacks[stack].title
            if here is not None and not here.has(version):
                yield Told(
                    start.line,
                    f"{start.image.rpartition('/')[2]} has {title} {version}, "
                    f"but the GPU driver of this system supports {here.runs}",
                    f"an image with {title} {here.runs}{_example(job)}",
                )


def _may_have_gpus(job: Job) -> bool:
    kinds = job.site.kinds_of(*job.partitions).values()
    return not kinds or any(kind.gpus for kind in kinds)


def _example(job: Job) -> str:
    return f", such as {job.site.validation.image}" if job.site.validation else ""


def image_for_other_gpus(job: Job) -> Iterator[Told]:
    """An image that is built for GPUs of another vendor than the job gets."""
    mine = [maker for maker in all_vendors() if maker.gpu in job.gpus]
    for start in starts_of(job) if mine and _may_have_gpus(job) else ():
        theirs = [maker for maker in all_vendors() if maker.gpu and _is_for(job, start.image, maker.gpu)]
        if theirs and not any(maker in mine for maker in theirs):
            here = " or ".join(maker.title for maker in mine)
            yield Told(
                start.line,
                f"{start.image.rpartition('/')[2]} is built for GPUs of {' and '.join(one.title for one in theirs)}, "
                f"but the job gets GPUs of {here}",
                f"an image for GPUs of {here}{_example(job)}",
            )


def _is_for(job: Job, image: str, gpu: Gpu) -> bool:
    """Return whether an image's name or address, or what the lock has of it, says that it is for some GPUs."""
    is_address, locked = "://" in image, locked_at(job, image)
    name = image.partition("://")[2].removeprefix("docker.io/") if is_address else image.rpartition("/")[2]
    read = [] if locked is None else [f"{what} {version}" for what, version in locked.versions.items()]
    return any(re.search(word, text.lower()) for word in gpu.image_words for text in (name, *read))


def skipped_runscript(job: Job) -> Iterator[Told]:
    """`exec` of an image that is prepared by its runscript, in a job with GPUs: to install packages it does as well."""
    gpus = any(step.asks_for_gpus for step in (job.allocation, *job.steps))
    for start in starts_of(job) if gpus else ():
        family = holds_of(job, start.image).family
        if start.action == "exec" and family and job.site.families[family].activation == "runscript":
            image = start.image.rpartition("/")[2]
            yield Told(
                start.line,
                f"exec skips the runscript of {image}, and what that does about the GPUs that a task sees",
                f"{job.site.command} run … {image} …",
            )
