"""The system: operating system, kernel with its configuration, parameters and modules, and glibc.

Sources: Documentation/admin-guide/{kernel-parameters,sysctl/*,mm/hugetlbpage,mm/transhuge} of Linux; proc(5).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping

from lumisite.facts.change import Change, Touched, borrows, joined, listed
from lumisite.facts.context import Context, stored_plan
from lumisite.facts.facts import Facts
from lumisite.facts.kind import ChangeKind, Differences, platform_touches, value_kind
from lumisite.machine.tree import Tree, first_line, names_of, resolve
from lumisite.site.model import Site
from lumisite.vendors import all_fabrics, all_vendors

#: What decides which calls of the system a container gets, or how its memory is placed.
_SYSCTLS = (
    "kernel.apparmor_restrict_unprivileged_userns", "kernel.numa_balancing", "kernel.unprivileged_userns_clone",
    "kernel.yama.ptrace_scope", "vm.max_map_count", "vm.overcommit_memory", "vm.unprivileged_userfaultfd",
    "vm.zone_reclaim_mode",
)  # fmt: skip
_OF_SYSTEM = re.compile(r"/(usr/)?lib(32|64|/[\w-]+-linux-gnu)?/[^/]+")
#: Parameters that name a boot, its medium or the node, or only say what is printed: they differ where nothing changed,
#: and some hold secrets.
_OF_ONE_BOOT = re.compile(
    r"boot_image|bootif|initrd|root(flags|fstype)?|nfs.*|resume|ip|nid|xname|ds|rd[._].*|console|quiet|splash|rhgb|"
    r"(ignore_)?loglevel|.*(token|secret|passw|uuid|session|url|_data|ifname|hostname).*",
    re.IGNORECASE,
)


# The operating system, and what comes with another release of it


def compare_os(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change where the operating system is another one, with the kernel and glibc that came with it."""
    if before.os.name != after.os.name:
        pairs = {"kernel": (before.kernel.release, after.kernel.release), "glibc": (before.glibc, after.glibc)}
        parts = tuple(f"{name} {old} -> {new}" for name, (old, new) in pairs.items() if old and new and old != new)
        yield Change("os-changed", "operating system", before.os.name, after.os.name, {"parts": parts} if parts else {})


def os_touches(change: Change, context: Context) -> Iterator[Touched]:
    """Yield what the parts of the operating system touch, which are not reported beside it."""
    yield from platform_touches("os")(change, context)
    parts = [part.partition(" ")[0] for part in change.names("parts")]
    if "kernel" in parts:
        yield from platform_touches("kernel")(change, context)
        yield from kernel_config_touches(change, context)
    if "glibc" in parts:
        yield from glibc_touches(change, context)


def comes_with_update(change: Change, differences: Differences) -> bool:
    """Follow from another release of the operating system, or of the kernel: what is built again for it."""
    updated = {
        kind for kind in ("os", "kernel") for one in differences.by_kind.get(kind, ()) if one.before and one.after
    }
    if change.code == "driver-rebuilt" or change.kind == "kernel-module":
        # A module with another version is not only built again.
        versions = {(text or "").partition("(build")[0] for text in (change.before, change.after)}
        return bool(updated) and change.before is not None and change.after is not None and len(versions) == 1
    if change.code in ("library-replaced", "library-moved"):
        carriers = {name for fabric in all_fabrics() for name in fabric.libraries}
        paths = map(_OF_SYSTEM.fullmatch, change.paths)
        return "os" in updated and change.subject not in carriers and all(paths)
    return "os" in updated and None not in (change.before, change.after)


def glibc_touches(change: Change, context: Context) -> Iterator[Touched]:
    """Yield every plan: what images need of glibc is compared with what the host's libraries need."""
    for name, family in context.site.families.items():
        if family.libraries:
            yield Touched("plan", name, borrows(family.libraries))
    for stored in context.plans:
        if bound := tuple(line.library for line in stored.plan.lines if line.decision == "bind"):
            yield stored_plan(stored, f"decides about {listed(bound)}")


# The kernel's configuration, which a vendor's libraries read


def compare_kernel_config(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change for a file that is missing or has moved, and one for options that differ."""
    readers = {name for vendor in all_vendors() if vendor.gpu and vendor.kernel_options for name in vendor.gpu.drivers}
    if not readers & before.drivers.keys() & after.drivers.keys():
        return
    (old_path, old), (new_path, new) = _boot_config(before), _boot_config(after)
    if old is None:
        return
    if new is None:
        others = tuple(path for path in after.kernel.configs if path.startswith("/boot/"))
        yield Change("kernel-config-missing", old_path, old_path, None, {"expected": new_path, "others": others})
        return
    if old_path != new_path:
        yield Change("kernel-config-moved", old_path, old_path, new_path)
    if old != new:
        values = {"options_before": _options(old), "options_after": _options(new)}
        yield Change("kernel-options-changed", new_path, old_path, new_path, values)


def config_follows(change: Change, differences: Differences) -> bool:
    """Follow from another release of the operating system, where only the name of the file is another one."""
    return change.code == "kernel-config-moved" and comes_with_update(change, differences)


def _boot_config(facts: Facts) -> tuple[str, Mapping[str, str] | None]:
    """Return the file that libraries read, and its options."""
    path = f"/boot/config-{facts.kernel.release or ''}"
    config = facts.kernel.configs.get(path)
    return path, None if config is None else config.options


def _options(options: Mapping[str, str]) -> str | None:
    return joined(map("=".join, sorted(options.items())))


def kernel_config_touches(change: Change, context: Context) -> Iterator[Touched]:
    """Yield the settings for DMA-BUF, and binds of the file."""
    yield from context.settings_called("DMABUF", change.subject)
    for key, bind in context.site.host_paths.items():
        if bind.path.startswith("/boot"):
            yield Touched("site", f"{key}.path", f"names {bind.path}")


# Parameters of the kernel


def read_sysctls(tree: Tree, _: Site) -> dict[str, str]:
    """Return the values under /proc/sys."""
    found = {name: first_line(tree, f"/proc/sys/{name.replace('.', '/')}") for name in _SYSCTLS}
    return {name: value for name, value in found.items() if value is not None}


def sysctl_touches(change: Change, context: Context) -> Iterator[Touched]:
    """Yield the settings whose value has the name of the feature."""
    yield from context.settings_holding(change.subject.rpartition("_")[2])


def read_parameters(tree: Tree, _: Site) -> dict[str, str]:
    """Return each parameter of the command line as it is written; of one that is there several times all, in order."""
    found: dict[str, str] = {}
    line = (first_line(tree, "/proc/cmdline") or "").partition(" -- ")[0]
    for word in re.findall(r'(?:[^\s"]|"[^"]*")+', line):
        name = word.partition("=")[0].replace("-", "_")
        if not _OF_ONE_BOOT.fullmatch(name):
            found[name] = f"{found[name]} {word}" if name in found else word
    return found


def parameter_follows(change: Change, differences: Differences) -> bool:
    """Follow from the hardware threads that it switches."""
    return change.subject == "nosmt" and "threads-changed" in differences.codes("cpus")


def read_hugepages(tree: Tree, _: Site) -> dict[str, str]:
    """Return the pages of each size that are reserved, without those that a process has beyond them."""
    found = {}
    for name in names_of(tree, "/sys/kernel/mm/hugepages"):
        files = (f"/sys/kernel/mm/hugepages/{name}/{end}_hugepages" for end in ("nr", "surplus", "nr_overcommit"))
        pages, surplus, demand = (first_line(tree, path) or "0" for path in files)
        if all(re.fullmatch("[0-9]{1,18}", count) for count in (pages, surplus)) and name.isprintable():
            found[name.removeprefix("hugepages-")] = f"{int(pages) - int(surplus)} reserved, {demand} on demand"
    chosen = re.search(r"\[(\w+)\]", first_line(tree, "/sys/kernel/mm/transparent_hugepage/enabled") or "")
    return {**found, "transparent": chosen[1]} if chosen else found


def hugepage_touches(change: Change, context: Context) -> Iterator[Touched]:
    """Yield the settings about huge pages."""
    yield from context.settings_called("HUGE|_HP$", change.subject)


# Modules of the kernel


def read_modules(tree: Tree, _: Site) -> dict[str, str]:
    """Return version and build of what drives the network: modules known by name, and those of the interfaces."""
    found = {}
    for name in sorted(network_modules(tree)):
        version, build = (first_line(tree, f"/sys/module/{name}/{file}") for file in ("version", "srcversion"))
        if version or build:
            found[name] = " ".join(filter(None, (version, build and f"(build {build})")))
    return found


def network_modules(tree: Tree) -> set[str]:
    """Return the loaded modules that drive the network: those known by name, and those of the interfaces."""
    known = "|".join(vendor.kernel_modules for vendor in all_vendors() if vendor.kernel_modules)
    links = (f"/sys/class/net/{name}/device/driver" for name in names_of(tree, "/sys/class/net"))
    drivers = [resolve(tree, path) for link in links for path in (f"{link}/module", link)]
    names = {posixpath.basename(driver.path) for driver in drivers if driver.entry is not None}
    return names | {name for name in names_of(tree, "/sys/module") if re.fullmatch(known, name)}


def module_touches(change: Change, context: Context) -> Iterator[Touched]:
    """Yield the interfaces, whose traffic it carries."""
    interfaces = joined(map(str, context.site.fabric.interfaces))
    yield Touched("site", "fabric.interfaces", f"states {interfaces}")


KINDS = (
    ChangeKind("kernel-config", compare_kernel_config, kernel_config_touches, config_follows),
    ChangeKind("os", compare_os, os_touches),
    value_kind("kernel", "kernel", lambda facts: facts.kernel.release, platform_touches("kernel"), comes_with_update),
    value_kind("glibc", "glibc", lambda facts: facts.glibc, glibc_touches, comes_with_update),
)
