"""The deployed release against a node: whether everything is there that its modules hand to containers.

Whether others may read something is judged by its mode alone; what an access control list grants beyond that is not.
"""

from __future__ import annotations

import posixpath
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace

from lumisite.binds.container import covers
from lumisite.binds.elf import ElfError, read_elf
from lumisite.binds.host import DiskTree
from lumisite.binds.loader import Found, Loaded, Need, walk
from lumisite.binds.plan import Request, library_folders, loader_of_host
from lumisite.binds.tree import Place, resolve
from lumisite.binds.versions import in_order, is_foundation, stem
from lumisite.errors import ResolveError
from lumisite.release.manifest import Manifest, PlannedLibrary
from lumisite.release.plan_images import OtherImage, PlannedFile, other_images
from lumisite.site.decode import suggestion
from lumisite.site.model import Site
from lumisite.site.versions import Version, parse_version

_UPDATED = "if the system was updated, describe its platform, render and deploy; if not, restore it"
_REPLAN = "write its plan again (`lumisite binds {} --write`), render and deploy"
_READ, _ENTER = 0o4, 0o1
_MOST_NAMES = 8


@dataclass(frozen=True, order=True)
class HostFault:
    """What is wrong with one path of the host: what was `expected`, what is there, and what to do."""

    path: str
    expected: str
    found: str
    remedy: str

    def __str__(self) -> str:
        """Give one line."""
        return f"{self.path}: {self.found}; {self.expected} is expected; {self.remedy}"


@dataclass(frozen=True)
class HostCheck:
    """The faults, by path, how many paths and libraries were looked at, and what is worth saying besides."""

    faults: tuple[HostFault, ...]
    looked_at: int
    notes: tuple[str, ...]


def check_host(site: Site, manifest: Manifest, host: DiskTree) -> HostCheck:
    """Check a host, or a copy of its tree; raises `ResolveError` when the release is not of this site."""
    _same_site(site, manifest)
    binds = _binds(manifest)
    directories = _directories(site, manifest)
    found = [*_runtime(site, host)]
    for bind, (target, module) in binds.items():
        found += _bind(host, bind, target, f"what {module} binds")
    for path, what in directories.items():
        if path not in binds:
            found += _path(host, path, what, "directory")
    planned = _planned(manifest, binds)
    for library, what in planned.items():
        found += _planned_library(host, library, what)
    for folder, what in _planned_folders(manifest, directories).items():
        found += _path(host, folder, what, "directory")
    wanted = _roots(site, manifest)
    for cpe in manifest.cpe:
        found += _libraries(site, manifest, parse_version(cpe), host, wanted)
    notes = [
        f"{bind.path}: is not there; compute nodes need it, others do not ({bind.why})"
        for bind in site.binds
        if bind.where == "task" and resolve(host, bind.path).entry is None
    ]
    images = tuple(_images(manifest, host))
    notes += [str(one) for one in images if one.gone]
    found += [
        HostFault(one.path, f"the image of {one.file}", one.what, _REPLAN.format(one.path))
        for one in images
        if not one.gone
    ]
    looked_at = len(binds) + len(directories) + len(planned) + len(wanted) + 1
    return HostCheck(tuple(sorted(set(found))), looked_at, tuple(notes))


def _same_site(site: Site, manifest: Manifest) -> None:
    if manifest.site != site.name:
        raise ResolveError(f"check: the release {manifest.release} is of site {manifest.site}, not of {site.name}")
    for kind, names, known in (
        ("platform", (manifest.platform,), site.platforms),
        ("CPE release", manifest.cpe, site.cpe),
        ("ROCm release", manifest.rocm, site.rocm),
    ):
        for name in names:
            if name not in known:
                raise ResolveError(
                    f"check: the release {manifest.release} is for {kind} {name}, which the site description does not "
                    f"have ({suggestion(name, known)})"
                )


def _binds(manifest: Manifest) -> dict[str, tuple[str, str]]:
    """Give each bound path of the host with its target and the first module that binds it."""
    found: dict[str, tuple[str, str]] = {}
    for module, summary in manifest.modules.items():
        for spec in summary.binds:
            parts = spec.split(":")
            found.setdefault(parts[0], (parts[1] if len(parts) > 1 else parts[0], module))
    return found


def _planned(manifest: Manifest, binds: Container[str]) -> dict[PlannedLibrary, str]:
    """Give the libraries that stored plans count on, but for those that a module binds by themselves."""
    users: dict[PlannedLibrary, list[str]] = {}
    for file, plan in manifest.plans.items():
        for library in plan.libraries:
            one = replace(library, target="")
            if library.source not in binds and file not in users.setdefault(one, []):
                users[one].append(file)
    return {library: f"what {', '.join(files)} binds" for library, files in users.items()}


def _planned_folders(manifest: Manifest, known: Container[str]) -> dict[str, str]:
    users: dict[str, list[str]] = {}
    for file, plan in manifest.plans.items():
        for folder in plan.folders:
            if folder not in known:
                users.setdefault(folder, []).append(file)
    return {folder: f"what {', '.join(files)} has on the library path" for folder, files in users.items()}


def _images(manifest: Manifest, host: DiskTree) -> Iterator[OtherImage]:
    """Say where the image of a plan is not the one that the plan was made for."""
    plans = (PlannedFile(file, plan.images, plan.digest) for file, plan in manifest.plans.items() if plan.digest)
    return other_images(plans, host)


def _directories(site: Site, manifest: Manifest) -> dict[str, str]:
    """Give the directories with libraries that the release counts on, and what each is."""
    found = {
        str(path): f"{name} of platform {manifest.platform}"
        for name, path in site.platforms[manifest.platform].libraries.items()
    }
    for cpe in manifest.cpe:
        found |= {str(path): f"{name} of CPE {cpe}" for name, path in site.cpe[cpe].libraries.items()}
    for module, summary in manifest.modules.items():
        for path in summary.provides:
            found.setdefault(path, f"what {module} provides")
    return found


def _roots(site: Site, manifest: Manifest) -> dict[str, list[str]]:
    """Give the SONAMEs that image families take from the host through a module of this release, with the families."""
    deployed = {module.partition("/")[0] for module in manifest.modules}
    roots: dict[str, list[str]] = {}
    for name, family in site.families.items():
        if deployed.intersection(family.modules):
            for soname in family.libraries:
                roots.setdefault(soname, []).append(name)
    return roots


def _runtime(site: Site, host: DiskTree) -> Iterator[HostFault]:
    path = site.runtime.executable
    expected = f"the real {site.runtime.name}"
    remedy = "install it, or correct runtime.executable and deploy again"
    place = resolve(host, path)
    if place.entry is None or place.entry.kind != "file":
        yield HostFault(path, expected, _what(place), remedy)
    elif covers(site.root, place.path):
        yield HostFault(path, expected, f"leads to {place.path}, lumisite's own wrapper", remedy)
    else:
        yield from _permitted(host, path, place.path, expected, _READ | _ENTER)


def _path(host: DiskTree, path: str, what: str, kind: str = "") -> Iterator[HostFault]:
    place = resolve(host, path)
    if place.entry is None:
        dangling = "leads to" in place.trouble or "loop" in place.trouble
        remedy = "mend the link, or describe the new path, render and deploy" if dangling else _UPDATED
        yield HostFault(path, what, _what(place) + _near(host, path), remedy)
    elif kind and place.entry.kind != kind:
        yield HostFault(path, what, _what(place), _UPDATED)
    else:
        need = _READ if place.entry.kind == "file" else _READ | _ENTER if kind else _ENTER
        yield from _permitted(host, path, place.path, what, need)


def _bind(host: DiskTree, path: str, target: str, what: str) -> Iterator[HostFault]:
    faults = tuple(_path(host, path, what))
    yield from faults
    name = posixpath.basename(target)
    if ".so" in name and not faults:
        yield from _library(host, path, name, what)


def _planned_library(host: DiskTree, library: PlannedLibrary, what: str) -> Iterator[HostFault]:
    """Check a file that a plan binds; unlike a module, it may bind one that calls itself nothing."""
    faults = tuple(_path(host, library.source, what, "file"))
    yield from faults or _library(host, library.source, library.soname, what, anonymous=True)


def _library(host: DiskTree, path: str, name: str, what: str, *, anonymous: bool = False) -> Iterator[HostFault]:
    """Read a library that is there, and compare what it calls itself with a name."""
    source = host.source(resolve(host, path).path)
    try:
        info = None if source is None else read_elf(source)
    except ElfError as error:
        yield HostFault(path, f"the library {name}, {what}", str(error).partition(": ")[2] or str(error), _UPDATED)
        return
    soname = None if info is None else info.soname
    if soname is not None or not anonymous:
        yield from _named(path, name, soname, what)


def _named(path: str, name: str, soname: str | None, what: str) -> Iterator[HostFault]:
    """Compare the SONAME of a library with the name by which containers ask for it; only one with a version counts."""
    if soname != name and ".so." in name:
        remedy = "describe the new library, render and deploy; images built for the old one must be rebuilt"
        yield HostFault(path, f"SONAME {name}, {what}", f"has SONAME {soname or '(none)'}", remedy)


def _permitted(host: DiskTree, path: str, real: str, what: str, need: int) -> Iterator[HostFault]:
    """Say where others may not read or pass: the path itself, or the first folder on the way."""
    folder = ""
    for part in real.split("/")[1:-1]:
        folder = f"{folder}/{part}"
        mode = host.mode(folder)
        if mode is not None and not mode & _ENTER:
            yield HostFault(path, what, f"{folder} has mode {mode:04o}, which shuts users out", f"chmod o+x {folder}")
            return
    mode = host.mode(real)
    if mode is not None and mode & need != need:
        rights = "rx" if need == _READ | _ENTER else "r" if need == _READ else "x"
        yield HostFault(path, what, f"has mode {mode:04o}, which shuts users out", f"chmod o+{rights} {real}")


def _libraries(
    site: Site, manifest: Manifest, cpe: Version, host: DiskTree, wanted: dict[str, list[str]]
) -> Iterator[HostFault]:
    """Search the libraries that families need, and all that those need in turn, as the closure does."""
    request = Request(site, manifest.platform, cpe, site.platforms[manifest.platform].rocm, ())
    folders, _ = library_folders(request, host)
    loader = loader_of_host(request, host, folders)
    roots = []
    for name, families in wanted.items():
        search = loader.search(name)
        what = f"for image families {', '.join(families)}"
        if search.found is None:
            found = search.trouble or "; ".join(search.passed) or "is in no directory of libraries"
            yield HostFault(name, f"a library {what}", found, _UPDATED)
            continue
        yield from _found(host, name, search.found, what)
        roots.append(Need(name, None, Loaded(name, search.found), search))
    for need in walk(loader, roots):
        if need.loaded is None and need.requester is not None and not is_foundation(need.name):
            yield HostFault(
                need.name,
                f"a library that {need.requester.found.path} needs",
                (need.search.trouble or "is in no directory of libraries")
                + _relatives(host, loader.rules.directories, need.name),
                "install the package that has it, or the release that this one was built with",
            )


def _found(host: DiskTree, name: str, found: Found, what: str) -> Iterator[HostFault]:
    faults = tuple(_named(found.path, name, found.info.soname, what))
    yield from faults or _permitted(host, found.path, found.real, f"{name}, {what}", _READ)


def _what(place: Place) -> str:
    if place.entry is None:
        return place.trouble
    return {"directory": "is a directory", "file": "is a file"}.get(place.entry.kind, "is neither file nor directory")


def _near(host: DiskTree, path: str) -> str:
    """Say what stands beside a path that is not there."""
    folder = resolve(host, posixpath.dirname(path))
    names = host.names(folder.path) if folder.entry is not None and folder.entry.kind == "directory" else ()
    name = posixpath.basename(path)
    if ".so" in name:
        names = tuple(one for one in names if one.startswith(stem(name)))
    return _listed(folder.path, names)


def _relatives(host: DiskTree, folders: Sequence[str], name: str) -> str:
    """Say which other versions of a library are there."""
    for folder in folders:
        place = resolve(host, folder)
        names = host.names(place.path) if place.entry is not None else ()
        said = _listed(folder, tuple(one for one in names if one.startswith(stem(name))))
        if said:
            return said
    return ""


def _listed(folder: str, names: Sequence[str]) -> str:
    if not names:
        return ""
    some = in_order(names)
    more = f" and {len(some) - _MOST_NAMES} more" if len(some) > _MOST_NAMES else ""
    return f" ({folder} has {', '.join(some[:_MOST_NAMES])}{more})"
