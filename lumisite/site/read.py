"""The one way in which a file is opened for reading: regular files alone, and no more of one than asked.

What a name leads to may be a pipe, a device or a loop of links, and may become one at any time; so it is opened without
waiting, and judged by what was opened. What runs inside a job has no lumisite, and reads for itself.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lumisite.findings.finding import Finding, Severity

_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class UnfitFileError(OSError):
    """What is there is no regular file, or is larger than such a file can be; `finding` says which."""

    def __init__(self, number: int, finding: Finding) -> None:
        super().__init__(number, finding.message, finding.subject)
        self.finding = finding


def regular_size(path: str | os.PathLike[str], *, follow: bool = True) -> int:
    """Return the size of a regular file in bytes; the kernel's own files say 0. Raises `OSError`."""
    try:
        return _size_if_regular(Path(path).stat(follow_symlinks=follow), path)
    except ValueError as error:  # a NUL in the name
        raise OSError(errno.EINVAL, str(error), ascii(os.fspath(path))) from None


def open_regular(path: str | os.PathLike[str], *, follow: bool = True, folder: int | None = None) -> int:
    """Return a descriptor of a regular file, at the end of a link only where links are to `follow`. Raises `OSError`.

    A relative path is looked up in the open `folder`, where one is given.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY | (0 if follow else os.O_NOFOLLOW)
    descriptor = os.open(path, flags, dir_fd=folder)
    try:
        _size_if_regular(os.fstat(descriptor), path)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


@contextmanager
def opened(path: str | os.PathLike[str], *, follow: bool = True) -> Iterator[io.BufferedReader]:
    """Read a regular file in parts. Raises `OSError`, with the file's name for what goes wrong on the way too."""
    regular_size(path, follow=follow)  # a device is not even opened, which may do something, and a socket cannot be
    with os.fdopen(open_regular(path, follow=follow), "rb") as stream:
        try:
            yield stream
        except OSError as error:
            error.filename = error.filename or os.fspath(path)
            raise


def read_file(path: str | os.PathLike[str], most_bytes: int, *, follow: bool = True) -> bytes:
    """Read a whole file. Raises `OSError`: `UnfitFileError` too where it has more than `most_bytes`."""
    with opened(path, follow=follow) as stream:
        content = stream.read(most_bytes + 1)
    if len(content) > most_bytes:
        message = f"it has more than {most_bytes} bytes"
        raise UnfitFileError(errno.EFBIG, _finding(message, "check that it is the right file", path))
    return content


def read_entry(name: str, folder: int, most_bytes: int) -> tuple[os.stat_result, bytes | None]:
    """Return the status and the content of what `name` is in an open folder, both of what was opened.

    A link is not followed. The content of a larger file is None. Raises `OSError`.
    """
    with os.fdopen(open_regular(name, follow=False, folder=folder), "rb") as stream:
        status = os.fstat(stream.fileno())
        return status, None if status.st_size > most_bytes else stream.read(most_bytes)


def kind_of(mode: int) -> str:
    """Return what a path is that is no regular file."""
    return _KINDS.get(stat.S_IFMT(mode), "a special file")


def _size_if_regular(found: os.stat_result, path: str | os.PathLike[str]) -> int:
    if not stat.S_ISREG(found.st_mode):
        message = f"it is not a file but {kind_of(found.st_mode)}"
        raise UnfitFileError(errno.EINVAL, _finding(message, "name a file", path))
    return found.st_size


def _finding(message: str, advice: str, path: str | os.PathLike[str]) -> Finding:
    return Finding("file-unreadable", Severity.FAULT, message, advice, os.fspath(path))
