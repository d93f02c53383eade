"""The system: operating system, kernel with its configuration, parameters and modules, and glibc.

Sources: Documentation/admin-guide/{kernel-parameters,sysctl/*,mm/hugetlbpage,mm/transhuge} of Linux; proc(5).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from lumisite.facts.change import Change, Touched, borrows, joined, listed
from lumisite.facts.context import Context, stored_plan
from lumisite.facts.facts import Facts
from lumisite.facts.kind import ChangeKind, Differences, platform_touches, value_kind
from lumisite.vendors import all_fabrics, all_vendors

_OF_SYSTEM = re.compile(r"/(usr/)?lib(32|64|/[\w-]+-linux-gnu)?/[^/]+")


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


KINDS = (
    ChangeKind("kernel-config", compare_kernel_config, kernel_config_touches, config_follows),
    ChangeKind("os", compare_os, os_touches),
    value_kind("kernel", "kernel", lambda facts: facts.kernel.release, platform_touches("kernel"), comes_with_update),
    value_kind("glibc", "glibc", lambda facts: facts.glibc, glibc_touches, comes_with_update),
)
