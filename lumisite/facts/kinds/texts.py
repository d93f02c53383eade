"""What of a node is compared as texts: each row has a reader, and what depends on it. All have one code."""

from __future__ import annotations

from lumisite.facts.kind import helper_touches, is_lost, platform_touches, text_kind
from lumisite.facts.kinds import containers, kernel, limits, modules, mounts, runtime, slurm_gres, slurm_node, system

KINDS = (
    text_kind(
        "container-start",
        "whether containers start",
        helper_touches("spank/bin"),
        containers.read_start,
        containers.start_follows,
        containers.is_same_start,
    ),
    text_kind(
        "module-path",
        "which modules users and job scripts find by name",
        modules.module_path_touches,
        modules.read_module_paths,
        modules.module_path_follows,
    ),
    text_kind(
        "device",
        "which GPUs and adapters programs can open",
        helper_touches("spank/bin"),
        kernel.read_devices,
        kernel.device_follows,
        is_fault=is_lost,
    ),
    text_kind(
        "driver-option",
        "page faults, queues and memory of GPUs and adapters",
        kernel.options_touch,
        kernel.read_options,
        kernel.options_follow,
    ),
    text_kind(
        "cpu-setting",
        "how fast the ranks of this node are",
        kernel.no_touches,
        kernel.read_cpu_settings,
        kernel.cpu_setting_follows,
    ),
    text_kind(
        "runtime-file",
        "whether a container starts, and what is mounted in it",
        helper_touches("spank/bin"),
        runtime.read_files,
        runtime.file_follows,
    ),
    text_kind(
        "sysctl",
        "which calls of the system a container gets, and where its memory is",
        system.sysctl_touches,
        system.read_sysctls,
        containers.userns_follows,
    ),
    text_kind(
        "kernel-parameter",
        "the IOMMU, isolated CPUs and the like",
        platform_touches("kernel"),
        system.read_parameters,
        system.parameter_follows,
    ),
    text_kind(
        "hugepages",
        "buffers of network libraries, some of which abort without huge pages",
        system.hugepage_touches,
        system.read_hugepages,
    ),
    text_kind(
        "kernel-module",
        "the traffic of the interfaces",
        system.module_touches,
        system.read_modules,
        system.comes_with_update,
    ),
    text_kind(
        "limits",
        "how much memory and how many files and processes ranks may have",
        limits.limit_touches,
        limits.read_limits,
    ),
    text_kind(
        "mounts",
        "where jobs can write, how much, and with which file locks",
        mounts.mount_touches,
        mounts.read_mounts,
        mounts.mount_follows,
        mounts.is_same_mount,
        mounts.is_worse_mount,
    ),
    text_kind(
        "slurm-cgroup",
        "which cores, devices and memory a job is confined to",
        slurm_node.cgroup_touches,
        slurm_node.read_cgroup,
    ),
    text_kind(
        "slurm-gres",
        "which devices jobs are given, and the number of each",
        slurm_gres.gres_touches,
        slurm_gres.read_gres,
    ),
)
