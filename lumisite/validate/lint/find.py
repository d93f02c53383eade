"""Find known-bad lines in users' job scripts.

A rule is one function, named as its findings are: `gpu_binding` yields `gpu-binding`. What depends on the machine
(partitions, cores, memory, GPUs, interfaces, libraries, modules, harmful values) it takes from the site description.
"""

from __future__ import annotations

from lumisite.site.model import Site
from lumisite.validate import InputError
from lumisite.validate.lint.images import image_outside_range, skipped_runscript
from lumisite.validate.lint.job import Finding, Job
from lumisite.validate.lint.launch import (
    fixed_port,
    miopen_mktemp,
    miopen_name,
    nodelist,
    old_library,
    rdzv_literal,
    with_conda,
    world_size,
)
from lumisite.validate.lint.modules import build_with_binds, host_venv, retired_folder, unknown_version
from lumisite.validate.lint.resources import (
    cpu_bind_and_count,
    gpu_binding,
    memory_of_node,
    memory_of_others,
    too_many_cores,
)
from lumisite.validate.lint.settings import harmful_value, shared_cache, wrong_interface
from lumisite.validate.lint.shell import parse_script

#: A job script is no longer than this.
SIZE_LIMIT_BYTES = 1 << 20

#: Rules that hold on any machine, and those for jobs of this one only.
ANYWHERE = (
    *(miopen_name, miopen_mktemp, with_conda, world_size, rdzv_literal, nodelist),
    *(build_with_binds, retired_folder, host_venv),
)
HERE = (
    *(fixed_port, old_library, unknown_version, image_outside_range, skipped_runscript),
    *(gpu_binding, too_many_cores, cpu_bind_and_count, memory_of_node, memory_of_others),
    *(harmful_value, wrong_interface, shared_cache),
)


def lint_script(data: bytes, name: str, site: Site) -> tuple[Finding, ...]:
    """Judge one script, by line. Raises `InputError` for what is no text."""
    if len(data) > SIZE_LIMIT_BYTES or b"\0" in data:
        raise InputError(f"{name}: is not a script (text of at most {SIZE_LIMIT_BYTES >> 20} MiB would be right)")
    script = Job(name, site, parse_script(data.decode("utf-8", "replace")))
    found: set[Finding] = set()
    for job in script.jobs:
        for rule in (*ANYWHERE, *(HERE if job.here else ())):
            found.update(rule(job))
    return tuple(sorted(found))
