"""Capture a node: put together what files say of it, its libraries first. No program is run, no root is needed.

What a file does not tell is absent. Only the version of the container runtime would need the program itself, where no
package list that can be read as text (dpkg's) has it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from lumisite.binds.copies import is_foundation, newest, numbers_in, stem
from lumisite.binds.plan import Request, library_folders
from lumisite.errors import LumisiteError
from lumisite.facts.capture_software import (
    capture_deployed,
    capture_image_directory,
    capture_products,
    capture_program,
    capture_rocm,
    slurm_version,
    stated_libraries,
)
from lumisite.facts.capture_system import (
    capture_drivers,
    capture_interfaces,
    capture_kernel,
    capture_nics,
    capture_system,
    content_of,
    directory_names,
    host_name,
    size_of,
    with_topology,
)
from lumisite.facts.facts import Facts, Library, Named, Releases
from lumisite.machine.cpu import Cpu, cpu_of
from lumisite.machine.ldcache import glob
from lumisite.machine.loader import Found, Loaded, Loader, Rules, read_rules, walk
from lumisite.machine.tree import Tree, resolve
from lumisite.site.model import Site

_CPE = "/opt/cray/pe/cpe"
_RUNTIME = "runtime.executable"
#: Libraries that a host is asked for whatever the site names: what carries traffic on Slingshot, and plugins, which are
#: opened by names without a version.
_ALWAYS = ("libcxi.so.1", "libfabric.so.1", "librccl-net", "libnccl-net")
_X86_64 = 62
_LARGEST_LIBC_BYTES = 64 * 1024 * 1024
_USUAL = ("/lib64", "/usr/lib64", "/lib", "/usr/lib")
_GROUPS = ("GLIBC", "GLIBCXX", "CXXABI")


@dataclass(frozen=True)
class Captured:
    """The facts of a node, and `notes` on what could not be read."""

    facts: Facts
    notes: tuple[str, ...]


def capture(tree: Tree, site: Site) -> Captured:
    """Read a node from its files; `tree` is its root or a copy. Whatever is damaged is left out, with a note."""
    notes: list[str] = []
    facts = with_topology(Facts(site.name), tree, notes)
    loader = _loader(tree, site, notes)
    searched = tuple(dict.fromkeys((*loader.rules.library_path, *loader.rules.directories)))
    facts = _with_libraries(facts, loader, searched, site, notes)
    products, dangling = capture_products(tree, site)
    folders = _image_folders(site)
    stated = (path for key, path in stated_paths(site) if key != _RUNTIME)  # the runtime has facts of its own
    images = {path: capture_image_directory(tree, path) for path in folders}
    facts = replace(
        facts,
        host=host_name(tree),
        os=capture_system(tree),
        kernel=capture_kernel(tree),
        slurm=slurm_version(tree, searched),
        runtime=capture_program(tree, site.runtime.executable),
        drivers=capture_drivers(tree),
        rocm=capture_rocm(tree),
        cpe=products.get(_CPE, Releases()),
        products=products,
        paths={path: _named(tree, path) for path in sorted({*stated, *folders})},
        dangling={**facts.dangling, **dangling},
        interfaces=capture_interfaces(tree, (*site.network.interfaces, *site.network.management)),
        nics=capture_nics(tree),
        images={path: found for path, found in images.items() if found},
        deployed=capture_deployed(tree, site.root),
    )
    if facts.runtime.real is not None and facts.runtime.package is None:
        notes.append(f"no file tells the version of {facts.runtime.real}; its own --version would")
    return Captured(facts, tuple(notes))


def _image_folders(site: Site) -> tuple[str, ...]:
    """Give the site's folders of images, and those of its families' patterns: what stands before the first sign."""
    folders = [str(folder.path) for folder in site.images.folders] if site.images is not None else []
    patterns = [pattern for family in site.families.values() for pattern in family.paths]
    fixed = [posixpath.dirname(re.split(r"[*?[]", pattern)[0]) for pattern in patterns if pattern.startswith("/")]
    return tuple(dict.fromkeys(path for path in (*folders, *fixed) if path != "/"))


def stated_paths(site: Site) -> Iterator[tuple[str, str]]:
    """Give every host path that the site description states, with its key there."""
    yield from stated_libraries(site)
    yield from ((f"{key}.path", one.path) for key, one in site.host_paths.items())
    yield _RUNTIME, site.runtime.executable
    if site.validation is not None:
        yield "validation.image", site.validation.image
    yield "root", site.root


def _named(tree: Tree, path: str) -> Named:
    place = resolve(tree, path)
    if place.entry is None:
        return Named("none") if place.trouble == "is not there" else Named("dangling", place.trouble)
    kind = place.entry.kind if place.entry.kind in ("file", "directory") else "other"
    return Named(kind, place.path if place.path != path else None)


def _loader(tree: Tree, site: Site, notes: list[str]) -> Loader:
    """Make a loader that also looks where only modules, binds or the site's own words lead."""
    own = [
        folder
        for name, platform in site.platforms.items()
        for cpe in (*platform.cpe_supported, *platform.cpe_leftover)
        for folder in library_folders(Request(site, name, cpe, platform.rocm, ()), tree)[0]
    ]
    own += sorted(glob(tree, "/opt/cray/libfabric/*/lib64"), key=numbers_in, reverse=True)
    library_path = tuple(dict.fromkeys(own))
    try:
        rules = read_rules(tree, cpu_of(tree) or Cpu(), library_path, captured=True)
    except LumisiteError as error:
        rules = Rules(_X86_64, _USUAL, library_path=library_path)
        notes.append(str(error))
    beyond = [
        *map(posixpath.dirname, _bound(site)),
        *sorted(glob(tree, "/opt/rocm-*/lib"), key=numbers_in, reverse=True),
        *glob(tree, "/opt/cray/*/lib"),
    ]
    return Loader(tree, replace(rules, directories=tuple(dict.fromkeys((*rules.directories, *beyond)))))


def _bound(site: Site) -> list[str]:
    """Give the paths of single libraries among the site's binds."""
    return [bind.path for bind in site.binds if ".so" in posixpath.basename(bind.path)]


def _with_libraries(facts: Facts, loader: Loader, directories: Iterable[str], site: Site, notes: list[str]) -> Facts:
    """Add the libraries that the site's families and binds name, whatever their SONAMEs are now, and what they need.

    A library counts by its stem (`libcxi` of `libcxi.so.1`), so one whose SONAME has changed is found too.
    """
    tree = loader.tree
    borrowed = (name for family in site.families.values() for name in family.libraries)
    stems = {stem(posixpath.basename(name)) for name in (*_ALWAYS, *borrowed, *_bound(site))}
    starts, dangling = _scan(loader, directories, stems, notes)
    found = {one.real: one for one in starts}
    missing: dict[str, set[str]] = {}
    for start in starts:
        for need in walk(loader, [Loaded(posixpath.basename(start.path), start)]):
            if need.loaded is not None:
                found.setdefault(need.loaded.found.real, need.loaded.found)
            elif need.requester is not None and not is_foundation(need.name):
                missing.setdefault(need.name, set()).add(need.requester.found.real)
    kept = {real: one for real, one in sorted(found.items()) if not is_foundation(one.info.soname or real)}
    sonames = {one.info.soname or posixpath.basename(real) for real, one in kept.items()}
    loads = {soname: loader.search(soname).found for soname in sorted(sonames)}
    return replace(
        facts,
        libraries={real: _library(tree, one) for real, one in kept.items()},
        loads={soname: loaded.real for soname, loaded in loads.items() if loaded is not None},
        missing={name: tuple(sorted(who)) for name, who in sorted(missing.items())},
        dangling=dangling,
        glibc=_glibc(loader),
    )


def _scan(
    loader: Loader, directories: Iterable[str], stems: set[str], notes: list[str]
) -> tuple[list[Found], dict[str, str]]:
    """Find every file with one of the stems; give links among them that lead nowhere, and note damaged files."""
    found: dict[str, Found] = {}
    dangling: dict[str, str] = {}
    for directory in directories:
        for name in directory_names(loader.tree, directory, most=None):
            if ".so" not in name or stem(name) not in stems or not name.isprintable():
                continue
            path = f"{directory}/{name}"
            answer = loader.search(path)
            if answer.found is not None:
                found.setdefault(answer.found.real, answer.found)
            elif (place := resolve(loader.tree, path)).entry is None:
                dangling[path] = place.trouble
            elif (damage := answer.trouble or "; ".join(answer.passed)) not in notes:
                notes.append(damage)
    return list(found.values()), dangling


def _library(tree: Tree, found: Found) -> Library:
    info = found.info
    versions = [version for names in info.verneed.values() for version in names]
    wants = {}
    for group in _GROUPS:
        numbered = [one for one in versions if re.fullmatch(rf"{group}_[0-9.]+", one)]
        if numbered:
            wants[group] = newest(numbered).partition("_")[2]
    return Library(soname=info.soname, size_bytes=size_of(tree, found.real) or 0, needed=info.needed, wants=wants)


def _glibc(loader: Loader) -> str | None:
    """Give glibc's version from the banner in its own file, which the file prints when it is run as a program."""
    found = loader.search("libc.so.6").found
    content = None if found is None else content_of(loader.tree, found.real, _LARGEST_LIBC_BYTES)
    banner = re.search(rb"GNU C Library [^\0\n]{0,100} release version ([0-9]+\.[0-9]+)", content or b"")
    return banner[1].decode() if banner else None
