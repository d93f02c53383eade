"""All changes between two captures, and which of them only follow from another one.

A change is left out where another one that is reported is its cause: a library of a release that went as a whole, a
device file of a GPU that is lost, what was built again for another kernel. Whatever is not really inside of another
change is reported beside it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from lumisite.facts.change import Change
from lumisite.facts.facts import Facts
from lumisite.facts.kernel import STATED, device_owners
from lumisite.facts.reading import is_below
from lumisite.facts.runtime import CONFIG, OWN, STARTER
from lumisite.facts.slurm import OWN_NODE, spool_folder
from lumisite.machine.tree import is_under
from lumisite.vendors import all_fabrics, all_software

_OF_SYSTEM = re.compile(r"/(usr/)?lib(32|64|/[\w-]+-linux-gnu)?/[^/]+")


@dataclass(frozen=True)
class Differences:
    """All changes between two captures: one change may only follow from another."""

    before: Facts
    after: Facts
    changes: tuple[Change, ...]

    def of(self, *kinds: str) -> list[Change]:
        """Return the changes of some kinds."""
        return [change for kind in kinds for change in self._by_kind.get(kind, ())]

    @cached_property
    def _by_kind(self) -> Mapping[str, list[Change]]:
        found: dict[str, list[Change]] = {}
        for change in self.changes:
            found.setdefault(change.kind, []).append(change)
        return found

    def subjects(self, *kinds: str) -> set[str]:
        """Return the subjects of the changes of some kinds."""
        return {change.subject for change in self.of(*kinds)}

    def named(self, kind: str, value: str) -> set[str]:
        """Return all names in one of the lists of the changes of a kind."""
        return {name for change in self.of(kind) for name in change.names(value)}

    def came_or_went(self, kind: str) -> list[Change]:
        """Return what of a kind is new or gone."""
        return [change for change in self.of(kind) if change.is_one_sided]

    @cached_property
    def folders(self) -> set[str]:
        """The folders of releases that came or went, with changed images and broken links."""
        paths = {path for change in self.of("product", "stack", "image") for path in change.paths}
        return paths | self.subjects("dangling")

    @cached_property
    def unmounted(self) -> set[str]:
        """The places where a file system is mounted in one capture only; all that there is would be inside of `/`."""
        return {change.subject for change in self.came_or_went("mounts")} - {"/"}

    @cached_property
    def updated(self) -> set[str]:
        """Which of the operating system and the kernel are another release."""
        return {change.kind for change in self.of("os", "kernel") if not change.is_one_sided}

    @cached_property
    def hidden_libraries(self) -> set[str]:
        """The names of libraries whose own links are broken, or that only a stale cache of the loader hides."""
        broken = {link for link in self.subjects("dangling") if self._was_loaded(link)}
        return self.named("cache", "libraries").union(map(posixpath.basename, broken))

    def _was_loaded(self, link: str) -> bool:
        """Return whether a link is, or leads to, what one of the captures has under the link's name."""
        name, sides = posixpath.basename(link), (self.before, self.after)
        loaded = {facts.loads[name] for facts in sides if name in facts.loads}
        targets = {facts.dangling[link] for facts in sides if link in facts.dangling}
        is_beside = posixpath.dirname(link) in map(posixpath.dirname, loaded)
        return not loaded or is_beside or not loaded.isdisjoint(targets)


Follows: TypeAlias = Callable[[Change, Differences], bool]


def to_nothing(change: Change, found: Differences) -> bool:
    """Return False, for kinds whose changes follow from no other."""
    return False


# The system


def to_update(change: Change, found: Differences) -> bool:
    """Follow from another release of the operating system."""
    return not change.is_one_sided and "os" in found.updated


def to_build(change: Change, found: Differences) -> bool:
    """Follow from another release of the system or the kernel, where only the build of a module is another one."""
    words = _words(change)
    is_build = change.before == change.after or (bool(words) and all(word.startswith("build ") for word in words))
    return not change.is_one_sided and bool(found.updated) and is_build


def _words(change: Change) -> tuple[str, ...]:
    return (*change.names("gone"), *change.names("come"))


def to_smt(change: Change, found: Differences) -> bool:
    """Follow, as a switch of SMT, from the hardware threads that are there."""
    return change.subject in ("smt", "nosmt") and "threads" in found.named("cpus", "how")


def to_option(change: Change, found: Differences) -> bool:
    """Follow from the kernel's command line, or from the value that the driver has; one build's own do not count."""
    if change.subject.startswith(STATED):
        return change.subject.removeprefix(STATED) in found.subjects("driver-option")
    return change.is_one_sided or change.subject in found.subjects("kernel-parameter")


# Devices


def to_cpus(change: Change, found: Differences) -> bool:
    """Follow from CPUs that are grouped in another way: those near a GPU or an adapter are a group."""
    fields, how = change.names("fields"), found.named("cpus", "how")
    if not found.of("cpus") or not fields or (change.kind == "gpu-place" and len(fields) > 1):
        return False
    known = ("numa", "cpus") if "domains" in how else ("cpus",)
    return all(name.startswith(known) for name in fields)


def to_gpus(change: Change, found: Differences) -> bool:
    """Follow from the driver, from as many GPUs or adapters that came or went, or from all GPUs."""
    owner, _ = device_owners().get(change.subject, ("", ()))
    old, new = (_count(text) for text in (change.before, change.after))
    if owner == "gpu":
        numbers = [len(facts.gpus) for facts in (found.before, found.after)]
        # A card may have several files, and all cards one.
        is_share = numbers[0] != numbers[1] and old * numbers[1] == new * numbers[0]
        is_cause = is_share or bool(found.came_or_went("driver"))
    else:
        adapters = found.came_or_went("nic")
        is_cause = owner == "nic" and bool(adapters) and abs(old - new) <= len(adapters)
    return is_cause and not any(word.startswith("mode ") for word in change.names("come"))


def _count(text: str | None) -> int:
    match = re.match(r"[0-9]{1,6}(?= file)", text or "")
    return int(match[0]) if match else 0


# The runtime


def to_runtime(change: Change, found: Differences) -> bool:
    """Follow from the runtime, which came or went with all that it has, or from its configuration, which went."""
    if change.subject == CONFIG and change.is_one_sided:
        return True
    is_own = change.kind == "runtime-directive" or change.subject in OWN
    return is_own and bool(found.came_or_went("runtime"))


def to_program(change: Change, found: Differences) -> bool:
    """Follow, as a starter, from the program, which it comes with, or from its rights; lists and profiles are apart."""
    name = posixpath.basename(change.subject)
    is_reported = name == "starter-suid" and STARTER in found.subjects("container-start")
    is_starter = name.startswith("starter") and bool(found.of("runtime"))
    return is_reported or is_starter or bool(found.came_or_went("runtime"))


# Modules, mounts, paths, Slurm


def to_folders(change: Change, found: Differences) -> bool:
    """Follow, as folders of modules, from what went with a file system, a link or a folder above it."""
    gone = found.subjects("dangling", "path") | found.unmounted
    return bool(_words(change)) and all(is_below(folder, gone) for folder in _words(change))


def to_module_path(change: Change, found: Differences) -> bool:
    """Follow, as a default of a module, from a folder that is not searched any more, or is new."""
    gone, come = (found.named("module-path", side) for side in ("gone", "come"))
    if change.paths:  # which moved
        return is_below(change.subject, gone) or is_below(change.after or "", come)
    return change.is_one_sided and is_below(change.subject, come if change.before is None else gone)


def to_path(change: Change, found: Differences) -> bool:
    """Follow, as a mount, from a path that is another one now."""
    return is_below(change.subject, found.subjects("path", "dangling"))


def to_other_node(change: Change, found: Differences) -> bool:
    """Return whether two captures have the lines of different nodes in slurm.conf, which are not compared."""
    is_own = change.subject == OWN_NODE and found.before.host == found.after.host
    return change.is_one_sided and not is_own


def to_content(change: Change, found: Differences) -> bool:
    """Follow, as a path, from a library that went, an image, a broken link, or another folder of slurmd."""
    for key in found.of("slurm-conf"):
        spools = (spool_folder(key.before), spool_folder(key.after))
        if key.subject == "SlurmdSpoolDir" and any(is_under(change.subject, spool) for spool in spools):
            return True
    name = posixpath.basename(change.subject)
    is_lost = name in found.named("soname", "gone") | found.subjects("library-gone")
    return is_lost or is_below(change.subject, found.folders)


def to_target(change: Change, found: Differences) -> bool:
    """Follow, as a broken link, from the default of a stack or the image that it is, or from what is not mounted."""
    images = {path for image in found.of("image") for path in (image.subject, *image.paths)}
    targets = [target for target in (change.before, change.after) if target]
    if change.subject in images or any(is_below(target, found.unmounted) for target in targets):
        return True
    changed = found.subjects("default")
    return any(change.subject in software.defaults and software.title in changed for _, software in all_software())


def to_moved_folder(change: Change, found: Differences) -> bool:
    """Follow, as an image, from a folder of images that is elsewhere now, with a link in its old place."""
    for moved in found.of("path"):
        old, new = (f"{real}/" for real in moved.names("real"))
        if change.before and change.after and change.before.startswith(old) and change.after.startswith(new):
            return change.before.removeprefix(old) == change.after.removeprefix(new)
    return False


def to_link(change: Change, found: Differences) -> bool:
    """Follow, as a default, from its link that is broken now, or from its folder that has another name."""
    if f"{change.subject}/default" in found.subjects("dangling"):
        return True
    folders = (f"{change.subject}/{change.before}", f"{change.subject}/{change.after}")
    return any((product.before, product.after) == folders for product in found.of("product"))


# Libraries


def to_loss(change: Change, found: Differences) -> bool:
    """Follow, as a library that went, from a broken link, or from the folder of a release that went."""
    if change.subject in found.hidden_libraries:
        return True
    return not change.names("needed_by") and any(is_below(path, found.folders) for path in change.paths)


def to_need(change: Change, found: Differences) -> bool:
    """Follow, as a new library, from what needs it now or came with it, or from the folder of a release that came."""
    if change.subject in found.named("needs", "come") | found.subjects("missing"):
        return True
    needing = {path for path, library in found.after.libraries.items() if change.subject in library.needed}
    return bool(needing and needing.isdisjoint(found.before.libraries)) or to_loss(change, found)


def to_library(change: Change, found: Differences) -> bool:
    """Follow from the library itself, which went, cannot be loaded, or is not in the loader's cache."""
    return change.subject in found.subjects("library-gone", "damaged") | found.hidden_libraries


def to_rebuild(change: Change, found: Differences) -> bool:
    """Follow from what the library needs or has, from another default or folder of a release, or from an update."""
    carriers = {name for fabric in all_fabrics() for name in fabric.libraries}
    is_of_system = all(map(_OF_SYSTEM.fullmatch, change.paths)) and change.subject not in carriers
    old, new = change.before or "", change.after or ""
    if (is_of_system and to_update(change, found)) or is_below(old, found.folders):
        return True
    if old == new:
        rebuilt = found.subjects("needs", "wants", "gives", "runpath", "provider")
        return change.subject in rebuilt and old == found.before.loads.get(change.subject)
    kept = all(path in found.before.libraries and path in found.after.libraries for path in (old, new))
    return kept and old.startswith(tuple(_moving_with_defaults(found.subjects("default"))))


def _moving_with_defaults(changed: Iterable[str]) -> Iterator[str]:
    """Yield what the paths of libraries begin with that come from another release, since a default changed."""
    software = {product.title: product for _, product in all_software()}
    for name in changed:
        yield from software[name].moving if name in software else (f"{name}/",)


def to_soname(change: Change, found: Differences) -> bool:
    """Follow from libraries that have another SONAME, or from a provider that went, where that is all that differs."""
    if change.after is None and change.subject in found.subjects("provider"):
        return True
    old, new = set(change.names("gone")), set(change.names("come"))
    for renamed in found.of("soname"):
        if not old.isdisjoint(renamed.names("gone")) and not new.isdisjoint(renamed.names("come")):
            old, new = old.difference(renamed.names("gone")), new.difference(renamed.names("come"))
    return not old and not new
