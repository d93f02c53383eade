"""What of a node is compared as texts: each row has a reader, what depends on it, and what of it is a fault."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lumisite.facts.change import Change, Touched, joined
from lumisite.facts.context import Context
from lumisite.facts.kind import Touches, helper_touches, is_gone, is_lost, is_new, platform_touches, text_kind
from lumisite.facts.kinds import host, modules, node, runtime, slurm
from lumisite.facts.kinds.paths import path_touches
from lumisite.facts.kinds.system import comes_with_update, kernel_config_touches


def _no_touches(change: Change, context: Context) -> Iterator[Touched]:
    """Yield nothing: no part of a site names it."""
    yield from ()


def _settings_holding(between: str) -> Touches:
    """Return a function that yields the settings whose value has the last word of the name."""
    return lambda change, context: context.settings_holding(change.subject.rpartition(between)[2])


def _settings_called(pattern: str) -> Touches:
    """Return a function that yields the settings whose names match a pattern."""
    return lambda change, context: context.settings_called(pattern, change.subject)


def _of_same_paths(old: Mapping[str, str], new: Mapping[str, str]) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return the rights of libraries that both captures have: what a library elsewhere has is told with its move."""
    both = old.keys() & new.keys()
    return {path: old[path] for path in both if old[path]}, {path: new[path] for path in both if new[path]}


def _interfaces_touch(change: Change, context: Context) -> Iterator[Touched]:
    interfaces = joined(map(str, context.site.fabric.interfaces))
    yield Touched("site", "fabric.interfaces", f"states {interfaces}")


def _limits_touch(change: Change, context: Context) -> Iterator[Touched]:
    """Yield the ranks of all jobs, and for memory that is locked the settings about memory of the network."""
    yield Touched("site", "partitions", f"ranks on the node get {change.subject}")
    if change.subject.lower().endswith("memlock"):
        yield from context.settings_called("MR_CACHE|REGISTER|HUGE|_HP$", change.subject)


def _mounts_touch(change: Change, context: Context) -> Iterator[Touched]:
    """Yield the ranks of all jobs, and what names a path on the mount."""
    yield Touched("site", "partitions", f"ranks on the node get {change.subject}")
    if change.subject != "/":
        yield from context.all_naming(change.subject)


KINDS = (
    text_kind(
        "container-start",
        "whether containers start",
        helper_touches("spank/bin"),
        runtime.read_start,
        runtime.start_follows,
        is_fault=is_gone,
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
        "which devices programs can open",
        helper_touches("spank/bin"),
        node.read_devices,
        node.device_follows,
        is_fault=is_lost,
    ),
    text_kind(
        "loader",
        "which libraries every program of the node finds",
        path_touches,
        host.read_loader,
        same=host.is_same_search,
        is_fault=host.is_not_searched,
    ),
    text_kind(
        "kernel-config",
        "containers, GPU memory in the network, caches of registered memory and how jobs are confined",
        kernel_config_touches,
        host.read_kernel_config,
        is_fault=host.loses_a_part,
    ),
    text_kind(
        "cgroup",
        "which cores, devices and memory a job is confined to",
        slurm.devices_touch,
        host.read_cgroups,
        is_fault=is_lost,
    ),
    text_kind(
        "service",
        "retries of the network and GPUs that stay ready",
        _interfaces_touch,
        host.read_services,
        is_fault=host.loses_a_part,
    ),
    text_kind(
        "library-rights",
        "who can put another library in its place",
        path_touches,
        is_fault=is_new,
        known=_of_same_paths,
    ),
    text_kind(
        "driver-option",
        "page faults, queues and memory of GPUs and adapters",
        _settings_holding("."),
        node.read_options,
        node.options_follow,
    ),
    text_kind(
        "cpu-setting", "how fast the ranks of this node are", _no_touches, node.read_cpu_settings, node.smt_follows
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
        _settings_holding("_"),
        node.read_sysctls,
    ),
    text_kind(
        "kernel-parameter",
        "the IOMMU, isolated CPUs and the like",
        platform_touches("kernel"),
        node.read_parameters,
        node.smt_follows,
    ),
    text_kind(
        "hugepages",
        "buffers of network libraries, some of which abort without huge pages",
        _settings_called("HUGE|_HP$"),
        node.read_hugepages,
    ),
    text_kind(
        "kernel-module", "the traffic of the interfaces", _interfaces_touch, node.read_modules, comes_with_update
    ),
    text_kind(
        "limits", "how much memory and how many files and processes ranks may have", _limits_touch, node.read_limits
    ),
    text_kind(
        "mounts",
        "where jobs can write, how much, and with which file locks",
        _mounts_touch,
        node.read_mounts,
        node.mount_follows,
        node.is_same_mount,
        node.is_worse_mount,
        node.known_mounts,
    ),
    text_kind(
        "slurm-conf",
        "what a task of a job finds",
        slurm.conf_touches,
        slurm.read_slurm_conf,
        is_fault=slurm.no_longer_calls,
    ),
    text_kind(
        "slurm-plugins",
        "what runs in a task before its program",
        helper_touches("spank/task_prolog"),
        slurm.read_plugstack,
    ),
    text_kind(
        "slurm-node",
        "which cores, memory and devices jobs of the node can have",
        slurm.node_touches,
        slurm.read_node,
        slurm.node_follows,
    ),
    text_kind(
        "slurm-cgroup", "which cores, devices and memory a job is confined to", slurm.devices_touch, slurm.read_cgroup
    ),
    text_kind(
        "slurm-gres", "which devices jobs are given, and the number of each", slurm.devices_touch, slurm.read_gres
    ),
)
