"""Capture the libraries of a node: those that the site names, and all that they need, as the loader finds them."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache

from lumisite.binds.host_libraries import folders_below, more_folders
from lumisite.binds.never_bound import is_never_bound
from lumisite.errors import LumisiteError
from lumisite.facts.facts import Facts, Library
from lumisite.facts.reading import folders_of, is_below, mode_of, owner_of
from lumisite.facts.releases import installed_releases
from lumisite.facts.stated import stated_libraries
from lumisite.findings.finding import Finding, Severity
from lumisite.images.contents import glibc_of
from lumisite.machine.ldcache import conf_directories, glob
from lumisite.machine.library_names import newest, numbers_in, public_versions, stem
from lumisite.machine.loader import Found, Loaded, Loader, Rules, Search, cpu_levels, read_rules, walk
from lumisite.machine.tree import Tree, digest_of, names_of, resolve, size_of
from lumisite.site.model import Site
from lumisite.vendors import all_fabrics, all_software, all_vendors, fabrics_of, plugins, software_of

#: A library that is looked for whatever the site names, with what carries its fabric and with plugins, which are
#: opened by names without a version.
_ALWAYS = "libfabric.so.1"
_GROUPS = ("GLIBC", "GLIBCXX", "CXXABI")
#: Larger libraries, such as those of kernels for GPUs, are known by their size alone.
_LARGEST_DIGEST_BYTES = 32 * 1024 * 1024


@dataclass
class _Scan:
    """What was found by name: files by real path, those that cannot be loaded with the reason, and broken links."""

    found: dict[str, Found] = field(default_factory=dict)
    damaged: dict[str, str] = field(default_factory=dict)
    dangling: dict[str, str] = field(default_factory=dict)


def capture_libraries(facts: Facts, tree: Tree, site: Site, findings: list[Finding]) -> tuple[Facts, tuple[str, ...]]:
    """Add the libraries that the site's families and binds name, and what they need; return the searched folders too.

    A library counts by its stem (`libfabric` of `libfabric.so.1`), so one whose SONAME has changed is found too.
    """
    loader = _loader(tree, site, findings)
    folders = tuple(dict.fromkeys((*loader.rules.library_path, *loader.rules.directories)))
    searched = _searched_stems(site)
    scan = _scan(loader, folders, searched)
    for path, reason in scan.damaged.items():
        message = f"library cannot be loaded ({reason})"
        findings.append(Finding("facts-incomplete", Severity.DOUBT, message, "install its package again", path))
    found, missing = _with_needs(loader, scan.found)
    sonames = {_soname(library) for library in found.values()}
    loads = {soname: loader.search(soname).found for soname in sorted(sonames)}
    siblings = _scan(loader, folders, {stem(name) for name in (*sonames, *missing)} - searched)
    beside = {_soname(library) for library in siblings.found.values()} - sonames
    libc = loader.search("libc.so.6").found
    libraries = {real: _library(tree, library) for real, library in found.items()}
    facts = replace(
        facts,
        libraries=libraries,
        texts={**facts.texts, "library-rights": _rights(tree, site, libraries)},
        loads={soname: loaded.real for soname, loaded in loads.items() if loaded is not None},
        beside=tuple(sorted(beside)),
        searched=tuple(sorted(searched)),
        missing=missing,
        uncached=_uncached(loader, searched | {stem(name) for name in missing}),
        damaged=dict(sorted((scan.damaged | siblings.damaged).items())),
        dangling=scan.dangling,
        glibc=None if libc is None or (version := glibc_of(tree, libc.real)) is None else version.value,
    )
    return facts, folders


# Where libraries are looked for


def _loader(tree: Tree, site: Site, findings: list[Finding]) -> Loader:
    """Return a loader that also looks where only modules, binds or the site description lead."""
    stated = sorted((path for _, path in stated_libraries(site)), key=numbers_in, reverse=True)
    folders = [folder for path in (*_default_folders(tree, site), *stated) for folder in folders_below(tree, path)]
    for pattern in (pattern for vendor in all_vendors() for pattern in vendor.libraries):
        folders += sorted(glob(tree, pattern), key=numbers_in, reverse=True)
    library_path = tuple(dict.fromkeys(folders))
    try:
        rules = read_rules(tree, cpu_levels(tree), library_path, captured=True)
    except LumisiteError as error:
        rules = Rules(library_path=library_path)
        message = f"libraries are searched by usual rules: {error}"
        findings.append(Finding("facts-incomplete", Severity.DOUBT, message, "run ldconfig on the node"))
    software = [product for _, product in all_software()]
    defaults = {product.name: [resolve(tree, path).path for path in product.defaults] for product in software}
    everywhere = dict.fromkeys((*rules.directories, *more_folders(site, tree, defaults)))
    return Loader(tree, replace(rules, directories=tuple(everywhere)))


def _default_folders(tree: Tree, site: Site) -> Iterator[str]:
    """Yield the folders of the releases that the node has as defaults, those of installed stacks first.

    Without such a link the release of the platform in force counts.
    """
    platform = site.platforms[site.platform]
    for stack in site.host_stacks:
        software = software_of(stack, None)
        default = None if software is None else installed_releases(tree, software).default
        release = site.releases(stack).get(default or str(platform.defaults.get(stack)))
        yield from release.libraries.values() if release else ()
    parents = dict.fromkeys(posixpath.dirname(path) for _, path in stated_libraries(site))
    yield from (resolve(tree, f"{parent}/default").path for parent in parents)
    yield from platform.libraries.values()


def _searched_stems(site: Site) -> set[str]:
    """Return the stems of the libraries that are looked for, whether they are needed or not."""
    borrowed = [name for family in site.families.values() for name in family.libraries]
    bound = [posixpath.basename(bind.path) for bind in site.binds if ".so" in posixpath.basename(bind.path)]
    fabrics = fabrics_of(site.fabric.carrier) or tuple(all_fabrics())
    carriers = [name for fabric in fabrics for name in fabric.libraries]
    names = (_ALWAYS, *carriers, *plugins(), *borrowed, *bound)
    return {stem(posixpath.basename(name)) for name in names}


# Which libraries there are


def _scan(loader: Loader, folders: Iterable[str], stems: set[str]) -> _Scan:
    """Find every file with one of the stems."""
    scan, tree = _Scan(), loader.tree
    unreadable = getattr(tree, "unreadable", {})
    for path in (f"{folder}/{name}" for folder in folders for name in names_of(tree, folder, None)):
        name = posixpath.basename(path)
        if ".so" not in name or stem(name) not in stems or not name.isprintable():
            continue
        answer = loader.search(path)
        if answer.found is not None:
            scan.found.setdefault(answer.found.real, answer.found)
        elif (file := resolve(tree, path)).entry is None:
            scan.dangling[path] = file.path
        elif file.path not in unreadable:  # which is reported of all files
            scan.damaged.setdefault(file.path, _reason(answer))
    return scan


def _reason(answer: Search) -> str:
    """Return the code of what is wrong with a file that no search takes."""
    findings = [answer.trouble] if answer.trouble else answer.passed
    return findings[0].cause or findings[0].code if findings else ""


def _with_needs(loader: Loader, starts: dict[str, Found]) -> tuple[dict[str, Found], dict[str, tuple[str, ...]]]:
    """Return the libraries with all that they need, but for the C library; and what is missing, with who needs it."""
    found, missing = dict(starts), dict[str, set[str]]()
    for start in starts.values():
        for need in walk(loader, [Loaded(posixpath.basename(start.path), start)]):
            if need.loaded is not None:
                found.setdefault(need.loaded.found.real, need.loaded.found)
            elif need.requester is not None and not is_never_bound(need.name):
                missing.setdefault(need.name, set()).add(need.requester.found.real)
    kept = {real: library for real, library in sorted(found.items()) if not is_never_bound(library.info.soname or real)}
    return kept, {name: tuple(sorted(users)) for name, users in sorted(missing.items())}


def _uncached(loader: Loader, stems: set[str]) -> dict[str, str]:
    """Return the libraries in the folders of ld.so.conf which the loader does not find, as its cache is older."""
    scan = _scan(loader, conf_directories(loader.tree), stems)
    found = {_soname(library): real for real, library in sorted(scan.found.items())}
    return {name: real for name, real in found.items() if loader.search(name).found is None}


def _soname(found: Found) -> str:
    return found.info.soname or posixpath.basename(found.real)


def _library(tree: Tree, found: Found) -> Library:
    info = found.info
    versions = [version for names in info.verneed.values() for version in names]
    wants = {}
    for group in _GROUPS:
        if numbered := [version for version in versions if re.fullmatch(rf"{group}_[0-9.]+", version)]:
            wants[group] = newest(numbered).partition("_")[2]
    gives = tuple(sorted(public_versions(info.verdef)))
    size, digest = size_of(tree, found.real) or 0, digest_of(tree, found.real, _LARGEST_DIGEST_BYTES)
    return Library(info.soname, size, info.needed, wants, gives, digest)


def _rights(tree: Tree, site: Site, libraries: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return by whom but root a library, or a folder above it, can be replaced, for those where there is somebody."""
    places = {str(system.path) for system in site.file_systems}
    places = {*places, *(resolve(tree, place).path for place in places)} - {"/"}
    rights = cache(lambda place: (owner_of(tree, place), mode_of(tree, place)))  # most have the same folders above
    found = {}
    for path in libraries:
        words = ["on a file system of users"] if is_below(path, places) else []
        for place in [*folders_of(path)][:-1]:
            owner, mode = rights(place)
            if owner is not None:
                words.append(f"owned by uid {owner}")
            if mode is not None and mode & 0o002 and not mode & 0o1000:
                words.append(f"{'library' if place == path else 'folder'} of mode {mode:04o}")
        if words:
            found[path] = tuple(dict.fromkeys(words))
    return found
