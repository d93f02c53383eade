"""Find known-bad lines in users' job scripts.

A rule is one function, named as its findings are: `gpu_binding` yields `gpu-binding`. What depends on the machine
(partitions, cores, memory, GPUs, interfaces, libraries, modules, harmful values) it takes from the site description.
"""

from __future__ import annotations

from lumisite.lint import images, launch, modules, resources, settings
from lumisite.lint.job import Finding, Job
from lumisite.lint.shell import parse_script
from lumisite.site.model import Site
from lumisite.validate import InputError

#: A job script is no longer than this.
SIZE_LIMIT_BYTES = 1 << 20

#: Rules that hold on any machine, and those for jobs of this one only.
ANYWHERE = (
    *(launch.miopen_name, launch.miopen_mktemp, launch.with_conda, launch.world_size, launch.rdzv_literal),
    *(launch.nodelist, modules.build_with_binds, modules.retired_folder, modules.host_venv),
)
HERE = (
    *(launch.fixed_port, launch.old_library, modules.unknown_version),
    *(images.image_outside_range, images.skipped_runscript),
    *(resources.gpu_binding, resources.too_many_cores, resources.cpu_bind_and_count),
    *(resources.memory_of_node, resources.memory_of_others),
    *(settings.harmful_value, settings.wrong_interface, settings.shared_cache),
)


def lint_script(data: bytes, name: str, site: Site) -> tuple[Finding, ...]:
    """Judge one script, by line. Raises `InputError` for what is no text."""
    if len(data) > SIZE_LIMIT_BYTES or b"\0" in data:
        raise InputError(f"{name}: is not a script (text of at most {SIZE_LIMIT_BYTES >> 20} MiB would be right)")
    job = Job(site, parse_script(data.decode("utf-8", "replace")))
    rules = (*ANYWHERE, *HERE) if job.here else ANYWHERE
    return tuple(sorted({finding for rule in rules for finding in rule(job)}))
