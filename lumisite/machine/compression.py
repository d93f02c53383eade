"""Unpack the blocks of an image, none to more bytes than it may have."""

from __future__ import annotations

import lzma
import sys
import zlib
from collections.abc import Callable
from typing import TypeAlias

COMPRESSIONS = {1: "gzip", 2: "lzma", 3: "lzo", 4: "xz", 5: "lz4", 6: "zstd"}
#: No block needs a larger window or dictionary: the largest block has 1 MiB.
_WINDOW_LOG = 20
_MEMORY_BYTES = 32 * 1024 * 1024

#: Takes packed bytes and the most bytes that they may give.
Unpack: TypeAlias = Callable[[bytes, int], bytes]


class BadBlockError(Exception):
    """A packed block that is damaged; whoever knows where it stands tells the user."""


def unpacker(compression: int) -> Unpack | None:
    """Give what unpacks a block packed with a squashfs compression, or `None` where nothing here does."""
    return {1: _gzip, 4: _xz, 6: _zstd}.get(compression)


def _gzip(content: bytes, most: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        unpacked = stream.decompress(content, most + 1)
    except zlib.error as error:
        raise BadBlockError(str(error)) from None
    return _checked(unpacked, most, whole=stream.eof)


def _xz(content: bytes, most: int) -> bytes:
    stream = lzma.LZMADecompressor(memlimit=_MEMORY_BYTES)
    try:
        unpacked = stream.decompress(content, most + 1)
    except lzma.LZMAError as error:
        raise BadBlockError(str(error)) from None
    return _checked(unpacked, most, whole=stream.eof)


def _zstd(content: bytes, most: int) -> bytes:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    stream = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: _WINDOW_LOG})
    try:
        unpacked = stream.decompress(content, most + 1)
    except zstd.ZstdError as error:
        raise BadBlockError(str(error)) from None
    return _checked(unpacked, most, whole=stream.eof)


def _checked(unpacked: bytes, most: int, *, whole: bool) -> bytes:
    if len(unpacked) > most:
        raise BadBlockError(f"it unpacks to more than {most} bytes")
    if not whole:
        raise BadBlockError("it has no end")
    return unpacked
