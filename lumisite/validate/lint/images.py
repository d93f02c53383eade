"""Which images a script runs, and what is wrong with running them so."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lumisite.release.runtimes import ACTION_FLAGS, ACTION_VALUED, ACTION_VALUED_LETTERS, ACTIONS, GLOBAL_VALUED
from lumisite.site.images import family_by_path, holds_by_name
from lumisite.site.model import Site
from lumisite.site.selection import runs_on
from lumisite.site.versions import Version, parse_version
from lumisite.validate.lint.job import Job, texts_of
from lumisite.validate.lint.lexer import Command
from lumisite.validate.lint.machine import Hit, Machine
from lumisite.validate.lint.shell import TALKERS

RUNTIMES = ("singularity", "apptainer")
#: How names of images of other hands say it: `rocm/pytorch:rocm6.3_ubuntu22.04`.
_ROCM = re.compile(r"rocm[-_]?(\d+\.\d+(?:\.\d+)?)(?!.*rocm[-_]?\d)")


@dataclass(frozen=True)
class Start:
    """A container that a script starts: `image` is its path as far as the script tells it, empty where it does not."""

    action: str
    image: str
    line: int
    command: Command


def image_rocm(site: Site, path: str) -> Version | None:
    """The ROCm release in an image, as its name tells it to the wrapper; of other images, as their names say it."""
    told = holds_by_name(site, _placed(path)).rocm if path else None
    said = _ROCM.search(path.rpartition("/")[2])
    return told or (parse_version(said[1]) if said else None)


def image_family(site: Site, path: str) -> str | None:
    """The family of an image by its path; a name alone is a file beside the script."""
    return family_by_path(site, _placed(path)) if path else None


def _placed(path: str) -> str:
    return path if "/" in path else f"./{path}"


def starts_of(job: Job) -> Iterator[Start]:
    """Give every container that is started by a command, or by a text that is kept for one."""
    for command in job.script.commands:
        if command.programs[:1] and command.programs[0] in TALKERS:
            continue
        at = next((at for at, program in enumerate(command.programs) if program in RUNTIMES), None)
        if at is not None:
            yield from _start(job.given(command.words[at + 1 :]), command)
        for _, word in command.assignments:
            texts = list(texts_of(word))
            at = next((at for at, (text, _) in enumerate(texts) if text.rpartition("/")[2] in RUNTIMES), None)
            if at is not None:
                rest = [(one, line) for text, line in texts[at + 1 :] for one in job.resolved(text).split()]
                yield from _start(rest, command)


def _start(words: list[tuple[str, int]], command: Command) -> Iterator[Start]:
    """Step over options as the runtime does; an option that is not known hides the image."""
    action, valued, only_words = "", False, False
    for at, (word, line) in enumerate(words):
        if valued:
            valued = False
        elif not action:
            if word in ACTIONS:
                action = word
            elif not word.startswith("-"):
                return
            valued = word in GLOBAL_VALUED
        elif word == "--":
            only_words = True
        elif not word.startswith("-") or only_words:
            yield Start(action, _image(word, words[at + 1 :]), line, command)
            return
        elif word.startswith("--"):
            valued = word in ACTION_VALUED
            if not valued and "=" not in word and word not in ACTION_FLAGS:
                yield Start(action, "", line, command)
                return
        else:
            letter = next((at for at, one in enumerate(word) if at and one in ACTION_VALUED_LETTERS), None)
            valued = letter == len(word) - 1


def _image(word: str, rest: Iterable[tuple[str, int]]) -> str:
    """The word where an image is expected; a variable there may be more options, and the image follows."""
    if word.startswith("$") and not word.endswith(".sif"):
        return next((text for text, _ in rest if text.endswith(".sif")), word)
    return word


def outside_range(job: Job, machine: Machine) -> Iterator[Hit]:
    """An image with a ROCm release that the GPU driver does not support."""
    without_gpus = job.partitions and job.partitions.isdisjoint(machine.gpu_cores)
    platform = machine.site.platforms[machine.site.platform]
    for start in () if without_gpus or job.elsewhere(machine.partitions) else starts_of(job):
        rocm = image_rocm(machine.site, start.image)
        if rocm is None or runs_on(platform, rocm):
            continue
        validated = machine.site.validation
        yield (
            start.line,
            {
                "image": start.image.rpartition("/")[2],
                "rocm": str(rocm),
                "supported": str(platform.driver_rocm),
                "example": f", such as {validated.image}" if validated else "",
            },
        )


def skipped_runscript(job: Job, machine: Machine) -> Iterator[Hit]:
    """`exec` of an image that is prepared by its runscript, in a job with GPUs: to install packages it does as well."""
    gpus = any(step.asks_for_gpus for step in (*job.allocations, *job.steps))
    for start in starts_of(job) if gpus and not job.elsewhere(machine.partitions) else ():
        family = image_family(machine.site, start.image)
        if start.action == "exec" and family and machine.site.families[family].activation == "runscript":
            yield start.line, {"image": start.image.rpartition("/")[2]}
