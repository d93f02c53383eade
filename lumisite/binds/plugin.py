"""What a plugin for the network loads in a container that has its plan: which libfabric, and has that the network.

Libraries for collectives open a plugin by name, so that it is in no NEEDED entry, and a plugin often has a search path
of its own. Where it finds a libfabric without a provider for the network, or none, traffic goes over TCP, and nothing
says so.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lumisite.binds.closure import Decision, Line, Sides, described, suffices
from lumisite.binds.copies import summary
from lumisite.images.container import ContainerTree, container_of
from lumisite.images.contents import collectives_of, library_folders, plugins_in
from lumisite.images.programs import Use, uses_of
from lumisite.images.speed import LIBFABRIC, providers_beside
from lumisite.machine.library_names import newest
from lumisite.machine.loader import Found, Loaded, Loader, Need, Process, Search
from lumisite.machine.tree import resolve
from lumisite.site.model import Site
from lumisite.site.plans import UNMET
from lumisite.site.scalars import AbsolutePath, Chain
from lumisite.site.scalars import Line as Text
from lumisite.vendors import fabrics_of, is_own

if TYPE_CHECKING:
    from lumisite.vendors.model import Collectives

_TCP = "traffic between nodes goes over TCP"
#: More copies than any image has that a plan binds over.
_MOST_BINDS = 32


@dataclass(frozen=True)
class Opened:
    """A plugin in a process, and the `program` in which a library for collectives opened it, if one is known.

    The library is the `opener`, unless the program has it inside itself.
    """

    process: Process
    plugin: Loaded
    program: str = "root"
    opener: Loaded | None = None

    def chain(self, needed: str, requester: Loaded | None) -> Chain:
        """Return what leads from a library to the program: what needs it, the plugin, and what opened that."""
        names, one = [needed], requester
        while one is not None and one is not self.process.program:
            names.append(_name_of(one))
            one = one.parent
        return Chain((*names, *([] if self.opener is None else [_name_of(self.opener)]), self.program))

    def needs(self, start: Loaded) -> tuple[Need, ...]:
        """Return what an object needs, itself or through others."""
        found, waiting = [], [start]
        for requester in waiting:
            for need in (one for one in self.process.needs if one.requester is requester):
                found.append(need)
                if need.loaded is not None and need.loaded not in waiting:
                    waiting.append(need.loaded)
        return tuple(found)


@dataclass(frozen=True)
class _Container:
    """A container with a plan's binds, the loader in it, and the lines of the plan."""

    site: Site
    sides: Sides
    lines: tuple[Line, ...]
    tree: ContainerTree
    loader: Loader

    def is_own(self, found: Found) -> bool:
        """Tell whether a file is the image's own."""
        return self.tree.host_path(found.real) is None

    def line(self, library: str, decision: Decision | None = None) -> Line | None:
        """Return the first line of a library, or the first with a decision."""
        return next((one for one in self.lines if one.library == library and decision in (None, one.decision)), None)

    def opened(self) -> tuple[Opened, ...]:
        """Return the plugins that programs open; where none is opened, those that are there."""
        found = (_opened_by(use, library) for library, use in self.uses())
        return tuple(one for one in found if one is not None) or tuple(self._alone())

    def uses(self) -> Iterator[tuple[Collectives, Use]]:
        """Yield the programs that use a library for collectives which can open a plugin."""
        folders = library_folders(self.tree)
        for library in collectives_of(self.site):
            if library.plugins:
                yield from ((library, use) for use in uses_of(library, self.loader, folders))

    def plugins(self) -> tuple[str, ...]:
        """Return the real paths of all plugins."""
        return tuple(dict.fromkeys(resolve(self.tree, path).path for path in plugins_in(self.tree)))

    def _alone(self) -> Iterator[Opened]:
        for path in self.plugins():
            process = Process(self.loader)
            plugin = process.dlopen(path)
            if plugin is not None:
                yield Opened(process, plugin)


def plugin_lines(site: Site, sides: Sides, lines: Sequence[Line]) -> tuple[Line, ...]:
    """Return the lines of a plan for what a plugin of the image loads past it; `lines` are the plan so far.

    A copy of the image that a plugin loads in place of a library that the plan binds is bound over too.
    """
    added: tuple[Line, ...] = ()
    for _ in range(_MOST_BINDS):
        container = carry_out(site, sides, (*lines, *added))
        opened = container.opened()
        more = next((line for one in opened for line in _bound_over(one, container)), None)
        if more is None:
            break
        added = (*added, more)
    judged = (line for one in opened for line in _judged(one, container))
    unique = {(line.library, line.decision, line.target): line for line in (*judged, *added)}
    return tuple(unique.values())


def unopened(site: Site, sides: Sides, lines: Sequence[Line]) -> tuple[Line, ...]:
    """Return a line for each program that finds no plugin, where the site's network takes one and the plan has none."""
    carrier = site.fabric.carrier
    if is_own(carrier) or not fabrics_of(carrier):
        return ()
    container = carry_out(site, sides, lines)
    found: dict[str, Line] = {}
    lacking = {line.library for line in lines if line.decision in UNMET}
    for library, use in container.uses():
        name = library.plugins[0]
        if use.open_plugin(library) is None and name not in lacking:
            there = container.plugins()
            has = f"; {', '.join(there)} is where no search looks" if there else ""
            opener = [] if use.copy is None else [_name_of(use.copy)]
            why = f"{library.title} looks for {' and '.join(library.plugins)}, and its search finds none{has}: {_TCP}"
            chain = Chain((name, *opener, use.program))
            found.setdefault(name, Line(library=Text(name), decision="missing", reason=Text(why), chain=chain))
    return tuple(found.values())


def carry_out(site: Site, sides: Sides, lines: Sequence[Line]) -> _Container:
    """Return the container that a plan makes: with the binds of its modules, but for those that it takes away."""
    gone = {line.without for line in lines if line.without is not None}
    placed = [
        (line.source, line.target, "the plan")
        for line in lines
        if line.decision == "bind" and line.by is None and line.source is not None and line.target is not None
    ]
    view = sides.view
    own = container_of(view.image, view.host, placed).bound
    tree = replace(view, bound=(*(one for one in view.bound if one.source not in gone), *own))
    return _Container(site, sides, tuple(lines), tree, Loader(tree, sides.container.rules))


def _opened_by(use: Use, library: Collectives) -> Opened | None:
    plugin = use.open_plugin(library)
    return None if plugin is None else Opened(use.process, plugin, use.program, use.copy)


def _name_of(loaded: Loaded) -> str:
    return posixpath.basename(loaded.name)


def _bound_over(one: Opened, container: _Container) -> Iterator[Line]:
    """Yield a line for each copy of the image that is loaded although the plan binds the host's."""
    done = {(line.library, line.target) for line in container.lines}
    for need in one.needs(one.plugin):
        line, loaded = container.line(_library(need), "bind"), need.loaded
        if (
            line is None
            or loaded is None
            or not container.is_own(loaded.found)
            or (need.name, loaded.found.real) in done
        ):
            continue
        host = container.sides.host.search(str(line.source)).found
        versions = _versions(one, need)
        taken = f"{_requester(need)} loads the image's own {loaded.found.how}, past the one that is bound"
        if host is not None and suffices(host.info, versions):
            yield _line(one, need, "bind", f"{taken}; put over it", source=line.source)
        elif host is not None:
            lacking = newest(versions - set(host.info.verdef))
            yield _line(one, need, "refuse", f"{taken}, which lacks {lacking} that is needed", source=line.source)


def _judged(one: Opened, container: _Container) -> Iterator[Line]:
    """Yield what a plugin is, and what carries its traffic where that is not what the plan says already."""
    needed = one.needs(one.plugin)
    fabric = next((need for need in needed if _library(need) == LIBFABRIC), None)
    if container.is_own(one.plugin.found):
        name = _name_of(one.plugin)
        plugin = Need(name, None, one.plugin, Search(one.plugin.found))
        opener = f"the image's own, which {_name_of(one.opener)} opens" if one.opener else "the image's own"
        reason = f"{opener}; it is found {one.plugin.found.how}{'' if fabric else f', and needs no {LIBFABRIC}'}"
        gone = (need for need in needed if need.loaded is None and need is not fabric)
        notes = (
            f"nothing has {need.name}, which {_requester(need)} needs, unless the runtime injects it" for need in gone
        )
        line = _line(one, plugin, "skip", reason)
        yield replace(line, library=Text(name), chain=one.chain(name, None), warnings=tuple(map(Text, notes)))
    if fabric is not None:
        yield from (line for line in _fabric_lines(one, fabric, container) if not _is_said(line, container))


def _fabric_lines(one: Opened, fabric: Need, container: _Container) -> Iterator[Line]:
    """Yield whether the libfabric of a plugin is there, can be loaded, and has a provider for the site's network."""
    carrier = container.site.fabric.carrier
    libraries = [name for known in fabrics_of(carrier) for name in known.libraries]
    if fabric.loaded is None:
        trouble = fabric.search.trouble
        why = described(trouble) if trouble else f"{_requester(fabric)} needs it, and its search finds none"
        decision: Decision = "refuse" if fabric.search.trouble else "missing"
        passed = "".join(f"; {described(one)}" for one in fabric.search.passed)
        yield _line(one, fabric, decision, f"{why}{passed}: {_TCP}")
        return
    found = fabric.loaded.found
    versions = _versions(one, fabric)
    if not suffices(found.info, versions):
        lacking, has = newest(versions - set(found.info.verdef)), newest(found.info.verdef)
        why = f"{_requester(fabric)} needs {lacking}, and {found.path}, which it loads {found.how}, has up to {has}"
        yield _line(one, fabric, "refuse", f"{why}: the plugin cannot be loaded, and {_TCP}")
        return
    provider = _provider(one, fabric.loaded, libraries)
    own = container.is_own(found)
    if libraries and provider is None:
        advice = "" if container.line(LIBFABRIC) else f" (`--library {LIBFABRIC}` plans the host's in its place)"
        built = f"nothing in or beside it is linked with {' or '.join(libraries)}"
        if own:
            yield _line(
                one,
                fabric,
                "refuse",
                f"it is loaded {found.how} and has no provider {carrier}, as {built}: {_TCP}{advice}",
            )
        return
    if own:
        has = f", and has a provider {carrier}" if provider else ""
        yield _line(one, fabric, "skip", f"{_requester(fabric)} loads it {found.how}{has}")
    if provider is not None and provider.loaded is None:
        yield _line(one, provider, "missing", f"the provider {carrier} needs it, and its search finds none: {_TCP}")
    elif provider is not None and provider.loaded is not None and container.is_own(provider.loaded.found):
        yield _line(one, provider, "skip", f"{_requester(provider)} loads it {provider.loaded.found.how}")


def _provider(one: Opened, fabric: Loaded, libraries: Sequence[str]) -> Need | None:
    """Return the need of a provider for a library of the adapters: in libfabric, or in what it opens beside it."""
    beside = providers_beside(one.process.loader.tree, fabric.found.real)
    opened = (one.process.dlopen(path, fabric) for path in beside)
    places = (fabric, *(place for place in opened if place is not None))
    return next((need for place in places for need in one.needs(place) if _library(need) in libraries), None)


def _is_said(line: Line, container: _Container) -> bool:
    """Tell whether the plan has a line for the same copy of a library, or says already that it lacks one."""
    said = (one for one in container.lines if one.library == line.library)
    return any(one.decision in UNMET or _real(one, container) == line.target for one in said)


def _real(line: Line, container: _Container) -> str | None:
    return None if line.target is None else resolve(container.tree, line.target).path


def _library(need: Need) -> str:
    """Return the SONAME of what is needed, which some objects need by its path."""
    soname = None if need.loaded is None else need.loaded.found.info.soname
    return soname or posixpath.basename(need.name)


def _versions(one: Opened, need: Need) -> set[str]:
    """Return the versions of a library that the objects of a process need."""
    others = (other for other in one.process.needs if _library(other) == _library(need))
    users = [(other.requester, other.name) for other in others if other.requester is not None]
    return {version for user, name in users for version in user.found.info.verneed.get(name, ())}


def _requester(need: Need) -> str:
    return "nothing" if need.requester is None else _name_of(need.requester)


def _line(one: Opened, need: Need, decision: Decision, reason: str, source: AbsolutePath | None = None) -> Line:
    found = None if need.loaded is None else need.loaded.found
    had = None if found is None else summary(found)
    wanted = newest(versions) if (versions := _versions(one, need)) else None
    return Line(
        library=Text(_library(need)),
        decision=decision,
        source=source,
        target=None if found is None else AbsolutePath(found.real),
        wanted=None if wanted is None else Text(wanted),
        found=None if had is None else Text(had),
        reason=Text(reason),
        chain=one.chain(_library(need), need.requester),
    )
