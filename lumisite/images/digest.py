"""The digest of an image: of the parts that every build writes anew.

It reads little of an image of any size: its length; the header of the SIF, which has the identifier of the
build and its times; the descriptor of each part; every small part in full (definition, labels, signatures); and of the
file system its head, which has the time and the size of its tables, and its last 64 KiB, where the tables end.

It sees every build, replacement, cut, and whatever `siftool`, `singularity sign` or a new file system writes. It does
not see content that was changed in place at the same length: a damaged disk, or somebody who hides it. The name and the
times of the file do not count, so that a copy has the same digest.

Source for the layouts: as `sif.py` and `squashfs.py`.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator

from lumisite.images.sif import DESCRIPTOR, HEADER, MAGIC, MAGIC_OFFSET, PARTITION, list_objects
from lumisite.images.squashfs import MAGIC as SQUASHFS_MAGIC
from lumisite.images.squashfs import SUPERBLOCK_BYTES
from lumisite.machine.tree import ByteSource

_TAIL_BYTES = 64 * 1024
_SMALL_PART_BYTES = 64 * 1024
#: Where in the head of a squashfs the bytes that it uses are counted.
_USED_OFFSET = 40


def digest_of(source: ByteSource) -> str:
    """Return `header:` and 64 hexadecimal digits (SHA-256); raises a `LumisiteError`."""
    known = hashlib.sha256()
    for chunk in _header(source):
        known.update(chunk)
    return f"header:{known.hexdigest()}"


def _header(source: ByteSource) -> Iterator[bytes]:
    yield struct.pack("<Q", source.size)
    head = source.read(0, struct.calcsize(HEADER))
    yield head
    if head[MAGIC_OFFSET : MAGIC_OFFSET + len(MAGIC)] != MAGIC:
        yield from _file_system(source, 0, source.size)
        return
    for part in list_objects(source):
        yield source.read(part.at, struct.calcsize(DESCRIPTOR))
        if part.start < 0 or part.size < 0:
            continue
        if part.kind == PARTITION:
            yield from _file_system(source, part.start, part.size)
        elif part.size <= _SMALL_PART_BYTES:
            yield source.read(part.start, part.size)


def _file_system(source: ByteSource, start: int, size: int) -> Iterator[bytes]:
    head = source.read(start, min(size, SUPERBLOCK_BYTES))
    yield head
    used = size
    if head.startswith(SQUASHFS_MAGIC) and len(head) == SUPERBLOCK_BYTES:
        used = min(size, struct.unpack_from("<Q", head, _USED_OFFSET)[0])
    tail = min(used, _TAIL_BYTES)
    yield source.read(start + used - tail, tail)
