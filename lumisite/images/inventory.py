"""The images of a site, name by name: where each leads, what it is, and what it carries."""

from __future__ import annotations

import fnmatch
import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TypeAlias

from lumisite.errors import LumisiteError
from lumisite.findings.finding import Finding
from lumisite.findings.writers import line
from lumisite.images.contents import Version
from lumisite.images.digest import Kind, digest_of
from lumisite.images.family import recognise_family, recognised
from lumisite.images.remarks import compare_recipe, remarks
from lumisite.images.sif import open_image
from lumisite.images.versions import ReadImage
from lumisite.machine.host import DiskTree, list_directory, open_file
from lumisite.machine.tree import Place, resolve
from lumisite.site.model import Site
from lumisite.site.versions import Version as Release

#: What is taken for an image in a directory for which the site says nothing.
USUAL_PATTERNS = ("*.sif", "*.simg", "*.sqfs", "*.squashfs", "*/*.sif")
UNPACKED = ".singularity.d"

#: Told of image files: how many are read (a part of one too), how many there are, and the path of the last.
Progress: TypeAlias = Callable[[float, int, str], None]
#: Images by path, each with no patterns, and directories with the patterns that names of images in them match.
Wanted: TypeAlias = Iterable[tuple[str, Sequence[str]]]


@dataclass(frozen=True)
class Image:
    """One name of an image.

    `links` is what each link on the way says, `target` the file at the end. `family` comes with `why`. Where something
    is wrong, `fault` says what, and the rest is what could be read all the same. `size` is in bytes.
    """

    path: str
    links: tuple[str, ...] = ()
    target: str | None = None
    size: int | None = None
    digest: str | None = None
    family: str | None = None
    why: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, Version] = field(default_factory=dict)
    notes: tuple[Finding, ...] = ()
    fault: str = ""


@dataclass(frozen=True)
class Reading:
    """How images are read: for which site and which default releases, with which digest, and below which `root`."""

    site: Site
    releases: Mapping[str, Release]
    digest: Kind = "header"
    root: str = "/"
    progress: Progress | None = None

    @property
    def tree(self) -> DiskTree:
        """The file system in which all paths are; links do not lead out of it."""
        return DiskTree(self.root)


def wanted_of(paths: Iterable[str], tree: DiskTree) -> Wanted:
    """Take absolute paths for images, or for directories of them; a folder that an image was unpacked to is one."""
    for path in paths:
        yield path, USUAL_PATTERNS if _is_folder(tree, resolve(tree, path)) else ()


def read_inventory(reading: Reading, wanted: Wanted) -> tuple[Image, ...]:
    """Describe each image once, by path; what cannot be read or listed is an entry with a fault."""
    tree = reading.tree
    entries: dict[str, Image] = {}
    files: dict[str, list[Image]] = {}
    listed = (
        _matching(reading, top, pattern.split("/") if pattern else ())
        for top, patterns in wanted
        for pattern in patterns or ("",)
    )
    for path, fault in chain.from_iterable(listed):
        if path in entries:
            continue
        place = resolve(tree, path)
        real = None if place.entry is None else place.path
        entries[path] = Image(path, place.links, real, fault=fault or place.trouble or _unfit(tree, place))
        if not entries[path].fault and real is not None:
            files.setdefault(real, []).append(entries[path])
    for number, (real, aliases) in enumerate(files.items()):

        def within(part: float, number: int = number, real: str = real) -> None:
            if reading.progress is not None:
                reading.progress(number + part, len(files), real)

        within(0)
        entries |= {one.path: one for one in _read(reading, real, aliases, within)}
        within(1)
    return tuple(entries[path] for path in sorted(entries))


def _matching(reading: Reading, folder: str, parts: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Give the paths that match a pattern, part by part, and directories that cannot be listed with the reason."""
    if not parts:
        yield folder, ""
        return
    tree = reading.tree
    place = resolve(tree, folder)
    try:
        names = list_directory(tree.on_disk(folder if place.entry is None else place.path))
    except LumisiteError as error:
        yield folder, str(error)
        return
    for name in names:
        if not fnmatch.fnmatchcase(name, parts[0]) or (name.startswith(".") and not parts[0].startswith(".")):
            continue
        path = posixpath.join(folder, name)
        if len(parts) == 1 or _is_folder(tree, resolve(tree, path)):
            yield from _matching(reading, path, parts[1:])


def _is_folder(tree: DiskTree, place: Place) -> bool:
    """Tell whether a directory is there, and none that an image was unpacked to."""
    is_directory = place.entry is not None and place.entry.kind == "directory"
    return is_directory and tree.look(posixpath.join(place.path, UNPACKED)) is None


def _unfit(tree: DiskTree, place: Place) -> str:
    if _is_folder(tree, place):
        return f"is a directory, without the {UNPACKED} of an unpacked image"
    fit = place.entry is not None and place.entry.kind in ("file", "directory")
    return "" if fit else "is neither a file nor a directory"


def _read(reading: Reading, real: str, aliases: Sequence[Image], progress: Callable[[float], None]) -> Iterator[Image]:
    """Read one file for all names that lead to it; the digest of a damaged one is given where it can be."""
    known = Image(real, target=real)
    path = reading.tree.on_disk(real)
    entry = reading.tree.look(real)
    try:
        if entry is not None and entry.kind == "file":
            source = open_file(path)
            known = replace(known, size=source.size)
            known = replace(known, digest=digest_of(source, reading.digest, progress))
        opened = open_image(path)
        image = ReadImage(reading.site, opened.tree)
        known = replace(known, labels=image.labels, versions=image.versions)
        for alias in aliases:
            names = (alias.path, real)
            family, why = recognise_family(reading.site, names, image, reading.releases)
            is_known = recognised(reading.site, names, image) is not None
            changed = compare_recipe(image, family) if is_known else ()
            notes = (*opened.notes, *changed, *remarks(image, (real, alias.path)))
            yield replace(known, path=alias.path, links=alias.links, family=family, why=why, notes=notes)
    except LumisiteError as error:
        finding = replace(error.finding, subject="") if error.finding.subject == path else error.finding
        fault = line(finding) if finding.code else str(error)
        for alias in aliases:
            yield replace(known, path=alias.path, links=alias.links, fault=fault)
