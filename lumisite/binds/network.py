"""Tell what an image's own objects need of a library, and whether the host's may take the place of the image's copy.

A distribution's libfabric is often newer than the host's and knows nothing of the host's network. It loads, and its
traffic goes over TCP; nothing says so.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TypeAlias

from lumisite.binds.copies import newest, public_versions, stem
from lumisite.images.contents import plugins_in
from lumisite.machine.elf import ElfError, read_needed
from lumisite.machine.loader import Found, Loaded, Loader, walk
from lumisite.machine.tree import resolve

#: The SONAME of an image's object, and the symbol versions that it needs of a library.
User: TypeAlias = tuple[str, tuple[str, ...]]


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


def stands_in(host: Found, image: Found, users: Iterable[User]) -> tuple[bool, str]:
    """Tell whether the host's copy serves what the image's serves, and why.

    It does where it has all of its versions, or at least those that the libraries on the image's search path need.
    """
    had = public_versions(host.info.verdef)
    only = public_versions(image.info.verdef) - had
    if not only:
        return True, "the host's has all of its versions"
    asked: dict[str, set[str]] = {}
    for user, needed in users:
        asked[user] = set(needed)
        if lacking := asked[user] - had:
            return False, f"the host's cannot stand in for it: {user} needs {newest(lacking)} of it"
    if not asked:
        return True, f"the host's lacks {newest(only)} of it, which nothing on the image's search path needs"
    most = newest({one for versions in asked.values() for one in versions} or {"no version"})
    return True, f"the host's lacks {newest(only)} of it, and {', '.join(sorted(asked))} need {most} at most"


def users_of(name: str, loader: Loader, objects: Mapping[str, tuple[str, ...]]) -> Iterator[User]:
    """Give which of an image's objects need a library, and the versions that they need of it."""
    for path, needed in objects.items():
        found = loader.search(path).found if name in needed else None
        if found is not None:
            yield found.info.soname or posixpath.basename(path), found.info.verneed.get(name, ())


def objects_of(loader: Loader) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Give the libraries on a search path and the plugins, each real file once, with what they need."""
    tree, seen = loader.tree, set()
    for path in (*_on_search_path(loader), *plugins_in(tree)):
        place = resolve(tree, path)
        if place.entry is None or place.entry.kind != "file" or place.path in seen:
            continue
        seen.add(place.path)
        source = tree.source(place.path)
        try:
            needed = () if source is None else read_needed(source)
        except ElfError:
            continue
        yield place.path, needed


def _on_search_path(loader: Loader) -> Iterator[str]:
    for directory in (*loader.rules.library_path, *loader.rules.directories):
        place = resolve(loader.tree, directory)
        if place.entry is not None and place.entry.kind == "directory":
            yield from (f"{place.path}/{file}" for file in sorted(loader.tree.names(place.path)) if ".so" in file)
