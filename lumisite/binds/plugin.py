"""What a network plugin loads in a container that has its plan: which libfabric, and has that the network.

Libraries for collectives open a plugin by name, so that it is in no NEEDED entry, and a plugin often has a search path
of its own. Where it finds a libfabric without a provider for the network, or none, traffic goes over TCP, and nothing
reports it.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lumisite.binds.closure import Decision, PlannedLibrary, Sides
from lumisite.binds.container import ContainerTree, container_of
from lumisite.binds.copies import lacks_version, needs_with_providers, reason, suffices, summary
from lumisite.binds.programs import Use, uses_of
from lumisite.findings.finding import Finding, Severity
from lumisite.images.contents import LIBFABRIC, Contents, collectives_of
from lumisite.machine.library_names import newest
from lumisite.machine.loader import Found, Loaded, Loader, Need, ProcessObjects
from lumisite.machine.tree import resolve
from lumisite.site.model import Site
from lumisite.site.plans import UNMET
from lumisite.text import listed, printable, some
from lumisite.vendors import fabrics_of, is_built_in

if TYPE_CHECKING:
    from lumisite.vendors.model import Collectives


@dataclass(frozen=True)
class Opened:
    """A network plugin, and the use of a library for collectives that opened it."""

    use: Use
    plugin: Loaded

    def chain(self, needed: str, requester: Loaded | None) -> tuple[str, ...]:
        """Return what leads from a library to the program: what needs it, the plugin, and what opened that."""
        names, parent = [needed], requester
        while parent is not None and parent is not self.use.process.program:
            names.append(_name_of(parent))
            parent = parent.parent
        if self.use.copy is not None:
            names.append(_name_of(self.use.copy))
        return (*names, self.use.program)

    @property
    def needs(self) -> tuple[Need, ...]:
        """What the plugin needs, itself or through others."""
        return self.use.process.needs_of(self.plugin)

    def versions(self, need: Need) -> set[str]:
        """Return the versions of a library that the objects of the process need."""
        versions: set[str] = set()
        for other in self.use.process.needs:
            if other.requester is not None and _library(other) == _library(need):
                versions.update(other.requester.found.info.verneed.get(other.name, ()))
        return versions

    def planned(self, need: Need, decision: Decision, *why: Finding, source: str | None = None) -> PlannedLibrary:
        """Return the decision for a library that is needed."""
        found = None if need.loaded is None else need.loaded.found
        versions = self.versions(need)
        return PlannedLibrary(
            _library(need),
            decision,
            why,
            self.chain(_library(need), need.requester),
            source=source,
            target=None if found is None else found.real,
            wanted=newest(versions) if versions else None,
            found=None if found is None else summary(found),
        )


@dataclass(frozen=True)
class _Container:
    """A container with a plan's binds, the loader in it, and the plan so far."""

    site: Site
    sides: Sides
    plan: tuple[PlannedLibrary, ...]
    tree: ContainerTree
    loader: Loader

    def is_from_image(self, found: Found) -> bool:
        """Return whether a file is in the image itself."""
        return self.tree.host_path(found.real) is None

    def bind(self, library: str) -> PlannedLibrary | None:
        """Return the first bind of a library."""
        return next((line for line in self.plan if line.library == library and line.decision == "bind"), None)

    def knows(self, planned: PlannedLibrary) -> bool:
        """Return whether the plan has the same copy of a library, or that it lacks one."""
        for line in self.plan:
            if line.library == planned.library:
                target = None if line.target is None else resolve(self.tree, line.target).path
                if line.decision in UNMET or target == planned.target:
                    return True
        return False

    def uses(self) -> Iterator[tuple[Collectives, Use]]:
        """Yield the programs that use a library for collectives which can open a plugin."""
        contents = Contents(self.tree)
        for library in collectives_of(self.site):
            if library.plugins:
                yield from ((library, use) for use in uses_of(library, self.loader, contents))

    def plugins(self) -> tuple[str, ...]:
        """Return the real paths of all plugins."""
        return tuple(dict.fromkeys(resolve(self.tree, path).path for path in Contents(self.tree).plugins))

    def opened(self) -> tuple[Opened, ...]:
        """Return the plugins that programs open; where none is opened, those that are there."""
        opened = [Opened(use, plugin) for library, use in self.uses() if (plugin := use.open_plugin(library))]
        if opened:
            return tuple(opened)
        for path in self.plugins():
            process = ProcessObjects(self.loader)
            plugin = process.dlopen(path)
            if plugin is not None:
                opened.append(Opened(Use("root", process, None), plugin))
        return tuple(opened)


def plugin_lines(site: Site, sides: Sides, plan: Sequence[PlannedLibrary]) -> tuple[PlannedLibrary, ...]:
    """Return the decisions for what a plugin of the image loads past the plan so far.

    A copy of the image that a plugin loads in place of a library that the plan binds is bound over too.
    """
    added: tuple[PlannedLibrary, ...] = ()
    while True:  # each round adds a copy of the image that the plan has not
        container = carry_out(site, sides, (*plan, *added))
        plugins = container.opened()
        more = next((line for opened in plugins for line in _bound_over(opened, container)), None)
        if more is None:
            break
        added = (*added, more)
    judged = (line for opened in plugins for line in _judged(opened, container))
    unique = {(line.library, line.decision, line.target): line for line in (*judged, *added)}
    return tuple(unique.values())


def unopened(site: Site, sides: Sides, plan: Sequence[PlannedLibrary]) -> tuple[PlannedLibrary, ...]:
    """Return a decision for each program without a plugin, where the site's network takes one and the plan has none."""
    carrier = site.fabric.carrier
    if is_built_in(carrier) or not fabrics_of(carrier):
        return ()
    container = carry_out(site, sides, plan)
    lacking = {line.library for line in plan if line.decision in UNMET}
    found: dict[str, PlannedLibrary] = {}
    for library, use in container.uses():
        name = library.plugins[0]
        if use.open_plugin(library) is None and name not in lacking:
            why = _plugin_not_found(library, container.plugins())
            opener = [] if use.copy is None else [_name_of(use.copy)]
            chain = (name, *opener, use.program)
            found.setdefault(name, PlannedLibrary(name, "missing", (why, _over_tcp(name)), chain))
    return tuple(found.values())


def _plugin_not_found(library: Collectives, unused: Sequence[str]) -> Finding:
    message = f"{library.title} looks for {some(library.plugins, between=', ')}, and its search finds none"
    if unused:
        message += f"; {some(unused, between=', ')} is where no search looks"
    advice = "put the plugin where the search of the program finds it"
    return Finding("plugin-not-found", Severity.FAULT, message, advice, library.plugins[0])


def carry_out(site: Site, sides: Sides, plan: Sequence[PlannedLibrary]) -> _Container:
    """Return the container that a plan makes: with the binds of its modules, but for those that it takes away."""
    gone = {line.without for line in plan if line.without is not None}
    binds = [
        (line.source, line.target, "the plan")
        for line in plan
        if line.decision == "bind" and line.by is None and line.source is not None and line.target is not None
    ]
    view = sides.view
    added = container_of(view.image, view.host, binds).bound
    kept = [bound for bound in view.bound if bound.source not in gone]
    tree = replace(view, bound=(*kept, *added))
    return _Container(site, sides, tuple(plan), tree, Loader(tree, sides.container.rules))


def _bound_over(opened: Opened, container: _Container) -> Iterator[PlannedLibrary]:
    """Yield a decision for each copy of the image that is loaded although the plan binds the host's."""
    done = {(line.library, line.target) for line in container.plan}
    for need in opened.needs:
        name, loaded = _library(need), need.loaded
        bind = container.bind(name)
        if bind is None or loaded is None or not container.is_from_image(loaded.found):
            continue
        host = container.sides.host.search(str(bind.source)).found
        if host is None or (name, loaded.found.real) in done:
            continue
        versions = opened.versions(need)
        text = f"{_requester(need)} loads the image's own {loaded.found.how}, past the one that is bound"
        loads = reason(name, text)
        if suffices(host.info, versions):
            yield opened.planned(need, "bind", loads, source=bind.source)
        else:
            lacks = lacks_version(name, host.info, versions - set(host.info.verdef), _requester(need))
            yield opened.planned(need, "refuse", loads, lacks, source=bind.source)


def _judged(opened: Opened, container: _Container) -> Iterator[PlannedLibrary]:
    """Yield what a plugin is, and what carries its traffic where that is not what the plan has already."""
    needed = opened.needs
    fabric = next((need for need in needed if _library(need) == LIBFABRIC), None)
    if container.is_from_image(opened.plugin.found):
        yield _plugin_of_image(opened, fabric, needed)
    if fabric is not None:
        yield from (planned for planned in _judged_fabric(opened, fabric, container) if not container.knows(planned))


def _plugin_of_image(opened: Opened, fabric: Need | None, needed: Sequence[Need]) -> PlannedLibrary:
    name, found = _name_of(opened.plugin), opened.plugin.found
    text = f"the image's own, found {found.how}"
    if fabric is None:
        text += f"; it does not need {LIBFABRIC}"
    missing = (need for need in needed if need.loaded is None and need is not fabric)
    return PlannedLibrary(
        name,
        "skip",
        (reason(name, text),),
        opened.chain(name, None),
        target=found.real,
        found=summary(found),
        warnings=tuple(_nothing_has(need, name) for need in missing),
    )


def _nothing_has(need: Need, plugin: str) -> Finding:
    message = f"nothing has {need.name}, which {_requester(need)} needs, unless the runtime injects it"
    advice = f"add {need.name} to the image, or check the log of a run with `lumisite transport`"
    return Finding("library-not-found", Severity.DOUBT, message, advice, plugin)


def _judged_fabric(opened: Opened, fabric: Need, container: _Container) -> Iterator[PlannedLibrary]:
    """Yield whether the libfabric of a plugin exists, can be loaded, and has a provider for the site's network."""
    name, loaded = _library(fabric), fabric.loaded
    if loaded is None:
        trouble = fabric.search.trouble
        why = trouble or _finds_none(fabric)
        yield opened.planned(fabric, "refuse" if trouble else "missing", why, *fabric.search.passed, _over_tcp(name))
        return
    found, versions = loaded.found, opened.versions(fabric)
    if not suffices(found.info, versions):
        lacking, has = newest(versions - set(found.info.verdef)), newest(found.info.verdef)
        message = (
            f"{_requester(fabric)} needs {lacking}, and {printable(found.path)}, which it loads {found.how}, "
            f"has up to {has}: the plugin cannot be loaded"
        )
        advice = "build the plugin with the libfabric that it loads"
        too_old = Finding("library-too-old", Severity.FAULT, message, advice, name)
        yield opened.planned(fabric, "refuse", too_old, _over_tcp(name))
        return
    carrier = container.site.fabric.carrier
    adapters = tuple(library for known in fabrics_of(carrier) for library in known.libraries)
    needed = needs_with_providers(opened.use.process, loaded)
    provider = next((need for need in needed if _library(need) in adapters), None)
    if container.is_from_image(found) and adapters and provider is None:
        is_planned = any(line.library == LIBFABRIC for line in container.plan)
        message = f"it is loaded {found.how} and has no provider {carrier}, as nothing in or beside it is linked with "
        message += listed(adapters)
        if not is_planned:
            message += f"; `--library {LIBFABRIC}` plans the host's in its place"
        advice = f"plan the host's: `lumisite binds IMAGE --library {name}`"
        why = Finding("traffic-over-tcp", Severity.FAULT, message, advice, name)
        yield opened.planned(fabric, "refuse", why, _over_tcp(name))
    elif container.is_from_image(found):
        yield opened.planned(fabric, "skip", _loaded_by(fabric, carrier if adapters else None))
    if provider is not None and provider.loaded is None:
        yield opened.planned(provider, "missing", _finds_none(provider), _over_tcp(_library(provider)))
    elif provider is not None and provider.loaded is not None and container.is_from_image(provider.loaded.found):
        yield opened.planned(provider, "skip", _loaded_by(provider))


def _over_tcp(name: str) -> Finding:
    advice = "follow the reason before this one, then check the log of a run with `lumisite transport`"
    return Finding("traffic-over-tcp", Severity.FAULT, "traffic between nodes goes over TCP", advice, name)


def _finds_none(need: Need) -> Finding:
    name = _library(need)
    message = f"{_requester(need)} needs it, and its search finds none"
    advice = f"install it in the image, or plan the host's: `lumisite binds IMAGE --library {name}`"
    return Finding("library-not-found", Severity.FAULT, message, advice, name)


def _loaded_by(need: Need, provider: str | None = None) -> Finding:
    how = need.loaded.found.how if need.loaded else ""
    having = f", and it has a provider {provider}" if provider else ""
    return reason(_library(need), f"{_requester(need)} loads it {how}{having}")


def _name_of(loaded: Loaded) -> str:
    return posixpath.basename(loaded.name)


def _library(need: Need) -> str:
    """Return the SONAME of what is needed, which some objects need by its path."""
    soname = None if need.loaded is None else need.loaded.found.info.soname
    return soname or posixpath.basename(need.name)


def _requester(need: Need) -> str:
    return "nothing" if need.requester is None else _name_of(need.requester)
