"""Whether the network plugin of an image finds a libfabric: one of its own, or the host's where modules bind it.

An image whose library path leads to a libfabric that the host no longer has goes over TCP, and nothing reports it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import replace

from lumisite.findings.finding import Finding, Severity
from lumisite.images.container import RUNTIME_LIBRARIES
from lumisite.images.contents import LIBFABRIC, LIBRARY_FOLDERS, Contents, find_file
from lumisite.machine.elf import ElfError, read_elf
from lumisite.site.images import Holds, parse_release
from lumisite.site.library_path import host_libfabric, library_path
from lumisite.site.model import Site
from lumisite.site.versions import Version

#: Where programs look when nothing names a folder.
_USUAL_FOLDER = "/usr/lib64"


def search_libfabric(image: Contents, plugin: str) -> tuple[str | None, tuple[str, ...] | None]:
    """Return the libfabric of the image itself that its plugin finds, and else the folders in which it looks.

    The second value is `None` where not all folders are known.
    """
    of_plugin = _own_search_path(image, plugin)
    of_image, unknown = image.library_path
    in_image = (*of_plugin, *of_image, *image.loader_folders)
    named = tuple(dict.fromkeys(folder for folder in in_image if folder != RUNTIME_LIBRARIES))
    if own := find_file(image.tree, (*named, *LIBRARY_FOLDERS), [LIBFABRIC]):
        return own, ()
    # A copy elsewhere may come on the path by what a program's start-up scripts do.
    return None, None if unknown or image.find(LIBFABRIC) else named


def _own_search_path(image: Contents, plugin: str) -> tuple[str, ...]:
    """Return the absolute folders of RPATH and RUNPATH of a library, with its own folder for $ORIGIN."""
    source = image.tree.source(plugin)
    try:
        info = None if source is None else read_elf(source)
    except ElfError:
        info = None
    texts = [] if info is None else f"{info.rpath or ''}:{info.runpath or ''}".split(":")
    origin = posixpath.dirname(plugin)
    folders = (text.replace("${ORIGIN}", origin).replace("$ORIGIN", origin) for text in texts)
    return tuple(posixpath.normpath(folder) for folder in folders if folder.startswith("/"))


def with_network(
    site: Site, platform: str, holds: Holds, own: Version | bool, folders: tuple[str, ...] | None
) -> Holds:
    """Return what an image with a plugin holds, with whether that finds a libfabric on a platform.

    `own` is the release of the image's own libfabric that the plugin finds, or whether there is one; else `folders` are
    those in which it looks.
    """
    if own:
        return replace(holds, plugin=True, libfabric=own if isinstance(own, Version) else None)
    of_host = host_libfabric(site, platform, holds.family)
    if folders is None or of_host is None:
        return replace(holds, plugin=None)
    searched = (*folders, *(library_path(site, platform, holds.family) if holds.family is not None else ()))
    found = next((folder for folder in searched if folder in of_host), None)
    if found is not None:
        return replace(holds, plugin=True, libfabric=parse_release(libfabric_release(f"{found}/")))
    lacking = next((folder for folder in searched if "libfabric" in folder), (*searched, _USUAL_FOLDER)[0])
    return replace(holds, plugin=False, lacking=lacking)


def without_network(image: str, holds: Holds, severity: Severity) -> Iterator[Finding]:
    """Yield a finding for an image whose plugin finds no libfabric."""
    if holds.lacking:
        message = (
            f"jobs of several nodes go over TCP: its plugin looks for libfabric in {holds.lacking}, which has none"
        )
        yield Finding("image-without-network", severity, message, "use a newer image, or build this one again", image)


def libfabric_release(path: str) -> str | None:
    """Return the release of libfabric that a path names, as `/opt/net/libfabric/1.22.0/lib64/` does."""
    found = re.search(r"/libfabric[/-](\d+\.\d+[\w.]*)/", path)
    return None if found is None else found[1]
