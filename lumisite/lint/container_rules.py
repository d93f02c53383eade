"""Images that do not fit, how they are started, and the flags of the container runtime."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lumisite.images.fit import for_other_gpus, outside_range
from lumisite.lint.job import BadLine, Job
from lumisite.lint.programs import known_image, starts_of
from lumisite.render.runtimes import RUNTIMES
from lumisite.site.images import releases_by_name
from lumisite.vendors import all_gpus, all_vendors

_PROGRAM = re.compile(r"(?:.*/)?(?:python[\d.]*|bash|sh|torchrun|accelerate|deepspeed|vllm|pip3?|hostname|[\w-]+-smi)")


def no_image(job: Job) -> Iterator[BadLine]:
    """A container without an image: the program stands in its place."""
    for start in starts_of(job):
        asks_for_help = any(word.startswith("-h") or word == "--help" for word, _ in start.options)
        if start.image is None and not asks_for_help:
            yield BadLine(start.line, start.action, "the image is missing", f"{start.action} IMAGE PROGRAM …")
        elif start.image and _PROGRAM.fullmatch(start.image):
            right = f"{start.action} IMAGE {start.image} …"
            yield BadLine(start.line, start.image, "stands where the image must be", right)


def _may_have_gpus(job: Job) -> bool:
    kinds = job.site.kinds_of(*job.partitions).values()
    return not kinds or any(kind.gpus for kind in kinds)


def image_outside_range(job: Job) -> Iterator[BadLine]:
    """An image, or packages of Python, with a release that the GPU driver does not support."""
    found = [(start.line, start.name, known_image(job, start.image).releases) for start in starts_of(job)]
    found += [(line, name, releases_by_name(job.site, name)) for name, line in _packages(job)]
    for line, name, stacks in found if _may_have_gpus(job) else ():
        for reason, right in outside_range(job.site, stacks):
            yield BadLine(line, name, reason, right)


def image_for_other_gpus(job: Job) -> Iterator[BadLine]:
    """An image, or packages of Python, for GPUs of another vendor than the job gets."""
    if not job.gpus or not _may_have_gpus(job):
        return
    for start in starts_of(job):
        for reason, right in for_other_gpus(job.site, known_image(job, start.image).built_for):
            yield BadLine(start.line, start.name, reason, right)
    for vendor in all_vendors():
        words = vendor.gpu.image_words if vendor.gpu and vendor.gpu not in job.gpus else ()
        for name, line in _packages(job):
            if any(re.search(word, name) for word in words):
                reason = f"for GPUs of {vendor.title}, which the nodes do not have"
                yield BadLine(line, name, reason, "the index of packages for the GPUs of this site")


def _packages(job: Job) -> Iterator[tuple[str, int]]:
    """Yield the last part of addresses of indexes of packages for GPUs, as PyTorch has them."""
    for word in job.words:
        if found := re.search(r"://\S+/whl/(?:\w+/)?([a-z]+\d[\d.]*)", job.resolved(word.value)):
            yield found[1], word.line


def skipped_runscript(job: Job) -> Iterator[BadLine]:
    """`exec` of an image that is prepared by its runscript, in a job with GPUs: to install packages it does as well."""
    for start in starts_of(job) if any(step.gpus for step in job.allocation_and_sruns) else ():
        family = known_image(job, start.image).holds.family
        if start.action == "exec" and family and job.site.families[family].activation == "runscript":
            reason = "exec skips the runscript, by which the image prepares itself where it has one"
            yield BadLine(start.line, start.name, reason, f"{job.site.command} run … {start.name} …")


def gpu_flag(job: Job) -> Iterator[BadLine]:
    """The flag for GPUs of another vendor than the nodes have, or one that does harm on this site."""
    site = job.site
    kinds = sorted(name for name, kind in (site.kinds_of(*job.partitions) or site.node_kinds).items() if kind.gpus)
    avoided = {f"--{flag}" for runtime in site.runtimes.values() for flag in runtime.avoid}
    others = {f"--{gpu.flag}" for gpu in all_gpus() if gpu.flag and gpu not in job.gpus}
    for word, line in (option for start in starts_of(job) for option in start.options) if kinds else ():
        if word in others:
            reason = f"for other GPUs than those of {', '.join(kinds)} nodes"
            yield BadLine(line, word, reason, "no flag: the module sets what the GPUs need")
        elif word in avoided:
            reason = "brings libraries of the host into the container, which do not fit those of the images"
            right = f"no flag, as the images have all but the devices, which {site.command} binds"
            yield BadLine(line, word, reason, right)


def mpirun_before_container(job: Job) -> Iterator[BadLine]:
    """`mpirun` before a container: only srun runs the task prolog for each rank."""
    reason = "ranks get no binds, settings and CPU masks of the module, which only srun gives to each task"
    for start in starts_of(job) if job.site.helper_module else ():
        launcher = start.command.programs[0] if start.command.programs else ""
        if launcher in ("mpirun", "mpiexec"):
            yield BadLine(start.command.line, launcher, reason, f"srun {job.site.command} {start.action} …")


_CONDA = re.compile(r"(?<!\\)\$\{?WITH_CONDA\b")


def with_conda(job: Job) -> Iterator[BadLine]:
    """`$WITH_CONDA` in what a container gets, or in the batch script itself, expanded by the shell outside."""
    if not any(family.activation == "with-conda" for family in job.site.families.values()):
        return
    right = "bash -c '$WITH_CONDA; python …' in single quotes, or \\$WITH_CONDA in double quotes"
    scripted = [command for command in job.commands if command.names_any("srun", "bash", "sh", *RUNTIMES)]
    known = set(map(id, scripted))
    texts = " ".join(value for command in scripted for value in command.values)
    expanded = set(re.findall(r"(?<!\\)\$\{?(\w+)", texts))
    for command in (command for command in job.commands if command.spot == "batch"):
        starts_job = job.directives and command.values[:1] and _CONDA.match(command.values[0])
        words = [*command.documents, *(word for name, word in command.assignments if name in expanded)]
        words += command.words if id(command) in known or starts_job else ()
        for _, line in (match for word in words for match in word.matches(_CONDA)):
            yield BadLine(line, "$WITH_CONDA", "expanded outside of the container, where it is empty", right)
