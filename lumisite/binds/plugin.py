"""What a network plugin loads in a container that has its plan: which libfabric, and has that the network.

Libraries for collectives open a plugin by name, so that it is in no NEEDED entry, and a plugin often has a search path
of its own. Where it finds a libfabric without a provider for the network, or none, traffic goes over TCP, and nothing
reports it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from lumisite.binds.closure import Decision, PlannedLibrary, Sides
from lumisite.binds.container import ContainerTree, container_of
from lumisite.binds.copies import lacks_version, needs_with_providers, suffices
from lumisite.findings.writers import message
from lumisite.images.contents import LIBFABRIC, Contents, collectives_of
from lumisite.machine.library_names import newest
from lumisite.machine.loader import Found, Loaded, Loader, Need, ProcessObjects
from lumisite.machine.tree import resolve
from lumisite.site.model import Site
from lumisite.site.plans import UNMET
from lumisite.text import listed, some
from lumisite.vendors import fabrics_of, is_built_in

_OVER_TCP = "traffic between nodes goes over TCP"
_FINDS_NONE = "needs it, and its search finds none"


@dataclass(frozen=True)
class Opened:
    """A network plugin in the process that opened it; `opener` is the library for collectives, or `root`."""

    process: ProcessObjects
    plugin: Loaded
    opener: str

    @property
    def needs(self) -> tuple[Need, ...]:
        """What the plugin needs, itself or through others."""
        return self.process.needs_of(self.plugin)

    def versions(self, need: Need) -> set[str]:
        """Return the versions of a library that the objects of the process need."""
        versions: set[str] = set()
        for other in self.process.needs:
            if other.requester is not None and other.library == need.library:
                versions.update(other.requester.found.info.verneed.get(other.name, ()))
        return versions

    def planned(self, need: Need, decision: Decision, *why: str, source: str | None = None) -> PlannedLibrary:
        """Return the decision for a library that is needed."""
        names, parent = [need.library], need.requester
        while parent is not None:
            names.append(parent.file)
            parent = parent.parent
        target = None if need.loaded is None else need.loaded.found.real
        return PlannedLibrary(need.library, decision, why, (*names, self.opener), source=source, target=target)


@dataclass(frozen=True)
class Container:
    """A container with the binds of a `plan`, and the loader in it."""

    sides: Sides
    plan: tuple[PlannedLibrary, ...]
    tree: ContainerTree
    loader: Loader

    def is_from_image(self, found: Found) -> bool:
        """Return whether a file is in the image itself."""
        return self.tree.host_path(found.real) is None

    def knows(self, planned: PlannedLibrary) -> bool:
        """Return whether the plan has the same copy of a library, or that it lacks one."""
        return any(
            line.decision in UNMET or (line.target and resolve(self.tree, line.target).path == planned.target)
            for line in self.plan
            if line.library == planned.library
        )

    def opened(self, site: Site) -> tuple[Opened, ...]:
        """Return the plugins that libraries for collectives open; where none is opened, those that are there."""
        contents, found = Contents(self.tree), []
        for library in collectives_of(site):
            for path in contents.copies_of(library):
                process = ProcessObjects(self.loader)
                copy = process.dlopen(path)
                plugins = (process.dlopen(name, copy) for name in library.plugins)
                if copy is not None and (plugin := next(filter(None, plugins), None)):
                    found.append(Opened(process, plugin, path))
        if not found:
            for path in dict.fromkeys(resolve(self.tree, path).path for path in contents.plugins):
                process = ProcessObjects(self.loader)
                if plugin := process.dlopen(path):
                    found.append(Opened(process, plugin, "root"))
        return tuple(found)


def carry_out(sides: Sides, plan: Sequence[PlannedLibrary]) -> Container:
    """Return the container that a plan makes: with the binds of its modules, but for those that it takes away."""
    gone = {line.without for line in plan if line.without is not None}
    binds = [
        (line.source, line.target, "the plan")
        for line in plan
        if line.decision == "bind" and line.by is None and line.source is not None and line.target is not None
    ]
    view = sides.view
    added = container_of(view.image, view.host, binds).bound
    tree = replace(view, bound=(*(bound for bound in view.bound if bound.source not in gone), *added))
    return Container(sides, tuple(plan), tree, Loader(tree, sides.container.rules))


def plugin_lines(
    site: Site, sides: Sides, plan: Sequence[PlannedLibrary]
) -> tuple[tuple[PlannedLibrary, ...], PlannedLibrary | None]:
    """Return the decisions for what a plugin of the image loads past the plan so far, and the plugin that is missing.

    A copy of the image that a plugin loads in place of a library that the plan binds is bound over too. One is missing
    where a library for collectives opens none, though the site's network takes one.
    """
    added: tuple[PlannedLibrary, ...] = ()
    while True:  # each round adds a copy of the image that the plan has not
        container = carry_out(sides, (*plan, *added))
        plugins = container.opened(site)
        more = next((line for opened in plugins for line in _bound_over(opened, container)), None)
        if more is None:
            break
        added = (*added, more)
    judged = (line for opened in plugins for line in _judged(opened, container, site.fabric.carrier))
    unique = {(line.library, line.decision, line.target): line for line in (*judged, *added)}
    lines = tuple(unique.values())
    names = {name for library in collectives_of(site) for name in library.plugins}
    is_known = any(line.decision in UNMET and line.library in names for line in (*plan, *lines))
    return lines, None if is_known else _missing(site, container, plugins)


def _missing(site: Site, container: Container, plugins: Sequence[Opened]) -> PlannedLibrary | None:
    """Return the line for a library for collectives that opens no plugin.

    What PyTorch has in its wheel is what it uses; of the system's copies one that opens a plugin is enough.
    """
    carrier = site.fabric.carrier
    if is_built_in(carrier) or not fabrics_of(carrier):
        return None
    contents, openers = Contents(container.tree), {opened.opener for opened in plugins} - {"root"}
    for library in collectives_of(site):
        for path in contents.copies_of(library):
            if path not in openers and (contents.packages_with(path) is not None or not openers):
                text = f"{path} looks for {some(library.plugins, between=', ')}, and its search finds none"
                name = collectives_of(site)[0].plugins[0]
                return PlannedLibrary(name, "missing", (text, _OVER_TCP), (name, path))
    return None


def _bound_over(opened: Opened, container: Container) -> Iterator[PlannedLibrary]:
    """Yield a decision for each copy of the image that is loaded although the plan binds the host's."""
    done = {(line.library, line.target) for line in container.plan}
    binds = {line.library: line.source for line in reversed(container.plan) if line.decision == "bind"}
    for need in opened.needs:
        source, loaded = binds.get(need.library), need.loaded
        if source is None or loaded is None or not container.is_from_image(loaded.found):
            continue
        host = container.sides.host.search(source).found
        if host is None or (need.library, loaded.found.real) in done:
            continue
        loads = f"{need.user} loads the image's own {loaded.found.how}, past the one that is bound"
        lacking = opened.versions(need) - set(host.info.verdef) if host.info.verdef else set()
        if lacking:
            lacks = lacks_version(host.info, lacking, need.user)
            yield opened.planned(need, "refuse", loads, lacks, source=source)
        else:
            yield opened.planned(need, "bind", loads, source=source)


def _judged(opened: Opened, container: Container, carrier: str) -> Iterator[PlannedLibrary]:
    """Yield what a plugin is, and what carries its traffic where that is not what the plan has already."""
    fabric = next((need for need in opened.needs if need.library == LIBFABRIC), None)
    if container.is_from_image(opened.plugin.found):
        yield _plugin_of_image(opened, fabric)
    if fabric is not None:
        lines = _judged_fabric(opened, fabric, container, carrier)
        yield from (planned for planned in lines if not container.knows(planned))


def _plugin_of_image(opened: Opened, fabric: Need | None) -> PlannedLibrary:
    name, found = opened.plugin.file, opened.plugin.found
    text = f"the image's own, found {found.how}"
    if fabric is None:
        text += f"; it does not need {LIBFABRIC}"
    missing = (need for need in opened.needs if need.loaded is None and need is not fabric)
    warnings = (f"nothing has {need.name}, which {need.user} needs, unless the runtime injects it" for need in missing)
    chain = (name, opened.opener)
    return PlannedLibrary(name, "skip", (text,), chain, target=found.real, warnings=tuple(warnings))


def _judged_fabric(opened: Opened, fabric: Need, container: Container, carrier: str) -> Iterator[PlannedLibrary]:
    """Yield whether the libfabric of a plugin exists, can be loaded, and has a provider for the site's network."""
    loaded, trouble = fabric.loaded, fabric.search.trouble
    if loaded is None:
        passed = (f"{finding.subject} {message(finding)}" for finding in fabric.search.passed)
        why = message(trouble) if trouble else f"{fabric.user} {_FINDS_NONE}"
        yield opened.planned(fabric, "refuse" if trouble else "missing", why, *passed, _OVER_TCP)
        return
    found, versions = loaded.found, opened.versions(fabric)
    if not suffices(found.info, versions):
        lacking, has = newest(versions - set(found.info.verdef)), newest(found.info.verdef)
        text = f"{fabric.user} needs {lacking}, and {found.path}, which it loads {found.how}, has up to {has}"
        yield opened.planned(fabric, "refuse", f"{text}: the plugin cannot be loaded", _OVER_TCP)
        return
    adapters = tuple(library for known in fabrics_of(carrier) for library in known.libraries)
    needed = needs_with_providers(opened.process, loaded)
    provider = next((need for need in needed if need.library in adapters), None)
    if container.is_from_image(found) and adapters and provider is None:
        text = f"it is loaded {found.how} and has no provider {carrier}, as nothing in or beside it is linked with "
        text += listed(adapters)
        if not any(line.library == LIBFABRIC for line in container.plan):
            text += f"; `--library {LIBFABRIC}` plans the host's in its place"
        yield opened.planned(fabric, "refuse", text, _OVER_TCP)
    elif container.is_from_image(found):
        text = f"{fabric.user} loads it {found.how}"
        yield opened.planned(fabric, "skip", f"{text}, and it has a provider {carrier}" if adapters else text)
    if provider is not None and provider.loaded is None:
        yield opened.planned(provider, "missing", f"{provider.user} {_FINDS_NONE}", _OVER_TCP)
    elif provider is not None and provider.loaded is not None and container.is_from_image(provider.loaded.found):
        yield opened.planned(provider, "skip", f"{provider.user} loads it {provider.loaded.found.how}")
