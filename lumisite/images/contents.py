"""What an image says of itself and which versions it carries, read from its files without running it.

A version is given only where a file or a label states it. `of` says which one did, so that an admin can look.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from lumisite.images.container import library_path
from lumisite.machine.ldcache import conf_directories, glob
from lumisite.machine.tree import Tree, resolve, text_of
from lumisite.site.images import Holds, told_release
from lumisite.site.model import Site
from lumisite.site.versions import Version as Release
from lumisite.site.versions import parse_version
from lumisite.vendors import all_fabrics, all_vendors, fabrics_of, gpu_names, gpu_of, plugins, software_of, vendor

if TYPE_CHECKING:
    from lumisite.vendors.model import Collectives, Sign, Vendor

_LABELS = "/.singularity.d/labels.json"
_LARGEST_TEXT_BYTES = 1024 * 1024
_LARGEST_RECORD_BYTES = 16 * 1024
_LARGEST_LIBRARY_BYTES = 8 * 1024 * 1024
_CHUNK_BYTES = 128 * 1024
_LONGEST_BANNER_BYTES = 512

#: Directories of libraries behind those that the image's own loader is told of.
_LIBRARY_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/lib64",
    "/lib",
    "/usr/local/lib64",
    "/usr/local/lib",
)
#: Where images put what they build themselves: the folder of each release, and the plugin beside the libraries.
_OWN_FOLDERS = ("/opt/libfabric*/lib*", "/opt/aws-ofi-*", "/opt/aws-ofi-*/lib")
#: Where Python keeps packages: distributions, virtual environments, conda, and the environments of cotainr.
_PACKAGE_FOLDERS = (
    "/opt/venv/lib/python3*/site-packages",
    "/opt/cotainr/conda/envs/*/lib/python3*/site-packages",
    "/opt/*conda*/envs/*/lib/python3*/site-packages",
    "/opt/*conda*/lib/python3*/site-packages",
    "/*_TYKKY*/*/envs/*/lib/python3*/site-packages",
    "/usr/local/lib/python3*/site-packages",
    "/usr/local/lib/python3*/dist-packages",
    "/usr/lib/python3*/site-packages",
    "/usr/lib64/python3*/site-packages",
    "/usr/lib/python3/dist-packages",
)

_TORCH = re.compile(r"^__version__\s*(?::[^=]*)?=\s*['\"]([\w.+!-]{1,100})['\"]", re.M)
_PKG_CONFIG = re.compile(r"^Version:\s*(\d[\w.+-]{0,60})\s*$", re.M)
#: What glibc says of itself (`csu/version.c`), and the plugin (PACKAGE_STRING in its log lines).
_GLIBC = re.compile(rb"GNU C Library \([^)\0]{1,200}\) (?:stable|development) release version (\d+\.\d+)")
_PLUGIN = re.compile(rb"aws-ofi-[a-z]{0,8}ccl (\d+\.\d+[\w.+-]{0,40})")
#: What labels call it, where that is not its key here: a regular expression.
_WORDS = {"torch": "torch|pytorch", "ofi_plugin": "aws-ofi-[a-z]*ccl"}


@dataclass(frozen=True)
class Version:
    """A version as it is written, and the file or label that states it."""

    value: str
    of: str


def read_versions(site: Site, tree: Tree) -> dict[str, Version]:
    """Read the version of each thing that is found; raises a `LumisiteError` for an image that is damaged there.

    Releases of the site's stacks come by their names, then what carries the traffic of its GPUs and of its fabric.
    """
    labels = read_labels(tree)
    folders = library_folders(tree)
    libc = find_file(tree, folders, ["libc.so.6"])
    carriers = {one.name: _signed(one.images, tree, folders) for one in collectives_of(site)}
    fabric = [name for one in fabrics_of(site.fabric.carrier) or all_fabrics() for name in one.libraries]
    found = {
        "torch": _torch(tree),
        **carriers,
        "libfabric": _library(tree, folders, ["libfabric.so.1"], _libfabric),
        "ofi_plugin": _library(tree, folders, plugins(), partial(_banner, _PLUGIN)),
        **{name.partition(".")[0]: _library(tree, folders, [name]) for name in fabric},
        "glibc": None if libc is None else glibc_of(tree, libc),
    }
    stated = {name: one or _label(labels, _WORDS.get(name, re.escape(name))) for name, one in found.items()}
    versions = {**_releases(site, tree, folders), **stated}
    return {name: one for name, one in versions.items() if one is not None}


def read_holds(site: Site, family: str | None, tree: Tree) -> Holds:
    """Read what settings depend on in an image of a family: releases of the site's stacks, and the OFI plugin."""
    folders = library_folders(tree)
    plugin = find_file(tree, folders, plugins()) is not None
    stated = _releases(site, tree, folders).items()
    told = {name: told_release(one.value) for name, one in stated if one is not None}
    return Holds(family, {name: one for name, one in told.items() if one is not None}, plugin)


def gpu_vendors(tree: Tree) -> tuple[str, ...]:
    """Return the vendors for whose GPUs an image holds libraries, by the words of `stacks.*.gpu`."""
    folders = library_folders(tree)
    return tuple(name for name in gpu_names() if _holds_libraries_of(vendor(name), tree, folders))


def _holds_libraries_of(maker: Vendor, tree: Tree, folders: Iterable[str]) -> bool:
    software = any(_signed(one.images, tree, folders) for one in maker.software)
    return software or (maker.gpu is not None and bool(copies_of(maker.gpu.collectives, tree, folders)))


def copies_of(library: Collectives, tree: Tree, folders: Iterable[str]) -> tuple[str, ...]:
    """Return the real paths of all copies of a library for collectives, those outside of Python packages first."""
    files = [f"{folder}/{library.library}.so*" for folder in (*folders, *environment_folders(tree))]
    files += [f"{one}/{inner}/{library.library}.so*" for one in packages_in(tree) for inner in library.packages]
    places = (resolve(tree, path) for pattern in files for path in glob(tree, pattern))
    return tuple(dict.fromkeys(one.path for one in places if one.entry is not None and one.entry.kind == "file"))


def title_of(site: Site, name: str) -> str:
    """Give the name that people have for what has a version."""
    titles = {one.name: one.title for one in collectives_of(site)} | {"ofi_plugin": "OFI plugin"}
    return site.stacks[name].title if name in site.stacks else titles.get(name, name)


def read_labels(tree: Tree) -> dict[str, str]:
    """Give the labels that a build wrote into the image; labels that are no JSON are none."""
    try:
        labels = json.loads(text_of(tree, _LABELS, _LARGEST_TEXT_BYTES) or "{}")
    except (ValueError, RecursionError):
        return {}
    return {str(key): str(value) for key, value in labels.items()} if isinstance(labels, dict) else {}


def _label(labels: Mapping[str, str], words: str) -> Version | None:
    """Take a label that is named for one thing only, which fits the regular expression `words`.

    >>> _label({"org.example.glibc.version": "2.39"}, "glibc")
    Version(value='2.39', of='label org.example.glibc.version')
    """
    for key in sorted(labels):
        last = re.sub(r"[._-]version$", "", key.lower()).rpartition(".")[2]
        if re.fullmatch(words, last) and re.fullmatch(r"v?\d[\w.+-]{0,60}", labels[key]):
            return Version(labels[key], f"label {key}")
    return None


def _releases(site: Site, tree: Tree, folders: Iterable[str]) -> dict[str, Version | None]:
    """Give for each stack of the site that images bring the release that is in an image."""
    labels, found = read_labels(tree), {}
    for name, stack in site.stacks.items():
        software = None if stack.gpu is None else software_of(name, stack.gpu)
        if software is not None:
            words = "|".join(map(re.escape, {name, software.name}))
            found[name] = _signed(software.images, tree, folders) or _label(labels, words)
    return found


def collectives_of(site: Site) -> tuple[Collectives, ...]:
    """Give what carries collectives between the site's GPUs."""
    return tuple(gpu_of(stack.gpu).collectives for stack in site.stacks.values() if stack.gpu is not None)


def _signed(signs: Iterable[Sign], tree: Tree, folders: Iterable[str]) -> Version | None:
    """Give the version that the first sign states; of several folders of releases the newest one."""
    for sign in signs:
        in_place = sign.of in ("text", "path")
        within = ("",) if in_place else folders if sign.of == "libraries" else packages_in(tree)
        stated = []
        for path in (path for folder in within for path in glob(tree, f"{folder}/{sign.paths}")):
            text = text_of(tree, path, _LARGEST_RECORD_BYTES) if sign.of == "text" else path
            if version := sign.version(text or ""):
                stated.append(Version(version, path))
        if stated:
            return max(stated, key=_order) if in_place else stated[0]
    return None


def _order(version: Version) -> Release:
    return told_release(version.value) or parse_version("0")


def packages_in(tree: Tree) -> Iterator[str]:
    """Give the folders of Python packages in an image."""
    yield from (folder for pattern in _PACKAGE_FOLDERS for folder in glob(tree, pattern))


def environment_folders(tree: Tree) -> tuple[str, ...]:
    """Return the folders of libraries of the environments that have Python packages, as conda lays them out."""
    return tuple(dict.fromkeys(posixpath.dirname(posixpath.dirname(folder)) for folder in packages_in(tree)))


def _torch(tree: Tree) -> Version | None:
    """Join what the environments of an image have; one that has the same adds nothing."""
    seen: dict[str, str] = {}
    for path in (f"{folder}/torch/version.py" for folder in packages_in(tree)):
        if match := _TORCH.search(text_of(tree, path, _LARGEST_TEXT_BYTES) or ""):
            seen.setdefault(match[1], path)
    return Version(", ".join(seen), ", ".join(seen.values())) if seen else None


def library_folders(tree: Tree) -> tuple[str, ...]:
    """Give the folders of libraries in an image, those that its own loader is told of first."""
    patterns = (*(one for maker in all_vendors() for one in (*maker.image_libraries, *maker.libraries)), *_OWN_FOLDERS)
    own = [folder for pattern in patterns for folder in glob(tree, pattern)]
    return tuple(dict.fromkeys((*library_path(tree)[0], *conf_directories(tree), *_LIBRARY_FOLDERS, *own)))


def plugins_in(tree: Tree) -> tuple[str, ...]:
    """Give the paths of all that an image has under the names of a network plugin."""
    folders = dict.fromkeys((*library_folders(tree), *environment_folders(tree)))
    paths = (f"{folder}/{name}" for folder in folders for name in plugins())
    return tuple(path for path in paths if resolve(tree, path).entry is not None)


def find_file(tree: Tree, folders: Iterable[str], names: Iterable[str]) -> str | None:
    """Give the real path of the first of some names that is a file in a folder."""
    places = (resolve(tree, f"{folder}/{name}") for name in names for folder in folders)
    return next((place.path for place in places if place.entry is not None and place.entry.kind == "file"), None)


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
    if match := _PKG_CONFIG.search(text_of(tree, settings, _LARGEST_RECORD_BYTES) or ""):
        return Version(match[1], settings)
    release = re.search(r"/libfabric[/-](\d+\.\d+[\w.]*)/", path)
    return None if release is None else Version(release[1], path)


def glibc_of(tree: Tree, path: str) -> Version | None:
    """Give glibc's version from the banner in its own file, which the file prints when it is run as a program."""
    return _banner(_GLIBC, tree, path)


def _banner(pattern: re.Pattern[bytes], tree: Tree, path: str) -> Version | None:
    """Find what a library says of itself, from its end, since constants stand behind the code; read only so far."""
    source = tree.source(path)
    if source is None or source.size > _LARGEST_LIBRARY_BYTES:
        return None
    behind = b""
    for start in reversed(range(0, source.size, _CHUNK_BYTES)):
        chunk = source.read(start, _CHUNK_BYTES)
        if match := pattern.search(chunk + behind):
            return Version(match[1].decode("ascii", "replace"), path)
        behind = chunk[:_LONGEST_BANNER_BYTES]
    return None


def version_lines(site: Site, versions: Mapping[str, Version]) -> Iterator[str]:
    """Write versions for people, as `PyTorch 2.9.1` would be."""
    for name, one in versions.items():
        yield f"{title_of(site, name)} {one.value}"
