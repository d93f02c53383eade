"""Compare two copies of one library, and judge whether the host's may take the place of the image's.

A distribution's libfabric is often newer than the host's and knows nothing of the host's network. It loads, and its
traffic goes over TCP; nothing says so.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TypeAlias

from lumisite.findings.catalogue import make_finding
from lumisite.findings.finding import Finding
from lumisite.images.contents import Contents
from lumisite.machine.elf import ElfInfo, read_needed
from lumisite.machine.library_names import newest, numbers_in, public_versions, stem
from lumisite.machine.loader import Found, Loaded, Loader, walk
from lumisite.machine.tree import names_of, resolve


def compare(name: str, image: Found, host: Found) -> Finding:
    """Return what the image's copy of a library is beside the host's: the same, newer, older, different, or unknown.

    Symbol versions decide where the host's copy defines some: a linker adds them and never takes one away, so the newer
    library has all of the older one. Versions named PRIVATE are for a project's own parts and do not count. Where the
    versions decide nothing, the version in the names of the real files does.
    """
    in_image, in_host = public_versions(image.info.verdef), public_versions(host.info.verdef)
    if in_host:
        if in_image == in_host:
            return make_finding("image-copy-same", name, image=newest(in_image))
        if in_image > in_host or in_image < in_host:
            code = "image-copy-newer" if in_image > in_host else "image-copy-older"
            return make_finding(code, name, image=newest(in_image), host=newest(in_host))
        only, others = newest(in_image - in_host), newest(in_host - in_image)
        return make_finding("image-copy-different", name, image=only, host=others)
    file, host_file = posixpath.basename(image.real), posixpath.basename(host.real)
    numbers, host_numbers = _file_version(file), _file_version(host_file)
    if len(numbers) < 2 or len(host_numbers) < 2:
        return make_finding("image-copy-unknown", name)
    if numbers == host_numbers:
        return make_finding("image-copy-same", name, image=file)
    code = "image-copy-newer" if numbers > host_numbers else "image-copy-older"
    return make_finding(code, name, image=file, host=host_file)


def summary(found: Found) -> str | None:
    """Return how new a library is: its newest symbol version, or the version of its file."""
    if public_versions(found.info.verdef):
        return newest(found.info.verdef)
    numbers = _file_version(posixpath.basename(found.real))
    return ".".join(map(str, numbers)) if len(numbers) > 1 else None


def _file_version(name: str) -> tuple[int, ...]:
    """Return the version behind `.so.` in the name of a file: `libx.so.1.2.3` has (1, 2, 3)."""
    version = name.partition(".so.")[2]
    return numbers_in(version) if re.fullmatch(r"[0-9]+(\.[0-9]+)*", version) else ()


#: The SONAME of an image's object, and the symbol versions that it needs of a library.
User: TypeAlias = tuple[str, tuple[str, ...]]


def built_without(name: str, host: Found, image: Found, roots: Collection[str], loader: Loader) -> tuple[str, ...]:
    """Return the roots that the host's copy needs and the image's never loads; `loader` is that of the image.

    A provider that libfabric opens by name is beside it, in `libfabric/` (fabric(7), FI_PROVIDER_PATH).
    """
    lacking = tuple(root for root in host.info.needed if root in roots and root not in image.info.needed)
    if not lacking:
        return ()
    folder = posixpath.join(posixpath.dirname(image.real), stem(name).removesuffix(".so."))
    beside = (loader.search(posixpath.join(folder, file)).found for file in loader.tree.names(folder))
    objects = [Loaded(found.path, found) for found in (image, *beside) if found is not None]
    reached = {need.name for need in walk(loader, objects)}
    return tuple(root for root in lacking if root not in reached)


def check_host_copy(name: str, host: Found, image: Found, users: Iterable[User]) -> Finding:
    """Return whether the host's copy serves what the image's serves: `host-copy-suffices` or `host-copy-lacks-version`.

    It does where it has all of its versions, or at least those that the libraries on the image's search path need.
    """
    in_host = public_versions(host.info.verdef)
    only = public_versions(image.info.verdef) - in_host
    if not only:
        return make_finding("host-copy-suffices", name)
    needed: dict[str, set[str]] = {}
    for user, versions in users:
        needed[user] = set(versions)
        if not needed[user] <= in_host:
            return lacks_version(name, host.info, needed[user] - in_host, user)
    most = newest(set().union(*needed.values())) if any(needed.values()) else None
    return make_finding("host-copy-suffices", name, version=newest(only), users=tuple(sorted(needed)), most=most)


def suffices(info: ElfInfo, versions: set[str]) -> bool:
    """Return whether a library has versions; of one without any, the loader asks for none and only warns."""
    return not info.verdef or versions <= set(info.verdef)


def lacks_version(name: str, info: ElfInfo, lacking: set[str], user: str) -> Finding:
    """Return the finding for a copy of the host that lacks versions which a user needs."""
    return make_finding("host-copy-lacks-version", name, version=newest(lacking), user=user, newest=newest(info.verdef))


def users_of(name: str, loader: Loader, objects: Mapping[str, tuple[str, ...]]) -> Iterator[User]:
    """Yield which of an image's objects need a library, and the versions that they need of it."""
    for path, needed in objects.items():
        found = loader.search(path).found if name in needed else None
        if found is not None:
            yield found.info.soname or posixpath.basename(path), found.info.verneed.get(name, ())


def objects_of(loader: Loader) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the libraries on a search path and the plugins, each real file once, with what they need."""
    tree, seen = loader.tree, set()
    folders = [resolve(tree, path).path for path in (*loader.rules.library_path, *loader.rules.directories)]
    libraries = (f"{folder}/{file}" for folder in folders for file in names_of(tree, folder) if ".so" in file)
    for path in (*libraries, *Contents(tree).plugins):
        resolved = resolve(tree, path)
        if resolved.entry is not None and resolved.entry.kind == "file" and resolved.path not in seen:
            seen.add(resolved.path)
            yield resolved.path, read_needed(tree, resolved.path)
