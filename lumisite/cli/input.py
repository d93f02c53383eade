"""How a file that may be huge, or standard input, is read: in blocks, unpacked."""

from __future__ import annotations

import io
import os
import re
import zlib
from collections.abc import Iterator

from lumisite.cli.progress import Progress
from lumisite.site.read import opened
from lumisite.text import printable
from lumisite.validate import InputError

#: How much of a file is read at a time: what is looked at several times should stay in a core's cache.
BLOCK_BYTES = 1 << 18
#: How much of a packed file is: a thousand times as much may be in it.
PACKED_BYTES = 1 << 14
#: zlib's `wbits` for the header and trailer of gzip.
_GZIP = 31


def file_blocks(name: str) -> Iterator[bytes]:
    """Read a file or standard input in blocks, unpacking gzip."""
    try:
        # What the shell has opened for us may be a pipe: `transport <(zcat LOG)`.
        open_already = 0 if name == "-" else int(name[8:]) if re.fullmatch(r"/dev/fd/[0-9]{1,4}", name) else None
        with opened(name) if open_already is None else _opened_already(open_already) as stream:
            if stream.peek(2)[:2] == b"\x1f\x8b":
                yield from _unpacked(stream)
                return
            progress, size = Progress("MB", lines=False), os.fstat(stream.fileno()).st_size
            while block := stream.read(BLOCK_BYTES):
                if size:
                    progress(stream.tell() / 1e6, size / 1e6, name)
                yield block
    except (EOFError, zlib.error) as error:
        raise InputError(f"{name}: cannot be unpacked: {error}") from None
    except OSError as error:
        raise InputError(f"{printable(name)}: cannot be read: {error.strerror}") from None


def _unpacked(stream: io.BufferedReader) -> Iterator[bytes]:
    """Unpack gzip, of several parts too, in blocks. The library's reader takes zeros behind a part one at a time.

    Raises `EOFError` where the end is missing, `zlib.error` where it is no gzip.
    """
    unpacker, rest = zlib.decompressobj(_GZIP), b""
    while packed := rest or stream.read(PACKED_BYTES):
        rest = b""
        if unpacker.eof:
            if packed == bytes(len(packed)):  # padding, of which there may be gigabytes
                continue
            packed, unpacker = packed.lstrip(b"\0"), zlib.decompressobj(_GZIP)
        if block := unpacker.decompress(packed):
            yield block
        rest = unpacker.unused_data
    if not unpacker.eof:
        raise EOFError("it ends before its end-of-stream marker")


def _opened_already(number: int) -> io.BufferedReader:
    return io.BufferedReader(io.FileIO(number, closefd=False))
