"""All kinds of change in one table, in the order of the report: what breaks containers before what describes a machine.

A kind is a row: what of a capture it compares, what depends on it, what to do, what of a site it touches and how bad it
is. All kinds have one comparison, of lists of words by subject, but for libraries and images, whose changes have a
meaning of their own. A new file of a node to compare is a reader, a function from a tree and a site to lists of words
by name, and a row.
"""

from __future__ import annotations

import operator
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from lumisite.facts import (
    hardware,
    images,
    kernel,
    libraries,
    limits_and_services,
    modulefiles,
    mounts,
    releases,
    runtime,
    slurm,
)
from lumisite.facts.change import DOUBT, FAULT, INFO, Change, Words, only_in
from lumisite.facts.facts import Facts, driver_text
from lumisite.facts.reading import Texts
from lumisite.findings.finding import Severity
from lumisite.machine.tree import Tree
from lumisite.paths import CLI_FILTER, PROLOG, WRAPPERS
from lumisite.site.model import Site

#: What of a capture is compared; `None` where the capture does not know it.
WordsOf: TypeAlias = Callable[[Facts], Mapping[str, Words] | None]
#: From a subject with its words before and after, or with those that went and those that came.
SeverityOf: TypeAlias = Callable[[str, Words, Words], Severity]
NamesOf: TypeAlias = Callable[[str, Words, Words], Words]


def by(changed: Severity = DOUBT, gone: Severity = DOUBT, new: Severity = DOUBT) -> SeverityOf:
    """Return a function for how bad it is that something is another one, gone, or new."""
    return lambda subject, before, after: new if not before else gone if not after else changed


doubt = by()


@dataclass(frozen=True)
class Kind:
    """A kind of change.

    `words` are what a capture has of it, those of its reader unless said; `affects` is what depends on it, for people.
    `touches` are parts of the site, as `touches.parts_of` reads them, beside those that name one of `names`. `default`
    is what an absent subject stands for, `None` where that is unknown. `read` captures what is compared as text
    (`Facts.texts`); `where` are the folders that it is read in: who may not read there does not know it. `users` is
    what users read of a change, of which they otherwise read the message, if it is a fault. `compare` is the comparison
    of a kind that has its own.
    """

    name: str
    affects: str
    advice: str = "compare with the other nodes, and set it as before or run lumisite validate"
    touches: tuple[str, ...] = ()
    words: WordsOf | None = None
    read: Callable[[Tree, Site], Texts | None] | None = None
    severity: SeverityOf = doubt
    names: NamesOf = lambda subject, gone, come: ()
    same: Callable[[Words, Words], bool] = operator.eq
    default: Callable[[str], Words | None] = lambda subject: ()
    where: tuple[str, ...] = ()
    users: Callable[[Change], str] | None = None
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
        shown = (gone, come) if gone or come else (was, now)
        before, after = (", ".join(words) or None for words in shown)
        message = f"new: {after}" if before is None else f"gone: {before}" if after is None else f"{before} -> {after}"
        severity, names = self.severity(subject, was, now), self.names(subject, gone, come)
        return Change(
            self.name,
            subject,
            before,
            after,
            message,
            severity,
            gone,
            come,
            kept=tuple(word for word in was if word in now),
            names=names,
            inside=tuple(path for path in names or (subject,) if path.startswith("/")),
            advice="" if severity is INFO else self.advice,
        )


# What a capture has of some kinds


def value(subject: str, of: Callable[[Facts], str | None]) -> WordsOf:
    """Return a function for a value that each node has, known or not."""
    return lambda facts: None if of(facts) is None else {subject: (str(of(facts)),)}


def paths(facts: Facts) -> Mapping[str, Words]:
    """Return what is at each path that the site names, and where its links lead.

    Where the link of a file leads is reported with the library or image; whether a folder is a release, with the
    product.
    """
    return {
        path: (named.kind, *([named.real] if named.real and named.kind != "file" else []))
        for path, named in facts.paths.items()
        if named.kind not in ("none", "unreadable") and posixpath.dirname(path) not in facts.products
    }


# How bad a change is, what parts of a site may name, and what users read


def is_lost(subject: str, before: Words, after: Words) -> Severity:
    """Return a fault where a word that was there is not any more."""
    return DOUBT if {*before} <= {*after} else FAULT


def filter_severity(subject: str, before: Words, after: Words) -> Severity:
    """Return a fault where the site's cli_filter ran a file of the deployment root, and does not any more."""
    return FAULT if any(word.startswith(slurm.CALLS) and word not in after for word in before) else DOUBT


def search_severity(subject: str, before: Words, after: Words) -> Severity:
    """Return a fault where the loader does not look in a folder any more, or loads something into every program."""
    return DOUBT if after in ((), (libraries.SEARCHED,)) else FAULT


def own_name(subject: str, gone: Words, come: Words) -> Words:
    """Return that parts of a site name the subject itself."""
    return (subject,)


def last_word(subject: str, gone: Words, come: Words) -> Words:
    """Return that settings name what a key of the kernel ends with: `userfaultfd` of `vm.unprivileged_userfaultfd`."""
    return (re.split(r"[._ ]", subject)[-1],)


def message(change: Change) -> str:
    """Return that users read what an admin reads."""
    return f"{change.sentence}."


def product_for_users(change: Change) -> str:
    """Return by which release users replace one that went."""
    gone, come = ([f"{change.subject}/{release}" for release in side] for side in (change.gone, change.come))
    if not gone:
        return message(change)
    now = f"it is {come[0]} now" if len(gone) == len(come) == 1 else "gone"
    return f"Correct images and job scripts that name {' or '.join(gone)}: {now}."


def interface_for_users(change: Change) -> str:
    """Return what users must not name any more."""
    if change.after is not None:
        return message(change)
    return f"The network interface {change.subject} is gone: do not name it in NCCL_SOCKET_IFNAME."


_SITE = "correct the site description and render again"
_KIND = "correct the node kind and render again"
_MASKS = "correct CPU masks in scripts."
_MASK = "mask {gpu_kind}"
_JOB = (f"helper {PROLOG}",)
_STARTER = (f"helper {WRAPPERS}",)
_FILTER = f"helper {CLI_FILTER}"
_PLATFORM = "site platforms.{platform}."
_GPUS = ("site node_kinds.{gpu_kind}.gpus", _MASK)
_HOST_DEFAULTS = (f"{_PLATFORM}stacks.{{host_stack}}.default",)

KINDS: tuple[Kind, ...] = (
    Kind(
        "unreadable", "what users may read", "open it with the command",
        words=lambda facts: {path: (command,) for path, command in facts.unreadable.items()},
        names=own_name, severity=by(FAULT, INFO, FAULT),
    ),
    # Releases
    Kind(
        "product", "libraries below the folder", _SITE, words=releases.products_of,
        names=lambda subject, gone, come: releases.release_folders(subject, gone or come),
        severity=by(FAULT, FAULT, INFO), users=product_for_users,
    ),
    Kind(
        "stack", "images and modules of these releases", _SITE,
        ("site stacks.{stack}.releases", f"{_PLATFORM}stacks.{{stack}}", "module {stack_module}"), releases.stacks_of,
        names=lambda subject, gone, come: releases.release_folders(subject, gone or come),
        users=lambda change: f"{change.subject} on the host: {change.before or 'none'} -> {change.after or 'none'}.",
    ),
    Kind(
        "default", "what modules and links lead to", _SITE,
        (f"{_PLATFORM}stacks.{{stack}}.default", "module {stack_module}"), releases.defaults_of,
        names=releases.default_links,
        users=lambda change: f"The default release of {change.subject} is {change.after or 'unset'} now.",
    ),
    Kind(
        "links", "images with the folder on LD_LIBRARY_PATH", read=releases.read_links, names=own_name,
        users=lambda change: f"The links in {change.subject} lead to other releases.",
    ),
    # Libraries
    Kind("soname", "images that borrow the library", compare=libraries.compare_sonames),
    Kind("library-missing", "images that borrow the library", compare=libraries.compare_missing),
    Kind("library", "images that borrow the library", compare=libraries.compare_files, users=message),
    Kind("library-new", "images that borrow the library", compare=libraries.compare_new),
    Kind(
        "library-rights", "who can put another library in its place", "set owner and mode as the package has them",
        names=own_name, severity=by(FAULT, INFO, FAULT),
    ),
    Kind(
        "loader", "libraries of all programs", read=libraries.read_loader, names=own_name, severity=search_severity,
        same=libraries.is_same_search,
    ),
    # Paths
    Kind(
        "dangling", "what is below the link", "restore its target",
        words=lambda facts: {link: (target,) for link, target in facts.dangling.items()},
        names=own_name, severity=by(FAULT, INFO, FAULT),
    ),
    Kind(
        "path", "what names the path", "mount or restore it, or correct the site description", words=paths,
        names=own_name, severity=by(DOUBT, FAULT, INFO), users=message,
    ),
    Kind(
        "mounts", "where jobs can write, how much, and with which file locks", touches=("site partitions",),
        read=mounts.read_mounts, names=own_name, same=mounts.is_same_mount, users=message,
        severity=lambda subject, before, after: FAULT if mounts.is_worse_mount(before, after) else DOUBT,
    ),
    # Devices
    Kind(
        "driver", "which releases can run", "write driver and supported releases into the platform",
        ("site platforms.{now}.stacks.{driven}.driver", "site platforms.{now}.stacks.{driven}.runs"),
        lambda facts: {name: (driver_text(name, driver),) for name, driver in facts.drivers.items()},
        users=lambda change: f"GPU driver: {change.before or 'none'} -> {change.after or 'none'}.",
    ),
    Kind(
        "gpu-count", "jobs with GPUs", f"look for a GPU that failed, else {_KIND}", _GPUS, hardware.gpu_count,
        severity=by(FAULT),
    ),
    Kind(
        "gpu-bus", "masks, and scripts with PCI addresses", "write the new addresses into the platform",
        (f"{_PLATFORM}gpu_bus_ids.{{gpu_kind}}", _MASK), hardware.gpu_buses, severity=by(FAULT),
        users=lambda change: (
            f"The PCI bus ids of GPUs changed: correct them where scripts have them ({change.message})."
        ),
    ),
    Kind(
        "gpu-place", "masks", _KIND, _GPUS, hardware.gpu_places, severity=by(FAULT, FAULT, FAULT),
        users=lambda change: f"GPUs are nearer to other cores than before: {_MASKS}",
    ),
    Kind(
        "cpus", "masks", _KIND, ("site node_kinds.{kind}.l3", "mask {kind}"), hardware.cpu_groups, severity=by(FAULT),
        users=lambda change: f"CPUs are grouped in another way: {_MASKS}",
    ),
    Kind(
        "interface", "traffic between nodes", "compare with the other nodes: all need the same speed and MTU",
        words=lambda facts: {name: hardware.fields_of(one) for name, one in facts.interfaces.items()},
        names=own_name, severity=by(DOUBT, FAULT, INFO), users=interface_for_users,
    ),
    Kind(
        "nic", "traffic between nodes", f"look at its port and slot, or {_KIND}", ("site node_kinds.{nic_kind}.nics",),
        lambda facts: {name: hardware.fields_of(one) for name, one in facts.nics.items()},
        names=own_name, severity=by(DOUBT, FAULT, INFO),
    ),
    Kind(
        "device", "which devices programs can open", touches=_STARTER, read=kernel.read_devices,
        severity=by(FAULT, FAULT, DOUBT),
    ),
    # Images, modules, and what is deployed
    Kind("image", "who uses the image", compare=images.compare_images, users=message),
    Kind(
        "release", "modules that users load", "", ("module {module}",),
        value("deployed release", lambda facts: facts.release), severity=by(INFO), users=message,
    ),
    Kind(
        "module-path", "modules that are found by name", touches=_HOST_DEFAULTS, read=modulefiles.read_module_paths,
        names=own_name, users=message,
    ),
    Kind(
        "module-default", "what job scripts load without a version", touches=_HOST_DEFAULTS,
        read=modulefiles.read_module_defaults, severity=by(INFO, INFO, INFO), users=message,
    ),
    # The runtime
    Kind(
        "runtime", "how containers start", "try one image of each family",
        ("site runtimes.{runtime}.variant", *_STARTER), runtime.program_of, severity=by(DOUBT, FAULT, INFO),
        users=message,
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
        (f"{_PLATFORM}os",), value("operating system", lambda facts: facts.os),
    ),
    Kind(
        "kernel", "drivers, and how containers start", "correct the platform",
        (f"{_PLATFORM}kernel", "settings DMABUF", *_STARTER), value("kernel", lambda facts: facts.kernel),
        severity=by(INFO),
    ),
    Kind(
        "glibc", "which images can load libraries of the host", "plan the images with a bind plan again",
        ("plan {borrowing}",), value("glibc", lambda facts: facts.glibc),
    ),
    Kind(
        "kernel-config", "containers, and memory of GPUs in the network", read=kernel.read_build,
        touches=("settings DMABUF", *_STARTER), severity=is_lost, where=("/boot",),
        names=lambda subject, gone, come: tuple(word.removeprefix("CONFIG_").lower() for word in (*gone, *come)),
    ),
    Kind(
        "kernel-parameter", "the IOMMU, isolated CPUs and the like", touches=(f"{_PLATFORM}kernel",),
        read=kernel.read_command_line,
    ),
    Kind(
        "kernel-module", "the traffic of the interfaces", touches=("site fabric.interfaces",),
        read=kernel.read_modules,
    ),
    Kind(
        "module-parameter", "memory and queues of GPUs and adapters", read=kernel.read_module_parameters,
        names=last_word, same=lambda old, new: old == new or not old or not new,  # a build has parameters of its own
    ),
    Kind(
        "kernel-setting", "calls of the system in containers, memory, and how fast ranks are",
        read=kernel.read_settings, names=last_word,
    ),
    Kind(
        "service", "retries of the network", touches=("site fabric.interfaces",),
        read=limits_and_services.read_services, severity=is_lost,
    ),
    Kind(
        "limits", "memory, files and processes of ranks", read=limits_and_services.read_limits,
        touches=("site partitions", "settings MR_CACHE|REGISTER|HUGE|_HP$"), where=limits_and_services.LIMIT_FOLDERS,
    ),
    # Slurm
    Kind(
        "slurm", "what tasks of jobs find", "run one job step with LUMISITE_VERBOSE=1",
        (f"{_PLATFORM}slurm", _FILTER, *_JOB), value("Slurm", lambda facts: facts.slurm),
    ),
    Kind(
        "slurm-conf", "what a task of a job finds, and which devices", read=slurm.read_slurm_files,
        where=(*slurm.FOLDERS, *slurm.PLUGIN_FOLDERS), severity=filter_severity,
        touches=("site node_kinds.{kind}", "mask {kind}", _FILTER, *_JOB),
    ),
    Kind(
        "cgroup", "which cores, devices and memory a job is confined to", touches=(*_GPUS, *_JOB),
        read=mounts.read_cgroups, severity=by(FAULT, FAULT, DOUBT),
    ),
)  # fmt: skip
BY_NAME = {kind.name: kind for kind in KINDS}
