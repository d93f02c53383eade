"""The rules of `lint`, and what they find in a script.

A certain rule finds what fails, hangs or does not do what is written, whatever else is in the script. A hint may be
meant so. Rules of the site hold for scripts that may be for it; what a partition has, only for those that name one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

from lumisite.findings.finding import Finding, Place, Severity
from lumisite.images.lock import LockedImage
from lumisite.lint import (
    container_rules,
    launcher_rules,
    module_rules,
    resource_rules,
    slurm_rules,
    variable_rules,
)
from lumisite.lint.job import BadLine, Job
from lumisite.render.explain import references
from lumisite.site.harmful_values import harms
from lumisite.site.model import Site
from lumisite.validate import InputError

#: No job script is larger.
SIZE_LIMIT_BYTES = 1 << 19


class Rule(NamedTuple):
    """A rule: the code of what it finds, whether that is certain, where it is known from, and the function.

    A source `site: KEY` is the site description.
    """

    code: str
    certain: bool
    source: str
    find: Callable[[Job], Iterator[BadLine]]


CERTAIN, HINT = True, False
_SLURM, _TORCHRUN = "Slurm's src/common/slurm_opt.c", "torchrun documentation, Usage"

#: What is wrong on every Slurm and in every shell.
EVERYWHERE = (
    Rule("dos-line-ends", CERTAIN, "Slurm's src/sbatch/sbatch.c", slurm_rules.dos_line_ends),
    Rule("late-directive", CERTAIN, "sbatch(1), DESCRIPTION", slurm_rules.late_directive),
    Rule("directive-variable", CERTAIN, "sbatch(1), FILENAME PATTERN", slurm_rules.directive_variable),
    Rule("unknown-directive", CERTAIN, _SLURM, slurm_rules.unknown_directive),
    Rule("unknown-option", CERTAIN, _SLURM, slurm_rules.unknown_option),
    Rule("commented-directive", HINT, "Slurm's src/sbatch/opt.c", slurm_rules.commented_directive),
    Rule("repeated-directive", HINT, "sbatch(1), OPTIONS", slurm_rules.repeated_directive),
    Rule("options-exclude-each-other", CERTAIN, _SLURM, slurm_rules.options_exclude_each_other),
    Rule("too-many-tasks", CERTAIN, "sbatch(1), --ntasks-per-node", slurm_rules.too_many_tasks),
    Rule("fewer-tasks", HINT, "sbatch(1), --ntasks-per-node", slurm_rules.fewer_tasks),
    Rule("array-output", CERTAIN, "sbatch(1), FILENAME PATTERN and --open-mode", slurm_rules.array_output),
    Rule("export-without-all", HINT, "sbatch(1) and srun(1), --export", slurm_rules.export_without_all),
    Rule("export-none", CERTAIN, "srun(1), SLURM_EXPORT_ENV", slurm_rules.export_none),
    Rule("text-after-continuation", CERTAIN, "bash(1), QUOTING", slurm_rules.text_after_continuation),
    Rule("background-without-wait", CERTAIN, "bash(1), wait", slurm_rules.background_without_wait),
    Rule("no-image", CERTAIN, "SingularityCE documentation, exec and run", container_rules.no_image),
    Rule("rank-in-batch", CERTAIN, "srun(1), OUTPUT ENVIRONMENT VARIABLES", launcher_rules.rank_in_batch),
    Rule("rdzv-literal", CERTAIN, "bash(1), QUOTING", launcher_rules.rdzv_literal),
    Rule("nodelist", HINT, "sbatch(1) and scontrol(1)", launcher_rules.nodelist),
    Rule(
        "local-master",
        CERTAIN,
        "torch.distributed documentation, Environment variable initialization",
        launcher_rules.local_master,
    ),
    Rule("too-many-threads", HINT, "OpenMP specification, OMP_NUM_THREADS", launcher_rules.too_many_threads),
    Rule("launcher-per-task", HINT, _TORCHRUN, launcher_rules.launcher_per_task),
    Rule("launcher-nodes", HINT, _TORCHRUN, launcher_rules.launcher_nodes),
    Rule("launcher-without-srun", CERTAIN, _TORCHRUN, launcher_rules.launcher_without_srun),
    Rule("no-rendezvous", CERTAIN, _TORCHRUN, launcher_rules.no_rendezvous),
    Rule("unknown-partition", CERTAIN, "site: partitions", resource_rules.unknown_partition),
    Rule(
        "misnamed-variable", CERTAIN, "the documentation of the program that reads it", variable_rules.misnamed_variable
    ),
    Rule("cache-by-mktemp", HINT, "sbatch(1): the batch script runs on the first node", variable_rules.cache_by_mktemp),
    Rule("retired-folder", CERTAIN, "site: retired_modules", module_rules.retired_folder),
    Rule("build-with-binds", CERTAIN, "site: modules, and their conflicts", module_rules.build_with_binds),
)
#: What the site description says: for scripts that may be for the site.
OF_SITE = (
    Rule("too-many-nodes", CERTAIN, "site: max_nodes of the partition", resource_rules.too_many_nodes),
    Rule("too-long", CERTAIN, "site: max_time of the partition", resource_rules.too_long),
    Rule("too-many-gpus", CERTAIN, "site: gpus of the node kind", resource_rules.too_many_gpus),
    Rule("too-many-cores", CERTAIN, "site: cores of the node kind", resource_rules.too_many_cores),
    Rule("memory-of-node", CERTAIN, "site: memory of the node kind", resource_rules.memory_of_node),
    Rule("memory-of-others", HINT, "site: memory of the node kind", resource_rules.memory_of_others),
    Rule("srun-without-cpus", CERTAIN, "Slurm's CHANGELOG of 22.05 and 23.11", resource_rules.srun_without_cpus),
    Rule("fixed-port", HINT, "site: partitions whose nodes are shared", resource_rules.fixed_port),
    Rule("cpu-bind-and-count", HINT, "srun(1), --cpu-bind", resource_rules.cpu_bind_and_count),
    Rule("mask-outside", CERTAIN, "srun(1), --cpu-bind", resource_rules.mask_outside),
    Rule("reserved-cores", CERTAIN, "site: reserved cores of the node kind", resource_rules.reserved_cores),
    Rule("mask-order", CERTAIN, "site: l3 of the GPUs", resource_rules.mask_order),
    Rule("visible-gpus", HINT, "site: GPUs of the node kind", resource_rules.visible_gpus),
    Rule("image-outside-range", CERTAIN, "site: `runs` of the platform", container_rules.image_outside_range),
    Rule("image-for-other-gpus", CERTAIN, "site: GPUs of the partition", container_rules.image_for_other_gpus),
    Rule("skipped-runscript", HINT, "site: activation of the image's family", container_rules.skipped_runscript),
    Rule("gpu-flag", HINT, "site: `gpus`, and `avoid` of runtimes", container_rules.gpu_flag),
    Rule("mpirun-before-container", HINT, "srun(1), --task-prolog", container_rules.mpirun_before_container),
    Rule("with-conda", CERTAIN, "bash(1), QUOTING", container_rules.with_conda),
    Rule("tensor-parallel", HINT, "vLLM documentation, Parallelism and scaling", resource_rules.tensor_parallel),
    Rule("harmful-value", CERTAIN, "site: settings", variable_rules.harmful_value),
    Rule("value-may-harm", HINT, "site: settings", variable_rules.value_may_harm),
    Rule("missing-partner", CERTAIN, "site: needs", variable_rules.missing_partner),
    Rule(
        "leftover-setting",
        HINT,
        "NCCL documentation, Environment variables; fi_provider(7)",
        variable_rules.leftover_setting,
    ),
    Rule("wrong-interface", CERTAIN, "site: fabric", variable_rules.wrong_interface),
    Rule("shared-cache", HINT, "site: settings with a directory", variable_rules.shared_cache),
    Rule("old-library", CERTAIN, "site: libraries of the current platform", variable_rules.old_library),
    Rule("unknown-module", CERTAIN, "site: modules and releases", module_rules.unknown_module),
    Rule("conflicting-modules", CERTAIN, "site: conflicts of modules", module_rules.conflicting_modules),
    Rule("foreign-module", HINT, "site: conflicts of modules", module_rules.foreign_module),
    Rule("module-not-loaded", HINT, "site: modules", module_rules.module_not_loaded),
)
RULES = (*EVERYWHERE, *OF_SITE)


def read_script(data: bytes, name: str, site: Site, locked: Mapping[str, LockedImage] | None = None) -> Job:
    """Return a script as rules see it. Raises `InputError` for what is no text, or more than any job script."""
    if len(data) > SIZE_LIMIT_BYTES or b"\0" in data:
        reason = f"not a text of at most {SIZE_LIMIT_BYTES >> 10} KiB"
        right = "pass the script that you give to sbatch"
        raise InputError(Finding("no-script", Severity.FAULT, reason, right, subject=name))
    return Job(site, data.decode("utf-8", "replace"), locked)


def lint_job(job: Job, name: str, only: Collection[str] | None = None) -> tuple[Finding, ...]:
    """Return what is wrong with a script, by line, of `only` these codes."""
    for_this_site = not job.partitions or not job.partitions.isdisjoint(job.site.partitions)
    found: dict[tuple[int, str, str], Finding] = {}
    for rule in RULES if for_this_site else EVERYWHERE:
        if only is not None and rule.code not in only:
            continue
        severity = Severity.FAULT if rule.certain else Severity.INFO
        for line, subject, reason, right in rule.find(job):
            found[line, rule.code, subject] = Finding(
                rule.code, severity, reason, right, subject=subject, place=Place(name, line)
            )
    return tuple(found[key] for key in sorted(found))


def source_of(site: Site, finding: Finding) -> str:
    """Return where a finding is known from: what the site says of its rule or value, and what the rule itself does."""
    code, name = finding.code, finding.subject.partition("=")[0]
    of_site: list[str] = []
    if code in ("harmful-value", "value-may-harm"):
        of_site += [harm.setting.source for harm in harms(site, name)]
    if code == "missing-partner":
        of_site += [need.source for need in site.needs if name in (need.variable, f"--{need.option}")]
    named = [str(reference) for text in of_site for reference in references(site, text)] if site.sources else of_site
    return "; ".join([*dict.fromkeys(named), *(rule.source for rule in RULES if rule.code == code)])


def describe_check(job: Job) -> str:
    """Return for which site and partitions a script was checked."""
    ours = sorted(job.partitions & set(job.site.partitions))
    if ours:
        return f"checked for {job.site.title}, {', '.join(ours)}"
    if job.partitions:
        named = ", ".join(sorted(job.partitions))
        return f"no partition of {job.site.title} is named ({named}): checked for what is wrong on every Slurm"
    return f"no partition is named: checked for {job.site.title} without what its partitions have"
