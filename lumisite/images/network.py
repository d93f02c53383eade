"""Whether the network plugin of an image finds a libfabric that it can load: the image's own, or the host's.

An image whose library path leads to a libfabric that the host no longer has, or to one that is too old for the plugin,
goes over TCP, and nothing reports it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from lumisite.findings.finding import Finding, Severity
from lumisite.images.contents import LIBFABRIC, LIBRARY_FOLDERS, Contents, collectives_of, find_file
from lumisite.images.environment import RUNTIME_LIBRARIES
from lumisite.machine.elf import ElfError, ElfInfo, read_elf
from lumisite.machine.library_names import newest, numbers_in
from lumisite.machine.tree import Tree
from lumisite.site.images import Holds, parse_release
from lumisite.site.library_path import host_libfabric, library_path
from lumisite.site.model import Site
from lumisite.site.versions import Version, parse_version

#: Where programs look when nothing names a folder.
_USUAL_FOLDER = "/usr/lib64"
#: From which release on libfabric defines a symbol version; each release keeps the older ones. Source: fabric(7).
_DEFINED_SINCE = {
    "FABRIC_1.4": "1.12",
    "FABRIC_1.5": "1.13",
    "FABRIC_1.6": "1.14",
    "FABRIC_1.7": "1.20",
    "FABRIC_1.8": "2.0",
    "FABRIC_1.9": "2.5",
}


@dataclass(frozen=True)
class PluginSearch:
    """The `libfabric` of an image itself that its plugin finds, else the `folders` in which the plugin looks.

    `folders` is `None` where not all are known. `versions` has the newest symbol version of libfabric that the plugin
    `needs`, and the newest one that the image's own `has`.
    """

    libfabric: str | None = None
    folders: tuple[str, ...] | None = None
    versions: Mapping[str, str] = field(default_factory=dict)


def search_libfabric(image: Contents, plugin: str) -> PluginSearch:
    """Return what the plugin of an image finds, by the loader's rules."""
    info = _elf_of(image.tree, plugin)
    of_plugin = () if info is None else _own_search_path(info, posixpath.dirname(plugin))
    versions = _newest("needs", () if info is None else info.verneed.get(LIBFABRIC, ()))
    of_image, unknown = image.library_path
    in_image = (*of_plugin, *of_image, *image.loader_folders)
    named = tuple(dict.fromkeys(folder for folder in in_image if folder != RUNTIME_LIBRARIES))
    if own := find_file(image.tree, (*named, *LIBRARY_FOLDERS), [LIBFABRIC]):
        libfabric = _elf_of(image.tree, own)
        return PluginSearch(own, (), versions | _newest("has", () if libfabric is None else libfabric.verdef))
    # A copy elsewhere may come on the path by what a program's start-up scripts do.
    return PluginSearch(None, None if unknown or image.find(LIBFABRIC) else named, versions)


def _elf_of(tree: Tree, path: str) -> ElfInfo | None:
    source = tree.source(path)
    try:
        return None if source is None else read_elf(source)
    except ElfError:
        return None


def _own_search_path(info: ElfInfo, origin: str) -> tuple[str, ...]:
    """Return the absolute folders of RPATH and RUNPATH of a library in the folder `origin`."""
    texts = f"{info.rpath or ''}:{info.runpath or ''}".split(":")
    folders = (text.replace("${ORIGIN}", origin).replace("$ORIGIN", origin) for text in texts)
    return tuple(posixpath.normpath(folder) for folder in folders if folder.startswith("/"))


def _newest(key: str, versions: tuple[str, ...]) -> dict[str, str]:
    return {key: newest(versions)} if versions else {}


def holds_of(
    site: Site,
    platform: str,
    family: str | None,
    versions: Mapping[str, str],
    search: PluginSearch,
    sets: Mapping[str, str],
) -> Holds:
    """Return what settings depend on, for an image of a family on a platform.

    It has the `versions`, its plugin finds what `search` has, and it sets the variables `sets` itself. Where programs
    get libraries of several releases, none is known. A plugin that was not found is not there, where the library was
    found that would open it.
    """
    stack = site.gpu_stack
    release = None if stack is None else parse_release(versions.get(stack))
    stacks = {} if stack is None or release is None else {stack: release}
    openers = {library.name for library in collectives_of(site)}
    plugin = "ofi_plugin" in versions or (None if openers.isdisjoint(versions) else False)
    holds = Holds(family, stacks, plugin, sets=sets)
    if not plugin:
        return holds
    needed = search.versions.get("needs")
    if search.libfabric is not None:
        own = parse_release(versions.get("libfabric"))
        return _judged(holds, search.libfabric, own, needed, search.versions.get("has"))
    folders, of_host = search.folders, host_libfabric(site, platform, family)
    if folders is None or of_host is None:
        return replace(holds, plugin=None)
    searched = (*folders, *(library_path(site, platform, family) if family is not None else ()))
    found = next((folder for folder in searched if folder in of_host), None)
    if found is not None:
        release = parse_release(libfabric_release(f"{found}/"))
        return _judged(holds, f"{found}/{LIBFABRIC}", release, needed, _defined_by(release))
    lacking = next((folder for folder in searched if "libfabric" in folder), (*searched, _USUAL_FOLDER)[0])
    return replace(holds, plugin=False, lacking=lacking)


def _judged(holds: Holds, path: str, release: Version | None, needed: str | None, newest_there: str | None) -> Holds:
    """Return what an image holds whose plugin finds the libfabric at `path`: loaded if that is new enough.

    The loader asks for no version where a library defines none.
    """
    if needed is not None and newest_there is not None and numbers_in(needed) > numbers_in(newest_there):
        too_old = f"its plugin needs {needed} of libfabric, and {path} has up to {newest_there}"
        return replace(holds, plugin=False, too_old=too_old)
    return replace(holds, plugin=True, libfabric=release)


def _defined_by(release: Version | None) -> str | None:
    """Return the newest symbol version that a release of libfabric defines; `None` where that is not known."""
    since = (
        [] if release is None else [name for name, first in _DEFINED_SINCE.items() if parse_version(first) <= release]
    )
    return since[-1] if since else None


def without_network(image: str, holds: Holds, severity: Severity) -> Iterator[Finding]:
    """Yield a finding for an image whose plugin finds no libfabric that it can load."""
    reason = holds.too_old or (holds.lacking and f"its plugin looks for libfabric in {holds.lacking}, which has none")
    if reason:
        message = f"jobs of several nodes go over TCP: {reason}"
        yield Finding("image-without-network", severity, message, "use a newer image, or build this one again", image)


def libfabric_release(path: str) -> str | None:
    """Return the release of libfabric that a path names, as `/opt/net/libfabric/1.22.0/lib64/` does."""
    found = re.search(r"/libfabric[/-](\d+\.\d+[\w.]*)/", path)
    return None if found is None else found[1]
