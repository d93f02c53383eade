"""The libraries of a node: those that the site names, and all that they need, as the loader finds them.

Here is what a capture has of them, and how two captures differ. A library is known by its name without a version, so
that another SONAME is one change. Source: ld.so(8), ldconfig(8).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache

from lumisite.binds.host_libraries import folders_below, more_folders
from lumisite.binds.never_bound import is_never_bound
from lumisite.errors import LumisiteError
from lumisite.facts.change import DOUBT, FAULT, INFO, Change, Words, only_in
from lumisite.facts.facts import Facts, Library
from lumisite.facts.reading import Texts, folders_of, is_below, mode_of, owner_of
from lumisite.facts.releases import installed_releases
from lumisite.facts.stated import stated_libraries
from lumisite.findings.finding import Finding, Severity
from lumisite.images.contents import glibc_of
from lumisite.machine.ldcache import CACHE, CONF, conf_directories, config_lines, glob, read_cache
from lumisite.machine.library_names import newest, numbers_in, public_versions, stem
from lumisite.machine.loader import Found, Loaded, Loader, Rules, cpu_levels, read_rules, walk
from lumisite.machine.tree import Tree, digest_of, file_of, names_of, resolve, size_of
from lumisite.site.model import Site
from lumisite.text import listed
from lumisite.vendors import all_fabrics, all_software, all_vendors, fabrics_of, plugins, software_of

#: A library that is looked for whatever the site names, with what carries its fabric and with plugins, which are
#: opened by names without a version.
_ALWAYS = "libfabric.so.1"
_GROUPS = ("GLIBC", "GLIBCXX", "CXXABI")
#: Larger libraries, such as those of kernels for GPUs, are known by their size alone.
_LARGEST_DIGEST_BYTES = 32 * 1024 * 1024
_PLAN = "plan the images that borrow it again: lumisite binds IMAGE --write FILE"


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
    libc = loader.search("libc.so.6").found
    glibc = glibc_of(tree, libc.real) if libc else None
    libraries = {real: _library(tree, library) for real, library in found.items()}
    facts = replace(
        facts,
        libraries=libraries,
        texts={**facts.texts, "library-rights": _rights(tree, site, libraries)},
        loads={soname: loaded.real for soname, loaded in loads.items() if loaded is not None},
        beside=tuple(sorted({_soname(library) for library in siblings.found.values()} - sonames)),
        searched=tuple(sorted(searched)),
        missing=missing,
        uncached=_uncached(loader, searched | {stem(name) for name in missing}),
        damaged=dict(sorted((scan.damaged | siblings.damaged).items())),
        dangling=scan.dangling,
        glibc=glibc.value if glibc else None,
    )
    return facts, folders


# Where libraries are looked for

#: How the loader knows a folder: by ld.so.conf and what it includes; or only by a file beside it, or by its old cache.
SEARCHED, NOT_SEARCHED = "searched", "not searched"
#: Folders that the loader searches without being told, with those of its levels of processors.
_USUAL = re.compile(r"/(usr/)?lib(32|64|x32)?(/[\w-]+-linux-gnu)?(/glibc-hwcaps/.*)?")
_X86_64, _AARCH64 = 62, 183  # as ELF numbers machines


def read_loader(tree: Tree, _: Site) -> Texts:
    """Return the folders of ld.so.conf and of the files beside it, and what is loaded into every program."""
    beside = (line.partition("=")[0].strip() for line in config_lines(tree, glob(tree, f"{CONF}.d/*.conf")))
    folders = {folder: NOT_SEARCHED for folder in _cached_folders(tree) if not _USUAL.fullmatch(folder)}
    folders |= {posixpath.normpath(line): NOT_SEARCHED for line in beside if line.startswith("/")}
    folders |= dict.fromkeys(conf_directories(tree), SEARCHED)
    found = {folder: [state] for folder, state in folders.items() if resolve(tree, folder).entry is not None}
    found[CONF] = ["present"] if resolve(tree, CONF).entry is not None else []
    return {**found, "/etc/ld.so.preload": list(config_lines(tree, ["/etc/ld.so.preload"]))}


def _cached_folders(tree: Tree) -> set[str]:
    """Return the folders of the loader's cache; none where it is damaged, which the search for libraries reports."""
    with suppress(LumisiteError):
        source = file_of(tree, CACHE)
        caches = [read_cache(source, machine) for machine in (_X86_64, _AARCH64)] if source else []
        return {posixpath.dirname(path).partition("/glibc-hwcaps/")[0] for cache in caches for path in cache.values()}
    return set()


def is_same_search(old: Words, new: Words) -> bool:
    """Return whether the loader looks wherever it looked before; a folder or a list that came is no change alone."""
    return old == new or new == ("present",) or ((not old or not new) and {*old, *new} <= {SEARCHED, NOT_SEARCHED})


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
    for folder in folders:
        for name in (name for name in names_of(tree, folder, None) if ".so" in name and stem(name) in stems):
            path = f"{folder}/{name}"
            answer, file = loader.search(path), resolve(tree, path)
            if answer.found is not None:
                scan.found.setdefault(answer.found.real, answer.found)
            elif file.entry is None:
                scan.dangling[path] = file.path
            elif file.path not in unreadable:  # which is reported of all files
                reasons = [answer.trouble] if answer.trouble else answer.passed
                scan.damaged.setdefault(file.path, reasons[0].cause or reasons[0].code if reasons else "")
    return scan


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


# How two captures differ: SONAMEs, what is missing, what is new


def compare_sonames(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change for each library that has another SONAME."""
    for gone, come in _paired(before, after):
        if gone and come:
            was, now = ", ".join(gone), ", ".join(come)
            users = f"Rebuild images that take {was} from the host: the host has {now} instead."
            names = (*gone, *(_link(before, name) for name in gone))
            yield Change(
                "soname", gone[0], was, now, f"SONAME {was} -> {now}", FAULT, gone, come, names, (), (users,), _PLAN
            )


def _paired(before: Facts, after: Facts) -> Iterator[tuple[Words, Words]]:
    """Yield the SONAMEs that went and that came of each library."""
    old, new = _by_stem(before.loads), _by_stem(after.loads)
    searched = {*after.searched, *new, *_by_stem(after.missing)}
    for name in sorted(old.keys() | new.keys()):
        gone, come = only_in(old.get(name, ()), new.get(name, ()))
        # One that nothing needs any more was not looked for, and may still be there.
        yield tuple(soname for soname in gone if name in searched and soname not in after.beside), come


def _by_stem(sonames: Iterable[str]) -> dict[str, list[str]]:
    stems: dict[str, list[str]] = {}
    for soname in sorted(sonames):
        stems.setdefault(stem(posixpath.basename(soname)), []).append(soname)
    return stems


def _link(facts: Facts, name: str) -> str:
    """Return the link by which a loaded library is usually named."""
    return posixpath.join(posixpath.dirname(facts.loads[name]), name)


def compare_missing(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change for each library that cannot be loaded any more, or that is needed now and not there."""
    for name in (name for gone, come in _paired(before, after) if not come for name in gone):
        path, needing = before.loads[name], after.missing.get(name, ())
        message, advice = _reason(name, path, after)
        users = f"Rebuild images that take {name} from the host, which no longer has it."
        names = (name, _link(before, name), *_sonames(after, needing))
        inside = () if needing else (path,)
        text = f"{message}; it was {path}"
        yield Change("library-missing", name, name, None, text, FAULT, (path,), (), names, inside, (users,), advice)
    for name in sorted(after.missing.keys() - before.missing.keys() - before.loads.keys()):
        message, users = f"not found, needed by {listed(after.missing[name])}", f"{name} is missing on the host."
        names = (name, *_sonames(after, after.missing[name]))
        yield Change(
            "library-missing", name, None, "not found", message, FAULT, names=names, users=(users,), advice="install it"
        )


def _reason(name: str, path: str, after: Facts) -> tuple[str, str]:
    """Return why a library cannot be loaded, and what to do."""
    if path in after.damaged:
        return f"cannot be loaded ({after.damaged[path]})", "install its package again"
    if name in after.uncached:
        return f"is in {posixpath.dirname(after.uncached[name])}, but not in {CACHE}", "run ldconfig on the node"
    for link, target in after.dangling.items():
        if posixpath.basename(link) == name:
            return f"{link} is a broken link to {target}", "restore its target"
    needing = f", needed by {listed(after.missing[name])}" if name in after.missing else ""
    return f"not found{needing}", f"install it again, or {_PLAN}"


def _sonames(facts: Facts, paths: Iterable[str]) -> Words:
    return tuple(facts.libraries.get(path, Library()).soname or posixpath.basename(path) for path in paths)


def compare_new(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change for each library that there is now, of those that the site names or that something lacked."""
    for name in (name for gone, come in _paired(before, after) if not gone for name in come):
        if stem(name) in after.searched or name in before.missing:
            path = after.loads[name]
            names = (name, _link(after, name), *_sonames(before, before.missing.get(name, ())))
            yield Change("library-new", name, None, name, f"found now, {path}", INFO, (), (name,), names, (path,))


# How two captures differ: files


def compare_files(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change for each library that is another file: the one that is loaded, and copies in other releases."""
    for name in sorted(before.loads.keys() & after.loads.keys()):
        yield from _compare_file(name, before, after, before.loads[name], after.loads[name])
    copies = before.libraries.keys() & after.libraries.keys()
    for path in sorted(copies.difference(before.loads.values(), after.loads.values())):
        yield from _compare_file(after.libraries[path].soname or posixpath.basename(path), before, after, path, path)


def _compare_file(name: str, before: Facts, after: Facts, old_path: str, new_path: str) -> Iterator[Change]:
    old, new = before.libraries.get(old_path, Library()), after.libraries.get(new_path, Library())
    if old_path != new_path:
        how = f"loaded from {old_path} -> {new_path}"
    elif old.size_bytes != new.size_bytes:
        how = f"another file {new_path} ({old.size_bytes} -> {new.size_bytes} bytes)"
    elif old.sha256 and new.sha256 and old.sha256 != new.sha256:  # large ones have no digest
        how = f"another file {new_path} (same size)"
    else:
        return
    newer, parts = _newer_needs(old, new), list(_differences(old, new))
    lost, _ = only_in(old.gives, new.gives)
    text = "Images without {} cannot load libraries of the host: rebuild them on a newer base."
    yield Change(
        "library",
        name,
        old_path,
        new_path,
        "; ".join((*parts, how)),
        FAULT if newer or lost else DOUBT,
        names=(name,),
        inside=() if parts else tuple(dict.fromkeys((old_path, new_path))),
        users=tuple(map(text.format, newer)),
        advice=_PLAN if parts else "validate an image that borrows it",
    )


def _newer_needs(old: Library, new: Library) -> list[str]:
    """Return the versions of glibc's or GCC's symbols that a library needs, which it did not need before."""
    return [
        f"{group}_{version}"
        for group, version in sorted(new.wants.items())
        if numbers_in(version) > numbers_in(old.wants.get(group, ""))
    ]


def _differences(old: Library, new: Library) -> Iterator[str]:
    """Yield what a library needs and has for others that is not as before, but for other SONAMEs of the same."""
    if newer := _newer_needs(old, new):
        yield f"needs {listed(newer)} now"
    was, now = ([stem(name) + "*" for name in one.needed if not is_never_bound(name)] for one in (old, new))
    for verb, pair in (("needs", (was, now)), ("has symbol versions", (old.gives, new.gives))):
        gone, come = only_in(*pair)
        if come:
            yield f"{verb} {listed(come)} now"
        if gone:
            yield f"no longer {verb} {listed(gone)}"
