"""A draft of the platform for the site description, from a capture: what is known as values, the rest as comments.

Required keys that no file of a node tells keep the value of the platform before, under a comment that says so; so the
draft passes `lumisite check` when its entries are put below the keys of the same names.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable

from lumisite.facts.change import driver_words
from lumisite.facts.site import Context
from lumisite.machine.library_names import numbers_in
from lumisite.site.images import told_release
from lumisite.site.versions import Version
from lumisite.text import Block, Noted, yaml_lines
from lumisite.vendors import gpu_of


def draft_lines(context: Context) -> tuple[str, ...]:
    """Write the draft: entries for `platforms`, and for `stacks` where releases are new."""
    site, facts, old = context.site, context.after, context.old
    node = facts.host if re.fullmatch(r"[\w.-]+", facts.host or "", re.ASCII) else "a node without a name"
    source = f"here: lumisite facts on {node}"
    slurm = facts.slurm if told_release(facts.slurm) else None
    lines = ["# Put each entry below the key of the same name in the site description, then run `lumisite check`."]
    if context.now is not None:
        lines.append(f"# Platform {context.now} of the site fits this node; compare, before you add another.")
    mine = [name for name in site.stacks if name in context.stated.stacks]
    stacks = {name: (_driven if name in site.gpu_stacks else _installed)(context, name) for name in mine}
    platform = Block(
        since=Noted("unknown", "unknown: since when it is in force"),
        os=_known("os", facts.os.name, old.os),
        slurm=slurm or Noted(None, "unknown: slurm"),
        kernel=(facts.kernel.release or "").strip() or Noted(None, "unknown: kernel"),
        stacks=Block({name: entry for name, (_, entry) in stacks.items()}),
        libraries=_libraries(context),
        gpu_bus_ids=_bus_ids(context),
        source=source,
        confirmed="no",
    )
    new = {}
    for name, (has, _) in stacks.items():
        if come := [one for one in has if one not in site.releases(name)]:
            unknown = Block(libraries=Noted({}, "unknown: libraries"), source=source, confirmed="no")
            release = {"found": "host", "source": source} if name in site.gpu_stacks else unknown
            new[name] = Block({"releases": Block(dict.fromkeys(come, release))})
    written = Block({"platforms": Block({"draft": platform})} | ({"stacks": Block(new)} if new else {}))
    return (*lines, *yaml_lines(written))


def _driven(context: Context, stack: str) -> tuple[list[str], Block]:
    """Give the host's release of the stack that a driver decides on, and the draft of its entry."""
    old, stated, mine = context.old.stacks.get(stack), context.stated.stacks[stack], context.site.stacks[stack]
    host, why_not = _host_release(context, stack)
    default = str(stated.default) if host is None else _spelled(str(host), mine.releases)
    loaded = {name: one for name, one in context.after.drivers.items() if name in gpu_of(str(mine.gpu)).drivers}
    drivers = "; ".join(driver_words(name, driver) for name, driver in loaded.items())
    driver = _known("driver", drivers, str(old.driver if old else "unknown"))
    noted = Noted(default, f"unknown: default: {why_not}" if why_not else "")
    return [default], Block(driver=driver, runs=_runs(context, stack, host), default=noted)


def _installed(context: Context, stack: str) -> tuple[list[str], Block]:
    """Give the installed releases, and the draft of their entry."""
    default, has, unknown = _releases(context, stack)
    return [*has], Block(default=Noted(default, "\n".join(f"unknown: {line}" for line in unknown)), supported=has)


def _known(key: str, value: str | None, old: str) -> object:
    """Give a required key: what the node says, else what the platform before has, marked as unknown."""
    said = (value or "").strip()
    return said or Noted(old, f"unknown: {key}; this is what the platform before has")


def _host_release(context: Context, stack: str) -> tuple[Version | None, str]:
    """Give the host's default release; where it cannot be the platform's, why not."""
    default, software = context.on_host(stack).default, context.software(stack)
    version = told_release(default) if default and _is_name(default) else None
    if version is None:
        where = context.now or context.was
        link = " or ".join(software.defaults) if software is not None else "link"
        return None, f"the node has no {link} that leads to a release; this is what {where} has"
    tables = (family.default_for or {} for family in context.site.families.values())
    if not any(version in one[stack] for one in tables if stack in one):
        return None, f"the host has {default}, for which no family is the default (`default_for`)"
    return version, ""


def _runs(context: Context, stack: str, host: Version | None) -> Noted:
    """Give the releases that the driver supports, which only the vendor's documentation tells.

    Where the platform that the node is now is described already, its range is taken; else the one of before, or the
    series of the host's own release if that lies outside.
    """
    stated, title = context.stated.stacks[stack], context.site.stacks[stack].title
    supported = str(stated.runs)
    unknown = f"no file tells which {title} releases the driver supports; this is what {context.was} has"
    if context.now:
        unknown = f"no file tells it; this is what platform {context.now} has"
    if host is not None and not stated.in_range(host):
        unknown = f"no file tells it, and {host} of the host is outside {supported}; this is its series alone"
        major, minor = host.minor.split(".")
        supported = f">={major}.{minor},<{major}.{int(minor) + 1}"
    return Noted(supported, f"unknown: runs: {unknown}")


def _spelled(version: str, known: Iterable[str]) -> str:
    """Give a version as the site spells it, where it has the same one in another spelling."""
    mine = told_release(version)
    return next((one for one in known if told_release(one) == mine), version)


def _releases(context: Context, stack: str) -> tuple[str, tuple[str, ...], list[str]]:
    """Give the default release of a stack, all that are installed, and what is unknown of them."""
    known, here = context.site.releases(stack), context.on_host(stack)
    installed = tuple(_spelled(one, known) for one in here.versions if _is_name(one) and told_release(one))
    if not installed:
        old = str(context.old.defaults.get(stack) or context.stated.defaults[stack])
        return old, (old,), ["default: the node has none that can be seen; this is what the platform before has"]
    title = context.site.stacks[stack].title
    unknown = [f"which of the installed {title} releases are supported, and which are only left over (`leftover`)"]
    default = _spelled(here.default or "", known)
    if default not in installed:
        default = max(installed, key=numbers_in)
        unknown.append("default: no link names the default; this is the newest")
    return default, installed, unknown


def _libraries(context: Context) -> Noted:
    """Give the directories of the system's own libraries: the new release where the old one has gone."""
    entries, unknown = Block(), []
    for what, path in context.old.libraries.items():
        folder, named = posixpath.dirname(path), context.after.paths.get(path)
        releases = context.after.products.get(folder)
        versions = [one for one in releases.versions if _is_name(one)] if releases else []
        version = (releases.default if releases else None) or max(versions, key=numbers_in, default="")
        if releases is not None and _is_name(version):
            if releases.default is None and len(versions) > 1:
                unknown.append(f"unknown: libraries.{what}: which of {', '.join(versions)}; this is the newest")
            entries[what] = f"{folder}/{version}"
            continue
        if releases is not None or named is None or named.kind != "directory":
            unknown.append(f"unknown: libraries.{what}; this is what the platform before has")
        entries[what] = str(path)
    return Noted(entries, "\n".join(unknown))


def _bus_ids(context: Context) -> object:
    site, facts = context.site, context.after
    buses = [_short((gpu.bus or "").strip()) for gpu in facts.gpus]
    kinds = [name for name, kind in site.node_kinds.items() if kind.gpus and len(kind.gpus) == len(buses)]
    if len(kinds) == 1 and all(buses):
        return {kinds[0]: buses}
    if any(kind.gpus for kind in site.node_kinds.values()):
        return Noted(None, f"unknown: gpu_bus_ids; no one node kind has the {len(buses)} GPUs of the node")
    return None


def _short(bus: str) -> str:
    """Give a PCI address as the site writes it: its bus alone, where the rest is zeros."""
    found = re.fullmatch(r"0000:([0-9a-f]{2}):00\.0", bus)
    return found[1] if found else bus


def _is_name(text: str) -> bool:
    """Tell whether text can be a key of the site description, or the last part of a path in it."""
    return re.fullmatch(r"[\w+-][\w.+-]*", text, re.ASCII) is not None
