"""Which versions an image carries, and what of that settings depend on."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from lumisite.images.collectives import NOT_KNOWN, Collection, read_collectives
from lumisite.images.contents import (
    LARGEST_RECORD_BYTES,
    LARGEST_TEXT_BYTES,
    Version,
    banner,
    collectives_of,
    environment_folders,
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
from lumisite.vendors import all_fabrics, fabrics_of, gpu_of, plugins, software_of

_TORCH = re.compile(r"^__version__\s*(?::[^=]*)?=\s*['\"]([\w.+!-]{1,100})['\"]", re.M)
_PKG_CONFIG = re.compile(r"^Version:\s*(\d[\w.+-]{0,60})\s*$", re.M)
#: What the plugin says of itself (PACKAGE_STRING in its log lines).
_PLUGIN = re.compile(rb"aws-ofi-[a-z]{0,8}ccl (\d+\.\d+[\w.+-]{0,40})")
#: What labels call it, where that is not its key here: a regular expression.
_WORDS = {"torch": "torch|pytorch", "ofi_plugin": "aws-ofi-[a-z]*ccl"}


def read_versions(site: Site, tree: Tree, held: Mapping[str, Collection] | None = None) -> dict[str, Version]:
    """Read the version of each thing that is found; raises a `LumisiteError` for an image that is damaged there.

    Releases of the site's stacks come by their names, then what carries the traffic of its GPUs and of its fabric.
    `held` are the image's copies of libraries for collectives, where they are read already.
    """
    held = read_collectives(site, tree) if held is None else held
    labels = read_labels(tree)
    folders = library_folders(tree)
    libc = find_file(tree, folders, ["libc.so.6"])
    carriers = {gpu_of(str(site.stacks[name].gpu)).collectives: one for name, one in held.items()}
    fabric = [name for one in fabrics_of(site.fabric.carrier) or all_fabrics() for name in one.libraries]
    found = {
        "torch": _torch(tree),
        **{one.name: copies.version or signed(one.images, tree, folders) for one, copies in carriers.items()},
        "libfabric": _library(tree, folders, ["libfabric.so.1"], _libfabric),
        "ofi_plugin": _library(tree, _plugin_folders(tree), plugins(), partial(banner, _PLUGIN)),
        **{name.partition(".")[0]: _library(tree, folders, [name]) for name in fabric},
        "glibc": None if libc is None else glibc_of(tree, libc),
    }
    stated = {name: one or labelled(labels, _WORDS.get(name, re.escape(name))) for name, one in found.items()}
    return {**read_releases(site, tree, held), **{name: one for name, one in stated.items() if one is not None}}


def read_holds(site: Site, family: str | None, tree: Tree, held: Mapping[str, Collection] | None = None) -> Holds:
    """Read what settings depend on in an image of a family: releases of the site's stacks, and the OFI plugin.

    A release is that of the library for collectives which programs get, and is left out where they get several. That
    there is no plugin is known only where the library is found that would open it.
    """
    held = read_collectives(site, tree) if held is None else held
    plugin = find_file(tree, _plugin_folders(tree), plugins()) is not None
    looked_at = any(one.copies for one in held.values())
    known = {name: told_release(one.value) for name, one in read_releases(site, tree, held).items()}
    releases = {name: one for name, one in known.items() if one is not None}
    return Holds(family, releases, plugin if plugin or looked_at else None)


def _plugin_folders(tree: Tree) -> tuple[str, ...]:
    return (*library_folders(tree), *environment_folders(tree))


def title_of(site: Site, name: str) -> str:
    """Give the name that people have for what has a version."""
    titles = {one.name: one.title for one in collectives_of(site)} | {"ofi_plugin": "OFI plugin"}
    return site.stacks[name].title if name in site.stacks else titles.get(name, name)


def read_releases(site: Site, tree: Tree, held: Mapping[str, Collection]) -> dict[str, Version]:
    """Return for each stack of the site that images bring the release that programs in an image get."""
    labels, folders = read_labels(tree), library_folders(tree)
    found: dict[str, Version | None] = {}
    for name, stack in site.stacks.items():
        software = None if stack.gpu is None else software_of(name, stack.gpu)
        if software is not None:
            words = "|".join(map(re.escape, {name, software.name}))
            stated = signed(software.images, tree, folders) or labelled(labels, words)
            loaded = held[name].release
            # What is not known is worth saying where something else is stated, which must not count.
            found[name] = stated if loaded is None or not (stated or loaded.value != NOT_KNOWN) else loaded
    return {name: one for name, one in found.items() if one is not None}


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
