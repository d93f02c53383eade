"""Capture a node: put together what files say of it, its libraries first. No program is run, no root is needed.

What a file does not tell is absent. Only the version of the container runtime would need the program itself, where no
package list that can be read as text (dpkg's) has it.
"""

from __future__ import annotations

import itertools
import posixpath
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from lumisite.binds.plan import beyond, folders_below
from lumisite.errors import DifferenceError, LumisiteError
from lumisite.facts.capture_plain import PARTS, with_closed, with_digests
from lumisite.facts.capture_system import capture_system
from lumisite.facts.facts import Deployed, Facts, ImageFile, Library, Named, Program, Releases
from lumisite.facts.installed import VERSION, installed_releases, package_version, versions_below
from lumisite.findings.writers import message
from lumisite.images.contents import glibc_of
from lumisite.images.sif import MAGIC, MAGIC_OFFSET
from lumisite.machine.ldcache import glob
from lumisite.machine.library_names import in_order, is_foundation, newest, numbers_in, public_versions, stem
from lumisite.machine.loader import Found, Loaded, Loader, Rules, Search, processor, read_rules, walk
from lumisite.machine.tree import Tree, content_of, digest_of, head_of, names_of, resolve, size_of
from lumisite.render.manifest import LARGEST_MANIFEST_BYTES, MANIFEST, parse_manifest
from lumisite.site.model import Site
from lumisite.vendors import all_fabrics, all_software, all_vendors, fabrics_of, plugins, software_of

_RUNTIME = "runtime.executable"
#: A library that a host is asked for whatever the site names, with what carries its fabric and with plugins, which are
#: opened by names without a version.
_ALWAYS = "libfabric.so.1"
_GROUPS = ("GLIBC", "GLIBCXX", "CXXABI")
_LARGEST_FILE_BYTES, _LARGEST_PROGRAM_BYTES = 64 * 1024 * 1024, 256 * 1024 * 1024
_MOST_FILES, _DEEPEST = 5000, 8
#: What image files are called; anything else in a directory of images is no image.
_IMAGE_NAMES = (".sif", ".simg", ".img", ".sqsh", ".sqfs", ".squashfs")
_MOST_IMAGES = 5000
_PACKAGES = ("apptainer", "singularity-ce", "singularity-container")
#: Where Debian, SUSE and a build from source put the library that holds Slurm's version.
_SLURM_LIBRARIES = ("{}/slurm/libslurmfull.so", "{}/slurm-wlm/libslurmfull.so")


@dataclass(frozen=True)
class Captured:
    """The facts of a node, and `notes` on what could not be read."""

    facts: Facts
    notes: tuple[str, ...]


def capture(tree: Tree, site: Site) -> Captured:
    """Read a node from its files; `tree` is its root or a copy. Whatever is damaged is left out, with a note."""
    notes: list[str] = []
    facts = capture_system(tree, site.name, (*site.fabric.interfaces, *site.fabric.management), notes)
    loader = _loader(tree, site, notes)
    searched = tuple(dict.fromkeys((*loader.rules.library_path, *loader.rules.directories)))
    facts = _with_libraries(facts, loader, searched, site, notes)
    products, dangling = _products(tree, site)
    folders = _image_folders(site)
    stated = (path for key, path in stated_paths(site) if key != _RUNTIME)  # the runtime has facts of its own
    images = {path: _images(tree, path) for path in folders}
    facts = replace(
        facts,
        slurm=_slurm(tree, searched),
        runtime=Program() if site.runtime.executable is None else _program(tree, site.runtime.executable),
        stacks=_stacks(tree),
        products=products,
        paths={path: _named(tree, path) for path in sorted({*stated, *folders})},
        dangling={**facts.dangling, **dangling},
        images={path: found for path, found in images.items() if found},
        deployed=_deployed(tree, site.root),
        plain={kind: part for kind, read in PARTS.items() if (part := read(tree, site)) is not None},
    )
    facts = with_closed(with_digests(facts, tree, notes), tree, notes)
    if facts.runtime.real is not None and facts.runtime.package is None:
        notes.append(f"no file tells the version of {facts.runtime.real}; its own --version would")
    return Captured(facts, tuple(notes))


def capture_undescribed(tree: Tree) -> Captured:
    """Read of a node what no site description has to name: hardware, kernel, drivers and installed releases."""
    notes: list[str] = []
    facts = capture_system(tree, "", (), notes)
    return Captured(replace(facts, stacks=_stacks(tree)), tuple(notes))


def _stacks(tree: Tree) -> dict[str, Releases]:
    return {one.name: found for _, one in all_software() if (found := installed_releases(tree, one)).versions}


def _image_folders(site: Site) -> tuple[str, ...]:
    """Give the site's folders of images, and those of its families' patterns: what stands before the first sign."""
    folders = [str(folder.path) for folder in site.images.folders] if site.images is not None else []
    patterns = [pattern for family in site.families.values() for pattern in family.paths]
    fixed = [posixpath.dirname(re.split(r"[*?[]", pattern)[0]) for pattern in patterns if pattern.startswith("/")]
    return tuple(dict.fromkeys(path for path in (*folders, *fixed) if path != "/"))


def stated_paths(site: Site) -> Iterator[tuple[str, str]]:
    """Give every host path that the site description states, with its key there."""
    yield from _stated_libraries(site)
    yield from ((f"{key}.path", one.path) for key, one in site.host_paths.items())
    if site.runtime.executable is not None:
        yield _RUNTIME, site.runtime.executable
    if site.validation is not None:
        yield "validation.image", site.validation.image
    yield "root", site.root


def _named(tree: Tree, path: str) -> Named:
    place = resolve(tree, path)
    if place.entry is None:
        if posixpath.dirname(place.path) in getattr(tree, "unreadable", {}):
            return Named("unreadable", place.trouble)
        return Named("none") if place.code == "path-missing" else Named("dangling", place.trouble)
    tree.look(f"{place.path}/.")  # notes a folder that may not be entered
    kind = place.entry.kind if place.entry.kind in ("file", "directory") else "other"
    return Named(kind, place.path if place.path != path else None)


def _loader(tree: Tree, site: Site, notes: list[str]) -> Loader:
    """Make a loader that also looks where only modules, binds or the site's own words lead."""
    stated = sorted((path for _, path in _stated_libraries(site)), key=numbers_in, reverse=True)
    folders = [folder for path in (*_in_force(tree, site), *stated) for folder in folders_below(tree, path)]
    for pattern in (pattern for one in all_vendors() for pattern in one.libraries):
        folders += sorted(glob(tree, pattern), key=numbers_in, reverse=True)
    library_path = tuple(dict.fromkeys(folders))
    try:
        rules = read_rules(tree, processor(tree), library_path, captured=True)
    except LumisiteError as error:
        rules = Rules(library_path=library_path)
        notes.append(str(error))
    defaults = {one.name: [resolve(tree, path).path for path in one.defaults] for _, one in all_software()}
    everywhere = dict.fromkeys((*rules.directories, *beyond(site, tree, defaults)))
    return Loader(tree, replace(rules, directories=tuple(everywhere)))


def _in_force(tree: Tree, site: Site) -> Iterator[str]:
    """Give the directories of the releases that the node has as defaults, those of installed stacks first.

    Without such a link the release of the platform in force counts.
    """
    platform = site.platforms[site.platform]
    for stack in site.host_stacks:
        software = software_of(stack, None)
        default = None if software is None else installed_releases(tree, software).default
        release = site.releases(stack).get(default or str(platform.defaults.get(stack)))
        yield from release.libraries.values() if release else ()
    parents = dict.fromkeys(posixpath.dirname(path) for _, path in _stated_libraries(site))
    yield from (resolve(tree, f"{parent}/default").path for parent in parents)
    yield from platform.libraries.values()


def asked_stems(site: Site) -> set[str]:
    """Give the stems of the libraries that every capture looks for, whether they are needed or not."""
    borrowed = [name for family in site.families.values() for name in family.libraries]
    bound = (posixpath.basename(bind.path) for bind in site.binds)
    fabrics = fabrics_of(site.fabric.carrier) or tuple(all_fabrics())
    carriers = (name for fabric in fabrics for name in fabric.libraries)
    return {
        stem(posixpath.basename(name))
        for name in (_ALWAYS, *carriers, *plugins(), *borrowed, *(one for one in bound if ".so" in one))
    }


def _with_libraries(facts: Facts, loader: Loader, directories: Iterable[str], site: Site, notes: list[str]) -> Facts:
    """Add the libraries that the site's families and binds name, whatever their SONAMEs are now, and what they need.

    A library counts by its stem (`libfabric` of `libfabric.so.1`), so one whose SONAME has changed is found too.
    """
    tree = loader.tree
    asked = asked_stems(site)
    damaged: dict[str, str] = {}
    starts, dangling = _scan(loader, directories, asked, damaged)
    notes += dict.fromkeys(damaged.values())
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
    siblings, _ = _scan(loader, directories, {stem(name) for name in (*sonames, *missing)} - asked, damaged)
    beside = {one.info.soname or posixpath.basename(one.real) for one in siblings} - sonames
    libc = loader.search("libc.so.6").found
    return replace(
        facts,
        libraries={real: _library(tree, one) for real, one in kept.items()},
        loads={soname: loaded.real for soname, loaded in loads.items() if loaded is not None},
        beside=tuple(sorted(beside)),
        missing={name: tuple(sorted(who)) for name, who in sorted(missing.items())},
        damaged=dict(sorted(damaged.items())),
        dangling=dangling,
        glibc=None if libc is None or (version := glibc_of(tree, libc.real)) is None else version.value,
    )


def _scan(
    loader: Loader, directories: Iterable[str], stems: set[str], damaged: dict[str, str]
) -> tuple[list[Found], dict[str, str]]:
    """Find every file with one of the stems; give links among them that lead nowhere, and add damaged files."""
    found: dict[str, Found] = {}
    dangling: dict[str, str] = {}
    for directory in directories:
        for name in names_of(loader.tree, directory, None):
            if ".so" not in name or stem(name) not in stems or not name.isprintable():
                continue
            path = f"{directory}/{name}"
            answer = loader.search(path)
            if answer.found is not None:
                found.setdefault(answer.found.real, answer.found)
            elif (place := resolve(loader.tree, path)).entry is None:
                dangling[path] = place.trouble
            elif place.path not in getattr(loader.tree, "unreadable", {}):  # which is told of all files
                damaged.setdefault(place.path, _why(answer))
    return list(found.values()), dangling


def _why(answer: Search) -> str:
    """Return what is wrong with a library that no search takes."""
    findings = [answer.trouble] if answer.trouble else answer.passed
    return "; ".join(f"{one.subject} {message(one)}" for one in findings)


def _library(tree: Tree, found: Found) -> Library:
    info = found.info
    versions = [version for names in info.verneed.values() for version in names]
    wants = {}
    for group in _GROUPS:
        if numbered := [one for one in versions if re.fullmatch(rf"{group}_[0-9.]+", one)]:
            wants[group] = newest(numbered).partition("_")[2]
    gives = tuple(sorted(public_versions(info.verdef)))
    size = size_of(tree, found.real) or 0
    return Library(soname=info.soname, size_bytes=size, needed=info.needed, wants=wants, gives=gives)


def _products(tree: Tree, site: Site) -> tuple[dict[str, Releases], dict[str, str]]:
    """Find the directories that hold one directory for each release of a product; and defaults that lead nowhere."""
    parents = {posixpath.dirname(at) for _, at in _stated_libraries(site) if VERSION.fullmatch(posixpath.basename(at))}
    tops = {top for one in all_vendors() for top in one.products}
    parents |= {f"{top}/{name}" for top in tops for name in names_of(tree, top)}
    found, dangling = {}, {}
    for path in sorted(parents - tops):
        if versions := tuple(in_order(versions_below(tree, path))):
            place = resolve(tree, f"{path}/default")
            leads = bool(place.links)
            found[path] = Releases(versions, posixpath.basename(place.path) if leads and place.entry else None)
            if leads and place.entry is None:
                dangling[f"{path}/default"] = "leads to nothing that is there"
    return found, dangling


def _stated_libraries(site: Site) -> Iterator[tuple[str, str]]:
    """Give the directories of libraries that the site description states, with their keys there."""
    for name, platform in site.platforms.items():
        yield from ((f"platforms.{name}.libraries.{what}", path) for what, path in platform.libraries.items())
    for stack, described in site.stacks.items():
        for name, release in described.releases.items():
            here = f"stacks.{stack}.releases.{name}.libraries"
            yield from ((f"{here}.{what}", path) for what, path in release.libraries.items())


def _slurm(tree: Tree, directories: Iterable[str]) -> str | None:
    """Find Slurm's version: the one version that stands by itself in its own library.

    Every program of Slurm prints the literal `SLURM_VERSION_STRING`, which the compiler puts once, between NULs, into
    libslurmfull.so. Seen so in Debian's Slurm 22.05, 24.11 and 26.05. Two that differ are no answer.
    """
    folders = dict.fromkeys((*directories, "/opt/slurm/lib", "/opt/slurm/lib64"))
    for path in (form.format(folder) for folder in folders for form in _SLURM_LIBRARIES):
        content = content_of(tree, path, _LARGEST_FILE_BYTES)
        if content is not None:
            found = set(re.findall(rb"(?<=\0)(\d\d\.\d\d\.\d+(?:-\d+)?(?:-?rc\d+)?)(?=\0)", content))
            return found.pop().decode() if len(found) == 1 else None
    return None


def _program(tree: Tree, path: str) -> Program:
    """Read what files tell of the container runtime."""
    place = resolve(tree, path)
    if place.entry is None or place.entry.kind != "file":
        return Program()
    digest = digest_of(tree, place.path, _LARGEST_PROGRAM_BYTES)
    return Program(place.path, size_of(tree, place.path), _package(tree), digest)


def _package(tree: Tree) -> str | None:
    """Find the package of a container runtime."""
    found = ((name, package_version(tree, name)) for name in _PACKAGES)
    return next((f"{name} {version}" for name, version in found if version), None)


def _images(tree: Tree, path: str) -> dict[str, ImageFile]:
    """Read the images of a directory and of the directories in it: where each name leads, and which image it is."""
    found: dict[str, ImageFile] = {}
    real = resolve(tree, path).path
    for name in itertools.islice(_image_names(tree, path), _MOST_IMAGES):
        place = resolve(tree, f"{path}/{name}")
        if place.entry is None:
            found[name] = ImageFile(target=place.trouble)
        elif place.entry.kind == "file":
            target = place.path if place.path != f"{real}/{name}" else None
            found[name] = ImageFile(target, size_of(tree, place.path), _identity(tree, place.path))
    return found


def _image_names(tree: Tree, path: str) -> Iterator[str]:
    for name in names_of(tree, path):
        inner = () if name.endswith(_IMAGE_NAMES) else names_of(tree, f"{path}/{name}")
        names = (name, *(f"{name}/{one}" for one in inner))
        yield from (one for one in names if one.endswith(_IMAGE_NAMES) and one.isprintable())


def _identity(tree: Tree, path: str) -> str | None:
    """Give the UUID that every SIF gets when it is made (`pkg/sif/sif.go` of sylabs/sif: 16 bytes after the arch)."""
    head = head_of(tree, path, 64) or b""
    if len(head) < 64 or head[MAGIC_OFFSET : MAGIC_OFFSET + len(MAGIC)] != MAGIC:
        return None
    return head[48:64].hex()


def _deployed(tree: Tree, root: str) -> Deployed:
    """Read which release is deployed, and hash its files."""
    place = resolve(tree, f"{root}/current")
    if place.entry is None or place.entry.kind != "directory":
        return Deployed()
    files = {}
    for path in itertools.islice(_files(tree, place.path, _DEEPEST), _MOST_FILES):
        if digest := digest_of(tree, path, _LARGEST_FILE_BYTES):
            files[path[len(place.path) + 1 :]] = digest
    names: dict[str, str] = {}
    with suppress(DifferenceError):
        manifest = content_of(tree, f"{place.path}/{MANIFEST}", LARGEST_MANIFEST_BYTES) or b""
        names = parse_manifest(manifest, MANIFEST).leads
    return Deployed(posixpath.basename(place.path), files, names)


def _files(tree: Tree, path: str, depth: int) -> Iterator[str]:
    for name in names_of(tree, path):
        here = f"{path}/{name}"
        entry = tree.look(here)
        if entry is not None and entry.kind == "file":
            yield here
        elif entry is not None and entry.kind == "directory" and depth:
            yield from _files(tree, here, depth - 1)
