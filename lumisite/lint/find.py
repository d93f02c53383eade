"""Find known-bad lines in users' job scripts.

A rule is one function, named as its findings are: `gpu_binding` yields `gpu-binding`. What depends on the machine
(partitions, cores, memory, GPUs, interfaces, libraries, modules, harmful values) it takes from the site description.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from lumisite.images.lock import LockedImage
from lumisite.lint import images, launch, modules, resources, settings
from lumisite.lint.job import Job, Told
from lumisite.lint.shell import parse_script
from lumisite.render.explain import references
from lumisite.site.model import Site
from lumisite.validate import InputError

#: A job script is no longer than this, in bytes and in lines.
SIZE_LIMIT_BYTES = 1 << 20
LINE_LIMIT = 50_000

Rule: TypeAlias = Callable[[Job], Iterator[Told]]
#: Rules that hold on any machine, and those for jobs of this one only; each with what it follows from. The site may say
#: more (its `lint`), and what `harmful_value` is known from its ledger says.
ANYWHERE: dict[Rule, str] = {
    launch.misnamed_variable: "the documentation of what reads it",
    launch.cache_by_mktemp: "sbatch(1): the batch script runs on the first node",
    launch.with_conda: "bash(1), QUOTING",
    launch.world_size: "torch.distributed documentation, Environment variable initialization",
    launch.rdzv_literal: "bash(1), QUOTING",
    launch.nodelist: "sbatch(1) and scontrol(1)",
    modules.build_with_binds: "the site description: modules and what they conflict with",
    modules.retired_folder: "the site description: retired_modules",
    modules.host_venv: "python/cpython Doc/library/venv.rst (a venv keeps the Python that made it)",
}
HERE: dict[Rule, str] = {
    launch.gpu_flag: "the site description: `gpu` of its runtimes",
    launch.fixed_port: "the site description: partitions whose nodes are shared",
    launch.old_library: "the site description: libraries of the current platform",
    modules.unknown_version: "the site description: releases of the current platform",
    images.image_for_other_gpus: "the site description: GPUs of the partition; lumisite/vendors: names of images",
    images.image_outside_range: "the site description: what the driver of the current platform runs",
    images.skipped_runscript: "the site description: activation of the image's family",
    resources.gpu_binding: "srun(1), --gpu-bind",
    resources.too_many_cores: "the site description: cores of the node kind",
    resources.cpu_bind_and_count: "srun(1)",
    resources.memory_of_node: "the site description: memory of the node kind",
    resources.memory_of_others: "the site description: memory of the node kind",
    settings.harmful_value: "",
    settings.wrong_interface: "the site description: fabric; NCCL's src/misc/socket.cc; torch.distributed "
    "documentation, Common environment variables",
    settings.shared_cache: "the site description: settings with a directory",
}


@dataclass(frozen=True, order=True)
class Finding:
    """A bad line of a script: why, and what would be right; `source` is where this is known from."""

    line: int
    rule: str
    reason: str
    right: str
    source: str


def lint_script(
    data: bytes, name: str, site: Site, locked: Mapping[str, LockedImage] | None = None
) -> tuple[Finding, ...]:
    """Judge one script, by line. Raises `InputError` for what is no text."""
    if len(data) > SIZE_LIMIT_BYTES or data.count(b"\n") > LINE_LIMIT or b"\0" in data:
        right = f"text of at most {SIZE_LIMIT_BYTES >> 20} MiB and {LINE_LIMIT} lines"
        raise InputError(f"{name}: is not a script ({right} would be right)")
    job = Job(site, parse_script(data.decode("utf-8", "replace")), locked or {})
    found: set[Finding] = set()
    for rule, source in (ANYWHERE | HERE if job.here else ANYWHERE).items():
        title = rule.__name__.replace("_", "-")
        more = site.lint[title].source if title in site.lint else ""
        known = "; ".join([*(map(str, references(site, more)) if site.sources else [more]), source]).strip("; ")
        found.update(Finding(one.line, title, one.reason, one.right, one.source or known) for one in rule(job))
    return tuple(sorted(found))
