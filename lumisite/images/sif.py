"""Open an image: a SIF, a squashfs file, or the folder that one was unpacked to; nothing is run or mounted.

A SIF is the image file of SingularityCE and Apptainer. Source: `pkg/sif/sif.go` of sylabs/sif 2.11 and apptainer/sif
2.11 (the same layout, little-endian).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lumisite.findings.catalogue import make_finding
from lumisite.findings.finding import Finding
from lumisite.images.squashfs import MAGIC as SQUASHFS_MAGIC
from lumisite.images.squashfs import ImageError, image_error, read_squashfs
from lumisite.machine.host import DiskTree, open_file
from lumisite.machine.tree import ByteSource, Tree

MAGIC = b"SIF_MAGIC\0"
MAGIC_OFFSET = 32
HEADER = "<32x10s3s3s16xqqqqqqqq"
DESCRIPTOR = "<iBIIIqqqqqqq128s384s"
_MOST_DESCRIPTORS = 4096
_VERSION = b"01\0"

PARTITION, _OCI_INDEX, _OCI_BLOB = 0x4004, 0x400A, 0x400B
_PRIMARY, _OVERLAY = 2, 4
_SQUASHFS, _ENCRYPTED = 1, 5
_FILE_SYSTEMS = {2: "ext3", 3: "immutable objects", 4: "raw data"}
#: An unpacked image has one of these at least.
_TOP = ("usr", "etc", "lib", "lib64", "bin", "opt", ".singularity.d")


@dataclass(frozen=True)
class OpenedImage:
    """The file system that containers start from, and what a reader of the answer should know about it."""

    tree: Tree
    notes: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class SifObject:
    """A part of a SIF: the byte `at` which its descriptor stands, and where its content is."""

    at: int
    kind: int
    start: int
    size: int
    file_system: int
    part: int


def open_image(path: str) -> OpenedImage:
    """Open an image; raises `ImageError`, or `ToolError` where the system refuses."""
    if "\0" not in path and Path(path).is_dir():
        if os.access(path, os.X_OK, effective_ids=True) and not any(os.path.lexists(f"{path}/{name}") for name in _TOP):
            raise ImageError(make_finding("image-unknown-folder", path, names=_TOP))
        return OpenedImage(DiskTree(path))
    source = open_file(path)
    head = source.read(0, MAGIC_OFFSET + len(MAGIC))
    if head[MAGIC_OFFSET:] == MAGIC:
        part, notes = find_root(source)
        return OpenedImage(read_squashfs(source, part.start, part.size), notes)
    if head.startswith(SQUASHFS_MAGIC):
        return OpenedImage(read_squashfs(source))
    raise ImageError(make_finding("image-unknown-format", path, start=repr(head[:12]) if head else ""))


def find_root(source: ByteSource) -> tuple[SifObject, tuple[Finding, ...]]:
    """Return the squashfs that a SIF's containers start from, and what else in it counts; raises `ImageError`."""
    objects = tuple(list_objects(source))
    partitions = [part for part in objects if part.kind == PARTITION]
    for root in partitions:
        if root.part == _PRIMARY:
            _check(source, root)
            has_overlay = any(part.part == _OVERLAY for part in partitions)
            return root, (make_finding("image-overlay"),) if has_overlay else ()
    if any(part.kind in (_OCI_INDEX, _OCI_BLOB) for part in objects):
        raise ImageError(make_finding("image-oci", source.name))
    raise ImageError(make_finding("image-without-root", source.name, parts=len(objects)))


def list_objects(source: ByteSource) -> Iterator[SifObject]:
    """Return the parts of a SIF that are in use, in their order; raises `ImageError`."""
    content = source.read(0, struct.calcsize(HEADER))
    if content[MAGIC_OFFSET : MAGIC_OFFSET + len(MAGIC)] != MAGIC:
        raise image_error("image-damaged", source, MAGIC_OFFSET, part="SIF header", size=source.size)
    if len(content) < struct.calcsize(HEADER):
        raise image_error("image-cut", source, 0, actual=source.size, size=struct.calcsize(HEADER))
    _, version, _, _, _, _, total, offset, _, _, _ = struct.unpack(HEADER, content)
    if version != _VERSION:
        expected = repr(_VERSION)
        raise image_error("image-unknown-version", source, 42, format="SIF", version=repr(version), expected=expected)
    if not 0 <= total <= _MOST_DESCRIPTORS or offset < 0:
        raise image_error("image-damaged", source, 88, part="SIF header", size=total)
    step = struct.calcsize(DESCRIPTOR)
    table = source.read(offset, total * step)
    if len(table) < total * step:
        raise image_error("image-cut", source, offset, actual=len(table), size=total * step)
    for index, values in enumerate(struct.iter_unpack(DESCRIPTOR, table)):
        kind, used, _, _, _, start, size, *_, extra = values
        file_system, part = struct.unpack_from("<ii", extra)
        if used:
            yield SifObject(offset + index * step, kind, start, size, file_system, part)


def _check(source: ByteSource, root: SifObject) -> None:
    if root.file_system == _ENCRYPTED:
        raise image_error("image-encrypted", source, root.at)
    if root.file_system != _SQUASHFS:
        kind = _FILE_SYSTEMS.get(root.file_system, str(root.file_system))
        raise image_error("image-file-system", source, root.at, kind=kind)
    if root.start < 0 or root.size < 0:
        raise image_error("image-damaged", source, root.at, part="root file system", size=root.size)
    if root.start + root.size > source.size:
        raise image_error("image-cut", source, root.at, actual=max(0, source.size - root.start), size=root.size)
