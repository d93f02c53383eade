"""The rules, and what they find in a job script.

A rule is one function, which yields the bad lines of a script. What depends on the
machine (partitions, cores, memory, GPUs, interfaces, libraries, modules, harmful values) is the site description's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TypeAlias

from lumisite.findings.catalogue import entry, make_finding
from lumisite.findings.finding import Finding, Place, with_values
from lumisite.images.lock import LockedImage
from lumisite.lint import (
    directives,
    environments,
    expansion,
    images,
    launchers,
    limits,
    masks,
    modules,
    rendezvous,
    resources,
    settings,
)
from lumisite.lint.job import BadLine, Job
from lumisite.render.explain import references
from lumisite.site.model import Site
from lumisite.validate import InputError

#: No job script is larger.
SIZE_LIMIT_BYTES = 1 << 19

Rule: TypeAlias = Callable[[Job], Iterator[BadLine]]
#: By the code of what they find, the rules that hold on any machine.
ANYWHERE: Mapping[str, Rule] = {
    "misnamed-variable": settings.misnamed_variable,
    "cache-by-mktemp": settings.cache_by_mktemp,
    "rdzv-literal": rendezvous.rdzv_literal,
    "nodelist": rendezvous.nodelist,
    "build-with-binds": modules.build_with_binds,
    "retired-folder": modules.retired_folder,
    "host-venv": modules.host_venv,
    "late-directive": directives.late_directive,
    "directive-variable": directives.directive_variable,
    "unknown-directive": directives.unknown_directive,
    "repeated-directive": directives.repeated_directive,
    "array-output": directives.array_output,
    "unknown-partition": limits.unknown_partition,
    "rank-in-batch": expansion.rank_in_batch,
    "local-master": expansion.local_master,
    "too-many-threads": expansion.too_many_threads,
    "launcher-per-task": launchers.launcher_per_task,
    "launcher-nodes": launchers.launcher_nodes,
    "no-rendezvous": launchers.no_rendezvous,
    "too-many-processes": launchers.too_many_processes,
    "host-conda": environments.host_conda,
}
#: Rules for jobs of this machine only.
OF_SITE: Mapping[str, Rule] = {
    "with-conda": environments.with_conda,
    "gpu-flag": images.gpu_flag,
    "fixed-port": rendezvous.fixed_port,
    "old-library": limits.old_library,
    "unknown-version": modules.unknown_version,
    "image-for-other-gpus": images.image_for_other_gpus,
    "image-outside-range": images.image_outside_range,
    "for-other-gpus": images.for_other_gpus,
    "skipped-runscript": images.skipped_runscript,
    "gpu-binding": resources.gpu_binding,
    "too-many-cores": resources.too_many_cores,
    "cpu-bind-and-count": resources.cpu_bind_and_count,
    "memory-of-node": resources.memory_of_node,
    "memory-of-others": resources.memory_of_others,
    "harmful-value": settings.harmful_value,
    "wrong-interface": settings.wrong_interface,
    "shared-cache": settings.shared_cache,
    "leftover-setting": settings.leftover_setting,
    "visible-gpus": expansion.visible_gpus,
    "too-many-nodes": limits.too_many_nodes,
    "too-long": limits.too_long,
    "too-many-gpus": limits.too_many_gpus,
    "other-account": limits.other_account,
    "other-path": limits.other_path,
    "reserved-cores": masks.reserved_cores,
    "mask-order": masks.mask_order,
    "mask-outside": masks.mask_outside,
    "mpi-type": images.mpi_type,
    "tensor-parallel": launchers.tensor_parallel,
}


def lint_script(
    data: bytes,
    name: str,
    site: Site,
    locked: Mapping[str, LockedImage] | None = None,
    only: Collection[str] | None = None,
) -> tuple[Finding, ...]:
    """Return what is wrong with a script, by line, of `only` these codes; the value `source` is where it is known from.

    Raises `InputError` for what is no text, or more than any job script.
    """
    if len(data) > SIZE_LIMIT_BYTES or b"\0" in data:
        raise InputError(make_finding("no-script", name, size_kib=SIZE_LIMIT_BYTES >> 10))
    job = Job(site, data.decode("utf-8", "replace"), locked)
    found: dict[tuple[int, str, str], Finding] = {}
    rules = {**ANYWHERE, **OF_SITE} if job.for_this_site else ANYWHERE
    for code, rule in rules.items():
        if only is not None and code not in only:
            continue
        for line, subject, values in rule(job):
            finding = make_finding(code, subject, place=Place(name, line))
            found[line, code, subject] = with_values(finding, {"source": _source(job.site, code), **values})
    return tuple(found[key] for key in sorted(found))


def _source(site: Site, code: str) -> str:
    """Return where a rule is known from: what the site says of it, and what the catalogue does."""
    of_site = site.lint[code].source if code in site.lint else ""
    named = "; ".join(map(str, references(site, of_site))) if site.sources else of_site
    return "; ".join(filter(None, (named, entry(code).source)))
