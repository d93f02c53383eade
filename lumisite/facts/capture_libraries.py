"""Which libraries of a node containers may borrow, and what a program would get by each name."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from lumisite.binds.copies import is_foundation, newest, numbers_in
from lumisite.binds.plan import Request, library_folders
from lumisite.errors import LumisiteError
from lumisite.facts.capture_system import content_of, size_of
from lumisite.facts.facts import Facts, Library
from lumisite.machine.ldcache import glob
from lumisite.machine.loader import Found, Loaded, Loader, Rules, cpu_levels, read_rules, walk
from lumisite.machine.tree import Tree, resolve
from lumisite.site.model import Site

#: What carries traffic on Slingshot; a host is asked for them whatever the site names.
_ALWAYS = ("libcxi.so.1", "libfabric.so.1")
#: Plugins are opened by their names, which have no version.
_PLUGINS = ("librccl-net", "libnccl-net")
_X86_64 = 62
_LARGEST_LIBC_BYTES = 64 * 1024 * 1024
_USUAL = ("/lib64", "/usr/lib64", "/lib", "/usr/lib")
_GROUPS = ("GLIBC", "GLIBCXX", "CXXABI")


def with_libraries(facts: Facts, tree: Tree, site: Site) -> tuple[Facts, tuple[str, ...], tuple[str, ...]]:
    """Add the libraries that the site's families and binds name, whatever their SONAMEs are now, and what they need.

    A library counts by its stem (`libcxi` of `libcxi.so.1`), so one whose SONAME has changed is found too. Given are
    the facts, the directories that were searched, and notes on what is damaged.
    """
    loader, notes = _loader(tree, site)
    directories = tuple(dict.fromkeys((*loader.rules.library_path, *loader.rules.directories)))
    borrowed = (name for family in site.families.values() for name in family.libraries)
    stems = {stem_of(name) for name in (*_ALWAYS, *_PLUGINS, *borrowed, *_bound(site))}
    starts, dangling, damaged = _scan(loader, directories, stems)
    found = {one.real: one for one in starts}
    missing: dict[str, set[str]] = {}
    for start in starts:
        for need in walk(loader, [Loaded(posixpath.basename(start.path), start)]):
            if need.loaded is not None:
                found.setdefault(need.loaded.found.real, need.loaded.found)
            elif need.requester is not None and not is_foundation(need.name):
                missing.setdefault(need.name, set()).add(need.requester.found.real)
    kept = {real: one for real, one in found.items() if not is_foundation(one.info.soname or real)}
    known = replace(
        facts,
        libraries={real: _library(tree, one) for real, one in sorted(kept.items())},
        loads=dict(sorted(_loads(loader, kept.values()))),
        missing={name: tuple(sorted(who)) for name, who in sorted(missing.items())},
        dangling=dangling,
        glibc=_glibc(loader),
    )
    return known, directories, (*notes, *damaged)


def stem_of(name: str) -> str:
    """Give what a library is called without its version.

    >>> stem_of("libjson-c.so.5"), stem_of("librccl-net")
    ('libjson-c', 'librccl-net')
    """
    return posixpath.basename(name).partition(".so")[0]


def _bound(site: Site) -> list[str]:
    """Give the paths of single libraries among the site's binds."""
    return [bind.path for bind in site.binds if ".so" in posixpath.basename(bind.path)]


def _loader(tree: Tree, site: Site) -> tuple[Loader, tuple[str, ...]]:
    """Make a loader that also looks where only modules, binds or the site's own words lead."""
    folders = tuple(dict.fromkeys(_folders(tree, site)))
    levels = cpu_levels(tree)
    notes: tuple[str, ...] = ()
    try:
        rules = read_rules(tree, levels, folders, captured=True)
    except LumisiteError as error:
        rules, notes = Rules(_X86_64, _USUAL, library_path=folders), (str(error),)
    return Loader(
        tree, replace(rules, directories=tuple(dict.fromkeys((*rules.directories, *_beyond(tree, site)))))
    ), notes


def _folders(tree: Tree, site: Site) -> Iterator[str]:
    for name, platform in site.platforms.items():
        for cpe in (*platform.cpe_supported, *platform.cpe_leftover):
            yield from library_folders(Request(site, name, cpe, platform.rocm, ()), tree)[0]
    yield from sorted(glob(tree, "/opt/cray/libfabric/*/lib64"), key=numbers_in, reverse=True)


def _beyond(tree: Tree, site: Site) -> Iterator[str]:
    yield from map(posixpath.dirname, _bound(site))
    yield from sorted(glob(tree, "/opt/rocm-*/lib"), key=numbers_in, reverse=True)
    yield from glob(tree, "/opt/cray/*/lib")


def _scan(
    loader: Loader, directories: Iterable[str], stems: set[str]
) -> tuple[list[Found], dict[str, str], tuple[str, ...]]:
    """Find every file with one of the stems; give links among them that lead nowhere, and files that are damaged."""
    found: dict[str, Found] = {}
    dangling: dict[str, str] = {}
    damaged: dict[str, None] = {}
    for directory in directories:
        place = resolve(loader.tree, directory)
        names = loader.tree.names(place.path) if place.entry is not None and place.entry.kind == "directory" else ()
        for name in sorted(names):
            if ".so" not in name or stem_of(name) not in stems or not name.isprintable():
                continue
            path = f"{directory}/{name}"
            answer = loader.search(path)
            if answer.found is not None:
                found.setdefault(answer.found.real, answer.found)
            elif (place := resolve(loader.tree, path)).entry is None:
                dangling[path] = place.trouble
            else:
                damaged[answer.trouble or "; ".join(answer.passed)] = None
    return list(found.values()), dangling, tuple(damaged)


def _loads(loader: Loader, libraries: Iterable[Found]) -> Iterator[tuple[str, str]]:
    """Say which file a program would get by each SONAME, and by the site's own names."""
    for soname in {one.info.soname or posixpath.basename(one.real) for one in libraries}:
        found = loader.search(soname).found
        if found is not None:
            yield soname, found.real


def _library(tree: Tree, found: Found) -> Library:
    info = found.info
    versions = [version for names in info.verneed.values() for version in names]
    return Library(
        soname=info.soname,
        size_bytes=size_of(tree, found.real) or 0,
        needed=info.needed,
        wants={group: highest for group in _GROUPS if (highest := _highest(versions, group))},
    )


def _highest(versions: Iterable[str], group: str) -> str | None:
    numbered = [one for one in versions if re.fullmatch(rf"{group}_[0-9.]+", one)]
    return newest(numbered).partition("_")[2] if numbered else None


def _glibc(loader: Loader) -> str | None:
    """Give glibc's version from the banner in its own file, which the file prints when it is run as a program."""
    found = loader.search("libc.so.6").found
    content = None if found is None else content_of(loader.tree, found.real, _LARGEST_LIBC_BYTES)
    banner = re.search(rb"GNU C Library [^\0\n]{0,100} release version ([0-9]+\.[0-9]+)", content or b"")
    return banner[1].decode() if banner else None
