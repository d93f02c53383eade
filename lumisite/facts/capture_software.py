"""What is installed on a node: products with their releases, ROCm, Slurm, programs, images, the deployed release."""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Iterable, Iterator

from lumisite.binds.copies import in_order
from lumisite.facts.capture_system import content_of, directory_names, head_of, size_of
from lumisite.facts.facts import Deployed, ImageFile, Program, Releases
from lumisite.images.sif import MAGIC, MAGIC_OFFSET
from lumisite.machine.tree import Tree, resolve
from lumisite.site.model import Site

#: Where HPE Cray's products stand, each with a directory for every release.
_CRAY = ("/opt/cray", "/opt/cray/pe")
_VERSION = re.compile(r"[0-9]+(\.[0-9]+)+([-_+.][\w.]+)?")
_LARGEST_LIBRARY_BYTES = 64 * 1024 * 1024
_LARGEST_STATUS_BYTES = 32 * 1024 * 1024
_LARGEST_MODULEFILE_BYTES = 16 * 1024 * 1024
_MOST_FILES, _DEEPEST = 5000, 8
#: What image files are called; anything else in a directory of images is no image.
_IMAGE_NAMES = (".sif", ".simg", ".img", ".sqsh", ".sqfs", ".squashfs")
_MOST_IMAGES = 5000
_PACKAGES = ("apptainer", "singularity-ce", "singularity-container")
#: Where Debian, SUSE and a build from source put the library that holds Slurm's version.
_SLURM_LIBRARIES = ("{}/slurm/libslurmfull.so", "{}/slurm-wlm/libslurmfull.so")


def capture_products(tree: Tree, site: Site) -> tuple[dict[str, Releases], dict[str, str]]:
    """Find the directories that hold one directory for each release of a product; and defaults that lead nowhere."""
    parents = {posixpath.dirname(at) for _, at in stated_libraries(site) if _VERSION.fullmatch(posixpath.basename(at))}
    parents |= {f"{top}/{name}" for top in _CRAY for name in directory_names(tree, top)}
    found, dangling = {}, {}
    for path in sorted(parents - set(_CRAY)):
        versions, default = _versions(tree, path), None
        link = tree.look(f"{resolve(tree, path).path.rstrip('/')}/default") if versions else None
        if link is not None and link.kind == "link":
            place = resolve(tree, f"{path}/default")
            if place.entry is None:
                dangling[f"{path}/default"] = "leads to nothing that is there"
            else:
                default = posixpath.basename(place.path)
        if versions:
            found[path] = Releases(versions, default)
    return found, dangling


def stated_libraries(site: Site) -> Iterator[tuple[str, str]]:
    """Give the directories of libraries that the site description states, with their keys there."""
    for name, platform in site.platforms.items():
        yield from ((f"platforms.{name}.libraries.{what}", path) for what, path in platform.libraries.items())
    for name, cpe in site.cpe.items():
        yield from ((f"cpe.{name}.libraries.{what}", path) for what, path in cpe.libraries.items())


def _versions(tree: Tree, folder: str, prefix: str = "") -> tuple[str, ...]:
    """Give the releases that are installed: packages leave empty directories behind when they are removed."""
    names = (name.removeprefix(prefix) for name in directory_names(tree, folder) if name.startswith(prefix))
    return tuple(
        in_order(
            {name for name in names if _VERSION.fullmatch(name) and directory_names(tree, f"{folder}/{prefix}{name}")}
        )
    )


def capture_rocm(tree: Tree) -> Releases:
    """Find the ROCm releases on the host: /opt/rocm-VERSION, and the one that /opt/rocm names."""
    versions = _versions(tree, "/opt", "rocm-")
    default = posixpath.basename(resolve(tree, "/opt/rocm").path).removeprefix("rocm-")
    return Releases(versions, default if default in versions else None)


def slurm_version(tree: Tree, directories: Iterable[str]) -> str | None:
    """Find Slurm's version: the one version that stands by itself in its own library.

    Every program of Slurm prints the literal `SLURM_VERSION_STRING`, which the compiler puts once, between NULs, into
    libslurmfull.so. Seen so in Debian's Slurm 22.05, 24.11 and 26.05. Two that differ are no answer.
    """
    candidates = [
        form.format(folder)
        for folder in (*directories, "/opt/slurm/lib", "/opt/slurm/lib64")
        for form in _SLURM_LIBRARIES
    ]
    for path in dict.fromkeys(candidates):
        content = content_of(tree, path, _LARGEST_LIBRARY_BYTES)
        if content is not None:
            found = set(re.findall(rb"(?<=\0)(\d\d\.\d\d\.\d+(?:-\d+)?(?:-?rc\d+)?)(?=\0)", content))
            return found.pop().decode() if len(found) == 1 else None
    return None


def capture_program(tree: Tree, path: str) -> Program:
    """Read what files tell of the container runtime."""
    place = resolve(tree, path)
    if place.entry is None or place.entry.kind != "file":
        return Program()
    return Program(place.path, size_of(tree, place.path), _package(tree))


def _package(tree: Tree) -> str | None:
    """Find the package of a container runtime in dpkg's list, the only one that is text."""
    status = content_of(tree, "/var/lib/dpkg/status", _LARGEST_STATUS_BYTES) or b""
    for name in _PACKAGES:
        found = re.search(rf"^Package: {name}\n((?:.+\n)*)".encode(), status, re.MULTILINE)
        if found and b"Status: install ok installed\n" in found[1]:
            version = re.search(rb"^Version: ([!-~]+)$", found[1], re.MULTILINE)
            return f"{name} {version[1].decode()}" if version else None
    return None


def capture_image_directory(tree: Tree, path: str) -> dict[str, ImageFile]:
    """Read the images of a directory and of the directories in it: where each name leads, and which image it is."""
    found: dict[str, ImageFile] = {}
    for name, at in _image_names(tree, path):
        place = resolve(tree, at)
        target = place.path if place.path != f"{resolve(tree, path).path}/{name}" else None
        if place.entry is None:
            found[name] = ImageFile(target=f"{place.trouble}")
        elif place.entry.kind == "file":
            found[name] = ImageFile(target, size_of(tree, place.path), _identity(tree, place.path))
        if len(found) >= _MOST_IMAGES:
            break
    return found


def _image_names(tree: Tree, path: str) -> Iterator[tuple[str, str]]:
    for name in directory_names(tree, path):
        here = f"{path}/{name}"
        if not name.isprintable():
            continue
        if name.endswith(_IMAGE_NAMES):
            yield name, here
        elif resolve(tree, here).entry is not None:
            inner = (one for one in directory_names(tree, here) if one.isprintable() and one.endswith(_IMAGE_NAMES))
            yield from ((f"{name}/{one}", f"{here}/{one}") for one in inner)


def _identity(tree: Tree, path: str) -> str | None:
    """Give the UUID that every SIF gets when it is made (`pkg/sif/sif.go` of sylabs/sif: 16 bytes after the arch)."""
    head = head_of(tree, path, 64) or b""
    if len(head) < 64 or head[MAGIC_OFFSET : MAGIC_OFFSET + len(MAGIC)] != MAGIC:
        return None
    return head[48:64].hex()


def capture_deployed(tree: Tree, root: str) -> Deployed:
    """Read which release is deployed, and hash its files."""
    place = resolve(tree, f"{root}/current")
    if place.entry is None or place.entry.kind != "directory":
        return Deployed()
    files = {}
    for path in _files(tree, place.path, _DEEPEST):
        content = content_of(tree, path, _LARGEST_MODULEFILE_BYTES)
        if content is not None:
            files[path[len(place.path) + 1 :]] = hashlib.sha256(content).hexdigest()
        if len(files) >= _MOST_FILES:
            break
    return Deployed(posixpath.basename(place.path), files)


def _files(tree: Tree, path: str, depth: int) -> Iterator[str]:
    for name in directory_names(tree, path):
        here = f"{path}/{name}"
        entry = tree.look(here)
        if entry is not None and entry.kind == "file":
            yield here
        elif entry is not None and entry.kind == "directory" and depth:
            yield from _files(tree, here, depth - 1)
