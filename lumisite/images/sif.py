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

from lumisite.findings.finding import Finding, Severity
from lumisite.images.squashfs import MAGIC as SQUASHFS_MAGIC
from lumisite.images.squashfs import ImageError, cut, damaged, read_squashfs, unsupported
from lumisite.machine.host import DiskTree, open_file
from lumisite.machine.tree import ByteSource, Tree

MAGIC = b"SIF_MAGIC\0"
MAGIC_OFFSET = 32
_HEADER = "<32x10s3s3s16xqqqqqqqq"
_DESCRIPTOR = "<iBIIIqqqqqqq128s384s"
_MOST_DESCRIPTORS = 4096
_VERSION = b"01\0"

_PARTITION, _OCI_INDEX, _OCI_BLOB = 0x4004, 0x400A, 0x400B
_PRIMARY, _OVERLAY = 2, 4
_SQUASHFS = 1
_FILE_SYSTEMS = {2: "ext3", 3: "immutable objects", 4: "raw data", 5: "encrypted"}
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
            raise ImageError(no_image(f"a directory without any of {', '.join(_TOP)}", path))
        return OpenedImage(DiskTree(path))
    source = open_file(path)
    head = source.read(0, MAGIC_OFFSET + len(MAGIC))
    if head[MAGIC_OFFSET:] == MAGIC:
        part, notes = find_root(source)
        return OpenedImage(read_squashfs(source, part.start, part.size), notes)
    if head.startswith(SQUASHFS_MAGIC):
        return OpenedImage(read_squashfs(source))
    begin = f"byte 0: neither a SIF nor a squashfs file, it begins with {head[:12]!r}"
    raise ImageError(no_image(begin if head else "an empty file", path))


def no_image(message: str, path: str = "") -> Finding:
    """Return that a path is no image."""
    return Finding("no-image", Severity.FAULT, message, "give a SIF, or the directory of an unpacked image", path)


def find_root(source: ByteSource) -> tuple[SifObject, tuple[Finding, ...]]:
    """Return the squashfs that a SIF's containers start from, and what else in it counts; raises `ImageError`."""
    objects = tuple(list_objects(source))
    partitions = [part for part in objects if part.kind == _PARTITION]
    root = next((part for part in partitions if part.part == _PRIMARY), None)
    if root is not None:
        _check(source, root)
        return root, (_overlay(),) if any(part.part == _OVERLAY for part in partitions) else ()
    if any(part.kind in (_OCI_INDEX, _OCI_BLOB) for part in objects):
        raise unsupported(source, "an OCI-SIF, whose layers are not read", "pull the image again without --oci")
    message = f"none of the {len(objects)} parts of the file is a primary system partition"
    raise unsupported(source, message, "build or pull the image again")


def _overlay() -> Finding:
    message = "the image has an overlay, which is not read"
    advice = "what the overlay changes may differ from what is reported"
    return Finding("image-unsupported", Severity.INFO, message, advice)


def list_objects(source: ByteSource) -> Iterator[SifObject]:
    """Return the parts of a SIF that are in use, in their order; raises `ImageError`."""
    content = source.read(0, struct.calcsize(_HEADER))
    if content[MAGIC_OFFSET : MAGIC_OFFSET + len(MAGIC)] != MAGIC:
        raise damaged(source, MAGIC_OFFSET, "SIF header")
    if len(content) < struct.calcsize(_HEADER):
        raise cut(source, 0, struct.calcsize(_HEADER), source.size)
    _, version, _, _, _, _, total, offset, _, _, _ = struct.unpack(_HEADER, content)
    if version != _VERSION:
        raise unsupported(source, f"byte 42: SIF of version {version!r}, not {_VERSION!r}")
    if not 0 <= total <= _MOST_DESCRIPTORS or offset < 0:
        raise damaged(source, 88, "SIF header")
    step = struct.calcsize(_DESCRIPTOR)
    table = source.read(offset, total * step)
    if len(table) < total * step:
        raise cut(source, offset, total * step, len(table))
    for index, values in enumerate(struct.iter_unpack(_DESCRIPTOR, table)):
        kind, used, _, _, _, start, size, *_, extra = values
        file_system, part = struct.unpack_from("<ii", extra)
        if used:
            yield SifObject(offset + index * step, kind, start, size, file_system, part)


def _check(source: ByteSource, root: SifObject) -> None:
    if root.file_system != _SQUASHFS:
        kind = _FILE_SYSTEMS.get(root.file_system, str(root.file_system))
        message = f"byte {root.at}: the root file system is {kind}, not squashfs"
        raise unsupported(source, message, "build the image again, or give the unpacked image")
    if root.start < 0 or root.size < 0:
        raise damaged(source, root.at, "root file system")
    if root.start + root.size > source.size:
        raise cut(source, root.at, root.size, max(0, source.size - root.start))
