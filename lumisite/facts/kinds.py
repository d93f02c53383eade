"""All kinds of change in one table, in the order of the report: what breaks containers before what describes a machine.

A kind is a row: how two captures are compared, what of a site a change touches, what to do, how bad it is, from which
other changes it only follows and, where it is about texts, what reads them. Texts that need no meaning of their own
have one comparison (`text`), with a phrase of what depends on them. A new file of a node to compare is a reader, a
function from a tree and a site to lists of words by name, and a row.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from lumisite.facts import (
    devices,
    differences,
    images,
    kernel,
    libraries,
    modules,
    runtime,
    slurm,
    software,
    touches,
)
from lumisite.facts.change import DOUBT, FAULT, INFO, Change, difference, joined, only_in
from lumisite.facts.differences import Follows
from lumisite.facts.facts import Facts
from lumisite.facts.libraries import Compare
from lumisite.facts.reading import Texts
from lumisite.facts.touches import Touches
from lumisite.findings.finding import Severity
from lumisite.machine.tree import Tree
from lumisite.site.model import Site

Words: TypeAlias = tuple[str, ...]
Question: TypeAlias = Callable[[Words, Words], bool]
Read: TypeAlias = Callable[[Tree, Site], Texts | None]


@dataclass(frozen=True)
class Kind:
    """A kind of change.

    `severities` are how bad it is that something is another one, that it is gone, and that it is new. `what` is what
    changes, for a sentence that a change has none of. `read` captures what is compared as text (`Facts.texts`), `None`
    where there is none of it; `where` are the folders that it is read in: who may not read there does not know it.
    """

    name: str
    compare: Compare
    touches: Touches
    advice: str
    severities: tuple[Severity, Severity, Severity] = (DOUBT, DOUBT, DOUBT)
    follows: Follows = differences.nothing
    what: str = ""
    read: Read | None = None
    where: tuple[str, ...] = ()

    def changes(self, before: Facts, after: Facts) -> Iterator[Change]:
        """Yield the changes with what they have in common."""
        for change in self.compare(before, after):
            at = 2 if change.before is None else 1 if change.after is None else 0
            severity = change.severity or self.severities[at]
            message = change.message or difference(self.what, change.before, change.after)
            advice = change.advice or ("" if severity is INFO else self.advice)
            yield replace(change, kind=self.name, severity=severity, message=message, advice=advice)


def text(
    name: str,
    affects: str,
    touched: Touches,
    read: Read,
    follows: Follows = differences.nothing,
    *,
    same: Question = operator.eq,
    is_fault: Question = lambda old, new: False,
    severity: Severity = DOUBT,
    where: tuple[str, ...] = (),
) -> Kind:
    """Return a kind of change of lists of words by name; `affects` is what depends on them, for people.

    Words that both captures have are not shown, unless only the order differs. `is_fault` returns whether a change is
    no doubt but a fault.
    """

    def compare(before: Facts, after: Facts) -> Iterator[Change]:
        if name not in before.texts or name not in after.texts:
            return  # one of them could not read it
        before_texts, after_texts = before.texts[name], after.texts[name]
        for subject in sorted(before_texts.keys() | after_texts.keys()):
            old, new = before_texts.get(subject, ()), after_texts.get(subject, ())
            if same(old, new):
                continue
            gone, come = only_in(old, new)
            was, now = (joined(words) for words in ((gone, come) if gone or come else (old, new)))
            message = f"{difference('', was, now)}; touches {affects}"
            how_bad = FAULT if is_fault(old, new) else severity
            words = {"gone": gone, "come": come, "kept": tuple(word for word in old if word in new)}
            yield Change(subject, was, now, message, words, severity=how_bad)

    advice = "compare with the other nodes, and set it as before or run lumisite validate"
    return Kind(name, compare, touched, advice, follows=follows, read=read, where=where)


def was_there(old: Words, new: Words) -> bool:
    """Return whether something is not as it was, or gone, and not only new."""
    return bool(old)


def is_gone(old: Words, new: Words) -> bool:
    """Return whether something is not there any more."""
    return not new


def loses_a_word(old: Words, new: Words) -> bool:
    """Return whether something that was there is not any more."""
    return not {*old} <= {*new}


def is_same_search(old: Words, new: Words) -> bool:
    """Return whether the loader looks wherever it looked before; a folder that came or went is no change alone."""
    states = {kernel.SEARCHED, kernel.NOT_INCLUDED, kernel.CACHED}
    return old == new or ((not old or not new) and {*old, *new} <= states) or (old, new) == ((), ("present",))


def is_not_searched(old: Words, new: Words) -> bool:
    """Return whether the loader does not look in a folder any more, or loads something into every program."""
    return new not in ((), (kernel.SEARCHED,))


def no_longer_calls(old: Words, new: Words) -> bool:
    """Return whether the site's cli_filter ran a file of the deployment root, and does not any more."""
    return any(word.startswith(slurm.CALLS) and word not in new for word in old)


_RENDER = "and render again"
_KIND = "correct the node kind and render again"
_PLAN = "plan the images that borrow it again: lumisite binds IMAGE --write FILE"
_PLAN_ALL = "plan the images with a bind plan again"
_TRY = "try one image of each family"
_FAULT, _FAULT_NOW, _FAULT_GONE = (FAULT, FAULT, FAULT), (FAULT, INFO, FAULT), (DOUBT, FAULT, INFO)
_INFO, _FAULT_NEW = (INFO, INFO, INFO), (INFO, INFO, FAULT)
_SLURM = (*slurm.FOLDERS, *slurm.PLUGIN_FOLDERS)
_SLURM_LIBRARIES = ("/usr/lib64/slurm/libslurmfull.so", "/usr/lib/slurm-wlm/libslurmfull.so", "/opt/slurm/lib")
_GLIBC = ("/lib64/libc.so.6", "/usr/lib64/libc.so.6", "/lib/libc.so.6", "/usr/lib/libc.so.6")

CLOSED = Kind("unreadable", software.compare_closed, touches.path, "", _FAULT_NOW)
KINDS: tuple[Kind, ...] = (
    CLOSED,
    # Releases
    Kind(
        "product",
        software.compare_products,
        touches.product,
        f"correct the folder in the site description {_RENDER}",
        (FAULT, FAULT, INFO),
        what="release folder",
    ),
    Kind("stack", software.compare_stacks, touches.stack, "correct the releases in the site description"),
    Kind(
        "default",
        software.compare_defaults,
        touches.default,
        f"correct the default in the site description {_RENDER}",
        follows=differences.with_link,
        what="default",
    ),
    text("links", "images that have the folder on their LD_LIBRARY_PATH", touches.path, software.read_links),
    text(
        "module-default",
        "what job scripts load without a version",
        touches.module_default,
        modules.read_module_defaults,
        differences.with_module_path,
        severity=INFO,
    ),
    # Libraries
    Kind("cache", libraries.compare_cache, touches.library, "run ldconfig on the node", _FAULT),
    Kind("soname", libraries.compare_sonames, touches.library, _PLAN, _FAULT, what="SONAME"),
    Kind(
        "library-gone",
        libraries.compare_gone,
        touches.library,
        "install it again, or plan the images that borrow it again",
        _FAULT,
        differences.as_gone,
    ),
    Kind("library-new", libraries.compare_new, touches.library, "", _INFO, differences.as_new),
    Kind("damaged", libraries.compare_damaged, touches.library, "install its package again", _FAULT_NEW),
    Kind("library", libraries.compare_files, touches.library, _PLAN, follows=differences.as_file),
    Kind(
        "needs",
        libraries.compare_names(libraries.needs_of, "needs"),
        touches.library,
        _PLAN,
        follows=differences.as_needs,
    ),
    Kind("wants", libraries.compare_needed_versions, touches.library, f"{_PLAN}; an older image cannot load it"),
    Kind("gives", libraries.compare_symbol_versions, touches.library, "build what needs them again"),
    Kind("runpath", libraries.compare_runpaths, touches.library, "install the library's package again", _FAULT),
    Kind(
        "provider",
        libraries.compare_names(lambda library: library.providers, "has provider"),
        touches.library,
        "install the libfabric that was built for the network, and run lumisite validate",
        (FAULT, FAULT, INFO),
    ),
    Kind("missing", libraries.compare_missing, touches.library, "install it", _FAULT_NEW, differences.as_missing),
    # Paths
    Kind(
        "dangling",
        software.compare_broken_links,
        touches.path,
        "restore its target or correct the link",
        _FAULT_NOW,
        differences.with_target,
    ),
    Kind(
        "path",
        software.compare_paths,
        touches.path,
        "mount or restore it, or correct the site description",
        _FAULT_GONE,
        differences.with_named,
    ),
    # Devices
    Kind(
        "driver",
        devices.compare_drivers,
        touches.driver,
        "write driver and supported releases into the platform, and tell users of images that lose support",
        follows=differences.built_again,
        what="GPU driver",
    ),
    Kind(
        "gpu-count",
        devices.compare_gpu_count,
        touches.gpus,
        "look for a GPU that failed, else correct the node kind",
        _FAULT,
    ),
    Kind("gpu-bus", devices.compare_gpu_buses, touches.gpu_buses, "write the new addresses into the platform", _FAULT),
    Kind("gpu-place", devices.compare_gpu_places, touches.gpus, _KIND, _FAULT, differences.with_cpus),
    Kind("cpus", devices.compare_cpus, touches.cpus, _KIND),
    Kind(
        "interface",
        devices.compare_interfaces,
        touches.interface,
        "compare with the other nodes: all need the same interfaces, speed and MTU",
        _FAULT_GONE,
        differences.with_cpus,
    ),
    Kind(
        "nic",
        devices.compare_adapters,
        touches.adapter,
        "look at its port and its slot, or correct its place in the node kind",
        _FAULT_GONE,
        differences.with_cpus,
    ),
    # Images, and what is deployed
    Kind("image", images.compare_images, touches.image, "", follows=differences.with_moved_folder),
    Kind("release", software.compare_release, touches.release, "", _INFO),
    Kind(
        "edited",
        software.compare_edited,
        touches.deployed_file,
        "restore the release: lumisite deploy OUT ROOT, then with --apply",
        (DOUBT, FAULT, DOUBT),
    ),
    # The runtime
    Kind("runtime", software.compare_runtime, touches.runtime, _TRY, _FAULT_GONE, what="container runtime"),
    Kind(
        "runtime-directive",
        runtime.compare_directives,
        touches.helper("spank/bin"),
        _TRY,
        follows=differences.with_runtime,
        read=runtime.read_directives,
    ),
    # The system
    Kind(
        "os",
        software.compare_os,
        touches.system,
        f"correct the platform, and {_PLAN_ALL}",
        where=("/etc/os-release", "/usr/lib/os-release"),
    ),
    Kind(
        "kernel",
        software.compare_value("kernel", lambda facts: facts.kernel),
        touches.platform("kernel"),
        "correct the platform",
        _INFO,
        differences.with_update,
        where=("/proc/sys/kernel/osrelease",),
    ),
    Kind(
        "glibc",
        software.compare_value("glibc", lambda facts: facts.glibc),
        touches.glibc,
        _PLAN_ALL,
        follows=differences.with_update,
        where=_GLIBC,
    ),
    # Texts
    text(
        "container-start",
        "whether containers start",
        touches.helper("spank/bin"),
        runtime.read_start,
        differences.with_runtime,
        is_fault=is_gone,
    ),
    text(
        "module-path",
        "which modules users and job scripts find by name",
        touches.module_path,
        modules.read_module_paths,
        differences.with_folders,
    ),
    text(
        "device",
        "which devices programs can open",
        touches.helper("spank/bin"),
        kernel.read_devices,
        differences.with_device,
        is_fault=was_there,
    ),
    text(
        "loader",
        "which libraries every program of the node finds",
        touches.path,
        kernel.read_loader,
        same=is_same_search,
        is_fault=is_not_searched,
    ),
    text(
        "kernel-config",
        "containers, GPU memory in the network, caches of registered memory and how jobs are confined",
        touches.kernel_config,
        kernel.read_kernel_config,
        is_fault=loses_a_word,
    ),
    text(
        "cgroup",
        "which cores, devices and memory a job is confined to",
        touches.slurm_devices,
        kernel.read_cgroups,
        is_fault=was_there,
    ),
    text(
        "service",
        "retries of the network and GPUs that stay ready",
        touches.interfaces,
        kernel.read_services,
        is_fault=loses_a_word,
    ),
    Kind("library-rights", libraries.compare_rights, touches.path, "set owner and mode as the package has them"),
    text(
        "driver-option",
        "page faults, queues and memory of GPUs and adapters",
        touches.settings_holding("."),
        kernel.read_options,
        differences.with_option,
    ),
    text(
        "cpu-setting",
        "how fast the ranks of this node are",
        touches.nothing,
        kernel.read_cpu_settings,
        differences.with_smt,
    ),
    text(
        "runtime-file",
        "whether a container starts, and what is mounted in it",
        touches.helper("spank/bin"),
        runtime.read_files,
        differences.with_program,
    ),
    text(
        "sysctl",
        "which calls of the system a container gets, and where its memory is",
        touches.settings_holding("_"),
        kernel.read_sysctls,
    ),
    text(
        "kernel-parameter",
        "the IOMMU, isolated CPUs and the like",
        touches.platform("kernel"),
        kernel.read_parameters,
        differences.with_smt,
    ),
    text(
        "hugepages",
        "buffers of network libraries, some of which abort without huge pages",
        touches.settings_called("HUGE|_HP$"),
        kernel.read_hugepages,
    ),
    text(
        "kernel-module",
        "the traffic of the interfaces",
        touches.interfaces,
        kernel.read_modules,
        differences.built_again,
    ),
    text(
        "limits",
        "how much memory and how many files and processes ranks may have",
        touches.limits,
        kernel.read_limits,
        where=("/etc/security", *kernel.UNIT_FOLDERS),
    ),
    text(
        "mounts",
        "where jobs can write, how much, and with which file locks",
        touches.mounts,
        kernel.read_mounts,
        differences.with_path,
        same=kernel.is_same_mount,
        is_fault=kernel.is_worse_mount,
    ),
    # Slurm
    text(
        "slurm-conf",
        "what a task of a job finds",
        touches.slurm_conf,
        slurm.read_settings,
        is_fault=no_longer_calls,
        where=_SLURM,
    ),
    text(
        "slurm-plugins",
        "what runs in a task before its program",
        touches.helper("spank/task_prolog"),
        slurm.read_plugins,
        where=_SLURM,
    ),
    text(
        "slurm-node",
        "which cores, memory and devices jobs of the node can have",
        touches.slurm_node,
        slurm.read_node,
        differences.of_another_node,
        where=_SLURM,
    ),
    text(
        "slurm-cgroup",
        "which cores, devices and memory a job is confined to",
        touches.slurm_devices,
        slurm.read_cgroup_conf,
        where=_SLURM,
    ),
    text(
        "slurm-gres",
        "which devices jobs are given, and the number of each",
        touches.slurm_devices,
        slurm.read_gres,
        where=_SLURM,
    ),
    Kind(
        "slurm",
        software.compare_value("Slurm", lambda facts: facts.slurm),
        touches.slurm,
        "run one job step with LUMISITE_VERBOSE=1, and render again",
        where=_SLURM_LIBRARIES,
    ),
)
