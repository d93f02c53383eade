"""The copies of a library for collectives in an image: which version and release each has.

PyTorch often brings a copy in its wheel, beside the one of the system, and both may be of other releases. Settings are
right for one release: where copies differ, none is known.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lumisite.images.contents import (
    LARGEST_RECORD_BYTES,
    Contents,
    StatedVersion,
    find_constant,
    is_copy_of,
    torch_libraries,
)
from lumisite.machine.ldcache import glob
from lumisite.machine.tree import Tree, resolve, text_of
from lumisite.site.images import parse_release
from lumisite.site.model import Site
from lumisite.vendors import gpu_of, software_of

if TYPE_CHECKING:
    from lumisite.vendors.model import Collectives, Sign

NOT_KNOWN = "not known"


@dataclass(frozen=True)
class Copy:
    """A copy by its real path, with its `version`, and the `release` of the stack that it is of.

    One that PyTorch has inside itself has the path of PyTorch, and no version.
    """

    path: str
    version: StatedVersion | None
    release: StatedVersion | None


@dataclass(frozen=True)
class Collection:
    """All copies of one library for collectives, `title` for people, in an image for a stack."""

    title: str
    stack: str
    copies: tuple[Copy, ...] = ()

    @property
    def release(self) -> StatedVersion | None:
        """The release of the stack that the copies are of, all that differ in major and minor number joined."""
        stated = {copy.release.value if copy.release else NOT_KNOWN: copy for copy in self.copies}
        if len(stated) < 2:
            return next((copy.release or StatedVersion(NOT_KNOWN, copy.path) for copy in stated.values()), None)
        of = ", ".join(copy.path for copy in stated.values())
        series = {_series(value) for value in stated}
        (first, *others) = series
        return StatedVersion(", ".join(stated), of) if others or first is None else StatedVersion(first, of)

    @property
    def settled(self) -> bool:
        """Whether all copies are of one release, as far as settings depend on it."""
        return self.release is None or parse_release(self.release.value) is not None

    @property
    def version(self) -> StatedVersion | None:
        """The versions of the copies, joined."""
        found = {copy.version.value: copy.version.of for copy in self.copies if copy.version is not None}
        return StatedVersion(", ".join(found), ", ".join(found.values())) if found else None


def read_collectives(site: Site, contents: Contents) -> Mapping[str, Collection]:
    """Read the copies for each stack of the site that has GPUs; raises a `LumisiteError` for a damaged image."""
    found = {}
    for name, stack in site.stacks.items():
        if stack.gpu is not None:
            library, software = gpu_of(stack.gpu).collectives, software_of(name, stack.gpu)
            system = None if software is None else contents.stated(software.images)
            copies = tuple(_copies(library, contents, system))
            found[name] = Collection(library.title, name, copies)
    return found


def _copies(library: Collectives, contents: Contents, system: StatedVersion | None) -> Iterator[Copy]:
    """Yield all copies, those of Python packages first."""
    tree = contents.tree
    for packages in contents.packages:
        if (release := _built_for(library, tree, packages)) and _is_inside(library, tree, packages):
            yield Copy(f"{packages}/torch", None, release)
    folders = {resolve(tree, folder).path for folder in contents.libraries}
    for path in sorted(contents.copies_of(library), key=lambda path: contents.packages_with(path) is None):
        packages_with_it = contents.packages_with(path)
        release = _stated(library.releases, tree, path, packages_with_it)
        if packages_with_it is not None:
            release = release or _built_for(library, tree, packages_with_it)
        elif posixpath.dirname(path) in folders:
            release = release or system
        yield Copy(path, _stated(library.copies, tree, path, packages_with_it), release)


def _is_inside(library: Collectives, tree: Tree, packages: str) -> bool:
    """Return whether PyTorch of some packages needs no library for collectives beside it, so that it has its own."""
    libraries = torch_libraries(tree, packages)
    needed = (name for names in libraries.values() for name in names)
    return bool(libraries) and not any(is_copy_of(library, name) for name in needed)


def _stated(signs: Iterable[Sign], tree: Tree, path: str, packages: str | None) -> StatedVersion | None:
    """Return what the first sign states of one copy."""
    for sign in signs:
        for of, text in _texts(sign, tree, path, packages):
            if version := sign.version(text):
                return StatedVersion(version, of)
    return None


def _texts(sign: Sign, tree: Tree, path: str, packages: str | None) -> Iterator[tuple[str, str]]:
    """Yield what a sign is looked for in, each with the file that it is of."""
    if sign.of == "library":
        yield path, path
    elif sign.of == "banner":
        match = find_constant(re.compile(sign.regex.encode()), tree, path)
        yield path, match[0].decode("ascii", "replace") if match else ""
    elif sign.of == "beside":
        file = posixpath.normpath(f"{posixpath.dirname(path)}/{sign.paths}")
        yield file, text_of(tree, file, LARGEST_RECORD_BYTES) or ""
    elif packages is not None:
        yield from ((file, file) for file in glob(tree, f"{packages}/{sign.paths}"))


def _built_for(library: Collectives, tree: Tree, packages: str) -> StatedVersion | None:
    """Return the release that PyTorch of some packages was built for, as it states it itself."""
    file = f"{packages}/torch/version.py"
    version = library.torch.version(text_of(tree, file, LARGEST_RECORD_BYTES) or "") if library.torch else None
    return None if version is None else StatedVersion(version, file)


def _series(value: str) -> str | None:
    """Return the first two numbers of a release.

    >>> _series("7.0.2"), _series("not known")
    ('7.0', None)
    """
    numbers = re.match(r"\d+\.\d+", value)
    return None if numbers is None else numbers[0]
