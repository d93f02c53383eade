"""Open an image: a SIF, a squashfs file, or the folder that one was unpacked to; nothing is run or mounted.

A SIF is the image file of SingularityCE and Apptainer. Source: `pkg/sif/sif.go` of sylabs/sif 2.11 and apptainer/sif
2.11 (the same layout, little-endian).

An image's digest is made of the parts that every build writes anew. Read are at most some 5 MB of an image of any size:
its length; the header of the SIF, which has the identifier of the build and its times; the descriptor of each part;
every small part in full (definition, labels, signatures); and of the file system its head, which has the time and the
size of its tables, and its last 64 KiB, where the tables end. It sees every build, replacement, cut, and whatever
`siftool`, `singularity sign` or a new file system writes. It does not see content that was changed in place at the same
length: a damaged disk, or somebody who hides it. It does not take the name or the times of the file, so that a copy has
the same digest.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lumisite.images.squashfs import MAGIC as SQUASHFS_MAGIC
from lumisite.images.squashfs import SUPERBLOCK_BYTES, ImageError, read_squashfs
from lumisite.machine.host import DiskTree, open_file
from lumisite.machine.tree import Source, Tree

MAGIC = b"SIF_MAGIC\0"
MAGIC_OFFSET = 32
_HEADER = "<32x10s3s3s16xqqqqqqqq"
_DESCRIPTOR = "<iBIIIqqqqqqq128s384s"
_MOST_DESCRIPTORS = 4096
_VERSION = b"01\0"

_PARTITION, _OCI_INDEX, _OCI_BLOB = 0x4004, 0x400A, 0x400B
_PRIMARY, _OVERLAY = 2, 4
_SQUASHFS, _ENCRYPTED = 1, 5
_FILE_SYSTEMS = {2: "ext3", 3: "immutable objects", 4: "raw data"}
_NOTE_ON_OVERLAY = "it carries an overlay, which is not read: what was changed in it may differ from what is said here"

_TAIL_BYTES = 64 * 1024
_SMALL_PART_BYTES = 64 * 1024
_MOST_SMALL_BYTES = 4 * 1024 * 1024
#: Where in the head of a squashfs the bytes that it uses are counted.
_USED_OFFSET = 40


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
        if one.kind == _PARTITION and one.part == _PRIMARY:
            _check(source, one)
            overlay = any(one.kind == _PARTITION and one.part == _OVERLAY for one in objects)
            return one, (_NOTE_ON_OVERLAY,) if overlay else ()
    if any(one.kind in (_OCI_INDEX, _OCI_BLOB) for one in objects):
        raise ImageError(
            f"{source.name}: is an OCI-SIF, whose layers lumisite does not read (`singularity pull` without --oci "
            "makes an image that it does)"
        )
    raise ImageError(f"{source.name}: none of its {len(objects)} parts is a primary system partition")


def list_objects(source: Source) -> Iterator[SifObject]:
    """Give the parts of a file that begins as a SIF which are in use, in their order; raises `ImageError`."""
    content = source.read(0, struct.calcsize(_HEADER))
    if len(content) < struct.calcsize(_HEADER):
        raise ImageError(f"{source.name}: byte 0: the file ends in the header of the SIF (it has {source.size} bytes)")
    _, version, _, _, _, _, total, offset, _, _, _ = struct.unpack(_HEADER, content)
    if version != _VERSION:
        raise ImageError(f"{source.name}: byte 42: is a SIF of version {version!r} ({_VERSION!r} can be read)")
    if not 0 <= total <= _MOST_DESCRIPTORS or offset < 0:
        raise ImageError(f"{source.name}: byte 88: says that it has {total} parts from byte {offset} on")
    step = struct.calcsize(_DESCRIPTOR)
    table = source.read(offset, total * step)
    if len(table) < total * step:
        raise ImageError(f"{source.name}: byte {offset}: the file ends in its list of {total} parts")
    for index, values in enumerate(struct.iter_unpack(_DESCRIPTOR, table)):
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


def digest_of(source: Source) -> str:
    """Give `header:` and 64 hexadecimal digits (SHA-256); raises a `LumisiteError`."""
    known = hashlib.sha256()
    for chunk in _header(source):
        known.update(chunk)
    return f"header:{known.hexdigest()}"


def _header(source: Source) -> Iterator[bytes]:
    yield struct.pack("<Q", source.size)
    head = source.read(0, struct.calcsize(_HEADER))
    yield head
    if head[MAGIC_OFFSET : MAGIC_OFFSET + len(MAGIC)] != MAGIC:
        yield from _file_system(source, 0, source.size)
        return
    left = _MOST_SMALL_BYTES
    for part in list_objects(source):
        yield source.read(part.at, struct.calcsize(_DESCRIPTOR))
        if part.start < 0 or part.size < 0:
            continue
        if part.kind == _PARTITION:
            yield from _file_system(source, part.start, part.size)
        elif part.size <= min(left, _SMALL_PART_BYTES):
            left -= part.size
            yield source.read(part.start, part.size)


def _file_system(source: Source, start: int, size: int) -> Iterator[bytes]:
    head = source.read(start, min(size, SUPERBLOCK_BYTES))
    yield head
    used = size
    if head.startswith(SQUASHFS_MAGIC) and len(head) == SUPERBLOCK_BYTES:
        used = min(size, struct.unpack_from("<Q", head, _USED_OFFSET)[0])
    tail = min(used, _TAIL_BYTES)
    yield source.read(start + used - tail, tail)
