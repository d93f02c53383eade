"""The deployed release against a node: whether everything exists that its modules hand to containers, and loads."""

from __future__ import annotations

import posixpath
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from lumisite.binds.host_libraries import folders_below, library_folders, loader_of_host
from lumisite.binds.never_bound import is_never_bound
from lumisite.errors import ResolveError
from lumisite.findings.finding import Finding, Severity
from lumisite.machine.elf import ElfError, read_elf
from lumisite.machine.host import DiskTree
from lumisite.machine.library_names import in_order, newest, stem
from lumisite.machine.loader import Loaded, Loader, Need, Search, walk
from lumisite.machine.tree import ResolvedPath, broken_link_on, is_under, names_of, resolve
from lumisite.release.node import ENTER, READ, HostFault, Node, users_shut_out
from lumisite.release.node_hardware import hardware_faults
from lumisite.release.node_mounts import local_faults, shared_faults, silent_faults
from lumisite.release.node_start import start_faults
from lumisite.release.policy import PolicyLine
from lumisite.render.manifest import NO_MANIFEST, Manifest
from lumisite.render.plan_images import other_images
from lumisite.site.model import Family, Site
from lumisite.site.selection import Combination, combinations
from lumisite.site.versions import Version, parse_version
from lumisite.text import printable, some, suggestion
from lumisite.vendors import plugins

#: What is checked of a node itself, beside paths and libraries: mounts, hardware, and what containers start with.
_CHECKS_OF_NODE = 3
_DESCRIBE_OR_RESTORE = "if the system was updated, describe its platform, render and deploy; otherwise restore the path"


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

    def provides(self, need: Need) -> bool:
        """Return whether a library is itself one that families need."""
        return need.loaded is not None and need.loaded.found.info.soname in self.needed_libraries

    def severity(self, path: str) -> Severity:
        """Return how bad something is at a path: on a shared file system it is wrong on all nodes."""
        return Severity.FAULT if any(is_under(path, folder) for folder in self.shared) else Severity.NODE

    def closed(self, path: str, real: str, need: int, needed_by: str) -> HostFault | None:
        """Return the fault of a path that users may not use."""
        fault = users_shut_out(self.host, path, real, need, needed_by)
        if fault is None:
            return None
        severity = Severity.NODE if fault.at in self.shared else self.severity(fault.at)
        return replace(fault, finding=replace(fault.finding, severity=severity))


def check_host(node: Node, manifest: Manifest, policy: tuple[PolicyLine, ...]) -> tuple[list[HostFault], int]:
    """Check a node, or a copy of its tree; raises `ResolveError` when the release is not of this site.

    Without a release (`NO_MANIFEST`) only what the site description says is checked. Returns the faults, by path, and
    how many checks there were. Of several faults at one path, the first one counts: not also what is below it, or
    needs it.
    """
    site, host = node.site, node.host
    if manifest is not NO_MANIFEST:
        _same_site(site, manifest)
    if silent := list(silent_faults(node)):
        return silent, len(site.file_systems)
    node = Node(site, host)  # reads the mounts once more, with what an automounter has mounted for that
    bound = frozenset(spec.partition(":")[0] for module in manifest.modules.values() for spec in module.binds)
    bound = bound or frozenset(system.path for system in site.file_systems if system.where)
    shared = tuple(resolve(host, system.path).path for system in site.file_systems if system.kind == "shared")
    check = _Check(site, manifest, host, shared, _parts(site, manifest))
    platform = manifest.platform or site.platform
    found = [*local_faults(node), *hardware_faults(node, platform), *start_faults(node, policy)]
    for part in check.parts:
        if fault := next(_part(check, part), None):
            found.append(fault)
            check.broken.add(part)
    for combination in _combinations(site, manifest) if manifest.platform else ():
        found += _libraries(check, combination.releases)
    found += _missing_for_tasks(site, host)
    found += [HostFault(finding) for finding in other_images(manifest.plans, host)]
    unmounted = list(shared_faults(node, bound))
    lost = [fault.at for fault in unmounted]
    kept = [fault for fault in found if not any(is_under(fault.at, path) for path in lost)]
    count = len(check.parts) + len(check.needed_libraries) + _CHECKS_OF_NODE
    return sorted(_causes(unmounted + kept), key=_order), count


def _causes(faults: list[HostFault]) -> list[HostFault]:
    """Return the first fault for each place that is at fault, or that of the folder that is missing."""
    first: dict[object, HostFault] = {}
    for fault in faults:
        finding = fault.finding
        key = fault.at or (finding.code, finding.subject, finding.message)
        kept = first.setdefault(key, fault)
        if kept.finding.subject != finding.subject and is_under(kept.finding.subject, finding.subject):
            first[key] = fault
    return list(first.values())


def _order(fault: HostFault) -> tuple[str, str]:
    return fault.finding.subject, fault.finding.code


def _missing_for_tasks(site: Site, host: DiskTree) -> Iterator[HostFault]:
    """Yield what only compute nodes have, and this host has not."""
    for bind in site.binds:
        if bind.where == "task" and resolve(host, bind.path).entry is None:
            text = f"missing; compute nodes need it, other nodes do not ({bind.why})"
            yield HostFault(Finding("task-path", Severity.INFO, text, subject=bind.path))


def _same_site(site: Site, manifest: Manifest) -> None:
    release = manifest.release
    if manifest.site != site.name:
        text = f"{release}: release of site {printable(manifest.site)}, not of {site.name}"
        raise ResolveError(f"{text} (name its site with --site)")
    stated: list[tuple[str, str, Collection[str]]] = [("platform", manifest.platform, site.platforms)]
    stated += [("stack", name, site.stacks) for name in manifest.stacks]
    for name, stack in site.stacks.items():
        stated += [(f"{stack.title} release", version, stack.releases) for version in manifest.stacks.get(name, ())]
    for kind, name, known in stated:
        if name not in known:
            text = f"{release}: for {kind} {printable(name)}, which the site description does not have"
            advice = f"{suggestion(name, known)}; render the description as it is now, and deploy it"
            raise ResolveError(f"{text} ({advice})")


def _combinations(site: Site, manifest: Manifest) -> Iterator[Combination]:
    """Return each combination of what the host has; what images bring has no libraries here."""
    hosts = {stack: map(parse_version, manifest.stacks.get(stack, ())) for stack in site.host_stacks}
    defaults = site.platforms[manifest.platform].defaults
    images = {stack: (version,) for stack, version in defaults.items() if stack == site.gpu_stack}
    return combinations(site, manifest.platform, {**hosts, **images})


def _parts(site: Site, manifest: Manifest) -> tuple[_Part, ...]:
    """Return what modules bind, directories of libraries, and what stored plans bind beside those: each path once.

    Without a release, modules would bind the file systems.
    """
    parts: list[_Part] = []
    if manifest is NO_MANIFEST:
        parts += [_Part(system.path, str(system.where)) for system in site.file_systems if system.where]
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
    platform = manifest.platform or site.platform
    owners.append((f"platform {platform}", site.platforms[platform].libraries))
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


def _part(check: _Check, part: _Part) -> Iterator[HostFault]:
    found = resolve(check.host, part.path)
    if found.entry is None:
        yield check.closed(part.path, found.path, 0, part.needed_by) or _missing(check, part, found)
        return
    kind = found.entry.kind
    if part.kind and kind != part.kind:
        text = f"{kind}, expected {part.kind}; needed by {part.needed_by}"
        finding = Finding("host-path", Severity.FAULT, text, _DESCRIBE_OR_RESTORE, subject=part.path)
        yield HostFault(finding, found.path, part.needed_by)
        return
    need = READ if kind == "file" else READ | ENTER if part.kind else ENTER
    if closed := check.closed(part.path, found.path, need, part.needed_by):
        yield closed
    elif part.soname:
        yield from _library(check, part, found.path)


def _missing(check: _Check, part: _Part, found: ResolvedPath) -> HostFault:
    """Return the fault of a missing path, or of the broken link above it.

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
    text = f"broken link to {found.path}" if is_link else "missing"
    text += f"; needed by {part.needed_by}" + (f"; {folder} has {some(beside, 8, ', ')}" if beside else "")
    finding = Finding(
        "host-path",
        Severity.NODE if this_node else Severity.FAULT,
        text,
        "repair the link, or describe the new path, render and deploy" if is_link else _DESCRIBE_OR_RESTORE,
        subject=above if is_link else part.path,
    )
    return HostFault(finding, found.path, part.needed_by)


def _library(check: _Check, part: _Part, real: str) -> Iterator[HostFault]:
    """Compare what a library calls itself; unlike a module, a plan may bind one that has no SONAME."""
    source = check.host.source(real)
    try:
        info = None if source is None else read_elf(source)
    except ElfError as error:
        damaged = replace(error.finding, subject=part.path, severity=check.severity(real))
        yield HostFault(damaged, real, part.needed_by)
        return
    soname = None if info is None else info.soname
    if soname is not None or part.kind != "file":
        yield from _soname(part.path, part.soname, soname, part.needed_by, real)


def _soname(path: str, name: str, soname: str | None, needed_by: str, real: str) -> Iterator[HostFault]:
    """Compare the SONAME of a library with the name by which containers ask for it; only one with a version counts."""
    if soname != name and ".so." in name:
        text = f"SONAME {soname or 'none'}, expected {name}; needed by {needed_by}"
        advice = "describe the new library, render and deploy; images built for the old one must be rebuilt"
        yield HostFault(Finding("host-library", Severity.FAULT, text, advice, subject=path), real, needed_by)


def _libraries(check: _Check, releases: Mapping[str, Version]) -> Iterator[HostFault]:
    """Search the libraries that families need, and all that those need in turn, as the closure does.

    Beside those, what modules and plans bind one by one, and the libraries beside them in the releases' folders, must
    find the symbol versions that they need; what an image brings for a planned library is not known here.
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
    bound = [part for part in check.parts if part.soname and part not in check.broken]
    linked = _loaded(loader, [part.path for part in bound if part.kind != "file"])
    for need in walk(loader, [*roots, *linked]):
        yield from _needed(check, loader, need, reported)
    for need in walk(loader, _loaded(loader, [part.path for part in bound])):
        yield from _lacking(need)
    beside = [f"{folder}/{name}" for folder in folders for name in names_of(check.host, folder) if ".so" in name]
    users = _loaded(loader, [path for path in beside if resolve(check.host, path).path == path])
    for need in walk(loader, [user for user in users if not check.provides(user)]):
        if need.name in check.needed_libraries:
            yield from _lacking(need)


def _loaded(loader: Loader, paths: Iterable[str]) -> list[Need]:
    """Return those libraries that the loader takes."""
    searches = {path: loader.search(path) for path in paths}
    return [Need(path, None, Loaded(path, search.found), search) for path, search in searches.items() if search.found]


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


def _needed(check: _Check, loader: Loader, need: Need, reported: set[str]) -> Iterator[HostFault]:
    """Yield what is wrong with a library that another one needs."""
    if need.requester is None:
        return
    needed_by = need.requester.found.path
    if need.loaded is not None:
        found = need.loaded.found
        yield from filter(None, (check.closed(found.path, found.real, READ, needed_by),))
        yield from _lacking(need)
    elif need.name not in reported and not is_never_bound(need.name):
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
        text = f"not found; needed by {needed_by}" + (f"; {folder} has {some(beside, 8, ', ')}" if beside else "")
        yield _lost_library(need.name, severity, text, needed_by)


def _closed(check: _Check, search: Search, needed_by: str) -> list[HostFault]:
    """Return why what a search passed over may not be read, as this user or by others."""
    found = (check.closed(path, resolve(check.host, path).path, READ, needed_by) for path in search.closed)
    return [fault for fault in found if fault]


def _not_found(check: _Check, name: str, needed_by: str, search: Search) -> Iterator[HostFault]:
    """Yield the fault of a library of a family, unless it is in a directory that is broken as a whole."""
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
        yield _lost_library(name, Severity.NODE, f"not found; needed by {needed_by}", needed_by)


def _lost_library(name: str, severity: Severity, text: str, needed_by: str) -> HostFault:
    finding = Finding("host-library", severity, text, "install the package that has it", subject=name)
    return HostFault(finding, needed_by=needed_by)


def _passed_over(check: _Check, passed: Finding, needed_by: str) -> HostFault:
    """Return the fault of a library that the loader does not take."""
    finding = replace(passed, severity=check.severity(passed.subject))
    return HostFault(finding, resolve(check.host, passed.subject).path, needed_by)


def _lacking(need: Need) -> Iterator[HostFault]:
    """Yield the symbol version that an object needs of a library, and that the one which the loader takes lacks."""
    if need.requester is None or need.loaded is None:
        return
    found, defined = need.loaded.found, need.loaded.found.info.verdef
    lacking = set(need.requester.found.info.verneed.get(need.name, ())).difference(defined)
    if defined and lacking:
        needed_by = need.requester.found.path
        text = f"no symbol version {newest(lacking)}, which {needed_by} needs; newest is {newest(defined)}"
        advice = "install releases that belong together"
        finding = Finding("host-library", Severity.FAULT, text, advice, subject=found.path)
        yield HostFault(finding, found.real, needed_by)


def _beside(host: DiskTree, folder: str, name: str) -> tuple[str, ...]:
    """Return the names in the folder of a missing path; beside a library, its other versions."""
    names = names_of(host, folder, None)
    return tuple(in_order(other for other in names if ".so" not in name or other.startswith(stem(name))))
