"""What an image holds of all that full speed on a site's network takes, and what it lacks of it; nothing is run.

A library for collectives between GPUs opens a network plugin, the plugin libfabric, and libfabric a provider, which is
linked with the library of the adapters; some of these libraries open libfabric themselves. Where one of them is
missing, traffic goes over sockets, and nothing says so.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from lumisite.images.contents import Contents, collectives_of
from lumisite.machine.elf import read_needed
from lumisite.machine.ldcache import glob
from lumisite.machine.tree import Tree, names_of
from lumisite.site.model import Site
from lumisite.vendors import fabrics_of, is_own, plugins

LIBFABRIC = "libfabric.so.1"
_PLANNED = "by the plan"


@dataclass(frozen=True)
class Part:
    """One thing that full speed takes: what it is, and where it is, empty where it is missing, with what that means."""

    what: str
    at: str
    means: str

    def __str__(self) -> str:
        return f"it has {self.what}: {self.at}" if self.at else f"missing for full speed: {self.what}; {self.means}"


def parts_for_speed(
    site: Site, contents: Contents, brought: Collection[str], loaded: str | None = None
) -> Iterator[Part]:
    """Give what an image has and lacks; `brought` are SONAMEs of which its plan says that a container has them.

    `loaded` is the image's libfabric that its plugin loads, where that is known.
    """
    carrier, tree = site.fabric.carrier, contents.tree
    for library in collectives_of(site):
        file = f"{library.library}.so*"
        places = [f"{folder}/{file}" for folder in contents.libraries]
        places += [f"{one}/{inner}/{file}" for one in contents.packages for inner in ("torch/lib", "*/*/lib")]
        at = next((path for place in places for path in glob(tree, place)), "")
        yield Part(library.title, at, f"no {file}: nothing in it speaks between GPUs, or a program has it inside")
    linked = [name for fabric in fabrics_of(carrier) for name in fabric.libraries]
    if not linked:
        return
    if is_own(carrier):
        at = _PLANNED if linked[0] in brought else contents.find(*linked) or ""
        yield Part(f"{linked[0]} for {carrier}", at, "collectives between nodes go over sockets")
        return
    if names := dict.fromkeys(name for library in collectives_of(site) for name in library.plugins):
        at = _PLANNED if set(plugins()) & set(brought) else contents.find(*plugins()) or ""
        yield Part("a network plugin", at, f"none of {', '.join(names)}: collectives between nodes go over sockets")
    if LIBFABRIC in brought:
        yield Part("libfabric", _PLANNED, "")
        return
    libfabric = loaded or contents.find(LIBFABRIC) or ""
    yield Part("libfabric", libfabric, f"no {LIBFABRIC}: a plugin cannot load")
    if libfabric:
        at = next((path for path in _providers(tree, libfabric) if set(linked) & set(read_needed(tree, path))), "")
        means = f"nothing in or beside {libfabric} is linked with {linked[0]}: it takes TCP"
        yield Part(f"libfabric's provider for {carrier}", at, means)
    if not set(linked) & set(brought):
        at = contents.find(*linked) or ""
        yield Part(linked[0], at, f"libfabric has no provider {carrier} without it")


def _providers(tree: Tree, libfabric: str) -> Iterator[str]:
    """Give what may hold a provider: libfabric itself, and what stands beside it."""
    yield libfabric
    yield from providers_beside(tree, libfabric)


def providers_beside(tree: Tree, libfabric: str) -> Iterator[str]:
    """Yield the providers that libfabric opens, which stand in a folder beside it (fabric(7), FI_PROVIDER_PATH)."""
    folder = posixpath.join(posixpath.dirname(libfabric), "libfabric")
    yield from (f"{folder}/{name}" for name in names_of(tree, folder))
