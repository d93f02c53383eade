"""The system: operating system, kernel with its configuration, parameters and modules, and glibc.

Sources: Documentation/admin-guide/{kernel-parameters,sysctl/*,mm/hugetlbpage,mm/transhuge} of Linux; proc(5).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lumisite.facts.change import Change, Touched, borrows, known_difference, listed
from lumisite.facts.context import Context, stored_plan
from lumisite.facts.facts import Facts
from lumisite.facts.kind import INFO, ChangeKind, Differences, helper_touches, platform_touches, value_kind
from lumisite.vendors import all_fabrics

_OF_SYSTEM = re.compile(r"/(usr/)?lib(32|64|/[\w-]+-linux-gnu)?/[^/]+")


# The operating system, and what comes with another release of it


def compare_os(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change where the operating system is another one, with the kernel and glibc that came with it."""
    old, new = before.os.name, after.os.name
    if old != new:
        pairs = {"kernel": (before.kernel.release, after.kernel.release), "glibc": (before.glibc, after.glibc)}
        parts = tuple(f"{name} {was} -> {now}" for name, (was, now) in pairs.items() if was and now and was != now)
        message = known_difference(old, new) + (f", with {', '.join(parts)}" if parts else "")
        users = (("changed", f"Operating system: {message}."),) if old and new else ()
        yield Change("operating system", old, new, message, {"parts": parts}, users=users)


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
    if change.before is None or change.after is None:
        return False
    updated = {
        kind for kind in ("os", "kernel") for one in differences.by_kind.get(kind, ()) if one.before and one.after
    }
    if change.kind in ("driver", "kernel-module"):
        # A module with another version is not only built again.
        return bool(updated) and len({text.partition("(build")[0] for text in (change.before, change.after)}) == 1
    if change.kind == "library":
        carriers = {name for fabric in all_fabrics() for name in fabric.libraries}
        paths = map(_OF_SYSTEM.fullmatch, change.paths)
        return "os" in updated and change.subject not in carriers and all(paths)
    return "os" in updated


def glibc_touches(change: Change, context: Context) -> Iterator[Touched]:
    """Yield every plan: what images need of glibc is compared with what the host's libraries need."""
    for name, family in context.site.families.items():
        if family.libraries:
            yield Touched("plan", name, borrows(family.libraries))
    for stored in context.plans:
        if bound := tuple(line.library for line in stored.plan.lines if line.decision == "bind"):
            yield stored_plan(stored, f"decides about {listed(bound)}")


def kernel_config_touches(change: Change, context: Context) -> Iterator[Touched]:
    """Yield the settings that name a part of the kernel, binds of the file, and what starts containers."""
    for part in filter(None, re.split(r"\W+", f"{change.before}, {change.after}")):
        if part.startswith("CONFIG_"):
            yield from context.settings_holding(part.removeprefix("CONFIG_").lower())
    yield from context.settings_called("DMABUF", change.subject)
    for key, bind in context.site.host_paths.items():
        if bind.path.startswith("/boot"):
            yield Touched("site", f"{key}.path", f"names {bind.path}")
    yield from helper_touches("spank/bin")(change, context)


_PLAN = "plan the images with a bind plan again"
KINDS = (
    ChangeKind("os", compare_os, os_touches, f"correct the platform, and {_PLAN}"),
    value_kind(
        "kernel",
        "kernel",
        lambda facts: facts.kernel.release,
        platform_touches("kernel"),
        "correct the platform",
        INFO,
        comes_with_update,
    ),
    value_kind("glibc", "glibc", lambda facts: facts.glibc, glibc_touches, _PLAN, follows=comes_with_update),
)
