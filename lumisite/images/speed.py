"""What an image holds of all that full speed on a site's network takes, and what it lacks of it; nothing is run.

A library for collectives between GPUs opens a network plugin, the plugin libfabric, and libfabric a provider, which is
linked with the library of the adapters; some of these libraries open libfabric themselves. Where one of them is
missing, traffic goes over sockets, and nothing reports it.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterator

from lumisite.findings.catalogue import make_finding
from lumisite.findings.finding import Finding
from lumisite.images.contents import Contents, collectives_of
from lumisite.machine.elf import read_needed
from lumisite.machine.ldcache import glob
from lumisite.machine.tree import Tree, names_of
from lumisite.site.model import Site
from lumisite.vendors import fabrics_of, is_built_in, plugins

LIBFABRIC = "libfabric.so.1"


def find_speed_parts(
    site: Site, contents: Contents, planned: Collection[str], loaded: str | None = None
) -> Iterator[Finding]:
    """Yield a finding for each part that full speed takes, found or missing.

    `planned` are SONAMEs that a container has by its plan, `loaded` is the path of the image's libfabric that its
    plugin loads, where that is known.
    """
    carrier = site.fabric.carrier
    for library in collectives_of(site):
        file = f"{library.library}.so*"
        yield _part(library.title, _find_collectives(contents, file), file)
    adapters = [name for fabric in fabrics_of(carrier) for name in fabric.libraries]
    if not adapters:
        return
    if is_built_in(carrier):
        if adapters[0] in planned:
            yield make_finding("speed-part-found", adapters[0])
        else:
            yield _part(adapters[0], contents.find(*adapters), *adapters)
        return
    names = dict.fromkeys(name for library in collectives_of(site) for name in library.plugins)
    if names and set(plugins()).isdisjoint(planned):
        yield _part("network plugin", contents.find(*plugins()), *names)
    elif names:
        yield make_finding("speed-part-found", "network plugin")
    if LIBFABRIC in planned:
        yield make_finding("speed-part-found", LIBFABRIC)
        return
    libfabric = loaded or contents.find(LIBFABRIC)
    yield _part(LIBFABRIC, libfabric, LIBFABRIC)
    if libfabric:
        provider = f"provider {carrier}"
        path = _find_provider(contents.tree, libfabric, adapters)
        if path is None:
            yield make_finding("speed-part-missing", provider, libfabric=libfabric, library=adapters[0])
        else:
            yield _part(provider, path)
    if set(adapters).isdisjoint(planned):
        yield _part(adapters[0], contents.find(*adapters), *adapters)


def _part(part: str, path: str | None, *names: str) -> Finding:
    if path is None:
        return make_finding("speed-part-missing", part, names=names)
    return make_finding("speed-part-found", part, path=path)


def _find_collectives(contents: Contents, file: str) -> str | None:
    patterns = [f"{folder}/{file}" for folder in contents.libraries]
    for packages in contents.packages:
        patterns += [f"{packages}/torch/lib/{file}", f"{packages}/*/*/lib/{file}"]
    return next((path for pattern in patterns for path in glob(contents.tree, pattern)), None)


def _find_provider(tree: Tree, libfabric: str, adapters: Collection[str]) -> str | None:
    """Return the first file that is linked with a library of the adapters: libfabric, or what it opens."""
    for path in (libfabric, *providers_beside(tree, libfabric)):
        if not set(adapters).isdisjoint(read_needed(tree, path)):
            return path
    return None


def providers_beside(tree: Tree, libfabric: str) -> Iterator[str]:
    """Yield the providers that libfabric opens, which are in a folder beside it (fabric(7), FI_PROVIDER_PATH)."""
    folder = posixpath.join(posixpath.dirname(libfabric), "libfabric")
    yield from (f"{folder}/{name}" for name in names_of(tree, folder))
