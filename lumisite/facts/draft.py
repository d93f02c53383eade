"""A draft of the platform for the site description, from a capture: what is known as values, the rest as comments.

Required keys that no file of a node tells keep the value of the platform before, under a comment that says so; so the
draft passes `lumisite check` when its entries are put below the keys of the same names.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator

from lumisite.binds.copies import numbers_in
from lumisite.facts.change import driver_words
from lumisite.facts.site import Context
from lumisite.site.images import told_release
from lumisite.site.versions import Version
from lumisite.text import yaml_key as _key
from lumisite.text import yaml_text as _text
from lumisite.vendors import gpu_of, software_of


def draft_lines(context: Context) -> tuple[str, ...]:
    """Write the draft: entries for `platforms`, and for `stacks` where releases are new."""
    site, facts, old = context.site, context.after, context.old
    node = facts.host if re.fullmatch(r"[\w.-]+", facts.host or "", re.ASCII) else "a node without a name"
    source = _text(f"here: lumisite facts on {node}")
    slurm = facts.slurm if told_release(facts.slurm) else None
    lines = ["# Put each entry below the key of the same name in the site description, then run `lumisite check`."]
    if context.now is not None:
        lines.append(f"# Platform {context.now} of the site fits this node; compare, before you add another.")
    lines += ["platforms:", "  draft:", "    # unknown: since when it is in force", "    since: unknown"]
    lines += _known("os", facts.os.name, old.os)
    for key, value in (("slurm", slurm), ("kernel", (facts.kernel.release or "").strip())):
        lines.append(f"    {key}: {_text(value)}" if value else f"    # unknown: {key}")
    mine = [name for name in site.stacks if name in context.stated.stacks]
    stacks = {name: (_driven if name in site.gpu_stacks else _installed)(context, name) for name in mine}
    lines += ["    stacks:"] if stacks else []
    for name, (_, entry) in stacks.items():
        lines += [f"      {name}:", *(f"        {line}" for line in entry)]
    ending = [f"    source: {source}", "    confirmed: no"]
    lines += [*_libraries(context), *_bus_ids(context), *ending]
    come = {name: [one for one in has if one not in site.releases(name)] for name, (has, _) in stacks.items()}
    lines += ["stacks:"] if any(come.values()) else []
    for name, new in ((name, new) for name, new in come.items() if new):
        lines += [f"  {name}:", "    releases:"]
        for release in new:
            if name in site.gpu_stacks:
                lines += [f"      {_key(release)}: {{found: host, source: {source}}}"]
            else:
                lines += [f"      {_key(release)}:", "        # unknown: libraries", "        libraries: {}"]
                lines += [f"    {line}" for line in ending]
    return tuple(lines)


def _driven(context: Context, stack: str) -> tuple[list[str], list[str]]:
    """Give the host's release of the stack that a driver decides on, and the draft of its entry."""
    old, stated, mine = context.old.stacks.get(stack), context.stated.stacks[stack], context.site.stacks[stack]
    host, why_not = _host_release(context, stack)
    default = str(stated.default) if host is None else _spelled(str(host), mine.releases)
    loaded = {name: one for name, one in context.after.drivers.items() if name in gpu_of(str(mine.gpu)).drivers}
    drivers = "; ".join(driver_words(name, driver) for name, driver in loaded.items())
    lines = [*_known("driver", drivers, str(old.driver if old else "unknown"), ""), *_runs(context, stack, host)]
    lines += [f"# unknown: default: {why_not}"] if why_not else []
    return [default], [*lines, f"default: {_text(default)}"]


def _installed(context: Context, stack: str) -> tuple[list[str], list[str]]:
    """Give the installed releases, and the draft of their entry."""
    default, installed, unknown = _releases(context, stack)
    lines = [f"# unknown: {line}" for line in unknown]
    return [*installed], [*lines, f"default: {_text(default)}", f"supported: [{', '.join(map(_text, installed))}]"]


def _known(key: str, value: str | None, old: str, indent: str = "    ") -> Iterator[str]:
    """Give a required key: what the node says, else what the platform before has, marked as unknown."""
    if not (value or "").strip():
        yield f"{indent}# unknown: {key}; this is what the platform before has"
    yield f"{indent}{key}: {_text((value or '').strip() or old)}"


def _host_release(context: Context, stack: str) -> tuple[Version | None, str]:
    """Give the host's default release; where it cannot be the platform's, why not."""
    default, software = context.on_host(stack).default, software_of(stack, context.site.stacks[stack].gpu)
    version = told_release(default) if default and _is_name(default) else None
    if version is None:
        where = context.now or context.was
        link = software.default if software is not None else "link"
        return None, f"the node has no {link} that leads to a release; this is what {where} has"
    tables = (family.default_for or {} for family in context.site.families.values())
    if not any(version in one[stack] for one in tables if stack in one):
        return None, f"the host has {default}, for which no family is the default (`default_for`)"
    return version, ""


def _runs(context: Context, stack: str, host: Version | None) -> Iterator[str]:
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
    yield f"# unknown: runs: {unknown}"
    yield f"runs: '{supported}'"


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


def _libraries(context: Context) -> Iterator[str]:
    """Give the directories of the system's own libraries: the new release where the old one has gone."""
    entries = []
    for what, path in context.old.libraries.items():
        folder, named = posixpath.dirname(path), context.after.paths.get(path)
        releases = context.after.products.get(folder)
        versions = [one for one in releases.versions if _is_name(one)] if releases else []
        version = (releases.default if releases else None) or max(versions, key=numbers_in, default="")
        if releases is not None and _is_name(version):
            if releases.default is None and len(versions) > 1:
                yield f"    # unknown: libraries.{what}: which of {', '.join(versions)}; this is the newest"
            entries.append(f"      {what}: {_text(f'{folder}/{version}')}")
            continue
        if releases is not None or named is None or named.kind != "directory":
            yield f"    # unknown: libraries.{what}; this is what the platform before has"
        entries.append(f"      {what}: {_text(path)}")
    yield "    libraries:" if entries else "    libraries: {}"
    yield from entries


def _bus_ids(context: Context) -> Iterator[str]:
    site, facts = context.site, context.after
    buses = [_short((gpu.bus or "").strip()) for gpu in facts.gpus]
    kinds = [name for name, kind in site.node_kinds.items() if kind.gpus and len(kind.gpus) == len(buses)]
    if len(kinds) == 1 and all(buses):
        yield f"    gpu_bus_ids: {{{kinds[0]}: [{', '.join(map(_text, buses))}]}}"
    elif any(kind.gpus for kind in site.node_kinds.values()):
        yield f"    # unknown: gpu_bus_ids; no one node kind has the {len(buses)} GPUs of the node"


def _short(bus: str) -> str:
    """Give a PCI address as the site writes it: its bus alone, where the rest is zeros."""
    found = re.fullmatch(r"0000:([0-9a-f]{2}):00\.0", bus)
    return found[1] if found else bus


def _is_name(text: str) -> bool:
    """Tell whether text can be a key of the site description, or the last part of a path in it."""
    return re.fullmatch(r"[\w+-][\w.+-]*", text, re.ASCII) is not None
