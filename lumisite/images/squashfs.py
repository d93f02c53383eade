"""Read single files of a squashfs image, without mounting or unpacking it.

Written here: of the two libraries that read squashfs, dissect.squashfs is under the AGPL, which a tool under the MIT
licence cannot require, and PySquashfsImage reads every inode of the image before the first file. Neither bounds what a
damaged block unpacks to.

Source: `fs/squashfs/squashfs_fs.h` of Linux 6.1 (version 4.0 of the format, little-endian).
"""

from __future__ import annotations

import lzma
import struct
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Any, NamedTuple, TypeAlias

from lumisite.errors import LumisiteError
from lumisite.findings.finding import Finding, Severity
from lumisite.machine.tree import ByteSource, DirEntry

MAGIC = b"hsqs"
_SUPERBLOCK = "<4sIIIIHHHHHHQQQQQQQQ"
_SUPERBLOCK_BYTES = struct.calcsize(_SUPERBLOCK)
_METADATA_BYTES = 8192
_LARGEST_BLOCK_BYTES = 1024 * 1024
#: What is kept of all images in memory: 8 MiB of metadata, at most 16 MiB of files, and what leads to them.
_METADATA_KEPT, _BLOCKS_KEPT, _LISTINGS_KEPT, _PATHS_KEPT = 1024, 16, 256, 16 * 1024
#: The names of a directory, the blocks of a file or the text of a link take no more in a real image.
_LARGEST_METADATA_BYTES = 8 * 1024 * 1024
_COMPRESSIONS = {1: "gzip", 2: "lzma", 3: "lzo", 4: "xz", 5: "lz4", 6: "zstd"}

_NO_FRAGMENT = 0xFFFFFFFF
_FRAGMENTS_PER_BLOCK = 512
_DIRECTORY, _FILE, _LINK, _EXTENDED, _MOST_KIND = 1, 2, 3, 7, 14
#: The layout of each inode behind its first 16 bytes, and where size, start, offset and fragment stand in it.
_INODES: dict[int, tuple[str, tuple[int | None, int | None, int | None, int | None]]] = {
    1: ("<IIHHI", (2, 0, 3, None)),
    2: ("<IIII", (3, 0, 2, 1)),
    3: ("<II", (1, None, None, None)),
    8: ("<IIIIHHI", (1, 2, 5, None)),
    9: ("<QQQIIII", (1, 0, 5, 4)),
    10: ("<II", (1, None, None, None)),
}

#: Starts unpacking one block, and the error of its library for a damaged one.
Unpacker: TypeAlias = tuple[Callable[[], Any], type[Exception]]


class ImageError(LumisiteError):
    """An image that cannot be read: cut, damaged, encrypted, or of a kind that lumisite does not know."""


def damaged(source: ByteSource, byte: int, part: str) -> ImageError:
    """Return the error for a part that is damaged at a byte of an image file."""
    message = f"byte {byte}: a damaged {part}"
    return ImageError(Finding("image-damaged", Severity.FAULT, message, "copy or build the image again", source.name))


def cut(source: ByteSource, byte: int, size: int, actual: int) -> ImageError:
    """Return the error for a file that ends too early: of `size` bytes from a byte on, it has `actual`."""
    message = f"byte {byte}: of {size} bytes from there on, {actual} are in the file"
    advice = "copy the image again; its end is missing"
    return ImageError(Finding("image-damaged", Severity.FAULT, message, advice, source.name))


def unsupported(
    source: ByteSource,
    message: str,
    advice: str = "build the image again with SingularityCE 3 or Apptainer 1, or later",
) -> ImageError:
    """Return the error for an image of a kind or version that lumisite does not read."""
    return ImageError(Finding("image-unsupported", Severity.FAULT, message, advice, source.name))


class _Inode(NamedTuple):
    """`start` and `offset` place a directory's names, or a file's first block and its part of a fragment.

    `after` is where the metadata behind the inode stands: the sizes of a file's blocks, or the text of a link.
    """

    kind: int
    size: int
    start: int
    offset: int
    fragment: int
    after: tuple[int, int]


@dataclass(frozen=True, eq=False)
class Squashfs:
    """The file system between `start` and `start + size` of an image file.

    Places in metadata are a block and an offset in it; `tables` are where inodes, names and fragments begin.
    """

    file: ByteSource
    start: int
    block_bytes: int
    root: int
    size: int
    tables: tuple[int, int, int]
    unpacker: Unpacker

    @property
    def name(self) -> str:
        """The image file."""
        return self.file.name

    def look(self, path: str) -> DirEntry | None:
        """Return what is at a path."""
        reference, kind = self._find(path) or (0, None)
        if kind is None:
            return None
        if kind != _LINK:
            return DirEntry("directory" if kind == _DIRECTORY else "file" if kind == _FILE else "other")
        inode = self._inode(reference)
        if inode.kind != _LINK:
            raise self.damaged(inode.after[0], "link")
        return DirEntry("link", self._metadata(inode.after, inode.size)[0].decode("utf-8", "surrogateescape"))

    def names(self, path: str) -> tuple[str, ...]:
        """Return the names in a directory."""
        reference, kind = self._find(path) or (0, None)
        return tuple(self._listed(reference)) if kind == _DIRECTORY else ()

    def source(self, path: str) -> SquashedFile | None:
        """Return a file."""
        reference, kind = self._find(path) or (0, None)
        return SquashedFile(f"{self.name}:{path}", self, self._inode(reference)) if kind == _FILE else None

    @lru_cache(_PATHS_KEPT)  # noqa: B019 - bounded, as the others here
    def _find(self, path: str) -> tuple[int, int] | None:
        """Return the reference and the kind of what stands at a path, looking through its parents."""
        if path == "/":
            return self.root, _DIRECTORY
        top, _, name = path.rpartition("/")
        parent = self._find(top or "/")
        return None if parent is None or parent[1] != _DIRECTORY else self._listed(parent[0]).get(name)

    @lru_cache(_LISTINGS_KEPT)  # noqa: B019
    def _listed(self, directory: int) -> dict[str, tuple[int, int]]:
        """Return the names of a directory with the reference and the kind of each."""
        inode = self._inode(directory)
        length = inode.size - 3  # the size counts `.` and `..`, which are not written
        if inode.kind != _DIRECTORY:
            raise self.damaged(inode.after[0], "directory")
        at = self.tables[1] + inode.start
        try:
            return dict(_names(self._metadata((at, inode.offset), length)[0]))
        except struct.error:
            raise self.damaged(at, "directory") from None

    def _inode(self, reference: int) -> _Inode:
        head, position = self._metadata((self.tables[0] + (reference >> 16), reference & 0xFFFF), 16)
        (kind,) = struct.unpack_from("<H", head)
        if kind not in _INODES:
            if _LINK < kind <= _MOST_KIND:
                return _Inode(kind, 0, 0, 0, _NO_FRAGMENT, position)
            raise self.damaged(position[0], f"inode of kind {kind}")
        layout, fields = _INODES[kind]
        body, after = self._metadata(position, struct.calcsize(layout))
        values = struct.unpack(layout, body)
        size, start, offset = (0 if index is None else values[index] for index in fields[:3])
        fragment = _NO_FRAGMENT if fields[3] is None else values[fields[3]]
        return _Inode(kind if kind <= _EXTENDED else kind - _EXTENDED, size, start, offset, fragment, after)

    def block_sizes(self, inode: _Inode) -> tuple[int, ...]:
        """Return the packed size of each block of a file, as it is written."""
        whole, rest = divmod(inode.size, self.block_bytes)
        count = whole + (1 if rest and inode.fragment == _NO_FRAGMENT else 0)
        return struct.unpack(f"<{count}I", self._metadata(inode.after, 4 * count)[0])

    def fragment(self, inode: _Inode, length: int) -> bytes:
        """Return the end of a file that shares a block with the ends of others."""
        index, entry = divmod(inode.fragment, _FRAGMENTS_PER_BLOCK)
        (at,) = struct.unpack("<Q", self._bytes(self.tables[2] + 8 * index, 8))
        start, size, _ = struct.unpack("<QII", self._metadata((at, 16 * entry), 16)[0])
        return self.block(start, size, inode.offset + length)[inode.offset :]

    def block(self, at: int, size: int, length: int) -> bytes:
        """Return the first bytes of a block; `size` is the packed size, with a bit for one that is not packed."""
        content = self._block(at, size)[:length]
        if len(content) < length:
            raise self.damaged(at, "data block")
        return content

    @lru_cache(_BLOCKS_KEPT)  # noqa: B019
    def _block(self, at: int, size: int) -> bytes:
        packed_bytes = size & 0xFFFFFF
        if packed_bytes > _LARGEST_BLOCK_BYTES:
            raise self.damaged(at, "data block")
        content = self._bytes(at, packed_bytes)
        return content if size & 0x1000000 else self._unpacked(at, content, self.block_bytes)

    def _metadata(self, position: tuple[int, int], length: int) -> tuple[bytes, tuple[int, int]]:
        """Return `length` bytes of metadata from a place on, and the place after them."""
        at, offset = position
        if length > _LARGEST_METADATA_BYTES:
            raise self.damaged(at, "inode")
        parts = []
        while length > 0:
            block, following = self._metadata_block(at)
            part = block[offset : offset + length]
            if offset > len(block):
                raise self.damaged(at, "metadata block")
            parts.append(part)
            length -= len(part)
            offset += len(part)
            if offset >= len(block):
                at, offset = following, 0
        return b"".join(parts), (at, offset)

    @lru_cache(_METADATA_KEPT)  # noqa: B019
    def _metadata_block(self, at: int) -> tuple[bytes, int]:
        """Return a block of metadata and where the next one stands."""
        (head,) = struct.unpack("<H", self._bytes(at, 2))
        packed_bytes = head & 0x7FFF
        content = self._bytes(at + 2, packed_bytes)
        if not head & 0x8000:
            content = self._unpacked(at, content, _METADATA_BYTES)
        if not 0 < len(content) <= _METADATA_BYTES:
            raise self.damaged(at, "metadata block")
        return content, at + 2 + packed_bytes

    def _unpacked(self, at: int, content: bytes, most: int) -> bytes:
        """Unpack a block, but never to more bytes than it may have."""
        start, fault = self.unpacker
        stream = start()
        try:
            unpacked: bytes = stream.decompress(content, most + 1)
        except fault:
            raise self.damaged(at, "compressed block") from None
        if len(unpacked) > most or not stream.eof:
            raise self.damaged(at, "compressed block")
        return unpacked

    def _bytes(self, at: int, length: int) -> bytes:
        content = self.file.read(self.start + at, length) if at + length <= self.size else b""
        if len(content) < length:
            raise self.damaged(at, "file system, which ends too early")
        return content

    def damaged(self, at: int, part: str) -> ImageError:
        """Return an error that names the byte of the image file, and the part that is damaged."""
        return damaged(self.file, self.start + at, part)


def _names(content: bytes) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield the names in the content of a directory; raises `struct.error` where it is cut."""
    position = 0
    while position < len(content):
        count, block, _ = struct.unpack_from("<III", content, position)
        position += 12
        for _ in range(count + 1):
            offset, _, kind, last = struct.unpack_from("<HhHH", content, position)
            name = content[position + 8 : position + 9 + last]
            position += 9 + last
            yield name.decode("utf-8", "surrogateescape"), (block << 16 | offset, kind)


@dataclass(frozen=True)
class SquashedFile:
    """One file of the image."""

    name: str
    image: Squashfs
    inode: _Inode

    @property
    def size(self) -> int:
        """Its length in bytes."""
        return self.inode.size

    def read(self, offset: int, length: int) -> bytes:
        """Return a part of it; raises `ImageError`."""
        end = min(offset + length, self.size)
        parts = []
        while offset < end:
            index, skip = divmod(offset, self.image.block_bytes)
            parts.append(self._block(index)[skip : skip + end - offset])
            offset += len(parts[-1])
        return b"".join(parts)

    @cached_property
    def _places(self) -> tuple[tuple[int, int], ...]:
        sizes = self.image.block_sizes(self.inode)
        places = accumulate((size & 0xFFFFFF for size in sizes), initial=self.inode.start)
        return tuple(zip(places, sizes, strict=False))

    def _block(self, index: int) -> bytes:
        """Return a block of the file in full; the last one may be shorter, and one of zeros is not written."""
        length = min(self.image.block_bytes, self.size - index * self.image.block_bytes)
        if index >= len(self._places):
            return self.image.fragment(self.inode, length)
        at, size = self._places[index]
        return self.image.block(at, size, length) if size else bytes(length)


def read_squashfs(source: ByteSource, start: int = 0, size: int | None = None) -> Squashfs:
    """Open the file system at `start` of an image file; raises `ImageError`."""
    size = source.size - start if size is None else size
    content = source.read(start, _SUPERBLOCK_BYTES)
    if content[:4] != MAGIC:
        raise damaged(source, start, "file system")
    if len(content) < _SUPERBLOCK_BYTES:
        raise cut(source, start, _SUPERBLOCK_BYTES, len(content))
    values = struct.unpack(_SUPERBLOCK, content)
    _, _, _, block_bytes, _, compression, block_log, _, _, major, minor, root, used, _, _, *tables, _ = values
    inodes, names, fragments = tables
    if (major, minor) != (4, 0):
        raise unsupported(source, f"byte {start}: squashfs of version {major}.{minor}, not 4.0")
    if not 12 <= block_log <= 20 or block_bytes != 1 << block_log:
        raise damaged(source, start, "superblock")
    if used > size:
        raise cut(source, start, used, size)
    unpacker = _unpacker(compression)
    if unpacker is None:
        name = _COMPRESSIONS.get(compression, str(compression))
        advice = "pack the file system with gzip, xz or zstd, or give the unpacked image"
        if name == "zstd":
            name = "zstd, which this Python cannot unpack"
            advice = "`pip install backports.zstd`, or run lumisite with Python 3.14 or newer"
        raise unsupported(source, f"byte {start}: packed with {name}", advice)
    return Squashfs(source, start, block_bytes, root, used, (inodes, names, fragments), unpacker)


def _unpacker(compression: int) -> Unpacker | None:
    """Return what unpacks blocks of a compression; `None` for one that is not read, or not with this Python."""
    match _COMPRESSIONS.get(compression):
        case "gzip":
            return zlib.decompressobj, zlib.error
        case "xz":
            return lzma.LZMADecompressor, lzma.LZMAError
        case "zstd":
            try:
                if sys.version_info >= (3, 14):
                    from compression import zstd
                else:
                    from backports import zstd
            except ImportError:
                return None
            return zstd.ZstdDecompressor, zstd.ZstdError
    return None
