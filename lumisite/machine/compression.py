"""Unpack the blocks of an image, none to more bytes than it may have."""

from __future__ import annotations

import lzma
import sys
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

COMPRESSIONS = {1: "gzip", 2: "lzma", 3: "lzo", 4: "xz", 5: "lz4", 6: "zstd"}
#: No block needs a larger window or dictionary: the largest block has 1 MiB.
_WINDOW_LOG = 20
_MEMORY_BYTES = 32 * 1024 * 1024

#: Takes packed bytes and the most bytes that they may give.
Unpack: TypeAlias = Callable[[bytes, int], bytes]


class BadBlockError(Exception):
    """A packed block that is damaged; the text is what its library reports, if anything."""


def unpacker(compression: int) -> Unpack | None:
    """Return the function that unpacks blocks of a squashfs compression; None for one that is not supported."""
    match COMPRESSIONS.get(compression):
        case "gzip":
            return partial(_unpacked, zlib.decompressobj, zlib.error)
        case "xz":
            return partial(_unpacked, partial(lzma.LZMADecompressor, memlimit=_MEMORY_BYTES), lzma.LZMAError)
        case "zstd":
            try:
                if sys.version_info >= (3, 14):
                    from compression import zstd
                else:
                    from backports import zstd
            except ImportError:  # a Python without it, or a checkout on a path without what it needs
                return None
            options: dict[int, int] = {zstd.DecompressionParameter.window_log_max: _WINDOW_LOG}
            return partial(_unpacked, partial(zstd.ZstdDecompressor, options=options), zstd.ZstdError)
    return None


def _unpacked(start: Callable[[], Any], fault: type[Exception], content: bytes, most: int) -> bytes:
    stream = start()
    try:
        unpacked: bytes = stream.decompress(content, most + 1)
    except fault as error:
        raise BadBlockError(str(error)) from None
    if len(unpacked) > most or not stream.eof:
        raise BadBlockError
    return unpacked
