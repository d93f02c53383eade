"""What a deployed release hands to containers, on a node: each path is there, and each library is the one meant."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, replace
from typing import Literal

from lumisite.findings.finding import Severity
from lumisite.machine.elf import ElfError, read_elf
from lumisite.machine.library_names import in_order, stem
from lumisite.machine.tree import ResolvedPath, broken_link_on, names_of, resolve
from lumisite.release.host.node import ENTER, READ, HostFinding, Node
from lumisite.render.manifest import NO_MANIFEST, Manifest
from lumisite.site.model import Site
from lumisite.text import some

_DESCRIBE_OR_RESTORE = "if the system was updated, describe its platform, render and deploy; otherwise restore the path"


@dataclass(frozen=True)
class BoundPath:
    """A path of the host that the release needs, and what of it does; `soname` is what containers ask for a library by.

    `kind` is what must be there, where that is known.
    """

    path: str
    needed_by: str
    kind: Literal["directory", "file", ""] = ""
    soname: str = ""


def bound_paths(site: Site, manifest: Manifest) -> list[BoundPath]:
    """Return what modules bind, the directories of libraries, and what stored plans bind: each path once, by path.

    Without a release, modules would bind the file systems.
    """
    bound = []
    if manifest is NO_MANIFEST:
        bound += [BoundPath(system.path, str(system.where)) for system in site.file_systems if system.where]
    for module, summary in manifest.modules.items():
        for spec in summary.binds:
            source, _, target = spec.partition(":")
            name = posixpath.basename(target.partition(":")[0] or source)
            bound.append(BoundPath(source, module, "", name if ".so" in name else ""))
    platform = manifest.platform or site.platform
    owners = [(f"platform {platform}", site.platforms[platform].libraries)]
    for stack, releases in manifest.stacks.items():
        known, title = site.releases(stack), site.stacks[stack].title
        owners += [(f"{title} {release}", known[release].libraries) for release in releases]
    for owner, libraries in owners:
        bound += [BoundPath(str(path), f"{owner} ({name})", "directory") for name, path in libraries.items()]
    for module, summary in manifest.modules.items():
        bound += [BoundPath(path, module, "directory") for path in summary.provides]
    planned: dict[tuple[str, str], list[str]] = {}
    for file, plan in manifest.plans.items():
        files_of_plan = [(library.source, library.soname) for library in plan.libraries]
        for key in dict.fromkeys([*files_of_plan, *((folder, "") for folder in plan.folders)]):
            planned.setdefault(key, []).append(file)
    for (path, soname), files in planned.items():
        bound.append(BoundPath(path, ", ".join(files), "file" if soname else "directory", soname))
    once = {one.path: one for one in reversed(bound)}
    return [once[path] for path in sorted(once)]


def check_bound(node: Node, bound: BoundPath) -> HostFinding | None:
    """Return what is wrong with a path of a node, if anything is."""
    found = resolve(node.host, bound.path)
    if found.entry is None:
        return node.shut_out(bound.path, found.path, 0, bound.needed_by) or _missing(node, bound, found)
    kind = found.entry.kind
    if bound.kind and kind != bound.kind:
        text = f"{kind}, expected {bound.kind}; needed by {bound.needed_by}"
        return _of_path("host-path", bound, text, _DESCRIBE_OR_RESTORE, found.path)
    rights = READ if kind == "file" else READ | ENTER if bound.kind else ENTER
    closed = node.shut_out(bound.path, found.path, rights, bound.needed_by)
    return closed or (_other_library(node, bound, found.path) if bound.soname else None)


def _missing(node: Node, bound: BoundPath, found: ResolvedPath) -> HostFinding:
    """Return that a path is missing, or the broken link above it.

    Where another version is beside it, the system may have been updated.
    """
    above, _ = broken_link_on(node.host, bound.path) or (bound.path, None)
    folder, name = posixpath.split(above)
    is_link = node.host.look(posixpath.join(resolve(node.host, folder).path, name)) is not None
    names = names_of(node.host, folder, None)
    beside = in_order(other for other in names if ".so" not in name or other.startswith(stem(name)))
    text = f"broken link to {found.path}" if is_link else "missing"
    text += f"; needed by {bound.needed_by}" + (f"; {folder} has {some(beside, 8, ', ')}" if beside else "")
    advice = "repair the link, or describe the new path, render and deploy" if is_link else _DESCRIBE_OR_RESTORE
    is_versioned = above == bound.path and (bool(bound.soname) or bound.kind == "directory")
    if is_versioned and beside not in ([], [name]):
        severity = Severity.FAULT
    else:
        severity = Severity.NODE if found.path in node.shared else node.severity(found.path)
    finding = _of_path("host-path", bound, text, advice, found.path)
    return replace(finding, severity=severity, subject=above if is_link else bound.path)


def _other_library(node: Node, bound: BoundPath, real: str) -> HostFinding | None:
    """Return that a file is no library, or one of another SONAME; unlike a module, a plan may bind one without any."""
    source = node.host.source(real)
    try:
        soname = None if source is None else read_elf(source).soname
    except ElfError as error:
        wrong = error.finding
        damaged = _of_path(wrong.code, bound, wrong.message, wrong.advice, real)
        return replace(damaged, severity=node.severity(real))
    if soname == bound.soname or ".so." not in bound.soname or (soname is None and bound.kind == "file"):
        return None
    text = f"SONAME {soname or 'none'}, expected {bound.soname}; needed by {bound.needed_by}"
    advice = "describe the new library, render and deploy; images built for the old one must be rebuilt"
    return _of_path("host-library", bound, text, advice, real)


def _of_path(code: str, bound: BoundPath, text: str, advice: str, at: str) -> HostFinding:
    return HostFinding(code, Severity.FAULT, text, advice, bound.path, at=at, needed_by=bound.needed_by)
