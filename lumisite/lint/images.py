"""Which images a script runs, and what is wrong with running them so."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from lumisite.images.lock import LockedImage, holds_by_lock
from lumisite.lint.job import BadLine, Job, bad_line
from lumisite.lint.script import ShellCommand
from lumisite.render.runtimes import (
    ACTION_FLAGS,
    ACTION_VALUED,
    ACTION_VALUED_LETTERS,
    ACTIONS,
    GLOBAL_VALUED,
    RUNTIMES,
)
from lumisite.site.images import Holds, holds_by_name, releases_by_name
from lumisite.vendors import all_gpus, all_vendors
from lumisite.vendors.model import GpuVendor


class Start(NamedTuple):
    """A container that a script starts: `image` is its path as far as the script has it, else empty.

    `options` are the words before it, with their lines.
    """

    action: str
    options: tuple[tuple[str, int], ...]
    image: str
    line: int
    command: ShellCommand

    @property
    def name(self) -> str:
        """The image without directories."""
        return self.image.rpartition("/")[2]


def contents_of(job: Job, path: str) -> Holds:
    """Return what an image holds, as the lock has it, else by its name; a name alone is a file beside the script."""
    locked = locked_at(job, path)
    if locked is not None:
        return holds_by_lock(job.site, path, locked)
    path = path if "/" in path else f"./{path}"
    return replace(holds_by_name(job.site, path), stacks=releases_by_name(job.site, path))


def locked_at(job: Job, path: str) -> LockedImage | None:
    """Return what the lock has of an image, by one of its names or by its file."""
    found = job.locked.get(path) or next(
        (image for image in job.locked.values() if path and image.target == path), None
    )
    return None if found is None or found.fault else found


def starts_of(job: Job) -> Iterator[Start]:
    """Yield every container that a command starts."""
    for command in job.commands:
        words = job.resolved_words(command.words_after(*RUNTIMES) or ())
        while words and words[0][0].startswith("-"):
            del words[: 2 if words[0][0] in GLOBAL_VALUED else 1]
        if words and words[0][0] in ACTIONS and (at := _place_of_image([word for word, _ in words])):
            image = words[at] if at < len(words) else ("", words[-1][1])
            yield Start(words[0][0], tuple(words[1:at]), *image, command)


def _place_of_image(words: list[str]) -> int | None:
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


def image_outside_range(job: Job) -> Iterator[BadLine]:
    """An image, or packages of Python, with a release that the GPU driver does not support."""
    platform = job.site.platforms[job.site.platform]
    found = [(start.line, start.name, contents_of(job, start.image).stacks) for start in starts_of(job)]
    found += [(line, name, releases_by_name(job.site, name)) for name, line in _packages(job)]
    for line, name, stacks in found if _may_have_gpus(job) else ():
        for stack, version in stacks.items():
            known = platform.stacks.get(stack)
            if known is not None and not known.has(version):
                title, supported = job.site.stacks[stack].title, str(known.runs)
                values = {"component": title, "release": str(version), "supported": supported, "example": _example(job)}
                yield bad_line(line, name, **values)


def _packages(job: Job) -> Iterator[tuple[str, int]]:
    """Yield the last part of addresses of indexes of packages for GPUs, as PyTorch has them."""
    for word in job.words:
        if found := re.search(r"://\S+/whl/(?:\w+/)?([a-z]+\d[\d.]*)", job.resolved(word.value)):
            yield found[1], word.line


def for_other_gpus(job: Job) -> Iterator[BadLine]:
    """A module or packages of Python for GPUs that the site does not have."""
    others = [maker for maker in all_vendors() if maker.gpu and maker.gpu not in job.gpus]
    for maker in others if job.gpus else ():
        names = {software.name for software in maker.software}
        for command in job.commands:
            loads = command.programs[:1] in (("module",), ("ml",))
            if loads and names & {value.partition("/")[0] for value in command.values}:
                yield bad_line(command.line, " ".join(command.values[:3]), vendor=maker.title)
        for name, line in _packages(job):
            if maker.gpu and any(re.search(word, name) for word in maker.gpu.image_words):
                yield bad_line(line, name, vendor=maker.title)


def _may_have_gpus(job: Job) -> bool:
    kinds = job.site.kinds_of(*job.partitions).values()
    return not kinds or any(kind.gpus for kind in kinds)


def _example(job: Job) -> str:
    return job.site.validation.image if job.site.validation else ""


def image_for_other_gpus(job: Job) -> Iterator[BadLine]:
    """An image that is built for GPUs of another vendor than the job gets."""
    vendors = [vendor for vendor in all_vendors() if vendor.gpu in job.gpus]
    for start in starts_of(job) if vendors and _may_have_gpus(job) else ():
        built_for = [vendor for vendor in all_vendors() if vendor.gpu and _is_for(job, start.image, vendor.gpu)]
        if built_for and not any(vendor in vendors for vendor in built_for):
            titles, expected = (tuple(vendor.title for vendor in some) for some in (built_for, vendors))
            yield bad_line(start.line, start.name, vendors=titles, expected=expected, example=_example(job))


def _is_for(job: Job, image: str, gpu: GpuVendor) -> bool:
    """Return whether an image's name or address, or what the lock has of it, shows that it is for some GPUs."""
    locked = locked_at(job, image)
    name = image.partition("://")[2].removeprefix("docker.io/") or image.rpartition("/")[2]
    read = [] if locked is None else [f"{what} {version}" for what, version in locked.versions.items()]
    return any(re.search(word, text.lower()) for word in gpu.image_words for text in (name, *read))


def skipped_runscript(job: Job) -> Iterator[BadLine]:
    """`exec` of an image that is prepared by its runscript, in a job with GPUs: to install packages it does as well."""
    gpus = any(step.requests_gpus for step in job.requests)
    for start in starts_of(job) if gpus else ():
        family = contents_of(job, start.image).family
        if start.action == "exec" and family and job.site.families[family].activation == "runscript":
            yield bad_line(start.line, start.name, runtime=job.site.command)


def gpu_flag(job: Job) -> Iterator[BadLine]:
    """The flag for GPUs of another vendor than the nodes have, or one that does harm on this site."""
    site = job.site
    named = site.kinds_of(*job.partitions)
    kinds = tuple(sorted(name for name, kind in (named or site.node_kinds).items() if kind.gpus))
    avoided = {f"--{flag}" for runtime in site.runtimes.values() for flag in runtime.avoid}
    expected = {f"--{gpu.flag}" for gpu in job.gpus if gpu.flag} - avoided
    others = {f"--{gpu.flag}" for gpu in all_gpus() if gpu.flag and gpu not in job.gpus}
    for word, line in (option for start in starts_of(job) for option in start.options) if kinds else ():
        if word in others:
            advised = {"expected": tuple(sorted(expected))} if expected else {}
            yield bad_line(line, word, kinds=kinds, **advised)
        elif word in avoided:
            yield bad_line(line, word, runtime=site.command)


def mpi_type(job: Job) -> Iterator[BadLine]:
    """A type of MPI that the image of a step does not have."""
    for start in starts_of(job):
        step = job.step_of(start.command)
        option = step.merged.get("mpi") if step else None
        family = contents_of(job, start.image).family
        needed = job.site.families[family].mpi if family else None
        if option and needed and option.value not in (needed, "none"):
            yield bad_line(option.line, f"--mpi={option.value}", expected=needed, image=start.name)
