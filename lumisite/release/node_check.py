"""The deployed release against a node: whether everything is there that its modules hand to containers.

Whether others may read something is judged by its mode alone; what an access control list grants beyond that is not.
"""

from __future__ import annotations

import posixpath
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from lumisite.binds.copies import in_order, is_foundation, stem
from lumisite.binds.plan import Request, library_folders, loader_of_host
from lumisite.errors import ResolveError, shown
from lumisite.images.container import covers
from lumisite.machine.elf import ElfError, read_elf
from lumisite.machine.host import DiskTree
from lumisite.machine.loader import Loaded, Need, walk
from lumisite.machine.tree import Place, resolve
from lumisite.render.manifest import Manifest
from lumisite.render.plan_images import other_images
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


@dataclass(frozen=True)
class _Part:
    """A path of the host that the release counts on, and why; `soname` is what containers ask for a library by."""

    path: str
    why: str
    kind: Literal["directory", "file", ""] = ""
    soname: str = ""


def check_host(site: Site, manifest: Manifest, host: DiskTree) -> HostCheck:
    """Check a host, or a copy of its tree; raises `ResolveError` when the release is not of this site."""
    _same_site(site, manifest)
    parts = _parts(site, manifest)
    found = [*_runtime(site, host), *(fault for part in parts for fault in _part(host, part))]
    wanted = _roots(site, manifest)
    for cpe in manifest.cpe:
        found += _libraries(site, manifest, parse_version(cpe), host, wanted)
    notes = [
        f"{bind.path}: is not there; compute nodes need it, others do not ({bind.why})"
        for bind in site.binds
        if bind.where == "task" and resolve(host, bind.path).entry is None
    ]
    for one in other_images(manifest.plans, host):
        if one.gone:
            notes.append(str(one))
        else:
            found.append(HostFault(one.path, f"the image of {one.file}", one.what, _REPLAN.format(one.path)))
    return HostCheck(tuple(sorted(set(found))), len(parts) + len(wanted) + 1, tuple(notes))


def _same_site(site: Site, manifest: Manifest) -> None:
    if manifest.site != site.name:
        raise ResolveError(
            f"check: the release {manifest.release} is of site {shown(manifest.site)}, not of {site.name}"
        )
    for kind, names, known in (
        ("platform", (manifest.platform,), site.platforms),
        ("CPE release", manifest.cpe, site.cpe),
        ("ROCm release", manifest.rocm, site.rocm),
    ):
        for name in names:
            if name not in known:
                raise ResolveError(
                    f"check: the release {manifest.release} is for {kind} {shown(name)}, which the site description "
                    f"does not have ({suggestion(name, known)})"
                )


def _parts(site: Site, manifest: Manifest) -> tuple[_Part, ...]:
    """Give what modules bind, directories of libraries, and what stored plans bind beside those: each path once."""
    parts: list[_Part] = []
    for module, summary in manifest.modules.items():
        for spec in summary.binds:
            source, *target = spec.split(":")
            name = posixpath.basename(target[0] if target else source)
            parts.append(_Part(source, f"what {module} binds", "", name if ".so" in name else ""))
    stacks = [*((f"CPE {cpe}", site.cpe[cpe].libraries) for cpe in manifest.cpe)]
    stacks.append((f"platform {manifest.platform}", site.platforms[manifest.platform].libraries))
    for owner, libraries in stacks:
        parts += [_Part(str(path), f"{name} of {owner}", "directory") for name, path in libraries.items()]
    for module, summary in manifest.modules.items():
        parts += [_Part(path, f"what {module} provides", "directory") for path in summary.provides]
    users: defaultdict[tuple[str, str], dict[str, None]] = defaultdict(dict)
    for file, plan in manifest.plans.items():
        for library in plan.libraries:
            users[library.source, library.soname][file] = None
        for folder in plan.folders:
            users[folder, ""][file] = None
    for (path, soname), files in users.items():
        what = "binds" if soname else "has on the library path"
        parts.append(_Part(path, f"what {', '.join(files)} {what}", "file" if soname else "directory", soname))
    return tuple({part.path: part for part in reversed(parts)}.values())


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


def _part(host: DiskTree, part: _Part) -> Iterator[HostFault]:
    place = resolve(host, part.path)
    if place.entry is None:
        folder, name = posixpath.split(part.path)
        real = resolve(host, folder)
        link = real.entry is not None and host.look(posixpath.join(real.path, name)) is not None
        remedy = "mend the link, or describe the new path, render and deploy" if link else _UPDATED
        yield HostFault(part.path, part.why, _what(place) + _beside(host, real.path, name), remedy)
    elif part.kind and place.entry.kind != part.kind:
        yield HostFault(part.path, part.why, _what(place), _UPDATED)
    else:
        need = _READ if place.entry.kind == "file" else _READ | _ENTER if part.kind else _ENTER
        faults = tuple(_permitted(host, part.path, place.path, part.why, need))
        yield from faults or (_library(host, part, place.path) if part.soname else ())


def _library(host: DiskTree, part: _Part, real: str) -> Iterator[HostFault]:
    """Compare what a library calls itself; unlike a module, a plan may bind one that calls itself nothing."""
    source = host.source(real)
    try:
        info = None if source is None else read_elf(source)
    except ElfError as error:
        told = str(error).partition(": ")[2] or str(error)
        yield HostFault(part.path, f"the library {part.soname}, {part.why}", told, _UPDATED)
        return
    soname = None if info is None else info.soname
    if soname is not None or part.kind != "file":
        yield from _named(part.path, part.soname, soname, part.why)


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
        other = tuple(_named(search.found.path, name, search.found.info.soname, what))
        yield from other or _permitted(host, search.found.path, search.found.real, f"{name}, {what}", _READ)
        roots.append(Need(name, None, Loaded(name, search.found), search))
    for need in walk(loader, roots):
        if need.loaded is None and need.requester is not None and not is_foundation(need.name):
            yield HostFault(
                need.name,
                f"a library that {need.requester.found.path} needs",
                (need.search.trouble or "is in no directory of libraries")
                + next(filter(None, (_beside(host, one, need.name) for one in loader.rules.directories)), ""),
                "install the package that has it, or the release that this one was built with",
            )


def _what(place: Place) -> str:
    if place.entry is None:
        return place.trouble
    return {"directory": "is a directory", "file": "is a file"}.get(place.entry.kind, "is neither file nor directory")


def _beside(host: DiskTree, folder: str, name: str) -> str:
    """Say what stands in the folder of a path that is not there; beside a library, its other versions."""
    place = resolve(host, folder)
    names = host.names(place.path) if place.entry is not None and place.entry.kind == "directory" else ()
    if ".so" in name:
        names = tuple(one for one in names if one.startswith(stem(name)))
    if not names:
        return ""
    some = in_order(names)
    more = f" and {len(some) - _MOST_NAMES} more" if len(some) > _MOST_NAMES else ""
    return f" ({folder} has {', '.join(some[:_MOST_NAMES])}{more})"
