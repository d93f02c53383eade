"""Capture a node from its files. No program is run, no root is needed.

What a file does not tell is absent. Only the version of the container runtime would need the program itself, where no
package list that can be read as text (dpkg's) has it.
"""

from __future__ import annotations

import itertools
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from lumisite.errors import DifferenceError
from lumisite.facts.capture_libraries import capture_libraries
from lumisite.facts.capture_system import capture_system, interfaces_on_devices
from lumisite.facts.context import RUNTIME, stated_libraries, stated_paths
from lumisite.facts.facts import Deployed, Facts, ImageFile, Named, Program, Releases
from lumisite.facts.installed import VERSION, installed_releases, package_version, versions_below
from lumisite.facts.kinds import KINDS
from lumisite.facts.kinds.paths import CLOSED
from lumisite.findings.finding import Finding, Severity
from lumisite.images.sif import MAGIC, MAGIC_OFFSET
from lumisite.machine.library_names import in_order
from lumisite.machine.tree import Tree, broken_link_on, content_of, digest_of, head_of, names_of, resolve, size_of
from lumisite.render.manifest import LARGEST_MANIFEST_BYTES, MANIFEST, parse_manifest
from lumisite.site.model import Site
from lumisite.vendors import all_software, all_vendors

_LARGEST_FILE_BYTES, _LARGEST_PROGRAM_BYTES = 64 * 1024 * 1024, 256 * 1024 * 1024
_MOST_FILES, _DEEPEST = 5000, 8
#: What image files are called; anything else in a directory of images is no image.
_IMAGE_NAMES = (".sif", ".simg", ".img", ".sqsh", ".sqfs", ".squashfs")
_MOST_IMAGES = 5000
#: Files and folders that cannot be read are named before they are only counted.
_MOST_CLOSED = 20
_PACKAGES = ("apptainer", "singularity-ce", "singularity-container")
#: Where Debian, SUSE and a build from source put the library that has Slurm's version.
_SLURM_LIBRARIES = ("{}/slurm/libslurmfull.so", "{}/slurm-wlm/libslurmfull.so")
_SLURM_FOLDERS = ("/opt/slurm/lib", "/opt/slurm/lib64")


@dataclass(frozen=True)
class Captured:
    """The facts of a node, and findings on what could not be read."""

    facts: Facts
    findings: tuple[Finding, ...]


def capture(tree: Tree, site: Site) -> Captured:
    """Read a node from its files; `tree` is its root or a copy. Whatever is damaged is left out, with a finding."""
    findings: list[Finding] = []
    facts = capture_system(tree, site.name, (*site.fabric.interfaces, *site.fabric.management), findings)
    facts, folders = capture_libraries(facts, tree, site, findings)
    products = _products(tree, site)
    named = [*(f"{path}/default" for path in products), *(path for _, path in stated_paths(site)), *_tops()]
    broken = dict(_broken_links(tree, named))
    facts = replace(
        facts,
        slurm=_slurm(tree, folders),
        runtime=_runtime(tree, site),
        stacks=_stacks(tree),
        products=products,
        dangling={**facts.dangling, **broken},
        paths=_paths(tree, site),
        images=_images(tree, site),
        deployed=_deployed(tree, site),
    )
    texts = {kind.name: kind.read(tree, site) for kind in KINDS if kind.read is not None}
    plain = {**facts.plain, **{name: found for name, found in texts.items() if found is not None}}
    # What was refused on the way, but for the kernel's own files.
    for part in CLOSED:
        refused: Mapping[str, str] = getattr(tree, part, {})
        plain[part] = {path: how for path, how in refused.items() if not path.startswith(("/proc/", "/sys/"))}
    findings += _closed_findings(plain)
    return Captured(replace(facts, plain=plain), tuple(findings))


def capture_undescribed(tree: Tree) -> Captured:
    """Read of a node what no site description has to name: hardware, kernel, drivers and installed releases."""
    findings: list[Finding] = []
    # Where no interface has a device, as in a virtual machine, all of them count.
    interfaces = () if interfaces_on_devices(tree) else {*names_of(tree, "/sys/class/net")} - {"lo"}
    facts = capture_system(tree, "", interfaces, findings)
    return Captured(replace(facts, slurm=_slurm(tree, ()), stacks=_stacks(tree)), tuple(findings))


def _closed_findings(plain: Mapping[str, Mapping[str, str]]) -> list[Finding]:
    """Return a finding for each path that somebody may not read, and for many one with the number of the others."""
    found = [
        Finding("facts-incomplete", Severity.DOUBT, f"cannot be read by {users}", command, path)
        for part, users in zip(CLOSED, ("you", "other users"), strict=True)
        for path, command in sorted(plain[part].items())
    ]
    more = len(found) - _MOST_CLOSED
    rest = Finding(
        "facts-incomplete", Severity.DOUBT, f"{more} more cannot be read", "the facts file lists all of them"
    )
    return found[:_MOST_CLOSED] + ([rest] if more > 0 else [])


# Releases


def _stacks(tree: Tree) -> dict[str, Releases]:
    found = {software.name: installed_releases(tree, software) for _, software in all_software()}
    return {name: releases for name, releases in found.items() if releases.versions}


def _products(tree: Tree, site: Site) -> dict[str, Releases]:
    """Return the folders that have one folder for each release of a product."""
    stated = (path for _, path in stated_libraries(site) if VERSION.fullmatch(posixpath.basename(path)))
    tops = _tops()
    parents = {posixpath.dirname(path) for path in stated}
    parents |= {f"{top}/{name}" for top in tops for name in names_of(tree, top)}
    found = {}
    for path in sorted(parents - tops):
        if versions := tuple(in_order(versions_below(tree, path))):
            link = resolve(tree, f"{path}/default")
            default = posixpath.basename(link.path) if link.links and link.entry else None
            found[path] = Releases(versions, default)
    return found


def _tops() -> set[str]:
    return {top for vendor in all_vendors() for top in vendor.products}


def _broken_links(tree: Tree, paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the broken links on the way to paths, and where they lead: all below is missing with them."""
    for link, found in filter(None, (broken_link_on(tree, path) for path in paths)):
        yield link, found.links[-1] if found.links[-1].startswith("/") else found.path


def _slurm(tree: Tree, folders: tuple[str, ...]) -> str | None:
    """Return Slurm's version: the one version that stands by itself in its own library.

    Every program of Slurm prints the literal `SLURM_VERSION_STRING`, which the compiler puts once, between NULs, into
    libslurmfull.so. Seen so in Debian's Slurm 22.05, 24.11 and 26.05. Two that differ are no answer.
    """
    searched = dict.fromkeys((*folders, *_SLURM_FOLDERS))
    for path in (form.format(folder) for folder in searched for form in _SLURM_LIBRARIES):
        content = content_of(tree, path, _LARGEST_FILE_BYTES)
        if content is not None:
            found = set(re.findall(rb"(?<=\0)(\d\d\.\d\d\.\d+(?:-\d+)?(?:-?rc\d+)?)(?=\0)", content))
            return found.pop().decode() if len(found) == 1 else None
    return None


def _runtime(tree: Tree, site: Site) -> Program:
    """Return what files tell of the container runtime."""
    program = resolve(tree, site.runtime.executable or "/")
    if program.entry is None or program.entry.kind != "file":
        return Program()
    packages = ((name, package_version(tree, name)) for name in _PACKAGES)
    package = next((f"{name} {version}" for name, version in packages if version), None)
    digest = digest_of(tree, program.path, _LARGEST_PROGRAM_BYTES)
    return Program(program.path, size_of(tree, program.path), package, digest)


# Paths and images


def _paths(tree: Tree, site: Site) -> dict[str, Named]:
    """Return what is at each path that the site names; the runtime has facts of its own."""
    stated = (path for key, path in stated_paths(site) if key != RUNTIME)
    return {path: _named(tree, path) for path in sorted({*stated, *_image_folders(site)})}


def _named(tree: Tree, path: str) -> Named:
    found = resolve(tree, path)
    if found.entry is None:
        if posixpath.dirname(found.path) in getattr(tree, "unreadable", {}):
            return Named("unreadable", found.path)
        return Named("none") if found.code == "path-missing" else Named("dangling", found.path)
    tree.look(f"{found.path}/.")  # notes a folder that may not be entered
    kind = found.entry.kind if found.entry.kind in ("file", "directory") else "other"
    return Named(kind, found.path if found.path != path else None)


def _image_folders(site: Site) -> tuple[str, ...]:
    """Return the site's folders of images, and those of its families' patterns, up to the first sign of a pattern."""
    folders = [str(folder.path) for folder in site.images.folders] if site.images is not None else []
    patterns = [pattern for family in site.families.values() for pattern in family.paths]
    fixed = [posixpath.dirname(re.split(r"[*?[]", pattern)[0]) for pattern in patterns if pattern.startswith("/")]
    return tuple(dict.fromkeys(path for path in (*folders, *fixed) if path != "/"))


def _images(tree: Tree, site: Site) -> dict[str, dict[str, ImageFile]]:
    found = {folder: _images_of(tree, folder) for folder in _image_folders(site)}
    return {folder: images for folder, images in found.items() if images}


def _images_of(tree: Tree, folder: str) -> dict[str, ImageFile]:
    """Return the images of a folder and of the folders in it: where each name leads, and which image it is."""
    found: dict[str, ImageFile] = {}
    real = resolve(tree, folder).path
    for name in itertools.islice(_image_names(tree, folder), _MOST_IMAGES):
        image = resolve(tree, f"{folder}/{name}")
        if image.entry is None:
            found[name] = ImageFile(target=image.path)
        elif image.entry.kind == "file":
            target = image.path if image.path != f"{real}/{name}" else None
            found[name] = ImageFile(target, size_of(tree, image.path), _identity(tree, image.path))
    return found


def _image_names(tree: Tree, folder: str) -> Iterator[str]:
    for name in names_of(tree, folder):
        inner = () if name.endswith(_IMAGE_NAMES) else names_of(tree, f"{folder}/{name}")
        names = (name, *(f"{name}/{below}" for below in inner))
        yield from (found for found in names if found.endswith(_IMAGE_NAMES) and found.isprintable())


def _identity(tree: Tree, path: str) -> str | None:
    """Return the UUID that every SIF gets when it is made (`pkg/sif/sif.go` of sylabs/sif: 16 bytes after the arch)."""
    head = head_of(tree, path, 64) or b""
    if len(head) < 64 or head[MAGIC_OFFSET : MAGIC_OFFSET + len(MAGIC)] != MAGIC:
        return None
    return head[48:64].hex()


# The deployed release


def _deployed(tree: Tree, site: Site) -> Deployed:
    """Return which release is deployed, with the digests of its files."""
    release = resolve(tree, f"{site.root}/current")
    if release.entry is None or release.entry.kind != "directory":
        return Deployed()
    files = {}
    for path in itertools.islice(_files(tree, release.path, _DEEPEST), _MOST_FILES):
        if digest := digest_of(tree, path, _LARGEST_FILE_BYTES):
            files[path[len(release.path) + 1 :]] = digest
    names: Mapping[str, str] = {}
    with suppress(DifferenceError):
        manifest = content_of(tree, f"{release.path}/{MANIFEST}", LARGEST_MANIFEST_BYTES) or b""
        names = parse_manifest(manifest, MANIFEST).leads
    return Deployed(posixpath.basename(release.path), site.root, files, names)


def _files(tree: Tree, folder: str, depth: int) -> Iterator[str]:
    for name in names_of(tree, folder):
        path = f"{folder}/{name}"
        entry = tree.look(path)
        if entry is not None and entry.kind == "file":
            yield path
        elif entry is not None and entry.kind == "directory" and depth:
            yield from _files(tree, path, depth - 1)
