"""How a log or a file of samples, which may be huge, or standard input is read: in blocks, unpacked."""

from __future__ import annotations

import gzip
import io
import os
import re
import zlib
from collections.abc import Iterator
from typing import BinaryIO

from lumisite.cli.output import progress
from lumisite.site.read import opened
from lumisite.text import printable
from lumisite.validate import InputError

#: How much of a file is read at a time: what is looked at several times should stay in a core's cache.
BLOCK_BYTES = 1 << 18
#: A file of this size takes long enough to show progress.
LARGE_BYTES = 1 << 28


def file_blocks(name: str) -> Iterator[bytes]:
    """Read a file or standard input in blocks, unpacking gzip. Raises `InputError`."""
    try:
        # What the shell has opened for us may be a pipe: `transport <(zcat LOG)`.
        open_already = 0 if name == "-" else int(name[8:]) if re.fullmatch(r"/dev/fd/[0-9]{1,4}", name) else None
        with (
            opened(name)
            if open_already is None
            else io.BufferedReader(io.FileIO(open_already, closefd=False)) as stream
        ):
            packed = stream.peek(2)[:2] == b"\x1f\x8b"
            yield from _blocks(stream, gzip.GzipFile(fileobj=stream) if packed else stream, name)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{name}: cannot be unpacked: {error}") from None
    except OSError as error:
        raise InputError(f"{printable(name)}: cannot be read: {error.strerror}") from None


def _blocks(stream: BinaryIO, source: BinaryIO | gzip.GzipFile, name: str) -> Iterator[bytes]:
    """Yield what `source` reads of an open file; a large one is a line of progress."""
    size = os.fstat(stream.fileno()).st_size
    if size < LARGE_BYTES:
        while block := source.read(BLOCK_BYTES):
            yield block
        return
    with progress("MB") as report:
        while block := source.read(BLOCK_BYTES):
            report(stream.tell() / 1e6, size / 1e6, name)
            yield block
