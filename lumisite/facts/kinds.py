"""All kinds of change in one table, in the order of the report: what breaks containers before what describes a machine.

A kind is a row: what of a capture it compares, what depends on it, what to do, what of a site it touches and how bad it
is. All kinds have one comparison, of lists of words by subject, but for three whose changes have a meaning of their
own. A new file of a node to compare is a reader, a function from a tree and a site to lists of words by name, and a
row.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from lumisite.facts import compare_images, compare_libraries, modules, node_files, releases, runtime, slurm, words
from lumisite.facts.change import DOUBT, FAULT, INFO, Change, Words, difference, joined, only_in
from lumisite.facts.facts import Facts
from lumisite.facts.reading import Texts
from lumisite.facts.words import WordsOf
from lumisite.findings.finding import Severity
from lumisite.machine.tree import Tree
from lumisite.paths import CLI_FILTER, PROLOG, WRAPPERS
from lumisite.site.model import Site
from lumisite.vendors import all_software

Read: TypeAlias = Callable[[Tree, Site], Texts | None]
#: From a subject with its words before and after, or with those that went and those that came.
SeverityOf: TypeAlias = Callable[[str, Words, Words], Severity]
NamesOf: TypeAlias = Callable[[str, Words, Words], Iterable[str]]


def by(changed: Severity = DOUBT, gone: Severity = DOUBT, new: Severity = DOUBT) -> SeverityOf:
    """Return a function for how bad it is that something is another one, gone, or new."""
    return lambda subject, before, after: new if not before else gone if not after else changed


doubt = by()


def is_lost(subject: str, before: Words, after: Words) -> Severity:
    """Return a fault where a word that was there is not any more."""
    return DOUBT if {*before} <= {*after} else FAULT


def own_name(subject: str, gone: Words, come: Words) -> Iterable[str]:
    """Return that parts of a site name the subject itself."""
    return (subject,)


def last_word(subject: str, gone: Words, come: Words) -> Iterable[str]:
    """Return that settings name what a key of the kernel ends with: `userfaultfd` of `vm.unprivileged_userfaultfd`."""
    return (re.split(r"[._ ]", subject)[-1],)


def no_name(subject: str, gone: Words, come: Words) -> Iterable[str]:
    """Return that no part of a site names the subject."""
    return ()


def folders_gone(subject: str, gone: Words, come: Words) -> Iterable[str]:
    """Return the folders of the releases that went or, if there are none, of those that came."""
    return release_folders(subject, gone or come)


def release_folders(subject: str, releases: Words) -> Iterator[str]:
    """Yield the folders of releases, of a product by its folder or of software by its title."""
    for release in releases:
        for software in (software for _, software in all_software() if software.title == subject):
            yield from software.tops(release)
        if _is_path(subject):
            yield f"{subject}/{release}"


def default_links(subject: str, gone: Words, come: Words) -> Iterable[str]:
    """Return the links to a default release, of a product by its folder or of software by its title."""
    links = [link for _, software in all_software() if software.title == subject for link in software.defaults]
    return links or [f"{subject}/default", *release_folders(subject, (*gone, *come))]


def _is_path(name: str) -> bool:
    return name.startswith("/")


@dataclass(frozen=True)
class Kind:
    """A kind of change.

    `words` are what a capture has of it, those of its reader unless said; `affects` is what depends on it, for people.
    `touches` are parts of the site, as `touches.parts_of` reads them, beside those that name one of `names`. `default`
    is what an absent subject stands for, `None` where that is unknown. `read` captures what is compared as text
    (`Facts.texts`); `where` are the folders that it is read in: who may not read there does not know it. `compare` is
    the comparison of a kind that has its own.
    """

    name: str
    affects: str
    advice: str = "compare with the other nodes, and set it as before or run lumisite validate"
    touches: tuple[str, ...] = ()
    words: WordsOf | None = None
    read: Read | None = None
    severity: SeverityOf = doubt
    names: NamesOf = no_name
    same: Callable[[Words, Words], bool] = operator.eq
    default: Callable[[str], Words | None] = lambda subject: ()
    where: tuple[str, ...] = ()
    compare: Callable[[Facts, Facts], Iterator[Change]] | None = None

    def changes(self, before: Facts, after: Facts) -> Iterator[Change]:
        """Yield what differs between two captures; what one of them does not know is no difference."""
        if self.compare is not None:
            yield from self.compare(before, after)
            return
        old, new = (self.words(one) if self.words else one.texts.get(self.name) for one in (before, after))
        if old is None or new is None:
            return
        for subject in sorted(old.keys() | new.keys()):
            was, now = (side.get(subject, self.default(subject)) for side in (old, new))
            if was is not None and now is not None and not self.same(was, now):
                yield self._change(subject, was, now)

    def _change(self, subject: str, was: Words, now: Words) -> Change:
        gone, come = only_in(was, now)
        # Words that both have are not shown, unless only the order differs.
        before, after = (joined(part) for part in ((gone, come) if gone or come else (was, now)))
        severity, names = self.severity(subject, was, now), tuple(self.names(subject, gone, come))
        return Change(
            self.name,
            subject,
            before,
            after,
            difference(before, after),
            severity,
            gone,
            come,
            kept=tuple(word for word in was if word in now),
            names=names,
            inside=tuple(filter(_is_path, names)) or tuple(filter(_is_path, [subject])),
            advice="" if severity is INFO else self.advice,
        )


def filter_severity(subject: str, before: Words, after: Words) -> Severity:
    """Return a fault where the site's cli_filter ran a file of the deployment root, and does not any more."""
    return FAULT if any(word.startswith(slurm.CALLS) and word not in after for word in before) else DOUBT


def search_severity(subject: str, before: Words, after: Words) -> Severity:
    """Return a fault where the loader does not look in a folder any more, or loads something into every program."""
    return DOUBT if after in ((), (node_files.SEARCHED,)) else FAULT


def mount_severity(subject: str, before: Words, after: Words) -> Severity:
    """Return a fault where jobs cannot use a mount as before."""
    return FAULT if node_files.is_worse_mount(before, after) else DOUBT


_SITE = "correct the site description and render again"
_KIND = "correct the node kind and render again"
_MASK = "mask {gpu_kind}"
_CONFINED = "which cores, devices and memory a job is confined to"
_JOB = (f"helper {PROLOG}",)
_STARTER = (f"helper {WRAPPERS}",)
_FILTER = f"helper {CLI_FILTER}"
_SLURM = (*slurm.FOLDERS, *slurm.PLUGIN_FOLDERS)
_PLATFORM = "site platforms.{platform}."
_GPUS = ("site node_kinds.{gpu_kind}.gpus", _MASK)
_DEVICES = (*_GPUS, *_JOB)
_HOST_DEFAULTS = (f"{_PLATFORM}stacks.{{host_stack}}.default",)

KINDS: tuple[Kind, ...] = (
    Kind(
        "unreadable", "what users may read", "open it with the command", words=words.unreadable, names=own_name,
        severity=by(FAULT, INFO, FAULT),
    ),
    # Releases
    Kind(
        "product", "libraries below the folder", _SITE, words=words.products, names=folders_gone,
        severity=by(FAULT, FAULT, INFO),
    ),
    Kind(
        "stack", "images and modules of these releases", _SITE,
        ("site stacks.{stack}.releases", f"{_PLATFORM}stacks.{{stack}}", "module {stack_module}"), words.stacks,
        names=folders_gone,
    ),
    Kind(
        "default", "what modules and links lead to", _SITE,
        (f"{_PLATFORM}stacks.{{stack}}.default", "module {stack_module}"), words.defaults, names=default_links,
    ),
    Kind("links", "images with the folder on LD_LIBRARY_PATH", read=releases.read_links, names=own_name),
    # Libraries
    Kind("soname", "images that borrow the library", compare=compare_libraries.compare_sonames),
    Kind("library-missing", "images that borrow the library", compare=compare_libraries.compare_missing),
    Kind("library", "images that borrow the library", compare=compare_libraries.compare_files),
    Kind("library-new", "images that borrow the library", compare=compare_libraries.compare_new),
    Kind(
        "library-rights", "who can put another library in its place", "set owner and mode as the package has them",
        severity=by(FAULT, INFO, FAULT), names=own_name,
    ),
    Kind(
        "loader", "libraries of all programs", read=node_files.read_loader, names=own_name, severity=search_severity,
        same=node_files.is_same_search,
    ),
    # Paths
    Kind(
        "dangling", "what is below the link", "restore its target", words=words.broken_links, names=own_name,
        severity=by(FAULT, INFO, FAULT),
    ),
    Kind(
        "path", "what names the path", "mount or restore it, or correct the site description", words=words.paths,
        names=own_name, severity=by(DOUBT, FAULT, INFO),
    ),
    Kind(
        "mounts", "where jobs can write, how much, and with which file locks", touches=("site partitions",),
        read=node_files.read_mounts, names=own_name, severity=mount_severity, same=node_files.is_same_mount,
    ),
    # Devices
    Kind(
        "driver", "which releases can run", "write driver and supported releases into the platform",
        ("site platforms.{now}.stacks.{driven}.driver", "site platforms.{now}.stacks.{driven}.runs"), words.drivers,
    ),
    Kind(
        "gpu-count", "jobs with GPUs", f"look for a GPU that failed, else {_KIND}", _GPUS, words.gpu_count,
        severity=by(FAULT),
    ),
    Kind(
        "gpu-bus", "masks, and scripts with PCI addresses", "write the new addresses into the platform",
        (f"{_PLATFORM}gpu_bus_ids.{{gpu_kind}}", _MASK), words.gpu_buses, severity=by(FAULT),
    ),
    Kind(
        "gpu-place", "masks", _KIND, _GPUS, words.gpu_places, severity=by(FAULT, FAULT, FAULT),
    ),
    Kind("cpus", "masks", _KIND, ("site node_kinds.{kind}.l3", "mask {kind}"), words.cpus, severity=by(FAULT)),
    Kind(
        "interface", "traffic between nodes", "compare with the other nodes: all need the same speed and MTU",
        words=words.interfaces, names=own_name, severity=by(DOUBT, FAULT, INFO),
    ),
    Kind(
        "nic", "traffic between nodes", f"look at its port and slot, or {_KIND}", ("site node_kinds.{nic_kind}.nics",),
        words.adapters, names=own_name, severity=by(DOUBT, FAULT, INFO),
    ),
    Kind(
        "device", "which devices programs can open", touches=_STARTER, read=node_files.read_devices,
        severity=by(FAULT, FAULT, DOUBT),
    ),
    # Images, modules, and what is deployed
    Kind("image", "who uses the image", compare=compare_images.compare_images),
    Kind(
        "release", "modules that users load", "", ("module {module}",),
        words.value("deployed release", lambda facts: facts.release), severity=by(INFO),
    ),
    Kind(
        "module-path", "modules that are found by name", touches=_HOST_DEFAULTS,
        read=modules.read_module_paths, names=lambda subject, gone, come: gone,
    ),
    Kind(
        "module-default", "what job scripts load without a version", touches=_HOST_DEFAULTS,
        read=modules.read_module_defaults, severity=by(INFO, INFO, INFO),
    ),
    # The runtime
    Kind(
        "runtime", "how containers start", "try one image of each family",
        ("site runtimes.{runtime}.variant", *_STARTER), words.runtime, severity=by(DOUBT, FAULT, INFO),
    ),
    Kind(
        "runtime-directive", "what containers may do", "try one image of each family", _STARTER,
        read=runtime.read_directives, default=runtime.default_of, severity=runtime.directive_severity,
    ),
    Kind(
        "container-start", "whether containers start", touches=_STARTER, read=runtime.read_start, where=runtime.FOLDERS,
        severity=by(DOUBT, FAULT, DOUBT),
    ),
    # The system
    Kind(
        "os", "libraries of the distribution", "correct the platform, and plan images with a bind plan again",
        (f"{_PLATFORM}os",), words.value("operating system", lambda facts: facts.os),
    ),
    Kind(
        "kernel", "drivers, and how containers start", "correct the platform",
        (f"{_PLATFORM}kernel", "settings DMABUF", *_STARTER), words.value("kernel", lambda facts: facts.kernel),
        severity=by(INFO),
    ),
    Kind(
        "glibc", "which images can load libraries of the host", "plan the images with a bind plan again",
        ("plan {borrowing}",), words.value("glibc", lambda facts: facts.glibc),
    ),
    Kind(
        "kernel-config", "containers, and memory of GPUs in the network", read=node_files.read_kernel_config,
        touches=("settings DMABUF", *_STARTER), severity=is_lost, where=("/boot",),
        names=lambda subject, gone, come: [word.removeprefix("CONFIG_").lower() for word in (*gone, *come)],
    ),
    Kind(
        "kernel-parameter", "the IOMMU, isolated CPUs and the like", touches=(f"{_PLATFORM}kernel",),
        read=node_files.read_parameters,
    ),
    Kind(
        "kernel-module", "the traffic of the interfaces", touches=("site fabric.interfaces",),
        read=node_files.read_modules,
    ),
    Kind(
        "module-parameter", "memory and queues of GPUs and adapters", read=node_files.read_module_parameters,
        names=last_word, same=lambda old, new: old == new or not old or not new,  # a build has parameters of its own
    ),
    Kind(
        "kernel-setting", "calls of the system in containers, memory, and how fast ranks are",
        read=node_files.read_values, names=last_word,
    ),
    Kind(
        "service", "retries of the network", touches=("site fabric.interfaces",), read=node_files.read_services,
        severity=is_lost,
    ),
    Kind(
        "limits", "memory, files and processes of ranks", read=node_files.read_limits,
        touches=("site partitions", "settings MR_CACHE|REGISTER|HUGE|_HP$"),
        where=node_files.LIMIT_FOLDERS,
    ),
    # Slurm
    Kind(
        "slurm", "what tasks of jobs find", "run one job step with LUMISITE_VERBOSE=1",
        (f"{_PLATFORM}slurm", _FILTER, *_JOB), words.value("Slurm", lambda facts: facts.slurm),
    ),
    Kind(
        "slurm-conf", "what a task of a job finds, and which devices", read=slurm.read_slurm_files, where=_SLURM,
        touches=("site node_kinds.{kind}", "mask {kind}", _FILTER, *_JOB),
        severity=filter_severity,
    ),
    Kind("cgroup", _CONFINED, touches=_DEVICES, read=node_files.read_cgroups, severity=by(FAULT, FAULT, DOUBT)),
)  # fmt: skip
BY_NAME = {kind.name: kind for kind in KINDS}
