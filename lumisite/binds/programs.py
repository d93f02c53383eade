"""Which copy of a library for collectives the programs of an image load; nothing is run.

PyTorch is followed as its interpreter opens it, any other program as one that is linked with the library.

Sources: `torch/__init__.py` of PyTorch (`libtorch_global_deps.so` is opened by its path, then the extension `_C`); what
vendors' wheels open before that, each in the vendor's file; dlopen(3) and `elf/dl-open.c` of glibc 2.36.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lumisite.images.contents import LARGEST_RECORD_BYTES, Contents, is_copy_of, torch_libraries
from lumisite.machine.ldcache import glob
from lumisite.machine.loader import Loaded, Loader, ProcessObjects
from lumisite.machine.tree import Tree, resolve, text_of

if TYPE_CHECKING:
    from lumisite.vendors.model import Collectives

_PYTHON = "python3"


@dataclass(frozen=True)
class Use:
    """A program, its process, and the `copy` of a library for collectives in it, which may also be linked in.

    `packages` is the folder of Python packages that has the program, if it is one of Python.
    """

    program: str
    process: ProcessObjects
    copy: Loaded | None
    packages: str | None = None

    def open_plugin(self, library: Collectives) -> Loaded | None:
        """Open the network plugin as the library does: under the first of its names that the loader finds."""
        opened = (self.process.dlopen(name, self.copy) for name in library.plugins)
        return next((plugin for plugin in opened if plugin is not None), None)


def uses_of(library: Collectives, loader: Loader, contents: Contents) -> tuple[Use, ...]:
    """Return the programs that use a library for collectives, PyTorch of each environment first."""
    return (*_torch_uses(library, loader, contents), *_linked_use(library, loader, contents))


def _torch_uses(library: Collectives, loader: Loader, contents: Contents) -> Iterator[Use]:
    tree = loader.tree
    for packages in contents.packages:
        libraries = torch_libraries(tree, packages)
        if not libraries:
            continue
        process = ProcessObjects(loader, program=_interpreter(loader, packages))
        needing = [path for path, needed in libraries.items() if any(is_copy_of(library, name) for name in needed)]
        for path in (*_opened_first(library, tree, packages), *needing):
            process.dlopen(path)
        copy = _copy_in(process, library)
        built = text_of(tree, f"{packages}/torch/version.py", LARGEST_RECORD_BYTES) or ""
        if copy is not None or (library.torch and library.torch.version(built)):
            yield Use(f"PyTorch in {packages}", process, copy, packages)


def _interpreter(loader: Loader, packages: str) -> Loaded | None:
    """Return the program that runs Python of an environment; $ORIGIN of a program is where its real file is."""
    top = posixpath.normpath(f"{packages}/../../..")
    for folder in (f"{top}/bin", "/usr/local/bin", "/usr/bin"):
        resolved = resolve(loader.tree, f"{folder}/{_PYTHON}")
        found = None if resolved.entry is None else loader.search(resolved.path).found
        if found is not None:
            return Loaded(resolved.path, found)
    return None


def _opened_first(library: Collectives, tree: Tree, packages: str) -> Iterator[str]:
    """Yield the paths that PyTorch opens before its libraries that need one for collectives."""
    init = text_of(tree, f"{packages}/{library.preloads}", LARGEST_RECORD_BYTES) if library.preloads else None
    if init and re.search(rf"['\"]{re.escape(library.name)}['\"]", init):
        patterns = (f"{packages}/{folder}/{library.library}.so*" for folder in library.packages[1:])
        found = (path for pattern in patterns for path in glob(tree, pattern))
        yield from tuple(found)[:1]
    yield f"{packages}/torch/lib/libtorch_global_deps.so"
    yield from glob(tree, f"{packages}/torch/_C.*.so")


def _copy_in(process: ProcessObjects, library: Collectives) -> Loaded | None:
    """Return the object of a process that serves as a library for collectives."""
    return next((loaded for name, loaded in process.by_name.items() if is_copy_of(library, name)), None)


def _linked_use(library: Collectives, loader: Loader, contents: Contents) -> Iterator[Use]:
    """Yield the copy that a program gets which is linked with the library, and has no search path of its own."""
    copies = contents.copies_of(library)
    outside = [path for path in copies if contents.packages_with(path) is None]
    found = (loader.search(path).found for path in copies)
    names = dict.fromkeys(copy.info.soname or posixpath.basename(copy.path) for copy in found if copy is not None)
    # What no search finds a program has on its own search path, or it does not run.
    for name in (*names, *(outside if len(outside) == 1 else ())):
        process = ProcessObjects(loader)
        copy = process.dlopen(name)
        if copy is not None:
            yield Use(f"programs that are linked with {library.title}", process, copy)
            return
