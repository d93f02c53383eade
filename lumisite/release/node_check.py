"""The deployed release against a node: whether everything is there that its modules hand to containers, and loads."""

from __future__ import annotations

import posixpath
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from lumisite.binds.closure import described
from lumisite.binds.plan import Request, folders_below, library_folders, loader_of_host
from lumisite.errors import ResolveError, shown
from lumisite.machine.elf import ElfError, read_elf
from lumisite.machine.host import DiskTree, mounts_of
from lumisite.machine.library_names import in_order, is_foundation, newest, stem
from lumisite.machine.loader import Loaded, Need, Search, walk
from lumisite.machine.tree import Place, is_under, resolve
from lumisite.release.node_state import (
    ENTER,
    READ,
    HostFault,
    interface_faults,
    kind_faults,
    local_faults,
    permitted,
    shared_faults,
    silent_faults,
)
from lumisite.render.manifest import Manifest
from lumisite.render.plan_images import other_images
from lumisite.site.decode import suggestion
from lumisite.site.model import Family, Site
from lumisite.site.selection import Combination, combinations
from lumisite.site.versions import Version, parse_version
from lumisite.text import some
from lumisite.vendors import plugins

_UPDATED = "if the system was updated, describe its platform, render and deploy; if not, restore it"
_REPLAN = "write its plan again (`lumisite binds {} --write`), render and deploy"


@dataclass(frozen=True)
class _Part:
    """A path of the host that the release counts on, and why; `soname` is what containers ask for a library by."""

    path: str
    why: str
    kind: Literal["directory", "file", ""] = ""
    soname: str = ""


@dataclass(frozen=True)
class _Check:
    """A release on a host: which of its `parts` are `broken`, and by what.

    What is wrong on `shared` file systems is wrong on all nodes.
    """

    site: Site
    manifest: Manifest
    host: DiskTree
    shared: tuple[str, ...]
    parts: tuple[_Part, ...]
    broken: dict[_Part, str] = field(default_factory=dict)

    @cached_property
    def families(self) -> dict[str, Family]:
        """The image families that are run with a module of this release."""
        deployed = {module.partition("/")[0] for module in self.manifest.modules}
        return {name: one for name, one in self.site.families.items() if deployed.intersection(one.modules)}

    @cached_property
    def wanted(self) -> dict[str, list[str]]:
        """The libraries that families need, by SONAME, with the families."""
        wanted: dict[str, list[str]] = {}
        for name, family in self.families.items():
            for soname in family.libraries:
                wanted.setdefault(soname, []).append(name)
        return wanted

    def own(self, path: str) -> bool:
        """Tell whether a path is on this node alone."""
        return not any(is_under(path, folder) for folder in self.shared)

    def may(self, path: str, real: str, what: str, need: int) -> HostFault | None:
        """Say what `permitted` says."""
        fault = permitted(self.host, path, real, what, need)
        return fault and replace(fault, alone=self.own(fault.cause) or fault.cause in self.shared)


def check_host(site: Site, manifest: Manifest, host: DiskTree) -> tuple[list[HostFault], int, list[str]]:
    """Check a host, or a copy of its tree; raises `ResolveError` when the release is not of this site.

    Gives the faults, by path, how many paths and libraries were looked at, and what is worth saying besides.
    A cause is told once: not also by what is below it, or needs it.
    """
    _same_site(site, manifest)
    if silent := list(silent_faults(site, host, mounts_of(host))):
        return silent, len(site.file_systems), []
    mounts = mounts_of(host)  # once more, with what an automounter has mounted for that
    bound = frozenset(spec.partition(":")[0] for one in manifest.modules.values() for spec in one.binds)
    shared = tuple(resolve(host, one.path).path for one in site.file_systems if one.kind == "shared")
    check = _Check(site, manifest, host, shared, _parts(site, manifest))
    unmounted = tuple(shared_faults(site, bound, host, mounts))
    found = [*local_faults(site, host, mounts), *interface_faults(site, host), *kind_faults(site, host)]
    found += filter(None, (_runtime(check),))
    for part in check.parts:
        if fault := _part(check, part):
            found.append(fault)
            check.broken[part] = fault.cause
    for combination in _combinations(site, manifest):
        found += _libraries(check, combination.releases)
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
    lost = [one.cause for one in unmounted]
    rest = (one for one in found if not any(is_under(one.cause, path) for path in lost))
    told: dict[str, HostFault] = {}
    for fault in (*unmounted, *rest):
        told.setdefault(fault.cause or str(fault), fault)
    return sorted(told.values()), len(check.parts) + len(check.wanted) + 1, notes


def _same_site(site: Site, manifest: Manifest) -> None:
    if manifest.site != site.name:
        raise ResolveError(
            f"check: the release {manifest.release} is of site {shown(manifest.site)}, not of {site.name}"
        )
    for kind, names, known in (
        ("platform", (manifest.platform,), site.platforms),
        ("stack", tuple(manifest.stacks), site.stacks),
        *((f"{one.title} release", manifest.stacks.get(name, ()), one.releases) for name, one in site.stacks.items()),
    ):
        for name in names:
            if name not in known:
                raise ResolveError(
                    f"check: the release {manifest.release} is for {kind} {shown(name)}, which the site description "
                    f"does not have ({suggestion(name, known)})"
                )


def _combinations(site: Site, manifest: Manifest) -> Iterator[Combination]:
    """Give each combination of what the host has; what images bring has no libraries here."""
    hosts = {stack: map(parse_version, manifest.stacks.get(stack, ())) for stack in site.host_stacks}
    defaults = site.platforms[manifest.platform].defaults
    images = {stack: (defaults[stack],) for stack in site.gpu_stacks if stack in defaults}
    return combinations(site, manifest.platform, {**hosts, **images})


def _parts(site: Site, manifest: Manifest) -> tuple[_Part, ...]:
    """Give what modules bind, directories of libraries, and what stored plans bind beside those: each path once."""
    parts: list[_Part] = []
    for module, summary in manifest.modules.items():
        for spec in summary.binds:
            source, *target = spec.split(":")
            name = posixpath.basename(target[0] if target else source)
            parts.append(_Part(source, f"what {module} binds", "", name if ".so" in name else ""))
    stacks = [
        (f"{site.stacks[stack].title} {release}", site.releases(stack)[release].libraries)
        for stack, releases in manifest.stacks.items()
        for release in releases
    ]
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


def _runtime(check: _Check) -> HostFault | None:
    command, path = check.site.command, check.site.runtime.executable
    expected = f"the real {command}"
    remedy = f"install it, or correct runtimes.{command}.executable and deploy again"
    if path is None:  # a module may bring it
        return None
    place = resolve(check.host, path)
    if place.entry is None or place.entry.kind != "file":
        shut = check.may(path, place.path, expected, 0)
        return shut or HostFault(path, expected, _what(place), remedy, cause=place.path)
    if is_under(place.path, check.site.root):
        return HostFault(path, expected, f"leads to {place.path}, lumisite's own wrapper", remedy)
    if (source := check.host.source(place.path)) is not None and source.size == 0:
        return HostFault(path, expected, "is empty", remedy, check.own(place.path), place.path)
    return check.may(path, place.path, expected, READ | ENTER)


def _part(check: _Check, part: _Part) -> HostFault | None:
    place = resolve(check.host, part.path)
    if place.entry is None:
        return check.may(part.path, place.path, part.why, 0) or _gone(check, part, place)
    if part.kind and place.entry.kind != part.kind:
        return HostFault(part.path, part.why, _what(place), _UPDATED, cause=place.path)
    need = READ if place.entry.kind == "file" else READ | ENTER if part.kind else ENTER
    shut = check.may(part.path, place.path, part.why, need)
    return shut or (_library(check, part, place.path) if part.soname else None)


def _gone(check: _Check, part: _Part, place: Place) -> HostFault:
    """Tell of what is not there; where another version stands beside it, the system may have been updated."""
    folder, name = posixpath.split(part.path)
    real = resolve(check.host, folder)
    link = real.entry is not None and check.host.look(posixpath.join(real.path, name)) is not None
    remedy = "mend the link, or describe the new path, render and deploy" if link else _UPDATED
    beside = _beside(check.host, real.path, name)
    others = beside if part.soname or part.kind == "directory" else ""
    alone = not others.replace(f" ({real.path} has {name})", "") and (
        check.own(place.path) or place.path in check.shared
    )
    return HostFault(part.path, part.why, _what(place) + beside, remedy, alone, place.path)


def _library(check: _Check, part: _Part, real: str) -> HostFault | None:
    """Compare what a library calls itself; unlike a module, a plan may bind one that calls itself nothing."""
    source = check.host.source(real)
    try:
        info = None if source is None else read_elf(source)
    except ElfError as error:
        told = str(error).partition(": ")[2] or str(error)
        return HostFault(part.path, f"the library {part.soname}, {part.why}", told, _UPDATED, check.own(real), real)
    soname = None if info is None else info.soname
    if soname is None and part.kind == "file":
        return None
    return _named(part.path, part.soname, soname, part.why, real)


def _named(path: str, name: str, soname: str | None, what: str, real: str) -> HostFault | None:
    """Compare the SONAME of a library with the name by which containers ask for it; only one with a version counts."""
    if soname == name or ".so." not in name:
        return None
    remedy = "describe the new library, render and deploy; images built for the old one must be rebuilt"
    return HostFault(path, f"SONAME {name}, {what}", f"has SONAME {soname or '(none)'}", remedy, cause=real)


def _libraries(check: _Check, releases: Mapping[str, Version]) -> Iterator[HostFault]:
    """Search the libraries that families need, and all that those need in turn, as the closure does.

    Beside those, what modules and plans bind one by one must find the symbol versions that it needs; what an image
    brings for a planned library is not known here.
    """
    platform = check.manifest.platform
    request = Request(check.site, platform, releases, ())
    folders, _ = library_folders(request, check.host)
    loader = loader_of_host(request, check.host, folders)
    with_plugin = [name for name, family in check.families.items() if family.plugin == "from-host"]
    # A plugin is opened by any of its names.
    wanted = (name for name in plugins() if with_plugin and name not in check.wanted)
    opened = [name for name in wanted if _tried(loader.search(name))]
    told = {part.soname for part in check.broken if part.soname}
    roots: list[Need] = []
    for name, families in (check.wanted | dict.fromkeys(sorted(opened), with_plugin)).items():
        search = loader.search(name)
        what = f"for image families {', '.join(families)}"
        if search.found is None:
            if name not in told:
                told.add(name)
                yield from tuple(_unreadable(check, search, f"{name}, {what}")) or (
                    _not_found(check, name, what, search),
                )
            continue
        real = search.found.real
        other = _named(search.found.path, name, search.found.info.soname, what, real)
        if fault := other or check.may(search.found.path, real, f"{name}, {what}", READ):
            yield fault
        roots.append(Need(name, None, Loaded(name, search.found), search))
    bound: dict[_Part, Need] = {}
    for part in (one for one in check.parts if one.soname and one not in check.broken):
        search = loader.search(part.path)
        if search.found is not None:
            bound[part] = Need(part.path, None, Loaded(part.path, search.found), search)
    for need in walk(loader, [*roots, *(one for part, one in bound.items() if part.kind != "file")]):
        needed_by = "" if need.requester is None else f"a library that {need.requester.found.path} needs"
        if need.loaded is not None:
            found = need.loaded.found
            if needed_by and (fault := check.may(found.path, found.real, needed_by, READ)):
                yield fault
            yield from _lacking(need)
        elif need.requester is not None and need.name not in told and not is_foundation(need.name):
            if shut := tuple(_unreadable(check, need.search, needed_by)):
                yield from shut
                continue
            told.add(need.name)
            trouble = described(need.search.trouble) if need.search.trouble else ""
            folders = () if need.search.trouble else loader.rules.directories
            beside = next(filter(None, (_beside(check.host, one, need.name) for one in folders)), "")
            yield HostFault(
                need.name,
                needed_by,
                trouble or f"is in no directory of libraries{beside}",
                "install the package that has it, or the release that this one was built with",
                alone=not beside and check.own(need.requester.found.real),
            )
    for need in walk(loader, bound.values()):
        yield from _lacking(need)


def _tried(search: Search) -> bool:
    """Tell whether something of that name is there, if only a link to nowhere."""
    return (
        search.found is not None
        or bool(search.trouble)
        or any(one.code != "path-through-file" for one in search.passed)
    )


def _unreadable(check: _Check, search: Search, what: str) -> Iterator[HostFault]:
    """Say why what a search passed over may not be read, as this user or by others."""
    for path in search.closed:
        if fault := check.may(path, resolve(check.host, path).path, what, READ):
            yield fault


def _not_found(check: _Check, name: str, what: str, search: Search) -> HostFault:
    """Tell of a library that the loader does not find; where its directory is gone, that is the cause."""
    for part, cause in check.broken.items():
        others = folders_below(check.host, f"{posixpath.dirname(part.path)}/*")
        if part.kind == "directory" and (
            stem(name).removesuffix(".so.") in part.path
            or any(resolve(check.host, f"{other}/{name}").entry for other in others)
        ):
            return HostFault(name, f"a library {what}", "is where users cannot get at it", _UPDATED, cause=cause)
    passed = [search.trouble] if search.trouble else search.passed
    found = "; ".join(map(described, passed)) or "is in no directory of libraries"
    return HostFault(name, f"a library {what}", found, _UPDATED, alone=check.own(found.partition(" ")[0]))


def _lacking(need: Need) -> Iterator[HostFault]:
    """Say which symbol versions an object needs of a library, and the one that the loader takes does not define."""
    if need.requester is None or need.loaded is None:
        return
    found, defined = need.loaded.found, need.loaded.found.info.verdef
    lacking = set(need.requester.found.info.verneed.get(need.name, ())).difference(defined)
    if defined and lacking:
        expected = f"{newest(lacking)}, which {need.requester.found.path} needs of it,"
        remedy = "the two are of different releases: install those that belong together"
        yield HostFault(found.path, expected, f"has up to {newest(defined)}", remedy, cause=f"versions of {found.real}")


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
    return f" ({folder} has {some(in_order(names), between=', ')})"
