"""Tell whether an image's copy of a library was built without the network, and whether the host's may take its place.

A distribution's libfabric is often newer than the host's and knows nothing of the host's network. It loads, and its
traffic goes over TCP; nothing says so.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterator

from lumisite.binds.copies import newest, public_versions, stem
from lumisite.machine.elf import ElfError, read_needed
from lumisite.machine.loader import Found, Loaded, Loader, walk
from lumisite.machine.tree import Tree, resolve


def built_without(name: str, host: Found, image: Found, roots: Collection[str], loader: Loader) -> tuple[str, ...]:
    """Give the roots that the host's copy needs and the image's never loads; `loader` is that of the image.

    A provider that libfabric opens by name stands beside it, in `libfabric/` (fabric(7), FI_PROVIDER_PATH).
    """
    lacking = tuple(one for one in host.info.needed if one in roots and one not in image.info.needed)
    if not lacking:
        return ()
    folder = posixpath.join(posixpath.dirname(image.real), stem(name).removesuffix(".so."))
    beside = (loader.search(posixpath.join(folder, one)).found for one in loader.tree.names(folder))
    objects = [Loaded(found.path, found) for found in (image, *beside) if found is not None]
    reached = {need.name for need in walk(loader, objects)}
    return tuple(one for one in lacking if one not in reached)


def stands_in(name: str, host: Found, image: Found, loader: Loader) -> tuple[bool, str]:
    """Tell whether the host's copy serves what the image's serves, and why.

    It does where it has all of its versions, or at least those that the libraries on the image's search path need.
    """
    had = public_versions(host.info.verdef)
    only = public_versions(image.info.verdef) - had
    if not only:
        return True, "the host's has all of its versions"
    asked: dict[str, set[str]] = {}
    for user, needed in _users(name, loader):
        asked[user] = set(needed)
        if lacking := asked[user] - had:
            return False, f"the host's cannot stand in for it: {user} needs {newest(lacking)} of it"
    if not asked:
        return True, f"the host's lacks {newest(only)} of it, which nothing on the image's search path needs"
    most = newest({one for versions in asked.values() for one in versions} or {"no version"})
    return True, f"the host's lacks {newest(only)} of it, and {', '.join(sorted(asked))} need {most} at most"


def _users(name: str, loader: Loader) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Give the libraries on the search path that need this one, each real file once, with the versions they need."""
    seen = set()
    for directory in (*loader.rules.library_path, *loader.rules.directories):
        place = resolve(loader.tree, directory)
        if place.entry is None or place.entry.kind != "directory" or place.path in seen:
            continue
        seen.add(place.path)
        for file in sorted(loader.tree.names(place.path)):
            path = posixpath.join(place.path, file)
            real = resolve(loader.tree, path).path if ".so" in file else ""
            if not real or real in seen:
                continue
            seen.add(real)
            found = loader.search(path).found if _needs(loader.tree, real, name) else None
            if found is not None:
                yield found.info.soname or file, found.info.verneed.get(name, ())


def _needs(tree: Tree, path: str, name: str) -> bool:
    """Tell whether a file is an object that needs a library; most are not, and reading them in full takes long."""
    entry = tree.look(path)
    source = tree.source(path) if entry is not None and entry.kind == "file" else None
    try:
        return source is not None and name in read_needed(source)
    except ElfError:
        return False
