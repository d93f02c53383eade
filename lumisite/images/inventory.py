"""The images of a site, name by name: where each leads, what it is, and what it carries."""

from __future__ import annotations

import fnmatch
import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from lumisite.errors import LumisiteError
from lumisite.findings.finding import Finding, Severity
from lumisite.images.contents import StatedVersion
from lumisite.images.digest import digest_of
from lumisite.images.family import choose_family
from lumisite.images.lock import LockedImage
from lumisite.images.network import without_network
from lumisite.images.sif import no_image, open_image
from lumisite.images.versions import ReadImage
from lumisite.machine.host import DiskTree, list_directory, open_file
from lumisite.machine.tree import ResolvedPath, resolve
from lumisite.site.ledger import Situation, harmful_values
from lumisite.site.model import Site

#: The names of images in a directory for which the site has no patterns.
USUAL_PATTERNS = ("*.sif", "*.simg", "*.sqfs", "*.squashfs", "*/*.sif")
UNPACKED = ".singularity.d"

#: Gets how many image files are read, how many there are, and the path of the last.
Progress: TypeAlias = Callable[[int, int, str], None]
#: Images by path, each with no patterns, and directories with the patterns that names of images in them match.
Folders: TypeAlias = Iterable[tuple[str, Sequence[str]]]


@dataclass(frozen=True)
class NamedImage:
    """One name of an image, with what a lock keeps of it, and what else is to know.

    `why` is what the image family follows from. `versions` are those of the lock, with what states each.
    """

    path: str
    locked: LockedImage
    why: Finding | None = None
    versions: Mapping[str, StatedVersion] = field(default_factory=dict)
    notes: tuple[Finding, ...] = ()
    fault: Finding | None = None


@dataclass(frozen=True)
class Reading:
    """How images are read: for which site, and below which `root`."""

    site: Site
    root: str = "/"
    progress: Progress | None = None

    @property
    def tree(self) -> DiskTree:
        """The file system in which all paths are; links do not lead out of it."""
        return DiskTree(self.root)


def usual_folders(paths: Iterable[str], tree: DiskTree) -> Folders:
    """Yield absolute paths as images, or as directories of them; an unpacked image is an image."""
    for path in paths:
        yield path, USUAL_PATTERNS if _is_folder(tree, resolve(tree, path)) else ()


def read_inventory(reading: Reading, folders: Folders) -> tuple[NamedImage, ...]:
    """Describe each image once, by path; what cannot be read or listed is an entry with a fault."""
    images: dict[str, NamedImage] = {}
    files: dict[str, list[NamedImage]] = {}
    for folder, patterns in folders:
        for pattern in patterns or ("",):
            for image in _find_images(reading.tree, folder, pattern):
                if image.path in images:
                    continue
                images[image.path] = image
                if image.fault is None and image.locked.target is not None:
                    files.setdefault(image.locked.target, []).append(image)
    for number, (path, aliases) in enumerate(files.items(), 1):
        images |= {image.path: image for image in _read(reading, path, aliases)}
        if reading.progress is not None:
            reading.progress(number, len(files), path)
    return tuple(images[path] for path in sorted(images))


def _find_images(tree: DiskTree, path: str, pattern: str) -> Iterator[NamedImage]:
    """Yield the images below a path that match a pattern, part by part, and directories that cannot be listed."""
    resolved = resolve(tree, path)
    if not pattern:
        real = None if resolved.entry is None else resolved.path
        yield _unread(path, LockedImage(real, resolved.links), _fault(tree, resolved))
        return
    try:
        names = list_directory(tree.on_disk(path if resolved.entry is None else resolved.path))
    except LumisiteError as error:
        yield _unread(path, LockedImage(None, resolved.links), error.finding)
        return
    first, _, rest = pattern.partition("/")
    for name in names:
        is_hidden = name.startswith(".") and not first.startswith(".")
        inner = posixpath.join(path, name)
        if is_hidden or not fnmatch.fnmatchcase(name, first):
            continue
        if not rest or _is_folder(tree, resolve(tree, inner)):
            yield from _find_images(tree, inner, rest)


def _unread(path: str, locked: LockedImage, fault: Finding | None) -> NamedImage:
    return NamedImage(path, replace(locked, fault="" if fault is None else fault.code), fault=fault)


def _is_folder(tree: DiskTree, resolved: ResolvedPath) -> bool:
    """Return whether a directory is there, and not one that an image was unpacked to."""
    is_directory = resolved.entry is not None and resolved.entry.kind == "directory"
    return is_directory and tree.look(posixpath.join(resolved.path, UNPACKED)) is None


def _fault(tree: DiskTree, resolved: ResolvedPath) -> Finding | None:
    """Return why a path can have no image."""
    if resolved.entry is None:
        return resolved.finding("")
    if _is_folder(tree, resolved):
        return no_image(f"a directory without {UNPACKED}")
    return None if resolved.entry.kind in ("file", "directory") else no_image("neither a file nor a directory")


def _read(reading: Reading, real: str, aliases: Sequence[NamedImage]) -> Iterator[NamedImage]:
    """Read one file for all names that lead to it; a damaged one has a digest where that can be computed."""
    known, site = LockedImage(real), reading.site
    path = reading.tree.on_disk(real)
    entry = reading.tree.look(real)
    try:
        if entry is not None and entry.kind == "file":
            source = open_file(path)
            known = replace(known, size=source.size)
            known = replace(known, digest=digest_of(source))
        opened = open_image(path)
        image = ReadImage(site, opened.tree)
        known = replace(
            known,
            versions={name: version.value for name, version in image.versions.items()},
            libfabric=image.network.libfabric,
            libfabric_folders=image.network.folders,
            libfabric_versions=image.network.versions,
            sets=image.sets,
        )
        for alias in aliases:
            family, why = choose_family(site, (alias.path, real), image, site.platforms[site.platform].defaults)
            on_site = _judge(image, family if why.code == "image-family" else None)
            notes = (*opened.notes, *on_site)
            locked = replace(known, links=alias.locked.links, family=family)
            yield NamedImage(alias.path, locked, why, image.versions, notes)
    except LumisiteError as error:
        fault = error.finding
        if fault.subject == path:
            fault = replace(fault, subject="")
        for alias in aliases:
            locked = replace(known, links=alias.locked.links, fault=fault.code)
            yield NamedImage(alias.path, locked, fault=fault)


def _judge(image: ReadImage, family: str | None) -> Iterator[Finding]:
    """Yield what an image of a family lacks on its site, and the values of its own that do harm."""
    holds, site = image.holds(family), image.site
    yield from without_network("", holds, Severity.INFO)
    yield from harmful_values(site, Situation(site.platform).with_image(holds), holds.sets, of_image=True)
