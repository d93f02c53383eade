"""How a file that may be huge, or standard input, is read: in blocks, unpacked."""

from __future__ import annotations

import gzip
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


def file_blocks(name: str) -> Iterator[bytes]:
    """Read a file or standard input in blocks, unpacking gzip."""
    try:
        # What the shell has opened for us may be a pipe: `transport <(zcat LOG)`.
        open_already = 0 if name == "-" else int(name[8:]) if re.fullmatch(r"/dev/fd/[0-9]{1,4}", name) else None
        with opened(name) if open_already is None else _opened_already(open_already) as stream:
            if stream.peek(2)[:2] == b"\x1f\x8b":
                unpacked = gzip.GzipFile(fileobj=stream)
                yield from iter(lambda: unpacked.read(BLOCK_BYTES), b"")
                return
            progress, size = Progress("MB", lines=False), os.fstat(stream.fileno()).st_size
            while block := stream.read(BLOCK_BYTES):
                if size:
                    progress(stream.tell() / 1e6, size / 1e6, name)
                yield block
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{name}: cannot be unpacked: {error}") from None
    except OSError as error:
        raise InputError(f"{printable(name)}: cannot be read: {error.strerror}") from None


def _opened_already(number: int) -> io.BufferedReader:
    return io.BufferedReader(io.FileIO(number, closefd=False))
