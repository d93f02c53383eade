"""Compare two copies of one library, and tell whether the host's may take the place of the image's.

A distribution's libfabric is often newer than the host's and knows nothing of the host's network. It loads, and its
traffic goes over TCP; nothing says so.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Literal, TypeAlias

from lumisite.images.contents import plugins_in
from lumisite.machine.elf import read_needed
from lumisite.machine.library_names import newest, numbers_in, public_versions, stem
from lumisite.machine.loader import Found, Loaded, Loader, walk
from lumisite.machine.tree import names_of, resolve

Relation = Literal["same", "newer", "older", "different", "unknown"]


def compare(image: Found, host: Found) -> tuple[Relation, str]:
    """Say what the image's copy is beside the host's, and by which proof.

    Symbol versions decide where the host's copy defines some: a linker adds them and never takes one away, so the newer
    library has all of the older one. Versions named PRIVATE are for a project's own parts and do not count. Where the
    versions say nothing, the version in the names of the real files does.
    """
    mine, theirs = public_versions(image.info.verdef), public_versions(host.info.verdef)
    if theirs:
        if mine == theirs:
            return "same", f"both have up to {newest(mine)}"
        if mine > theirs:
            return "newer", f"it has up to {newest(mine)}, the host's up to {newest(theirs)}"
        if mine < theirs:
            had = f"up to {newest(mine)}" if mine else "no symbol versions"
            return "older", f"it has {had}, the host's up to {newest(theirs)}"
        return "different", f"only it has {newest(mine - theirs)}, and only the host's {newest(theirs - mine)}"
    file, other = posixpath.basename(image.real), posixpath.basename(host.real)
    numbers, others = _file_version(file), _file_version(other)
    if len(numbers) < 2 or len(others) < 2:
        return "unknown", "the SONAME is the same, and neither symbol versions nor file names say more"
    if numbers == others:
        return "same", f"both are {file}"
    return ("newer" if numbers > others else "older"), f"it is {file}, the host's {other}"


def summary(found: Found) -> str | None:
    """Say in a word how new a library is: its newest symbol version, or the version of its file."""
    if public_versions(found.info.verdef):
        return newest(found.info.verdef)
    numbers = _file_version(posixpath.basename(found.real))
    return ".".join(map(str, numbers)) if len(numbers) > 1 else None


def _file_version(name: str) -> tuple[int, ...]:
    """Give the version behind `.so.` in the name of a file: `libx.so.1.2.3` has (1, 2, 3)."""
    version = name.partition(".so.")[2]
    return numbers_in(version) if re.fullmatch(r"[0-9]+(\.[0-9]+)*", version) else ()


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
    folders = [resolve(tree, path).path for path in (*loader.rules.library_path, *loader.rules.directories)]
    libraries = (f"{at}/{file}" for at in folders for file in names_of(tree, at) if ".so" in file)
    for path in (*libraries, *plugins_in(tree)):
        place = resolve(tree, path)
        if place.entry is not None and place.entry.kind == "file" and place.path not in seen:
            seen.add(place.path)
            yield place.path, read_needed(tree, place.path)
