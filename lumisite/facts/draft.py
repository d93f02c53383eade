"""A draft of the platform that a node is now, from a capture.

Required keys that no file of a node tells keep the value of the platform before, under a mark; so the draft passes
`lumisite check` when its entries are put below the keys of the same names.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable

from lumisite.facts.context import Context
from lumisite.facts.description import FOLDER, Mark, Marked, describe, guess
from lumisite.facts.facts import driver_text
from lumisite.machine.library_names import numbers_in
from lumisite.site.images import parse_release
from lumisite.site.versions import Version
from lumisite.vendors import gpu_of


def draft_platform(context: Context) -> tuple[str, ...]:
    """Return the lines of the draft: entries for `platforms`, and for `stacks` where releases are new."""
    site, facts, old = context.site, context.after, context.old
    host = facts.host if re.fullmatch(r"[\w.-]+", facts.host or "", re.ASCII) else "an unnamed node"
    source = f"here: lumisite facts on {host}"
    names = [name for name in site.stacks if name in context.stated.stacks]
    drafts = {name: (_driven if name in site.gpu_stacks else _installed)(context, name) for name in names}
    slurm, kernel = facts.slurm if parse_release(facts.slurm) else None, (facts.kernel.release or "").strip()
    platform = {
        "head": {
            "since": guess("unknown", "since"),
            "os": _known(context, facts.os.name, old.os),
            "slurm": slurm or guess(None, "slurm"),
            "kernel": kernel or guess(None, "kernel"),
        },
        "stacks": {name: keys for name, (_, keys) in drafts.items()},
        "tail": {
            "libraries": _libraries(context),
            "gpu_bus_ids": _bus_ids(context),
            "source": source,
            "confirmed": "no",
        },
    }
    new: dict[str, object] = {}
    for name, (releases, _) in drafts.items():
        if come := [release for release in releases if release not in site.releases(name)]:
            unknown = {"libraries": guess({}, "libraries"), "source": source, "confirmed": "no"}
            keys = {"found": "host", "source": source} if name in site.gpu_stacks else unknown
            new[name] = {"head": {}, "releases": dict.fromkeys(come, keys)}
    values = {"known": context.now or "", "platform": platform, "stacks": new}
    return tuple(describe(FOLDER / "draft.yaml.j2", values).text.splitlines())


def _driven(context: Context, stack: str) -> tuple[list[str], dict[str, object]]:
    """Return the default release of a stack that a driver decides on, and its entry."""
    old, entry = context.old.stacks.get(stack), context.site.stacks[stack]
    default = _host_default(context, stack)
    names = gpu_of(str(entry.gpu)).drivers
    driver = "; ".join(driver_text(name, driver) for name, driver in context.after.drivers.items() if name in names)
    before = str(old.driver if old else "unknown")
    supported = _supported(context, stack, parse_release(str(default.value)) if not default.marks else None)
    return [str(default.value)], {"driver": _known(context, driver, before), "runs": supported, "default": default}


def _installed(context: Context, stack: str) -> tuple[list[str], dict[str, object]]:
    """Return the installed releases of a stack, and its entry."""
    known, host = context.site.releases(stack), context.on_host(stack)
    installed = [_spelled(name, known) for name in host.versions if _is_name(name) and parse_release(name)]
    if not installed:
        old = str(context.old.defaults.get(stack) or context.stated.defaults[stack])
        return [old], {"default": guess(old, "previous", platform=context.was), "supported": [old]}
    supported = guess(installed, "all-supported")
    default = _spelled(host.default or "", known)
    if default in installed:
        return installed, {"default": default, "supported": supported}
    return installed, {"default": guess(max(installed, key=numbers_in), "newest"), "supported": supported}


def _known(context: Context, value: str | None, old: str) -> object:
    """Return what the node says, else what the platform before has, marked."""
    return (value or "").strip() or guess(old, "previous", platform=context.was)


def _host_default(context: Context, stack: str) -> Marked:
    """Return the host's default release; where it cannot be the platform's, the one that is stated."""
    stated, platform = str(context.stated.stacks[stack].default), context.now or context.was
    default, software = context.on_host(stack).default, context.software(stack)
    version = parse_release(default) if default and _is_name(default) else None
    if version is None:
        links = " or ".join(software.defaults) if software is not None else "link"
        return guess(stated, "no-default-link", links=links, platform=platform)
    tables = (family.default_for or {} for family in context.site.families.values())
    if not any(version in table[stack] for table in tables if stack in table):
        return guess(stated, "no-family", release=default, platform=platform)
    return Marked(_spelled(str(version), context.site.stacks[stack].releases))


def _supported(context: Context, stack: str, host: Version | None) -> Marked:
    """Return the releases that the driver supports, which only the vendor's documentation tells.

    Where the platform that the node is now is described already, its range is taken; else the one of before, or the
    series of the host's own release if that is outside.
    """
    stated = context.stated.stacks[stack]
    if host is None or stated.in_range(host):
        return guess(str(stated.runs), "range-described", platform=context.now or context.was)
    major, minor = host.minor.split(".")
    series = f">={major}.{minor},<{major}.{int(minor) + 1}"
    return guess(series, "range-series", release=host, range=stated.runs)


def _spelled(version: str, known: Iterable[str]) -> str:
    """Return a version as the site spells it, where it has the same one in another spelling."""
    release = parse_release(version)
    return next((name for name in known if parse_release(name) == release), version)


def _libraries(context: Context) -> Marked:
    """Return the folders of the system's own libraries: the new release where the old one has gone."""
    entries, marks = {}, []
    for library, path in context.old.libraries.items():
        folder, named = posixpath.dirname(path), context.after.paths.get(path)
        releases = context.after.products.get(folder)
        versions = [name for name in releases.versions if _is_name(name)] if releases else []
        version = (releases.default if releases else None) or max(versions, key=numbers_in, default="")
        if releases is not None and _is_name(version):
            entries[library] = f"{folder}/{version}"
            if releases.default is None and len(versions) > 1:
                marks.append(Mark("newest-library", {"library": library, "releases": ", ".join(versions)}))
        else:
            entries[library] = str(path)
            if releases is not None or named is None or named.kind != "directory":
                marks.append(Mark("previous-library", {"library": library, "platform": context.was}))
    return Marked(entries, tuple(marks))


def _bus_ids(context: Context) -> object:
    """Return the addresses of the GPUs, where one node kind has as many."""
    site, facts = context.site, context.after
    buses = [_short((gpu.bus or "").strip()) for gpu in facts.gpus]
    kinds = [name for name, kind in site.node_kinds.items() if kind.gpus and len(kind.gpus) == len(buses)]
    if len(kinds) == 1 and all(buses):
        return {kinds[0]: buses}
    if any(kind.gpus for kind in site.node_kinds.values()):
        return guess(None, "gpu-bus-ids", count=len(buses))
    return None


def _short(bus: str) -> str:
    """Return a PCI address as the site writes it: its bus alone, where the rest is zeros."""
    found = re.fullmatch(r"0000:([0-9a-f]{2}):00\.0", bus)
    return found[1] if found else bus


def _is_name(text: str) -> bool:
    """Return whether text can be a key of the site description, or the last part of a path in it."""
    return re.fullmatch(r"[\w+-][\w.+-]*", text, re.ASCII) is not None
