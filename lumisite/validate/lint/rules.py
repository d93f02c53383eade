"""The known-bad lines of job scripts, as a table: what is wrong, what would be right, and where this is known from.

What depends on the machine (partitions, usable cores, the order of GPUs, libraries) is taken from the site description.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from lumisite.validate.lint import finders as find
from lumisite.validate.lint import images, memory, modules, settings
from lumisite.validate.lint.job import Job
from lumisite.validate.lint.machine import Hit, Machine


@dataclass(frozen=True)
class Rule:
    """One known fault."""

    id: str
    reason: str
    right: str
    source: str
    find: Callable[[Job, Machine], Iterator[Hit]]


RULES = (
    Rule(
        "miopen-name",
        "MIOpen has no variable MIOPEN_USER_DB, so that its database stays in the home directory",
        "export MIOPEN_USER_DB_PATH=/tmp/miopen-config-${{USER}}",
        "LUMI-AI-Guide 81 and 108; MIOpen documentation",
        find.miopen_name,
    ),
    Rule(
        "miopen-mktemp",
        "mktemp in the batch script makes a folder on the first node only",
        "export MIOPEN_USER_DB_PATH=/tmp/miopen-config-${{USER}}-${{SLURM_JOB_ID}}, and mkdir -p it in the task",
        "LUMI-AI-Guide 108; ROCm/MIOpen 2214",
        find.miopen_mktemp,
    ),
    Rule(
        "fixed-port",
        "port {port} may be taken by {by}",
        'export MASTER_PORT="1${{SLURM_JOB_ID:0-4}}"',
        "LUMI-AI-Guide 05-multi-gpu-and-node",
        find.fixed_port,
    ),
    Rule(
        "with-conda",
        "$WITH_CONDA is expanded outside of the container, where it is empty",
        "bash -c '$WITH_CONDA; python …' in single quotes, or \\$WITH_CONDA in double ones",
        "LUMI-EasyBuild-containers, PyTorch recipes; LUMI training 2day-20260422",
        find.with_conda,
    ),
    Rule(
        "gpu-binding",
        "{option} with several tasks on a node hides the other GPUs from each task: RCCL and MPI fail or slow down",
        "srun --gpu-bind=map:{gpu_order} --gres-flags=allow-task-sharing …, or no GPU binding and "
        "ROCR_VISIBLE_DEVICES=$SLURM_LOCALID in the task",
        "LUMI training 2day-20260422 202-Binding; SchedMD bug 17875",
        find.gpu_binding,
    ),
    Rule(
        "too-many-cores",
        "{asked} cores of a node of which jobs get {cores}: the job never starts",
        "#SBATCH --cpus-per-task={cores_per_task} with one task for each GPU",
        "lumi-userguide runjobs/scheduled-jobs/lumig-job.md",
        find.too_many_cores,
    ),
    Rule(
        "cpu-bind-and-count",
        "--cpu-bind with a list of masks or CPUs does not go together with --cpus-per-task on one srun",
        "srun --cpu-bind=mask_cpu:… without -c; the number of cores stands in #SBATCH",
        "LUMI training 2day-20260422 202-Binding; srun(1)",
        find.bind_and_count,
    ),
    Rule(
        "world-size",
        "one task on each node makes WORLD_SIZE the number of nodes, and {gpus} GPUs of a node train as one",
        "#SBATCH --ntasks-per-node={gpus}, or torchrun --nproc-per-node={gpus}, which sets WORLD_SIZE itself",
        "laifs-container-tests pytorch-ddp-singlenode-srun",
        find.world_size,
    ),
    Rule(
        "rdzv-literal",
        "{variable} after a backslash stays as it is, so that every job has the same rendezvous",
        "--rdzv_id={variable} without the backslash, as nothing else in the single quotes has one",
        "LUMI-AI-Guide run_ddp_torchrun_4.sh",
        find.rdzv_literal,
    ),
    Rule(
        "nodelist",
        "the list of nodes may read nid[005001-005004,005010], which no cutting takes apart",
        'export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
        "laifs-container-tests; sbatch(1)",
        find.nodelist,
    ),
    Rule(
        "old-library",
        "{pinned} is not what this system has ({library}), so that the network plugin falls back to TCP",
        "module load singularity-AI-bindings, which binds what fits",
        "LUMI-EasyBuild-contrib 422; LUMI training Update-202601",
        find.old_library,
    ),
    Rule(
        "build-with-binds",
        "{module} binds paths that a new image does not have, and the build fails",
        "module unload {module} before the build",
        "LUMI training 2day-20260422 205-Containers",
        modules.build_with_binds,
    ),
    Rule(
        "harmful-value",
        "{name}={value}: {reason}",
        "{right}",
        "{source}",
        settings.harmful_value,
    ),
    Rule(
        "wrong-interface",
        "{name}={value} {fault}",
        "export {name}={interfaces}",
        "HewlettPackard/shs-ccl-docs ccl_env.sh; NVIDIA/nccl src/misc/socket.cc; "
        "Lumi-supercomputer/LUMI-training-materials 2day-20260422/202-Binding.md; "
        "torch.distributed documentation, Common environment variables",
        settings.wrong_interface,
    ),
    Rule(
        "shared-cache",
        "{name} is {where}, which all nodes share: many tasks write there at once, which is slow and fails at times",
        "export {name}={right}, and mkdir -p it in the task",
        "Lumi-supercomputer/LUMI-AI-Guide pull requests 108 and 112; ROCm/MIOpen issue 2214; "
        "Lumi-supercomputer/LUMI-EasyBuild-containers recipe PyTorch-2.7.1; aniskhan25/lumi-apptainer-bench E3",
        settings.shared_cache,
    ),
    Rule(
        "memory-of-node",
        "{asked} of memory on a node of which jobs get {most}: the job never starts",
        "#SBATCH --mem={right}, or --mem=0 for all of a whole node",
        "Lumi-supercomputer/LUMI-training-materials 2day-20260422/201-Slurm.md",
        memory.more_than_node,
    ),
    Rule(
        "memory-of-others",
        "{asked} of memory for {gpus}, with which {share} go: the rest is that of other GPUs, whose jobs must wait",
        "#SBATCH --mem-per-gpu={right}",
        "Lumi-supercomputer/lumi-userguide docs/runjobs/lumi_env/billing.md; "
        "Lumi-supercomputer/LUMI-training-materials 2day-20260422/201-Slurm.md",
        memory.more_than_share,
    ),
    Rule(
        "unknown-version",
        "this system cannot have {module}/{version}: its versions are like {example}",
        "module load {module}, or what module spider {module} lists",
        "the site description: CPE and ROCm releases of the current platform",
        modules.unknown_version,
    ),
    Rule(
        "retired-folder",
        "{folder} was made for a past course and is not kept up",
        "module load {modules} without this line",
        "Lumi-supercomputer/Getting_Started_with_AI_workshop bonus_material, commit f25016c; "
        "Lumi-supercomputer/LUMI-EasyBuild-contrib easybuild/easyconfigs/s/singularity-AI-bindings",
        modules.retired_folder,
    ),
    Rule(
        "host-venv",
        "{venv} was made with the Python of {module}, so that a container gets this and not the packages of its image",
        "singularity exec IMAGE python -m venv --system-site-packages {venv}",
        "python/cpython Doc/library/venv.rst (a venv keeps the Python that made it)",
        modules.host_venv,
    ),
    Rule(
        "image-outside-range",
        "{image} has ROCm {rocm}, but the GPU driver of this system supports {supported}",
        "an image with ROCm {supported}{example}",
        "Lumi-supercomputer/LUMI-training-materials User-Updates/Update-202601",
        images.outside_range,
    ),
    Rule(
        "skipped-runscript",
        "exec skips the runscript of {image}, and what that does about ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES",
        "singularity run … {image} …",
        "Lumi-supercomputer/lumi-userguide (containers are started by singularity run); "
        "lumi-ai-factory/laifs-container-recipes runscript",
        images.skipped_runscript,
    ),
)
