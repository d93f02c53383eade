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

from lumisite.images.squashfs import MAGIC as SQUASHFS_MAGIC
from lumisite.images.squashfs import ImageError, read_squashfs
from lumisite.machine.host import DiskTree, open_file
from lumisite.machine.tree import Source, Tree

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
_NOTE_ON_OVERLAY = "it carries an overlay, which is not read: what was changed in it may differ from what is said here"


@dataclass(frozen=True)
class Image:
    """The file system that containers start from, and what a reader of the answer should know about it."""

    tree: Tree
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class SifObject:
    """A part of a SIF: the byte `at` which its descriptor stands, and where its content is."""

    at: int
    kind: int
    start: int
    size: int
    file_system: int
    part: int


def open_image(path: str) -> Image:
    """Open an image; raises `ImageError`, or `ToolError` where the system refuses."""
    if "\0" not in path and Path(path).is_dir():
        if os.access(path, os.X_OK, effective_ids=True) and not any(os.path.lexists(f"{path}/{name}") for name in _TOP):
            raise ImageError(f"{path}: has none of {', '.join(_TOP)}, where a SIF or an unpacked image would be right")
        return Image(DiskTree(path))
    source = open_file(path)
    head = source.read(0, MAGIC_OFFSET + len(MAGIC))
    if head[MAGIC_OFFSET:] == MAGIC:
        part, notes = find_root(source)
        return Image(read_squashfs(source, part.start, part.size), notes)
    if head.startswith(SQUASHFS_MAGIC):
        return Image(read_squashfs(source))
    if not head:
        raise ImageError(f"{path}: is empty, where a SIF or an unpacked image would be right")
    raise ImageError(f"{path}: byte 0: is neither a SIF nor a squashfs file, it begins with {head[:12]!r}")


def find_root(source: Source) -> tuple[SifObject, tuple[str, ...]]:
    """Give the squashfs that a SIF's containers start from, and what else in it counts; raises `ImageError`."""
    objects = tuple(list_objects(source))
    for one in objects:
        if one.kind == PARTITION and one.part == _PRIMARY:
            _check(source, one)
            overlay = any(one.kind == PARTITION and one.part == _OVERLAY for one in objects)
            return one, (_NOTE_ON_OVERLAY,) if overlay else ()
    if any(one.kind in (_OCI_INDEX, _OCI_BLOB) for one in objects):
        raise ImageError(
            f"{source.name}: is an OCI-SIF, whose layers lumisite does not read (`singularity pull` without --oci "
            "makes an image that it does)"
        )
    raise ImageError(f"{source.name}: none of its {len(objects)} parts is a primary system partition")


def list_objects(source: Source) -> Iterator[SifObject]:
    """Give the parts of a SIF that are in use, in their order; raises `ImageError`."""
    content = source.read(0, struct.calcsize(HEADER))
    if content[MAGIC_OFFSET : MAGIC_OFFSET + len(MAGIC)] != MAGIC:
        raise ImageError(f"{source.name}: byte {MAGIC_OFFSET}: is no SIF, which has {MAGIC!r} there")
    if len(content) < struct.calcsize(HEADER):
        raise ImageError(f"{source.name}: byte 0: the file ends in the header of the SIF (it has {source.size} bytes)")
    _, version, _, _, _, _, total, offset, _, _, _ = struct.unpack(HEADER, content)
    if version != _VERSION:
        raise ImageError(f"{source.name}: byte 42: is a SIF of version {version!r} ({_VERSION!r} can be read)")
    if not 0 <= total <= _MOST_DESCRIPTORS or offset < 0:
        raise ImageError(f"{source.name}: byte 88: says that it has {total} parts from byte {offset} on")
    step = struct.calcsize(DESCRIPTOR)
    table = source.read(offset, total * step)
    if len(table) < total * step:
        raise ImageError(f"{source.name}: byte {offset}: the file ends in its list of {total} parts")
    for index, values in enumerate(struct.iter_unpack(DESCRIPTOR, table)):
        kind, used, _, _, _, start, size, *_, extra = values
        file_system, part = struct.unpack_from("<ii", extra)
        if used:
            yield SifObject(offset + index * step, kind, start, size, file_system, part)


def _check(source: Source, one: SifObject) -> None:
    where = f"{source.name}: byte {one.at}: its root file system"
    if one.file_system == _ENCRYPTED:
        raise ImageError(f"{where} is encrypted; lumisite has no key, so give it the unpacked image instead")
    if one.file_system != _SQUASHFS:
        known = _FILE_SYSTEMS.get(one.file_system, f"of kind {one.file_system}")
        raise ImageError(f"{where} is {known}, where squashfs would be right")
    if one.start < 0 or one.size < 0:
        raise ImageError(f"{where} has {one.size} bytes from byte {one.start} on")
    if one.start + one.size > source.size:
        there = max(0, source.size - one.start)
        raise ImageError(f"{where} is cut: of its {one.size} bytes from byte {one.start} on {there} are there")
