"""The deployed release against a node: whether everything exists that its modules hand to containers, and loads."""

from __future__ import annotations

import posixpath
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from lumisite.binds.host_libraries import folders_below, library_folders, loader_of_host
from lumisite.errors import ResolveError
from lumisite.findings.catalogue import make_finding
from lumisite.findings.finding import Finding, Severity, with_values
from lumisite.machine.elf import ElfError, read_elf
from lumisite.machine.host import DiskTree, mounts_of
from lumisite.machine.library_names import in_order, is_foundation, newest, stem
from lumisite.machine.loader import Loaded, Loader, Need, Search, walk
from lumisite.machine.tree import ResolvedPath, broken_link_on, is_under, names_of, resolve
from lumisite.release.node_state import (
    ENTER,
    READ,
    interface_faults,
    kind_faults,
    local_faults,
    shared_faults,
    silent_faults,
    users_shut_out,
)
from lumisite.render.manifest import Manifest
from lumisite.render.plan_images import other_images
from lumisite.site.model import Family, Site
from lumisite.site.selection import Combination, combinations
from lumisite.site.versions import Version, parse_version
from lumisite.text import suggestion
from lumisite.vendors import plugins


@dataclass(frozen=True)
class _Part:
    """A path of the host that the release needs, and what of it does; `soname` is what containers ask for a library by.

    `kind` is what must be there, where that is known.
    """

    path: str
    needed_by: str
    kind: Literal["directory", "file", ""] = ""
    soname: str = ""


@dataclass(frozen=True)
class _Check:
    """A release on a host: which of its `parts` are `broken`. `shared` are paths on all nodes."""

    site: Site
    manifest: Manifest
    host: DiskTree
    shared: tuple[str, ...]
    parts: tuple[_Part, ...]
    broken: set[_Part] = field(default_factory=set)

    @cached_property
    def families(self) -> dict[str, Family]:
        """The image families that are run with a module of this release."""
        deployed = {module.partition("/")[0] for module in self.manifest.modules}
        return {name: family for name, family in self.site.families.items() if deployed.intersection(family.modules)}

    @cached_property
    def needed_libraries(self) -> dict[str, str]:
        """The libraries that families need, by SONAME, with the families."""
        needing: dict[str, list[str]] = {}
        for name, family in self.families.items():
            for soname in family.libraries:
                needing.setdefault(soname, []).append(name)
        return {soname: ", ".join(names) for soname, names in needing.items()}

    def severity(self, path: str) -> Severity:
        """Return how bad something is at a path: on a shared file system it is wrong on all nodes."""
        return Severity.FAULT if any(is_under(path, folder) for folder in self.shared) else Severity.NODE

    def closed(self, path: str, real: str, need: int, needed_by: str) -> Finding | None:
        """Return the finding for a path that users may not use."""
        finding = users_shut_out(self.host, path, real, need, needed_by)
        if finding is None:
            return None
        at = str(finding.values["at"])
        return replace(finding, severity=Severity.NODE if at in self.shared else self.severity(at))


def check_host(site: Site, manifest: Manifest, host: DiskTree) -> tuple[list[Finding], int]:
    """Check a host, or a copy of its tree; raises `ResolveError` when the release is not of this site.

    Returns the findings, by path, and how many paths and libraries were checked. Of several findings at one path, the
    first one counts: not also what is below it, or needs it.
    """
    _same_site(site, manifest)
    if silent := list(silent_faults(site, host, mounts_of(host))):
        return silent, len(site.file_systems)
    mounts = mounts_of(host)  # once more, with what an automounter has mounted for that
    bound = frozenset(spec.partition(":")[0] for module in manifest.modules.values() for spec in module.binds)
    shared = tuple(resolve(host, system.path).path for system in site.file_systems if system.kind == "shared")
    check = _Check(site, manifest, host, shared, _parts(site, manifest))
    found = [*local_faults(site, host, mounts), *interface_faults(site, host), *kind_faults(site, host)]
    found += _runtime(check)
    for part in check.parts:
        if fault := next(_part(check, part), None):
            found.append(fault)
            check.broken.add(part)
    for combination in _combinations(site, manifest):
        found += _libraries(check, combination.releases)
    found += _missing_for_tasks(site, host)
    found += other_images(manifest.plans, host)
    unmounted = list(shared_faults(site, bound, host, mounts))
    lost = [str(fault.values["at"]) for fault in unmounted]
    kept = [fault for fault in found if not any(is_under(str(fault.values.get("at", "")), path) for path in lost)]
    return sorted(_causes(unmounted + kept), key=_order), len(check.parts) + len(check.needed_libraries) + 1


def _causes(findings: list[Finding]) -> list[Finding]:
    """Return the first finding for each place that is at fault, or that of the folder that is missing."""
    first: dict[object, Finding] = {}
    for finding in findings:
        key = finding.values.get("at") or (finding.code, finding.subject)
        kept = first.setdefault(key, finding)
        if kept.subject != finding.subject and is_under(kept.subject, finding.subject):
            first[key] = finding
    return list(first.values())


def _order(finding: Finding) -> tuple[str, str]:
    return finding.subject, finding.code


def _missing_for_tasks(site: Site, host: DiskTree) -> Iterator[Finding]:
    """Yield what only compute nodes have, and this host has not."""
    for bind in site.binds:
        if bind.where == "task" and resolve(host, bind.path).entry is None:
            yield make_finding("task-path-missing", bind.path, needed_by=bind.why)


def _same_site(site: Site, manifest: Manifest) -> None:
    release = manifest.release
    if manifest.site != site.name:
        raise ResolveError(make_finding("release-of-other-site", release, site=manifest.site, expected=site.name))
    stated: list[tuple[str, str, Collection[str]]] = [("platform", manifest.platform, site.platforms)]
    stated += [("stack", name, site.stacks) for name in manifest.stacks]
    for name, stack in site.stacks.items():
        stated += [(f"{stack.title} release", version, stack.releases) for version in manifest.stacks.get(name, ())]
    for kind, name, known in stated:
        if name not in known:
            near = suggestion(name, known)
            raise ResolveError(make_finding("release-not-described", release, kind=kind, name=name, near=near))


def _combinations(site: Site, manifest: Manifest) -> Iterator[Combination]:
    """Return each combination of what the host has; what images bring has no libraries here."""
    hosts = {stack: map(parse_version, manifest.stacks.get(stack, ())) for stack in site.host_stacks}
    defaults = site.platforms[manifest.platform].defaults
    images = {stack: (version,) for stack, version in defaults.items() if stack == site.gpu_stack}
    return combinations(site, manifest.platform, {**hosts, **images})


def _parts(site: Site, manifest: Manifest) -> tuple[_Part, ...]:
    """Return what modules bind, directories of libraries, and what stored plans bind beside those: each path once."""
    parts: list[_Part] = []
    for module, summary in manifest.modules.items():
        for spec in summary.binds:
            source, _, target = spec.partition(":")
            name = posixpath.basename(target.partition(":")[0] or source)
            parts.append(_Part(source, module, "", name if ".so" in name else ""))
    owners = [
        (f"{site.stacks[stack].title} {release}", site.releases(stack)[release].libraries)
        for stack, releases in manifest.stacks.items()
        for release in releases
    ]
    owners.append((f"platform {manifest.platform}", site.platforms[manifest.platform].libraries))
    for owner, libraries in owners:
        parts += [_Part(str(path), f"{owner} ({name})", "directory") for name, path in libraries.items()]
    for module, summary in manifest.modules.items():
        parts += [_Part(path, module, "directory") for path in summary.provides]
    users: defaultdict[tuple[str, str], dict[str, None]] = defaultdict(dict)
    for file, plan in manifest.plans.items():
        for library in plan.libraries:
            users[library.source, library.soname][file] = None
        for folder in plan.folders:
            users[folder, ""][file] = None
    for (path, soname), files in users.items():
        parts.append(_Part(path, ", ".join(files), "file" if soname else "directory", soname))
    return tuple({part.path: part for part in reversed(parts)}.values())


def _runtime(check: _Check) -> Iterator[Finding]:
    command, path = check.site.command, check.site.runtime.executable
    if path is None:  # a module may bring it
        return
    program = resolve(check.host, path)
    is_file = program.entry is not None and program.entry.kind == "file"
    closed = check.closed(path, program.path, READ | ENTER if is_file else 0, command)
    source = check.host.source(program.path) if is_file else None
    if not is_file:
        yield closed or make_finding("runtime-missing", path, at=program.path, needed_by=command)
    elif is_under(program.path, check.site.root):
        yield make_finding("runtime-is-wrapper", path, target=program.path, needed_by=command)
    elif source is not None and source.size == 0:
        severity = check.severity(program.path)
        yield make_finding("runtime-empty", path, severity=severity, at=program.path, needed_by=command)
    elif closed:
        yield closed


def _part(check: _Check, part: _Part) -> Iterator[Finding]:
    found = resolve(check.host, part.path)
    if found.entry is None:
        yield check.closed(part.path, found.path, 0, part.needed_by) or _missing(check, part, found)
        return
    kind = found.entry.kind
    if part.kind and kind != part.kind:
        values: dict[str, Any] = {"found": kind, "expected": part.kind, "needed_by": part.needed_by}
        yield make_finding("host-path-kind", part.path, at=found.path, **values)
        return
    need = READ if kind == "file" else READ | ENTER if part.kind else ENTER
    if closed := check.closed(part.path, found.path, need, part.needed_by):
        yield closed
    elif part.soname:
        yield from _library(check, part, found.path)


def _missing(check: _Check, part: _Part, found: ResolvedPath) -> Finding:
    """Return the finding for a missing path, or the broken link above it.

    Where another version is beside it, the system may have been updated.
    """
    above, _ = broken_link_on(check.host, part.path) or (part.path, None)
    folder, name = posixpath.split(above)
    real = resolve(check.host, folder)
    is_link = real.entry is not None and check.host.look(posixpath.join(real.path, name)) is not None
    beside = _beside(check.host, real.path, name)
    is_versioned = above == part.path and (bool(part.soname) or part.kind == "directory")
    updated = is_versioned and beside not in ((), (name,))
    this_node = not updated and (check.severity(found.path) is Severity.NODE or found.path in check.shared)
    return make_finding(
        "host-link-broken" if is_link else "host-path-missing",
        above if is_link else part.path,
        severity=Severity.NODE if this_node else Severity.FAULT,
        cause=None if found.code in ("path-missing", "link-broken") else found.code,
        at=found.path,
        needed_by=part.needed_by,
        folder=folder,
        beside=beside,
    )


def _library(check: _Check, part: _Part, real: str) -> Iterator[Finding]:
    """Compare what a library calls itself; unlike a module, a plan may bind one that has no SONAME."""
    source = check.host.source(real)
    try:
        info = None if source is None else read_elf(source)
    except ElfError as error:
        damaged = replace(error.finding, subject=part.path, severity=check.severity(real))
        yield with_values(damaged, {"at": real, "needed_by": part.needed_by})
        return
    soname = None if info is None else info.soname
    if soname is not None or part.kind != "file":
        yield from _soname(part.path, part.soname, soname, part.needed_by, real)


def _soname(path: str, name: str, soname: str | None, needed_by: str, real: str) -> Iterator[Finding]:
    """Compare the SONAME of a library with the name by which containers ask for it; only one with a version counts."""
    if soname != name and ".so." in name:
        found = soname or "none"
        yield make_finding("library-soname", path, at=real, found=found, expected=name, needed_by=needed_by)


def _libraries(check: _Check, releases: Mapping[str, Version]) -> Iterator[Finding]:
    """Search the libraries that families need, and all that those need in turn, as the closure does.

    Beside those, what modules and plans bind one by one must find the symbol versions that it needs; what an image
    brings for a planned library is not known here.
    """
    platform = check.manifest.platform
    folders, _ = library_folders(check.site, platform, releases, check.host)
    loader = loader_of_host(check.site, platform, check.host, folders)
    reported = {part.soname for part in check.broken if part.soname}
    roots: list[Need] = []
    for name, needed_by in _roots(check, loader).items():
        search = loader.search(name)
        if search.found is not None:
            found = search.found
            roots.append(Need(name, None, Loaded(name, found), search))
            other = next(_soname(found.path, name, found.info.soname, needed_by, found.real), None)
            closed = check.closed(found.path, found.real, READ, needed_by)
            yield from filter(None, (other or closed,))
        elif name not in reported:
            reported.add(name)
            yield from _closed(check, search, needed_by) or _not_found(check, name, needed_by, search)
    bound: dict[_Part, Need] = {}
    for part in (part for part in check.parts if part.soname and part not in check.broken):
        search = loader.search(part.path)
        if search.found is not None:
            bound[part] = Need(part.path, None, Loaded(part.path, search.found), search)
    linked = [need for part, need in bound.items() if part.kind != "file"]
    for need in walk(loader, [*roots, *linked]):
        yield from _needed(check, loader, need, reported)
    for need in walk(loader, bound.values()):
        yield from _lacking(need)


def _roots(check: _Check, loader: Loader) -> dict[str, str]:
    """Return the libraries that families need, and the plugins that they open by any of their names, where some are."""
    families = ", ".join(name for name, family in check.families.items() if family.plugin == "from-host")
    names = sorted(name for name in plugins() if families and name not in check.needed_libraries)
    opened = [name for name in names if _exists(loader.search(name))]
    return {**check.needed_libraries, **dict.fromkeys(opened, families)}


def _exists(search: Search) -> bool:
    """Return whether something of that name exists, if only a broken link."""
    tried = [finding for finding in search.passed if finding.code != "path-through-file"]
    return bool(search.found or search.trouble or tried)


def _needed(check: _Check, loader: Loader, need: Need, reported: set[str]) -> Iterator[Finding]:
    """Yield what is wrong with a library that another one needs."""
    if need.requester is None:
        return
    needed_by = need.requester.found.path
    if need.loaded is not None:
        found = need.loaded.found
        yield from filter(None, (check.closed(found.path, found.real, READ, needed_by),))
        yield from _lacking(need)
    elif need.name not in reported and not is_foundation(need.name):
        if closed := _closed(check, need.search, needed_by):
            yield from closed
            return
        reported.add(need.name)
        if need.search.trouble:
            yield _passed_over(check, need.search.trouble, needed_by)
            return
        folders = ((folder, _beside(check.host, folder, need.name)) for folder in loader.rules.directories)
        folder, beside = next((pair for pair in folders if pair[1]), ("", ()))
        severity = Severity.FAULT if beside else check.severity(need.requester.found.real)
        yield make_finding(
            "library-not-found", need.name, severity=severity, needed_by=needed_by, folder=folder, beside=beside
        )


def _closed(check: _Check, search: Search, needed_by: str) -> list[Finding]:
    """Return why what a search passed over may not be read, as this user or by others."""
    found = (check.closed(path, resolve(check.host, path).path, READ, needed_by) for path in search.closed)
    return [finding for finding in found if finding]


def _not_found(check: _Check, name: str, needed_by: str, search: Search) -> Iterator[Finding]:
    """Yield the finding for a library of a family, unless it is in a directory that is broken as a whole."""
    for part in check.broken:
        others = folders_below(check.host, f"{posixpath.dirname(part.path)}/*")
        if part.kind == "directory" and (
            stem(name).removesuffix(".so.") in part.path
            or any(resolve(check.host, f"{other}/{name}").entry for other in others)
        ):
            return
    if passed := [search.trouble] if search.trouble else [*search.passed]:
        yield _passed_over(check, passed[0], needed_by)
    else:
        yield make_finding("library-not-found", name, severity=Severity.NODE, needed_by=needed_by)


def _passed_over(check: _Check, passed: Finding, needed_by: str) -> Finding:
    """Return the finding for a library that the loader does not take."""
    return replace(passed, severity=check.severity(passed.subject), values={**passed.values, "needed_by": needed_by})


def _lacking(need: Need) -> Iterator[Finding]:
    """Yield the symbol version that an object needs of a library, and that the one which the loader takes lacks."""
    if need.requester is None or need.loaded is None:
        return
    found, defined = need.loaded.found, need.loaded.found.info.verdef
    lacking = set(need.requester.found.info.verneed.get(need.name, ())).difference(defined)
    if defined and lacking:
        yield make_finding(
            "library-too-old",
            found.path,
            version=newest(lacking),
            found=newest(defined),
            needed_by=need.requester.found.path,
        )


def _beside(host: DiskTree, folder: str, name: str) -> tuple[str, ...]:
    """Return the names in the folder of a missing path; beside a library, its other versions."""
    names = names_of(host, folder, None)
    return tuple(in_order(other for other in names if ".so" not in name or other.startswith(stem(name))))
