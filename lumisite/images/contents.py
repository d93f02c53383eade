"""What an image says of itself and where in it things are, read from its files without running it.

A version is given only where a file states it. `of` says which one did, so that an admin can look.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from lumisite.images.environment import library_path
from lumisite.machine.ldcache import conf_directories, glob
from lumisite.machine.tree import Tree, is_under, names_of, resolve, text_of
from lumisite.site.images import parse_release
from lumisite.site.model import Site
from lumisite.site.versions import Version, parse_version
from lumisite.vendors import all_vendors, gpu_names, gpu_of, plugins, vendor

if TYPE_CHECKING:
    from lumisite.vendors.model import Collectives, Sign

_LABELS = "/.singularity.d/labels.json"
_LARGEST_LIBRARY_BYTES = 8 * 1024 * 1024
_CHUNK_BYTES = 128 * 1024
_LONGEST_BANNER_BYTES = 512

LIBFABRIC = "libfabric.so.1"
#: Directories of libraries behind those that the image's own loader searches.
LIBRARY_FOLDERS = (
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
_BUILT_FOLDERS = ("/opt/libfabric*/lib*", "/opt/aws-ofi-*", "/opt/aws-ofi-*/lib")
#: Where Python keeps packages: distributions, virtual environments, conda, and the environments of cotainr.
_PACKAGE_FOLDERS = (
    "/opt/venv/lib/python3*/site-packages",
    "/opt/cotainr/conda/envs/*/lib/python3*/site-packages",
    "/opt/*conda*/envs/*/lib/python3*/site-packages",
    "/opt/*conda*/lib/python3*/site-packages",
    "/usr/local/lib/python3*/site-packages",
    "/usr/local/lib/python3*/dist-packages",
    "/usr/lib/python3*/site-packages",
    "/usr/lib64/python3*/site-packages",
    "/usr/lib/python3/dist-packages",
)

#: What glibc says of itself (`csu/version.c`).
_GLIBC = re.compile(rb"GNU C Library \([^)\0]{1,200}\) (?:stable|development) release version (\d+\.\d+)")


@dataclass(frozen=True)
class StatedVersion:
    """A version as it is written, and the file that states it."""

    value: str
    of: str


class Contents:
    """Where in an image things are, worked out once."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree

    @cached_property
    def labels(self) -> dict[str, str]:
        """The labels that a build wrote into the image; labels that are no JSON are none."""
        try:
            labels = json.loads(text_of(self.tree, _LABELS) or "{}")
        except (ValueError, RecursionError):
            return {}
        return {str(key): str(value) for key, value in labels.items()} if isinstance(labels, dict) else {}

    @cached_property
    def library_path(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """LD_LIBRARY_PATH as the image sets it, and what of that is not known."""
        return library_path(self.tree)

    @cached_property
    def loader_folders(self) -> tuple[str, ...]:
        """The folders that the image's ld.so.conf names."""
        return conf_directories(self.tree)

    @cached_property
    def libraries(self) -> tuple[str, ...]:
        """The folders of libraries, those that the image's own loader searches first."""
        of_vendors = (pattern for vendor in all_vendors() for pattern in (*vendor.image_libraries, *vendor.libraries))
        built = [folder for pattern in (*of_vendors, *_BUILT_FOLDERS) for folder in glob(self.tree, pattern)]
        known = (*self.library_path[0], *self.loader_folders, *LIBRARY_FOLDERS, *built)
        return tuple(dict.fromkeys(known))

    @cached_property
    def packages(self) -> tuple[str, ...]:
        """The folders of Python packages."""
        return tuple(folder for pattern in _PACKAGE_FOLDERS for folder in glob(self.tree, pattern))

    @cached_property
    def environments(self) -> tuple[str, ...]:
        """The folders of libraries of the environments that have Python packages, as conda lays them out."""
        return tuple(dict.fromkeys(posixpath.dirname(posixpath.dirname(folder)) for folder in self.packages))

    @cached_property
    def plugins(self) -> tuple[str, ...]:
        """The paths of all that the image has under the names of a network plugin."""
        folders = dict.fromkeys((*self.libraries, *self.environments))
        paths = (f"{folder}/{name}" for folder in folders for name in plugins())
        return tuple(path for path in paths if resolve(self.tree, path).entry is not None)

    def packages_with(self, path: str) -> str | None:
        """Return the folder of Python packages that has a file, given by its real path."""
        return next((folder for folder in self.packages if is_under(path, resolve(self.tree, folder).path)), None)

    def find(self, *names: str) -> str | None:
        """Return the real path of the first of some names that is a file in a folder of libraries."""
        return find_file(self.tree, self.libraries, names)

    @cached_property
    def plugin(self) -> str | None:
        """The real path of the network plugin."""
        return find_file(self.tree, (*self.libraries, *self.environments), plugins())

    def copies_of(self, library: Collectives) -> tuple[str, ...]:
        """Return the real paths of all copies of a library for collectives, those outside of packages first."""
        files = [f"{folder}/{library.library}.so*" for folder in (*self.libraries, *self.environments)]
        files += [f"{folder}/{inner}/{library.library}.so*" for folder in self.packages for inner in library.packages]
        return tuple(
            dict.fromkeys(_real_files(self.tree, (path for pattern in files for path in glob(self.tree, pattern))))
        )

    @cached_property
    def gpu_vendors(self) -> tuple[str, ...]:
        """The vendors for whose GPUs the image holds libraries, by the words of `stacks.*.gpu`."""
        return tuple(
            name
            for name in gpu_names()
            if any(self.stated(software.images) for software in vendor(name).software)
            or self.copies_of(gpu_of(name).collectives)
        )

    def stated(self, signs: Iterable[Sign]) -> StatedVersion | None:
        """Return the version that the first sign states; of several folders of releases the newest one."""
        for sign in signs:
            in_place = sign.of in ("text", "path")
            within = ("",) if in_place else self.libraries if sign.of == "libraries" else self.packages
            stated = []
            for path in (path for folder in within for path in glob(self.tree, f"{folder}/{sign.paths}")):
                text = text_of(self.tree, path) if sign.of == "text" else path
                if version := sign.version(text or ""):
                    stated.append(StatedVersion(version, path))
            if stated:
                return max(stated, key=_order) if in_place else stated[0]
        return None


def collectives_of(site: Site) -> tuple[Collectives, ...]:
    """Return what carries collectives between the site's GPUs."""
    return tuple(gpu_of(stack.gpu).collectives for stack in site.stacks.values() if stack.gpu is not None)


def _order(version: StatedVersion) -> Version:
    return parse_release(version.value) or parse_version("0")


def find_file(tree: Tree, folders: Iterable[str], names: Iterable[str]) -> str | None:
    """Return the real path of the first of some names that is a file in a folder."""
    return next(_real_files(tree, (f"{folder}/{name}" for name in names for folder in folders)), None)


def _real_files(tree: Tree, paths: Iterable[str]) -> Iterator[str]:
    """Yield the real path of each path that leads to a file."""
    for path in paths:
        resolved = resolve(tree, path)
        if resolved.entry is not None and resolved.entry.kind == "file":
            yield resolved.path


def providers_beside(tree: Tree, libfabric: str) -> Iterator[str]:
    """Yield the providers that libfabric opens, which are in a folder beside it (fabric(7), FI_PROVIDER_PATH)."""
    folder = posixpath.join(posixpath.dirname(libfabric), "libfabric")
    yield from (f"{folder}/{name}" for name in names_of(tree, folder))


def glibc_of(tree: Tree, path: str) -> StatedVersion | None:
    """Return glibc's version from the banner in its own file, which the file prints when it is run as a program."""
    return banner(_GLIBC, tree, path)


def banner(pattern: re.Pattern[bytes], tree: Tree, path: str) -> StatedVersion | None:
    """Return the first group of what a library of at most 8 MiB says of itself.

    It is read from the end, since constants stand behind the code, and only so far.
    """
    source = tree.source(path)
    if source is None or source.size > _LARGEST_LIBRARY_BYTES:
        return None
    following = b""
    for start in reversed(range(0, source.size, _CHUNK_BYTES)):
        chunk = source.read(start, _CHUNK_BYTES)
        if match := pattern.search(chunk + following):
            return StatedVersion(match[1].decode("ascii", "replace"), path)
        following = chunk[:_LONGEST_BANNER_BYTES]
    return None
