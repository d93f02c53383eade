"""Compare two copies of one library, and find what of an image needs a library.

A distribution's libfabric is often newer than the host's and knows nothing of the host's network. It loads, and its
traffic goes over TCP; nothing says so.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterator
from typing import Literal, TypeAlias

from lumisite.images.contents import LIBFABRIC, Contents, providers_beside
from lumisite.machine.elf import ElfInfo, read_needed
from lumisite.machine.library_names import newest, numbers_in, public_versions
from lumisite.machine.loader import Found, Loaded, Loader, Need, ProcessObjects
from lumisite.machine.tree import names_of, resolve

#: What one copy of a library is beside another.
Relation: TypeAlias = Literal["same", "newer", "older", "different", "unknown"]


def compare(image: Found, host: Found) -> tuple[Relation, str]:
    """Return what the image's copy of a library is beside the host's, and that as a sentence.

    Symbol versions decide where the host's copy defines some: a linker adds them and never takes one away, so the newer
    library has all of the older one. Versions named PRIVATE are for a project's own parts and do not count. Where the
    versions decide nothing, the version in the names of the real files does.
    """
    in_image, in_host = public_versions(image.info.verdef), public_versions(host.info.verdef)
    if in_host:
        if in_image == in_host:
            return "same", f"the image has the same: {newest(in_image)}"
        if in_image > in_host or in_image < in_host:
            return _by_age(newest(in_image), newest(in_host), in_image > in_host)
        only, others = newest(in_image - in_host), newest(in_host - in_image)
        return "different", f"the image has another build: only it has {only}, and only the host's {others}"
    file, host_file = posixpath.basename(image.real), posixpath.basename(host.real)
    numbers, host_numbers = _file_version(file), _file_version(host_file)
    if len(numbers) < 2 or len(host_numbers) < 2:
        text = "the image has a copy: the SONAME is the same, and neither symbol versions nor file names decide"
        return "unknown", text
    if numbers == host_numbers:
        return "same", f"the image has the same: {file}"
    return _by_age(file, host_file, numbers > host_numbers)


def _by_age(image: str, host: str, is_newer: bool) -> tuple[Relation, str]:
    if is_newer:
        return "newer", f"the image has the newer: {image}, the host's {host}"
    return "older", f"the image's copy is older: {image}, the host's {host}"


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


def built_without(name: str, host: Found, image: Found, roots: Collection[str], loader: Loader) -> tuple[str, ...]:
    """Return the roots that the host's copy needs and the image's never loads; `loader` is that of the image."""
    lacking = tuple(root for root in host.info.needed if root in roots and root not in image.info.needed)
    if not lacking:
        return ()
    process, copy = ProcessObjects(loader), Loaded(name, image)
    process.load([copy])
    reached = {need.name for need in needs_with_providers(process, copy)}
    return tuple(root for root in lacking if root not in reached)


def needs_with_providers(process: ProcessObjects, copy: Loaded) -> Iterator[Need]:
    """Yield what a copy of a library needs, itself or through others; of libfabric also what its providers need.

    It opens them by name, from the folder beside it.
    """
    is_libfabric = (copy.found.info.soname or copy.file) == LIBFABRIC
    beside = tuple(providers_beside(process.loader.tree, copy.found.real)) if is_libfabric else ()
    providers = [process.dlopen(path, copy) for path in beside]
    for loaded in (copy, *filter(None, providers)):
        yield from process.needs_of(loaded)


def suffices(info: ElfInfo, versions: set[str]) -> bool:
    """Return whether a library has versions; of one without any, the loader asks for none and only warns."""
    return not info.verdef or versions <= set(info.verdef)


def lacks_version(info: ElfInfo, lacking: set[str], user: str) -> str:
    """Return the sentence for a copy of the host that lacks versions which a user in the image needs."""
    has = newest(info.verdef)
    return f"the host's copy lacks {newest(lacking)}, which {user} of the image needs; it has up to {has}"


def users_of(name: str, loader: Loader, *, has_own: bool) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield which of an image's objects need a library, by SONAME, and the symbol versions that they need of it.

    They are the plugins, and with a copy in the image also the libraries on its search path, which may be linked to it.
    """
    tree, seen = loader.tree, set()
    folders = (resolve(tree, path).path for path in (*loader.rules.library_path, *loader.rules.directories))
    libraries = (f"{folder}/{file}" for folder in folders for file in names_of(tree, folder) if ".so" in file)
    for path in (*Contents(tree).plugins, *(libraries if has_own else ())):
        real = resolve(tree, path)
        if real.entry is None or real.entry.kind != "file" or real.path in seen:
            continue
        seen.add(real.path)
        found = loader.search(real.path).found if name in read_needed(tree, real.path) else None
        if found is not None:
            yield found.info.soname or posixpath.basename(path), found.info.verneed.get(name, ())
