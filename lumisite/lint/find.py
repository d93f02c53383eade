"""Find known-bad lines in users' job scripts.

A rule is one function, named as its findings are: `gpu_binding` yields `gpu-binding`. What depends on the machine
(partitions, cores, memory, GPUs, interfaces, libraries, modules, harmful values) it takes from the site description.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from lumisite.lint import images, launch, modules, resources, settings
from lumisite.lint.job import Job, Told
from lumisite.lint.shell import parse_script
from lumisite.site.model import Site
from lumisite.validate import InputError

#: A job script is no longer than this, in bytes and in lines.
SIZE_LIMIT_BYTES = 1 << 20
LINE_LIMIT = 50_000

_GUIDE, _TRAINING = "Lumi-supercomputer/lumi-userguide", "Lumi-supercomputer/LUMI-training-materials"
Rule: TypeAlias = Callable[[Job], Iterator[Told]]
#: Rules that hold on any machine, and those for jobs of this one only; each with what it is known from. What
#: `harmful_value` is known from the site's ledger says.
ANYWHERE: dict[Rule, str] = {
    launch.miopen_name: "LUMI-AI-Guide 81 and 108; MIOpen documentation",
    launch.miopen_mktemp: "LUMI-AI-Guide 108; ROCm/MIOpen 2214",
    launch.with_conda: "LUMI-EasyBuild-containers, PyTorch recipes; LUMI training 2day-20260422",
    launch.world_size: "laifs-container-tests pytorch-ddp-singlenode-srun",
    launch.rdzv_literal: "LUMI-AI-Guide run_ddp_torchrun_4.sh",
    launch.nodelist: "laifs-container-tests; sbatch(1)",
    modules.build_with_binds: "LUMI training 2day-20260422 205-Containers",
    modules.retired_folder: "Lumi-supercomputer/Getting_Started_with_AI_workshop bonus_material, commit f25016c; "
    "Lumi-supercomputer/LUMI-EasyBuild-contrib easybuild/easyconfigs/s/singularity-AI-bindings",
    modules.host_venv: "python/cpython Doc/library/venv.rst (a venv keeps the Python that made it)",
}
HERE: dict[Rule, str] = {
    launch.gpu_flag: "the site description: `gpu` of its runtimes",
    launch.fixed_port: "LUMI-AI-Guide 05-multi-gpu-and-node",
    launch.old_library: "LUMI-EasyBuild-contrib 422; LUMI training Update-202601",
    modules.unknown_version: "the site description: releases of the current platform",
    images.image_outside_range: f"{_TRAINING} User-Updates/Update-202601",
    images.skipped_runscript: f"{_GUIDE} (containers are started by singularity run); "
    "lumi-ai-factory/laifs-container-recipes runscript",
    resources.gpu_binding: "LUMI training 2day-20260422 202-Binding; SchedMD bug 17875",
    resources.too_many_cores: "lumi-userguide runjobs/scheduled-jobs/lumig-job.md",
    resources.cpu_bind_and_count: "LUMI training 2day-20260422 202-Binding; srun(1)",
    resources.memory_of_node: f"{_TRAINING} 2day-20260422/201-Slurm.md",
    resources.memory_of_others: f"{_GUIDE} docs/runjobs/lumi_env/billing.md; {_TRAINING} 2day-20260422/201-Slurm.md",
    settings.harmful_value: "",
    settings.wrong_interface: "HewlettPackard/shs-ccl-docs ccl_env.sh; NVIDIA/nccl src/misc/socket.cc; "
    f"{_TRAINING} 2day-20260422/202-Binding.md; torch.distributed documentation, Common environment variables",
    settings.shared_cache: "Lumi-supercomputer/LUMI-AI-Guide pull requests 108 and 112; ROCm/MIOpen issue 2214; "
    "Lumi-supercomputer/LUMI-EasyBuild-containers recipe PyTorch-2.7.1; aniskhan25/lumi-apptainer-bench E3",
}


@dataclass(frozen=True, order=True)
class Finding:
    """A bad line of a script: why, and what would be right; `source` is where this is known from."""

    line: int
    rule: str
    reason: str
    right: str
    source: str


def lint_script(data: bytes, name: str, site: Site) -> tuple[Finding, ...]:
    """Judge one script, by line. Raises `InputError` for what is no text."""
    if len(data) > SIZE_LIMIT_BYTES or data.count(b"\n") > LINE_LIMIT or b"\0" in data:
        right = f"text of at most {SIZE_LIMIT_BYTES >> 20} MiB and {LINE_LIMIT} lines"
        raise InputError(f"{name}: is not a script ({right} would be right)")
    job = Job(site, parse_script(data.decode("utf-8", "replace")))
    found: set[Finding] = set()
    for rule, source in (ANYWHERE | HERE if job.here else ANYWHERE).items():
        title = rule.__name__.replace("_", "-")
        found.update(Finding(one.line, title, one.reason, one.right, one.source or source) for one in rule(job))
    return tuple(sorted(found))
