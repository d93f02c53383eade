"""What a plugin for the network loads in a container that has its plan: which libfabric, and has that the network.

Libraries for collectives open a plugin by name, so that it is in no NEEDED entry, and a plugin often has a search path
of its own. Where it finds a libfabric without a provider for the network, or none, traffic goes over TCP, and nothing
says so.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lumisite.binds.closure import Decision, Line, Sides, make_line, suffices
from lumisite.binds.copies import summary
from lumisite.findings.catalogue import make_finding
from lumisite.findings.finding import Finding
from lumisite.images.container import ContainerTree, container_of
from lumisite.images.contents import Contents, collectives_of
from lumisite.images.programs import Use, uses_of
from lumisite.images.speed import LIBFABRIC, providers_beside
from lumisite.machine.library_names import newest
from lumisite.machine.loader import Found, Loaded, Loader, Need, Process, Search
from lumisite.machine.tree import resolve
from lumisite.site.model import Site
from lumisite.site.plans import UNMET
from lumisite.site.scalars import AbsolutePath, Chain
from lumisite.vendors import fabrics_of, is_own

if TYPE_CHECKING:
    from lumisite.vendors.model import Collectives

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
        names, parent = [needed], requester
        while parent is not None and parent is not self.process.program:
            names.append(_name_of(parent))
            parent = parent.parent
        return Chain((*names, *([] if self.opener is None else [_name_of(self.opener)]), self.program))

    def needs(self, start: Loaded) -> tuple[Need, ...]:
        """Return what an object needs, itself or through others."""
        found, waiting = [], [start]
        for requester in waiting:
            for need in (need for need in self.process.needs if need.requester is requester):
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
        """Return whether a file is the image's own."""
        return self.tree.host_path(found.real) is None

    def line(self, library: str, decision: Decision | None = None) -> Line | None:
        """Return the first line of a library, or the first with a decision."""
        known = (line for line in self.lines if line.library == library)
        return next((line for line in known if decision in (None, line.decision)), None)

    def opened(self) -> tuple[Opened, ...]:
        """Return the plugins that programs open; where none is opened, those that are there."""
        found = (_opened_by(use, library) for library, use in self.uses())
        return tuple(opened for opened in found if opened is not None) or tuple(self._alone())

    def uses(self) -> Iterator[tuple[Collectives, Use]]:
        """Yield the programs that use a library for collectives which can open a plugin."""
        contents = Contents(self.tree)
        for library in collectives_of(self.site):
            if library.plugins:
                yield from ((library, use) for use in uses_of(library, self.loader, contents))

    def plugins(self) -> tuple[str, ...]:
        """Return the real paths of all plugins."""
        return tuple(dict.fromkeys(resolve(self.tree, path).path for path in Contents(self.tree).plugins))

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
        plugins = container.opened()
        more = next((line for opened in plugins for line in _bound_over(opened, container)), None)
        if more is None:
            break
        added = (*added, more)
    judged = (line for opened in plugins for line in _judged(opened, container))
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
            why = make_finding(
                "plugin-not-found", name, library=library.title, names=library.plugins, unused=container.plugins()
            )
            opener = [] if use.copy is None else [_name_of(use.copy)]
            chain = (name, *opener, use.program)
            found.setdefault(name, make_line(name, "missing", [why, _over_tcp(name)], chain))
    return tuple(found.values())


def _over_tcp(name: str) -> Finding:
    return make_finding("traffic-over-tcp", name)


def carry_out(site: Site, sides: Sides, lines: Sequence[Line]) -> _Container:
    """Return the container that a plan makes: with the binds of its modules, but for those that it takes away."""
    gone = {line.without for line in lines if line.without is not None}
    placed = [
        (line.source, line.target, "the plan")
        for line in lines
        if line.decision == "bind" and line.by is None and line.source is not None and line.target is not None
    ]
    view = sides.view
    added = container_of(view.image, view.host, placed).bound
    kept = [bound for bound in view.bound if bound.source not in gone]
    tree = replace(view, bound=(*kept, *added))
    return _Container(site, sides, tuple(lines), tree, Loader(tree, sides.container.rules))


def _opened_by(use: Use, library: Collectives) -> Opened | None:
    plugin = use.open_plugin(library)
    return None if plugin is None else Opened(use.process, plugin, use.program, use.copy)


def _name_of(loaded: Loaded) -> str:
    return posixpath.basename(loaded.name)


def _bound_over(opened: Opened, container: _Container) -> Iterator[Line]:
    """Yield a line for each copy of the image that is loaded although the plan binds the host's."""
    done = {(line.library, line.target) for line in container.lines}
    for need in opened.needs(opened.plugin):
        name, loaded = _library(need), need.loaded
        line = container.line(name, "bind")
        if line is None or loaded is None or not container.is_own(loaded.found):
            continue
        if (need.name, loaded.found.real) in done:
            continue
        host = container.sides.host.search(str(line.source)).found
        if host is None:
            continue
        versions = _versions(opened, need)
        loads = make_finding("loads-own-copy", name, requester=_requester(need), how=loaded.found.how)
        if suffices(host.info, versions):
            yield _line(opened, need, "bind", [loads, make_finding("put-over-own-copy", name)], source=line.source)
        else:
            lacking = newest(versions - set(host.info.verdef))
            lacks = make_finding("bound-copy-lacks-version", name, version=lacking)
            yield _line(opened, need, "refuse", [loads, lacks], source=line.source)


def _judged(opened: Opened, container: _Container) -> Iterator[Line]:
    """Yield what a plugin is, and what carries its traffic where that is not what the plan has already."""
    needed = opened.needs(opened.plugin)
    fabric = next((need for need in needed if _library(need) == LIBFABRIC), None)
    if container.is_own(opened.plugin.found):
        yield _plugin_line(opened, fabric, needed)
    if fabric is not None:
        yield from (line for line in _fabric_lines(opened, fabric, container) if not _is_known(line, container))


def _plugin_line(opened: Opened, fabric: Need | None, needed: Sequence[Need]) -> Line:
    name, found = _name_of(opened.plugin), opened.plugin.found
    opener = _name_of(opened.opener) if opened.opener else None
    why = [make_finding("plugin-of-image", name, opener=opener, how=found.how)]
    if fabric is None:
        why.append(make_finding("plugin-without-libfabric", name, library=LIBFABRIC))
    warnings = [
        make_finding("plugin-needs-missing", name, library=need.name, requester=_requester(need))
        for need in needed
        if need.loaded is None and need is not fabric
    ]
    versions = _versions(opened, Need(name, None, opened.plugin, Search(found)))
    return make_line(
        name,
        "skip",
        why,
        opened.chain(name, None),
        target=found.real,
        wanted=newest(versions) if versions else None,
        found=summary(found),
        warnings=warnings,
    )


def _fabric_lines(opened: Opened, fabric: Need, container: _Container) -> Iterator[Line]:
    """Yield whether the libfabric of a plugin exists, can be loaded, and has a provider for the site's network."""
    carrier = container.site.fabric.carrier
    libraries = [name for known in fabrics_of(carrier) for name in known.libraries]
    name, requester = _library(fabric), _requester(fabric)
    if fabric.loaded is None:
        trouble = fabric.search.trouble
        why = trouble or make_finding("search-finds-none", name, requester=requester)
        decision: Decision = "refuse" if trouble else "missing"
        yield _line(opened, fabric, decision, [why, *fabric.search.passed, _over_tcp(name)])
        return
    found = fabric.loaded.found
    versions = _versions(opened, fabric)
    if not suffices(found.info, versions):
        lacking, has = newest(versions - set(found.info.verdef)), newest(found.info.verdef)
        values = {"requester": requester, "version": lacking, "path": found.path, "how": found.how, "newest": has}
        short = replace(make_finding("plugin-needs-version", name), values=values)
        yield _line(opened, fabric, "refuse", [short, _over_tcp(name)])
        return
    provider = _provider(opened, fabric.loaded, libraries)
    is_own = container.is_own(found)
    if is_own and provider:
        yield _line(
            opened, fabric, "skip", [_loads(name, fabric), make_finding("has-provider", name, provider=carrier)]
        )
    elif is_own and not libraries:
        yield _line(opened, fabric, "skip", [_loads(name, fabric)])
    elif is_own:
        why = make_finding("no-provider", name, how=found.how, provider=carrier, libraries=tuple(libraries))
        hint = [] if container.line(LIBFABRIC) else [make_finding("plan-libfabric", name, library=LIBFABRIC)]
        yield _line(opened, fabric, "refuse", [why, _over_tcp(name), *hint])
    if provider is not None:
        library = _library(provider)
        if provider.loaded is None:
            missing = make_finding("provider-needs-missing", library, provider=carrier)
            yield _line(opened, provider, "missing", [missing, _over_tcp(library)])
        elif container.is_own(provider.loaded.found):
            yield _line(opened, provider, "skip", [_loads(library, provider)])


def _loads(name: str, need: Need) -> Finding:
    how = need.loaded.found.how if need.loaded else ""
    return make_finding("loaded-by", name, requester=_requester(need), how=how)


def _provider(opened: Opened, fabric: Loaded, libraries: Sequence[str]) -> Need | None:
    """Return the need of a provider for a library of the adapters: in libfabric, or in what it opens beside it."""
    beside = providers_beside(opened.process.loader.tree, fabric.found.real)
    providers = [opened.process.dlopen(path, fabric) for path in beside]
    for loaded in (fabric, *filter(None, providers)):
        for need in opened.needs(loaded):
            if _library(need) in libraries:
                return need
    return None


def _is_known(line: Line, container: _Container) -> bool:
    """Return whether the plan has a line for the same copy of a library, or that it lacks one."""
    known = (other for other in container.lines if other.library == line.library)
    return any(other.decision in UNMET or _real(other, container) == line.target for other in known)


def _real(line: Line, container: _Container) -> str | None:
    return None if line.target is None else resolve(container.tree, line.target).path


def _library(need: Need) -> str:
    """Return the SONAME of what is needed, which some objects need by its path."""
    soname = None if need.loaded is None else need.loaded.found.info.soname
    return soname or posixpath.basename(need.name)


def _versions(opened: Opened, need: Need) -> set[str]:
    """Return the versions of a library that the objects of a process need."""
    versions: set[str] = set()
    for other in opened.process.needs:
        if other.requester is not None and _library(other) == _library(need):
            versions.update(other.requester.found.info.verneed.get(other.name, ()))
    return versions


def _requester(need: Need) -> str:
    return "nothing" if need.requester is None else _name_of(need.requester)


def _line(
    opened: Opened, need: Need, decision: Decision, why: Iterable[Finding], source: AbsolutePath | None = None
) -> Line:
    found = None if need.loaded is None else need.loaded.found
    versions = _versions(opened, need)
    return make_line(
        _library(need),
        decision,
        why,
        opened.chain(_library(need), need.requester),
        source=source,
        target=None if found is None else found.real,
        wanted=newest(versions) if versions else None,
        found=None if found is None else summary(found),
    )
