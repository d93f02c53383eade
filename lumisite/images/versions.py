"""Which versions an image carries, and what of that settings depend on."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from lumisite.images.contents import (
    LARGEST_RECORD_BYTES,
    LARGEST_TEXT_BYTES,
    Version,
    banner,
    collectives_of,
    find_file,
    glibc_of,
    labelled,
    library_folders,
    packages_in,
    read_labels,
    signed,
)
from lumisite.machine.tree import Tree, text_of
from lumisite.site.images import Holds, told_release
from lumisite.site.model import Site
from lumisite.vendors import all_fabrics, fabrics_of, plugins, software_of

_TORCH = re.compile(r"^__version__\s*(?::[^=]*)?=\s*['\"]([\w.+!-]{1,100})['\"]", re.M)
_PKG_CONFIG = re.compile(r"^Version:\s*(\d[\w.+-]{0,60})\s*$", re.M)
#: What the plugin says of itself (PACKAGE_STRING in its log lines).
_PLUGIN = re.compile(rb"aws-ofi-[a-z]{0,8}ccl (\d+\.\d+[\w.+-]{0,40})")
#: What labels call it, where that is not its key here: a regular expression.
_WORDS = {"torch": "torch|pytorch", "ofi_plugin": "aws-ofi-[a-z]*ccl"}


def read_versions(site: Site, tree: Tree) -> dict[str, Version]:
    """Read the version of each thing that is found; raises a `LumisiteError` for an image that is damaged there.

    Releases of the site's stacks come by their names, then what carries the traffic of its GPUs and of its fabric.
    """
    labels = read_labels(tree)
    folders = library_folders(tree)
    libc = find_file(tree, folders, ["libc.so.6"])
    carriers = {one.name: signed(one.images, tree, folders) for one in collectives_of(site)}
    fabric = [name for one in fabrics_of(site.fabric.carrier) or all_fabrics() for name in one.libraries]
    found = {
        "torch": _torch(tree),
        **carriers,
        "libfabric": _library(tree, folders, ["libfabric.so.1"], _libfabric),
        "ofi_plugin": _library(tree, folders, plugins(), partial(banner, _PLUGIN)),
        **{name.partition(".")[0]: _library(tree, folders, [name]) for name in fabric},
        "glibc": None if libc is None else glibc_of(tree, libc),
    }
    stated = {name: one or labelled(labels, _WORDS.get(name, re.escape(name))) for name, one in found.items()}
    versions = {**_releases(site, tree, folders), **stated}
    return {name: one for name, one in versions.items() if one is not None}


def read_holds(site: Site, family: str | None, tree: Tree) -> Holds:
    """Read what settings depend on in an image of a family: releases of the site's stacks, and the OFI plugin."""
    folders = library_folders(tree)
    plugin = find_file(tree, folders, plugins()) is not None
    stated = _releases(site, tree, folders).items()
    told = {name: told_release(one.value) for name, one in stated if one is not None}
    return Holds(family, {name: one for name, one in told.items() if one is not None}, plugin)


def title_of(site: Site, name: str) -> str:
    """Give the name that people have for what has a version."""
    titles = {one.name: one.title for one in collectives_of(site)} | {"ofi_plugin": "OFI plugin"}
    return site.stacks[name].title if name in site.stacks else titles.get(name, name)


def _releases(site: Site, tree: Tree, folders: Iterable[str]) -> dict[str, Version | None]:
    """Give for each stack of the site that images bring the release that is in an image."""
    labels, found = read_labels(tree), {}
    for name, stack in site.stacks.items():
        software = None if stack.gpu is None else software_of(name, stack.gpu)
        if software is not None:
            words = "|".join(map(re.escape, {name, software.name}))
            found[name] = signed(software.images, tree, folders) or labelled(labels, words)
    return found


def _torch(tree: Tree) -> Version | None:
    """Join what the environments of an image have; one that has the same adds nothing."""
    seen: dict[str, str] = {}
    for path in (f"{folder}/torch/version.py" for folder in packages_in(tree)):
        if match := _TORCH.search(text_of(tree, path, LARGEST_TEXT_BYTES) or ""):
            seen.setdefault(match[1], path)
    return Version(", ".join(seen), ", ".join(seen.values())) if seen else None


def _library(
    tree: Tree,
    folders: Iterable[str],
    names: Iterable[str],
    stated: Callable[[Tree, str], Version | None] = lambda tree, path: None,
) -> Version | None:
    """Give the release of a library as it is `stated`, else the real name of its file: `libx.so.1.5.0`."""
    path = find_file(tree, folders, names)
    return None if path is None else stated(tree, path) or Version(posixpath.basename(path), path)


def _libfabric(tree: Tree, path: str) -> Version | None:
    """Give the release of libfabric where its own files state it; the number of its file is another one."""
    settings = f"{posixpath.dirname(path)}/pkgconfig/libfabric.pc"
    if match := _PKG_CONFIG.search(text_of(tree, settings, LARGEST_RECORD_BYTES) or ""):
        return Version(match[1], settings)
    release = re.search(r"/libfabric[/-](\d+\.\d+[\w.]*)/", path)
    return None if release is None else Version(release[1], path)


def version_lines(site: Site, versions: Mapping[str, Version]) -> Iterator[str]:
    """Write versions for people, as `PyTorch 2.9.1` would be."""
    for name, one in versions.items():
        yield f"{title_of(site, name)} {one.value}"
