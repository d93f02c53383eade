"""A directory on disk as a tree: the host at `/`, a captured host, or an unpacked image."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from lumisite.errors import ToolError, refused
from lumisite.machine.tree import Entry, Source
from lumisite.site.read import open_regular, regular_size

#: No reader asks for more at once, so that a file of any size takes little memory.
LARGEST_READ_BYTES = 64 * 1024 * 1024
#: No file has more; the kernel's own files (/proc) give their size as 0.
MOST_BYTES = 2**63


@dataclass(frozen=True)
class File:
    """A regular file on disk, opened when it is read and closed at once; `name` is its real path."""

    name: str
    size: int

    def read(self, offset: int, length: int) -> bytes:
        """Give a part of it; raises `ToolError` when the system refuses."""
        if offset >= MOST_BYTES:
            return b""
        try:
            descriptor = open_regular(self.name)
            try:
                return os.pread(descriptor, min(length, LARGEST_READ_BYTES), offset)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise refused("read", error) from None


@dataclass(frozen=True)
class DiskTree:
    """The tree below the directory `name`."""

    name: str

    def look(self, path: str) -> Entry | None:
        """Tell what stands at a path."""
        real = self._real(path)
        try:
            mode = os.lstat(real).st_mode
            if stat.S_ISLNK(mode):
                return Entry("link", str(Path(real).readlink()))
        except (OSError, ValueError):
            return None
        if stat.S_ISDIR(mode):
            return Entry("directory")
        return Entry("file" if stat.S_ISREG(mode) else "other")

    def names(self, path: str) -> tuple[str, ...]:
        """Give the names in a directory."""
        try:
            with os.scandir(self._real(path)) as entries:
                return tuple(entry.name for entry in entries)
        except OSError:
            return ()

    def source(self, path: str) -> Source | None:
        """Open a file."""
        real = self._real(path)
        return open_file(real) if os.access(real, os.R_OK) else None

    def mode(self, path: str) -> int | None:
        """Give the permission bits of what stands at a path, which is not a link."""
        try:
            return stat.S_IMODE(os.lstat(self._real(path)).st_mode)
        except (OSError, ValueError):
            return None

    def _real(self, path: str) -> str:
        return self.name.rstrip("/") + path


def open_file(path: str) -> File:
    """Open a regular file; raises `ToolError` where the system refuses, or there is something else."""
    try:
        return File(path, regular_size(path))
    except OSError as error:
        raise refused("read", error) from None


def list_directory(path: str) -> tuple[str, ...]:
    """Give the names in a directory, sorted; raises `ToolError` where `DiskTree.names` would give none."""
    try:
        return tuple(sorted(os.listdir(path)))  # noqa: PTH208 - the names alone, not a path object for each
    except OSError as error:
        raise refused("list", error) from None
    except ValueError as error:  # a NUL in the name
        raise ToolError(f"cannot list {path!r}: {error}") from None
