"""Capture a node from its files. No program is run, no root is needed; what a file does not tell is absent."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from lumisite.facts import runtime, slurm
from lumisite.facts.change_kinds import KINDS, Kind
from lumisite.facts.facts import Facts, Named
from lumisite.facts.hardware import capture_hardware, interfaces_on_devices
from lumisite.facts.images import capture_images, image_folders
from lumisite.facts.libraries import capture_libraries
from lumisite.facts.reading import is_below
from lumisite.facts.releases import installed_products, installed_stacks, product_folders
from lumisite.facts.stated import RUNTIME, stated_libraries, stated_paths
from lumisite.findings.finding import Finding, Severity
from lumisite.machine.tree import Tree, broken_link_on, is_under, names_of, resolve
from lumisite.paths import current
from lumisite.site.model import Site

#: Files and folders that cannot be read are named before they are only counted.
_MOST_CLOSED = 20


@dataclass(frozen=True)
class Captured:
    """The facts of a node, and findings on what could not be read."""

    facts: Facts
    findings: tuple[Finding, ...]


def capture(tree: Tree, site: Site) -> Captured:
    """Read a node from its files; `tree` is its root or a copy. Whatever is damaged is left out, with a finding."""
    findings: list[Finding] = []
    facts = capture_hardware(tree, site.name, (*site.fabric.interfaces, *site.fabric.management), findings)
    facts, folders = capture_libraries(facts, tree, site, findings)
    products = installed_products(tree, [path for _, path in stated_libraries(site)])
    named = [*(f"{path}/default" for path in products), *(path for _, path in stated_paths(site)), *product_folders()]
    release = resolve(tree, current(site.root))
    facts = replace(
        facts,
        slurm=slurm.slurm_version(tree, folders),
        runtime=runtime.read_program(tree, site),
        stacks=installed_stacks(tree),
        products=products,
        dangling={**facts.dangling, **dict(_broken_links(tree, named))},
        paths=_paths(tree, site),
        images=capture_images(tree, site),
        release=posixpath.basename(release.path) if release.entry else None,
    )
    findings += _wrapper_findings(tree, site)
    read = {kind: kind.read(tree, site) for kind in KINDS if kind.read is not None}
    unreadable, private = (_closed(tree, part) for part in ("unreadable", "private"))
    closed = {**unreadable, **private}
    texts = dict(facts.texts)
    for kind, found in read.items():
        if found is not None and not _is_closed(kind, closed):
            lists = {name: tuple(filter(None, words)) for name, words in found.items()}
            texts[kind.name] = {name: words for name, words in lists.items() if words}
    facts = replace(facts, texts=texts, unreadable=closed)
    return Captured(facts, (*findings, *_closed_findings(unreadable, private)))


def capture_undescribed(tree: Tree) -> Captured:
    """Read of a node what no site description has to name: hardware, kernel, drivers and installed releases."""
    findings: list[Finding] = []
    # Where no interface has a device, as in a virtual machine, all of them count.
    interfaces = () if interfaces_on_devices(tree) else {*names_of(tree, "/sys/class/net")} - {"lo"}
    facts = capture_hardware(tree, "", interfaces, findings)
    return Captured(replace(facts, slurm=slurm.slurm_version(tree, ()), stacks=installed_stacks(tree)), tuple(findings))


# Paths


def _broken_links(tree: Tree, paths: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the broken links on the way to paths, and where they lead: all below is missing with them."""
    for link, found in filter(None, (broken_link_on(tree, path) for path in paths)):
        yield link, found.links[-1] if found.links[-1].startswith("/") else found.path


def _paths(tree: Tree, site: Site) -> dict[str, Named]:
    """Return what is at each path that the site names; the runtime has facts of its own."""
    stated = (path for key, path in stated_paths(site) if key != RUNTIME)
    return {path: _named(tree, path) for path in sorted({*stated, *image_folders(site)})}


def _named(tree: Tree, path: str) -> Named:
    found = resolve(tree, path)
    if found.entry is None:
        if posixpath.dirname(found.path) in getattr(tree, "unreadable", {}):
            return Named("unreadable", found.path)
        return Named("none") if found.code == "path-missing" else Named("dangling", found.path)
    tree.look(f"{found.path}/.")  # notes a folder that may not be entered
    kind = found.entry.kind if found.entry.kind in ("file", "directory") else "other"
    return Named(kind, found.path if found.path != path else None)


def _wrapper_findings(tree: Tree, site: Site) -> Iterator[Finding]:
    """Yield that what stands for the runtime is lumisite's own wrapper."""
    path = site.runtime.executable
    if path is not None and runtime.is_wrapper(tree, site, resolve(tree, path).path):
        message = "is lumisite's wrapper and no container runtime"
        advice = f"correct `runtimes.{site.command}.executable`, or unload the module and capture again"
        yield Finding("facts-incomplete", Severity.DOUBT, message, advice, path)


# What may not be read


def _closed(tree: Tree, part: str) -> dict[str, str]:
    """Return what was refused on the way, but for the kernel's own files, with the command that opens it."""
    refused: Mapping[str, str] = getattr(tree, part, {})
    return {path: command for path, command in refused.items() if not path.startswith(("/proc/", "/sys/"))}


def _is_closed(kind: Kind, closed: Mapping[str, str]) -> bool:
    """Return whether something where a kind is read was closed to this user."""
    return any(is_below(path, kind.where) or any(is_under(top, path) for top in kind.where) for path in closed)


def _closed_findings(unreadable: Mapping[str, str], private: Mapping[str, str]) -> Iterator[Finding]:
    """Yield a finding for each path that somebody may not read, and for many one with the number of the others."""
    closed = [(path, "you", command) for path, command in sorted(unreadable.items())]
    closed += [(path, "other users", command) for path, command in sorted(private.items())]
    for path, users, command in closed[:_MOST_CLOSED]:
        yield Finding("facts-incomplete", Severity.DOUBT, f"cannot be read by {users}", command, path)
    if (more := len(closed) - _MOST_CLOSED) > 0:
        message, advice = f"{more} more cannot be read", "the facts file lists all of them"
        yield Finding("facts-incomplete", Severity.DOUBT, message, advice)
