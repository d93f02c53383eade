"""File trees for tests: a dict that stands for a file system, and the same written to disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from lumisite.machine.tree import DirEntry


@dataclass(frozen=True)
class Memory:
    """A file that is already read."""

    name: str
    content: bytes

    @property
    def size(self) -> int:
        """Its length in bytes."""
        return len(self.content)

    def read(self, offset: int, length: int) -> bytes:
        """Return `length` bytes, fewer only where the file ends."""
        return self.content[offset : offset + length]


@dataclass(frozen=True)
class Link:
    """A symbolic link, as it is written."""

    to: str


_FILE, _DIRECTORY = DirEntry("file"), DirEntry("directory")
Files = Mapping[str, bytes | Link]


@dataclass(frozen=True)
class DictTree:
    """Files by path; their directories come by themselves."""

    files: Files
    name: str = "dict"

    def look(self, path: str) -> DirEntry | None:
        there = self.files.get(path)
        if isinstance(there, Link):
            return DirEntry("link", there.to)
        if there is not None:
            return _FILE
        return _DIRECTORY if (path.rstrip("/") or "/") in self._directories else None

    def names(self, path: str) -> tuple[str, ...]:
        return tuple(self._directories.get(path.rstrip("/") or "/", ()))

    @cached_property
    def _directories(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for path in self.files:
            while path != "/":
                path, _, name = path.rpartition("/")
                path = path or "/"
                if name in found.setdefault(path, set()):
                    break
                found[path].add(name)
        return found

    def source(self, path: str) -> Memory | None:
        content = self.files[path]
        assert isinstance(content, bytes)
        return Memory(path, content)


def write_tree(top: Path, files: Files) -> Path:
    for path, content in files.items():
        place = top / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Link):
            place.symlink_to(content.to)
        else:
            place.write_bytes(content)
    return top
