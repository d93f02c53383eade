"""Unpack the blocks of an image, none to more bytes than it may have."""

from __future__ import annotations

import lzma
import sys
import zlib
from collections.abc import Callable
from typing import Any, TypeAlias

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
    return _unpacked(zlib.decompressobj(), zlib.error, content, most)


def _xz(content: bytes, most: int) -> bytes:
    return _unpacked(lzma.LZMADecompressor(memlimit=_MEMORY_BYTES), lzma.LZMAError, content, most)


def _zstd(content: bytes, most: int) -> bytes:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    stream = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: _WINDOW_LOG})
    return _unpacked(stream, zstd.ZstdError, content, most)


def _unpacked(stream: Any, fault: type[Exception], content: bytes, most: int) -> bytes:
    try:
        unpacked: bytes = stream.decompress(content, most + 1)
    except fault as error:
        raise BadBlockError(str(error)) from None
    if len(unpacked) > most:
        raise BadBlockError(f"it unpacks to more than {most} bytes")
    if not stream.eof:
        raise BadBlockError("it has no end")
    return unpacked
