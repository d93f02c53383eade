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

from lumisite.facts import devices, due, images, kernel, libraries, modules, runtime, slurm, software, touches
from lumisite.facts.change import DOUBT, FAULT, INFO, Change, difference, joined, only_in
from lumisite.facts.due import Follows
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
    follows: Follows = due.to_nothing
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
    follows: Follows = due.to_nothing,
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
            how_bad = FAULT if is_fault(old, new) else severity
            words = {"gone": gone, "come": come, "kept": tuple(word for word in old if word in new)}
            yield Change(subject, was, now, difference("", was, now), words, severity=how_bad, affects=affects)

    advice = "compare with the other nodes, and set it as before or run lumisite validate"
    return Kind(name, compare, touched, advice, follows=follows, read=read, where=where)


def compare_module_defaults(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change for each folder of modules that is elsewhere now, and for each module with another default."""
    old, new = (facts.texts.get(_DEFAULT.name, {}) for facts in (before, after))
    moved = modules.moved_folders(old, new) if old and new else {}
    for was, now in sorted({modules.roots(*pair) for pair in moved.items()}):
        advice = "compare `module avail` on a login node, and correct the site's login files or Lmod's modulespath"
        yield Change(was, was, now, f"its modules are in {now} now", paths=(was, now), severity=DOUBT, advice=advice)
    there = {moved.get(folder, folder): words for folder, words in old.items()}
    texts = {**before.texts, _DEFAULT.name: there} if _DEFAULT.name in before.texts else before.texts
    yield from _DEFAULT.compare(replace(before, texts=texts), after)


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


_SITE = "correct the site description and render again"
_KIND = "correct the node kind and render again"
_PATH = "mount or restore it, or correct the site description"
_PLAN = "plan the images that borrow it again: lumisite binds IMAGE --write FILE"
_NODES = "compare with the other nodes: all need the same interfaces, speed and MTU"
_DRIVER = "write driver and supported releases into the platform, and tell users of images that lose support"
_PROVIDER = "install the libfabric that was built for the network, and run lumisite validate"
_DEPLOY = "restore the release: lumisite deploy OUT ROOT, then with --apply"
_TRY = "try one image of each family"
#: How bad it is that something is another one, that it is gone, and that it is new.
_ANY, _NOW, _GONE = (FAULT, FAULT, FAULT), (FAULT, INFO, FAULT), (DOUBT, FAULT, INFO)
_NONE, _NEW, _LESS = (INFO, INFO, INFO), (INFO, INFO, FAULT), (FAULT, FAULT, INFO)
_OS, _KERNEL = ("/etc/os-release", "/usr/lib/os-release"), ("/proc/sys/kernel/osrelease",)
_LIBC = tuple(f"{folder}/libc.so.6" for folder in ("/lib64", "/usr/lib64", "/lib", "/usr/lib"))
_LIMITS, _SLURM = ("/etc/security", *kernel.UNIT_FOLDERS), (*slurm.FOLDERS, *slurm.PLUGIN_FOLDERS)
_SLURM_LIBRARIES = ("/usr/lib64/slurm/libslurmfull.so", "/usr/lib/slurm-wlm/libslurmfull.so", "/opt/slurm/lib")
_NEEDS = libraries.compare_names(libraries.needs_of, "needs")
_PROVIDERS = libraries.compare_names(lambda library: library.providers, "has provider")
_SYMBOLS = libraries.compare_names(lambda library: library.gives, "has symbol versions")
_DEVICES = "which cores, devices and memory a job is confined to"

_DEFAULT = text(
    "module-default",
    "what job scripts load without a version",
    touches.module_default,
    modules.read_module_defaults,
    due.to_module_path,
    severity=INFO,
)
CLOSED = Kind("unreadable", software.compare_closed, touches.path, "", _NOW)
KINDS: tuple[Kind, ...] = (
    CLOSED,
    # Releases
    Kind("product", software.compare_products, touches.product, _SITE, _LESS, what="release folder"),
    Kind("stack", software.compare_stacks, touches.stack, "correct the releases in the site description"),
    Kind("default", software.compare_defaults, touches.default, _SITE, follows=due.to_link, what="default"),
    text("links", "images with the folder on LD_LIBRARY_PATH", touches.path, software.read_links),
    # Libraries
    Kind("cache", libraries.compare_cache, touches.library, "run ldconfig on the node", _ANY),
    Kind("soname", libraries.compare_sonames, touches.library, _PLAN, _ANY, what="SONAME"),
    Kind("library-gone", libraries.compare_gone, touches.library, f"install it again, or {_PLAN}", _ANY, due.to_loss),
    Kind("library-new", libraries.compare_new, touches.library, "", _NONE, due.to_need),
    Kind("damaged", libraries.compare_damaged, touches.library, "install its package again", _NEW),
    Kind("library", libraries.compare_files, touches.library, _PLAN, follows=due.to_rebuild),
    Kind("needs", _NEEDS, touches.library, _PLAN, follows=due.to_soname),
    Kind("wants", libraries.compare_needed_versions, touches.library, f"{_PLAN}; an older image cannot load it"),
    Kind("gives", _SYMBOLS, touches.library, "build what needs them again", _LESS),
    Kind("runpath", libraries.compare_runpaths, touches.library, "install the library's package again", _ANY),
    Kind("provider", _PROVIDERS, touches.library, _PROVIDER, _LESS),
    Kind("missing", libraries.compare_missing, touches.library, "install it", _NEW, due.to_library),
    Kind("library-rights", libraries.compare_rights, touches.path, "set owner and mode as the package has them"),
    text(
        "loader",
        "libraries of all programs",
        touches.path,
        kernel.read_loader,
        is_fault=is_not_searched,
        same=is_same_search,
    ),
    # Paths
    Kind("dangling", software.compare_broken_links, touches.path, "restore its target", _NOW, due.to_target),
    Kind("path", software.compare_paths, touches.path, _PATH, _GONE, due.to_content),
    text(
        "mounts",
        "where jobs can write, how much, and with which file locks",
        touches.mounts,
        kernel.read_mounts,
        due.to_path,
        is_fault=kernel.is_worse_mount,
        same=kernel.is_same_mount,
    ),
    # Devices
    Kind("driver", devices.compare_drivers, touches.driver, _DRIVER, follows=due.to_build, what="GPU driver"),
    Kind("gpu-count", devices.compare_gpu_count, touches.gpus, f"look for a GPU that failed, else {_KIND}", _ANY),
    Kind("gpu-bus", devices.compare_gpu_buses, touches.gpu_buses, "write the new addresses into the platform", _ANY),
    Kind("gpu-place", devices.compare_gpu_places, touches.gpus, _KIND, _ANY, due.to_cpus),
    Kind("cpus", devices.compare_cpus, touches.cpus, _KIND),
    Kind("interface", devices.compare_interfaces, touches.device, _NODES, _GONE, due.to_cpus),
    Kind("nic", devices.compare_adapters, touches.device, f"look at its port and slot, or {_KIND}", _GONE, due.to_cpus),
    text(
        "device",
        "which devices programs can open",
        touches.starter,
        kernel.read_devices,
        due.to_gpus,
        is_fault=was_there,
    ),
    # Images, modules, and what is deployed
    Kind("image", images.compare_images, touches.image, "", follows=due.to_moved_folder),
    Kind("release", software.compare_release, touches.release, "", _NONE),
    Kind("edited", software.compare_edited, touches.deployed_file, _DEPLOY, (DOUBT, FAULT, DOUBT)),
    text(
        "module-path", "modules that are found by name", touches.module_path, modules.read_module_paths, due.to_folders
    ),
    replace(_DEFAULT, compare=compare_module_defaults),
    # The runtime
    Kind("runtime", software.compare_runtime, touches.runtime, _TRY, _GONE, what="container runtime"),
    Kind(
        "runtime-directive",
        runtime.compare_directives,
        touches.starter,
        _TRY,
        follows=due.to_runtime,
        read=runtime.read_directives,
    ),
    text(
        "container-start",
        "whether containers start",
        touches.starter,
        runtime.read_start,
        due.to_runtime,
        is_fault=is_gone,
    ),
    text(
        "runtime-file",
        "whether containers start, with what mounted",
        touches.starter,
        runtime.read_files,
        due.to_program,
    ),
    # The system
    Kind(
        "os",
        software.compare_os,
        touches.system,
        "correct the platform, and plan images with a bind plan again",
        where=_OS,
    ),
    Kind(
        "kernel",
        software.compare_kernel,
        touches.platform("kernel"),
        "correct the platform",
        _NONE,
        due.to_update,
        where=_KERNEL,
    ),
    Kind(
        "glibc",
        software.compare_glibc,
        touches.glibc,
        "plan the images with a bind plan again",
        follows=due.to_update,
        where=_LIBC,
    ),
    text(
        "kernel-config",
        "containers, and memory of GPUs in the network",
        touches.kernel_config,
        kernel.read_kernel_config,
        is_fault=loses_a_word,
    ),
    text(
        "kernel-parameter",
        "the IOMMU, isolated CPUs and the like",
        touches.platform("kernel"),
        kernel.read_parameters,
        due.to_smt,
    ),
    text("kernel-module", "the traffic of the interfaces", touches.interfaces, kernel.read_modules, due.to_build),
    text(
        "driver-option",
        "memory and queues of GPUs and adapters",
        touches.settings_holding("."),
        kernel.read_options,
        due.to_option,
    ),
    text("sysctl", "calls of the system in containers, and memory", touches.settings_holding("_"), kernel.read_sysctls),
    text(
        "hugepages",
        "buffers of network libraries, some of which abort without",
        touches.settings_called("HUGE|_HP$"),
        kernel.read_hugepages,
    ),
    text("cpu-setting", "how fast the ranks of this node are", touches.nothing, kernel.read_cpu_settings, due.to_smt),
    text("service", "retries of the network", touches.interfaces, kernel.read_services, is_fault=loses_a_word),
    text("limits", "memory, files and processes of ranks", touches.limits, kernel.read_limits, where=_LIMITS),
    # Slurm
    Kind(
        "slurm",
        software.compare_slurm,
        touches.slurm,
        "run one job step with LUMISITE_VERBOSE=1",
        where=_SLURM_LIBRARIES,
    ),
    text(
        "slurm-conf",
        "what a task of a job finds",
        touches.slurm_conf,
        slurm.read_settings,
        is_fault=no_longer_calls,
        where=_SLURM,
    ),
    text(
        "slurm-plugins", "what runs in a task before its program", touches.task_prolog, slurm.read_plugins, where=_SLURM
    ),
    text(
        "slurm-node",
        "cores, memory and devices for jobs",
        touches.slurm_node,
        slurm.read_node,
        due.to_other_node,
        where=_SLURM,
    ),
    text("slurm-gres", "which devices jobs are given", touches.slurm_devices, slurm.read_gres, where=_SLURM),
    text("slurm-cgroup", _DEVICES, touches.slurm_devices, slurm.read_cgroup_conf, where=_SLURM),
    text("cgroup", _DEVICES, touches.slurm_devices, kernel.read_cgroups, is_fault=was_there),
)
