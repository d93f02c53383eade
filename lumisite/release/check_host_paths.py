"""What a deployed release hands to containers, on a node: whether each path is there, and each library loads."""

from __future__ import annotations

import posixpath
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from lumisite.binds.host_libraries import library_folders, loader_of_host
from lumisite.binds.never_bound import is_never_bound
from lumisite.findings.finding import Finding, Severity
from lumisite.machine.elf import ElfError, read_elf
from lumisite.machine.library_names import in_order, newest, stem
from lumisite.machine.loader import Loaded, Loader, Need, walk
from lumisite.machine.tree import ResolvedPath, broken_link_on, names_of, resolve
from lumisite.release.check_host_node import ENTER, READ, HostFault, Node
from lumisite.render.manifest import NO_MANIFEST, Manifest
from lumisite.site.selection import combinations
from lumisite.site.versions import Version, parse_version
from lumisite.text import some
from lumisite.vendors import plugins

_DESCRIBE_OR_RESTORE = "if the system was updated, describe its platform, render and deploy; otherwise restore the path"


@dataclass(frozen=True)
class Part:
    """A path of the host that the release needs, and what of it does; `soname` is what containers ask for a library by.

    `kind` is what must be there, where that is known.
    """

    path: str
    needed_by: str
    kind: Literal["directory", "file", ""] = ""
    soname: str = ""


@dataclass(frozen=True)
class ReleasePaths:
    """What a release has of a node: its `parts`, of which some are found to be `broken`."""

    node: Node
    manifest: Manifest
    broken: set[Part] = field(default_factory=set)

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """What modules bind, directories of libraries, and what stored plans bind beside those: each path once.

        Without a release, modules would bind the file systems.
        """
        site, manifest = self.node.site, self.manifest
        parts = []
        if manifest is NO_MANIFEST:
            parts += [Part(system.path, str(system.where)) for system in site.file_systems if system.where]
        for module, summary in manifest.modules.items():
            for spec in summary.binds:
                source, _, target = spec.partition(":")
                name = posixpath.basename(target.partition(":")[0] or source)
                parts.append(Part(source, module, "", name if ".so" in name else ""))
        platform = manifest.platform or site.platform
        owners = [(f"platform {platform}", site.platforms[platform].libraries)]
        for stack, releases in manifest.stacks.items():
            known = site.releases(stack)
            owners += [(f"{site.stacks[stack].title} {release}", known[release].libraries) for release in releases]
        for owner, libraries in owners:
            parts += [Part(str(path), f"{owner} ({name})", "directory") for name, path in libraries.items()]
        for module, summary in manifest.modules.items():
            parts += [Part(path, module, "directory") for path in summary.provides]
        users: defaultdict[tuple[str, str], dict[str, None]] = defaultdict(dict)
        for file, plan in manifest.plans.items():
            bound = [(library.source, library.soname) for library in plan.libraries]
            for path, soname in (*bound, *((folder, "") for folder in plan.folders)):
                users[path, soname][file] = None
        for (path, soname), files in users.items():
            parts.append(Part(path, ", ".join(files), "file" if soname else "directory", soname))
        return tuple({part.path: part for part in reversed(parts)}.values())

    @cached_property
    def needed_libraries(self) -> dict[str, str]:
        """The libraries that image families of this release take from the host, by name, with the families."""
        deployed = {module.partition("/")[0] for module in self.manifest.modules}
        needing: defaultdict[str, list[str]] = defaultdict(list)
        for name, family in self.node.site.families.items():
            for soname in family.libraries if deployed.intersection(family.modules) else ():
                needing[soname].append(name)
        return {soname: ", ".join(names) for soname, names in needing.items()}

    def faults(self) -> Iterator[HostFault]:
        """Yield what is wrong with paths, then with libraries of each combination of releases."""
        for part in self.parts:
            if fault := self._of_part(part):
                self.broken.add(part)
                yield fault
        site, manifest = self.node.site, self.manifest
        if not manifest.platform:
            return
        hosts = {stack: map(parse_version, manifest.stacks.get(stack, ())) for stack in site.host_stacks}
        defaults = site.platforms[manifest.platform].defaults
        images = {stack: (version,) for stack, version in defaults.items() if stack == site.gpu_stack}
        for combination in combinations(site, manifest.platform, {**hosts, **images}):
            yield from self._libraries(combination.releases)

    # ---------------------------------------------------------------- paths

    def _of_part(self, part: Part) -> HostFault | None:
        found = resolve(self.node.host, part.path)
        if found.entry is None:
            return self.node.shut_out(part.path, found.path, 0, part.needed_by) or self._missing(part, found)
        kind = found.entry.kind
        if part.kind and kind != part.kind:
            text = f"{kind}, expected {part.kind}; needed by {part.needed_by}"
            finding = Finding("host-path", Severity.FAULT, text, _DESCRIBE_OR_RESTORE, part.path)
            return HostFault(finding, found.path, part.needed_by)
        need = READ if kind == "file" else READ | ENTER if part.kind else ENTER
        closed = self.node.shut_out(part.path, found.path, need, part.needed_by)
        return closed or (self._library(part, found.path) if part.soname else None)

    def _missing(self, part: Part, found: ResolvedPath) -> HostFault:
        """Return the fault of a missing path, or of the broken link above it.

        Where another version is beside it, the system may have been updated.
        """
        host = self.node.host
        above, _ = broken_link_on(host, part.path) or (part.path, None)
        folder, name = posixpath.split(above)
        is_link = host.look(posixpath.join(resolve(host, folder).path, name)) is not None
        beside = self._beside(folder, name)
        is_versioned = above == part.path and (bool(part.soname) or part.kind == "directory")
        updated = is_versioned and beside not in ((), (name,))
        severity = Severity.NODE if found.path in self.node.shared else self.node.severity(found.path)
        text = f"broken link to {found.path}" if is_link else "missing"
        text += f"; needed by {part.needed_by}" + (f"; {folder} has {some(beside, 8, ', ')}" if beside else "")
        finding = Finding(
            "host-path",
            Severity.FAULT if updated else severity,
            text,
            "repair the link, or describe the new path, render and deploy" if is_link else _DESCRIBE_OR_RESTORE,
            above if is_link else part.path,
        )
        return HostFault(finding, found.path, part.needed_by)

    def _beside(self, folder: str, name: str) -> tuple[str, ...]:
        """Return the names in the folder of a missing path; beside a library, its other versions."""
        names = names_of(self.node.host, folder, None)
        return tuple(in_order(other for other in names if ".so" not in name or other.startswith(stem(name))))

    def _library(self, part: Part, real: str) -> HostFault | None:
        """Compare what a library calls itself; unlike a module, a plan may bind one that has no SONAME."""
        source = self.node.host.source(real)
        try:
            soname = None if source is None else read_elf(source).soname
        except ElfError as error:
            damaged = replace(error.finding, subject=part.path, severity=self.node.severity(real))
            return HostFault(damaged, real, part.needed_by)
        if soname == part.soname or ".so." not in part.soname or (soname is None and part.kind == "file"):
            return None
        text = f"SONAME {soname or 'none'}, expected {part.soname}; needed by {part.needed_by}"
        advice = "describe the new library, render and deploy; images built for the old one must be rebuilt"
        return HostFault(Finding("host-library", Severity.FAULT, text, advice, part.path), real, part.needed_by)

    # ---------------------------------------------------------------- libraries

    def _libraries(self, releases: Mapping[str, Version]) -> Iterator[HostFault]:
        """Search the libraries that families need, and all that those need in turn, as the closure does.

        Beside those, what modules and plans bind one by one, and the libraries in the releases' folders that use one of
        them, must find the symbol versions that they need.
        """
        host = self.node.host
        folders, _ = library_folders(self.node.site, self.manifest.platform, releases, host)
        loader = loader_of_host(self.node.site, self.manifest.platform, host, folders)
        opened = [name for name in sorted(plugins()) if self.needed_libraries and loader.search(name).found]
        roots = [*self.needed_libraries, *opened]
        bound = [part for part in self.parts if part.soname and part not in self.broken]
        linked = [part.path for part in bound if part.kind != "file"]  # what an image brings for a plan is not known
        lost = {part.soname for part in self.broken}
        needs = [Need(name, None, None, loader.search(name)) for name in roots]
        for need in [*needs, *walk(loader, _loaded(loader, [*roots, *linked]))]:
            if need.search.found or (need.name not in lost and not is_never_bound(need.name)):
                yield from self._of_library(need, loader.rules.directories)
            lost.add(need.name)
        beside = [f"{folder}/{name}" for folder in folders for name in names_of(host, folder) if ".so" in name]
        beside = [path for path in beside if resolve(host, path).path == path]
        for need in walk(loader, _loaded(loader, [*roots, *(part.path for part in bound), *beside])):
            if need.requester and (need.requester.found.path not in beside or need.name in self.needed_libraries):
                yield from _lacking(need)

    def _of_library(self, need: Need, folders: Sequence[str]) -> Iterator[HostFault]:
        """Yield the fault of a library that users may not read, or that the loader does not take from its `folders`.

        Where a directory is broken, that is why a family's library is not found. Where another version is there, the
        system may have been updated.
        """
        found, host = need.search.found, self.node.host
        needed_by = need.requester.found.path if need.requester else self.needed_libraries.get(need.name, "")
        for path in [found.path] if found else need.search.closed:
            if closed := self.node.shut_out(path, resolve(host, path).path, READ, needed_by):
                yield closed
                return
        if found or (need.requester is None and any(part.kind == "directory" for part in self.broken)):
            return
        passed = [need.search.trouble] if need.search.trouble else [*need.search.passed]
        if passed:
            finding = replace(passed[0], severity=self.node.severity(passed[0].subject))
            yield HostFault(finding, resolve(host, finding.subject).path, needed_by)
            return
        severity = self.node.severity(need.requester.found.real) if need.requester else Severity.NODE
        text, advice = f"not found; needed by {needed_by}", "install the package that has it"
        others = ((folder, self._beside(folder, need.name)) for folder in folders)
        if other := next((pair for pair in others if pair[1]), None):
            severity, text = Severity.FAULT, f"{text}; {other[0]} has {some(other[1], 8, ', ')}"
        yield HostFault(Finding("host-library", severity, text, advice, need.name), "", needed_by)


def _loaded(loader: Loader, names: list[str]) -> list[Need]:
    """Return those libraries that the loader takes, by name or path."""
    searches = {name: loader.search(name) for name in names}
    return [Need(name, None, Loaded(name, search.found), search) for name, search in searches.items() if search.found]


def _lacking(need: Need) -> Iterator[HostFault]:
    """Yield the symbol version that an object needs of a library, and that the one which the loader takes lacks."""
    if need.requester is None or need.loaded is None:
        return
    found, defined = need.loaded.found, need.loaded.found.info.verdef
    lacking = set(need.requester.found.info.verneed.get(need.name, ())).difference(defined)
    if defined and lacking:
        needed_by = need.requester.found.path
        text = f"no symbol version {newest(lacking)}, which {needed_by} needs; newest is {newest(defined)}"
        finding = Finding("host-library", Severity.FAULT, text, "install releases that belong together", found.path)
        yield HostFault(finding, found.real, needed_by)
