"""A file system as the closure sees it: a directory on disk, an image file, or a dict in a test.

Links are followed here, the same way for all of them: inside the tree, absolute ones from its root, never out of it.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Literal, NamedTuple, Protocol

from lumisite.errors import LumisiteError
from lumisite.findings.finding import Finding, Severity
from lumisite.text import printable

#: As many links as Linux follows in one path (path_resolution(7)).
MOST_LINKS = 40
#: PATH_MAX of Linux.
LONGEST_PATH = 4096
#: A text has no more: a hundred times the longest table of mounts.
LARGEST_TEXT_BYTES = 16 * 1024 * 1024
_SMALL_BYTES = 64 * 1024
_PART_BYTES = 4 * 1024 * 1024


class ByteSource(Protocol):
    """The bytes of one file. `name` is for messages, `size` is in bytes."""

    @property
    def name(self) -> str:
        """What to call it in messages."""

    @property
    def size(self) -> int:
        """Its length in bytes."""

    def read(self, offset: int, length: int) -> bytes:
        """Return `length` bytes, fewer only where the file ends."""


class DirEntry(NamedTuple):
    """What stands at a path; `link` is where a symbolic link leads, as it is written."""

    kind: Literal["directory", "file", "link", "other"]
    link: str = ""


class Tree(Protocol):
    """A file system. Paths are absolute in it, normal, and have no links among their parents.

    What this user may not look into is not there, as for the dynamic loader; damage raises a `LumisiteError`.
    """

    @property
    def name(self) -> str:
        """What to call it in messages."""

    def look(self, path: str) -> DirEntry | None:
        """Return what is at a path, without following a link there."""

    def names(self, path: str) -> tuple[str, ...]:
        """Return the names in a directory, in no order."""

    def source(self, path: str) -> ByteSource | None:
        """Return what reads a file, `None` where this user may not."""


class ResolvedPath(NamedTuple):
    """Where a path leads: its real `path` and `entry`, or no entry and the `code` of what is wrong.

    `links` is what each link says that the path ends at, one behind the other; those among its folders do not count.
    `command` lets everybody enter a folder on the way which this user may not enter.
    """

    path: str
    entry: DirEntry | None
    code: str = ""
    links: tuple[str, ...] = ()
    command: str = ""

    def finding(self, subject: str) -> Finding:
        """Return what is wrong with a path that leads to nothing."""
        at, closed = printable(self.path), f"is in a folder that may not be entered ({self.command})"
        if self.code in ("path-in-closed-folder", "link-into-closed-folder"):
            message = closed if self.code == "path-in-closed-folder" else f"leads to {at}, which {closed}"
            return Finding("path-closed", Severity.FAULT, message, "open the folder as its owner or root", subject)
        if self.code in ("link-loop", "link-broken"):
            message = "is a loop of links" if self.code == "link-loop" else f"leads to {at}, which is not there"
            return Finding("link-broken", Severity.FAULT, message, "repair the link", subject)
        if self.code == "path-through-file":
            message = f"leads through {at}, which is no directory"
            return Finding("path-through-file", Severity.FAULT, message, "correct the path", subject)
        message = f"is longer than {LONGEST_PATH} bytes" if self.code == "path-too-long" else "is not there"
        return Finding("path-missing", Severity.FAULT, message, "create it, or correct the path", subject)


def resolve(tree: Tree, path: str, folder: str = "/") -> ResolvedPath:
    """Follow all links of a path inside the tree; `..` at the root stays there.

    A relative path begins in `folder`, which is a directory without links in its path.
    """
    real, entry, followed = folder, DirEntry("directory"), 0  # until the end of the path it is always a directory
    waiting = _parts(path)
    links: tuple[str, ...] = ()
    while waiting:
        part = waiting.pop()
        if part == "..":
            real = posixpath.dirname(real)
            continue
        step = f"{real.rstrip('/')}/{part}"
        if len(step) > LONGEST_PATH:
            return ResolvedPath(path, None, "path-too-long", links)
        seen = tree.look(step)
        if seen is None:
            if command := opened_by(tree, posixpath.dirname(step)):
                code = "link-into-closed-folder" if links else "path-in-closed-folder"
                return ResolvedPath(step, None, code, links, command)
            return ResolvedPath(step, None, "link-broken" if links else "path-missing", links)
        if seen.kind == "link":
            followed += 1
            if not waiting:
                links += (seen.link,)
            if followed > MOST_LINKS:
                return ResolvedPath(step, None, "link-loop", links[:2])
            real = "/" if seen.link.startswith("/") else real
            waiting += _parts(seen.link)
        elif waiting and seen.kind != "directory":
            return ResolvedPath(step, None, "path-through-file", links)
        else:
            real, entry = step, seen
    return ResolvedPath(real, entry, links=links)


def broken_link_on(tree: Tree, path: str) -> tuple[str, ResolvedPath] | None:
    """Return the broken link by which a path leads to nothing, itself or a folder on the way, and where it leads."""
    for at, sign in enumerate(f"{path}/"):
        if at and sign == "/" and (found := resolve(tree, path[:at])).entry is None:
            return (path[:at], found) if found.code in ("link-broken", "link-loop") else None
    return None


def opened_by(tree: Tree, path: str) -> str | None:
    """Return the command that lets everybody read a file, or enter a folder, which this user was just refused."""
    unreadable: Mapping[str, str] = getattr(tree, "unreadable", {})
    return unreadable.get(path)


def is_under(path: str, top: str) -> bool:
    """Return whether a path is another one, or lies below it.

    >>> is_under("/opt/own/lib", "/opt/own"), is_under("/opt/own-pe", "/opt/own")
    (True, False)
    """
    return path == top or path.startswith(f"{top.rstrip('/')}/")


def _parts(path: str) -> list[str]:
    """Split a path into names, the first one last."""
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]


def names_of(tree: Tree, path: str, most: int | None = 4096) -> list[str]:
    """Return the names in the directory that a path leads to, sorted, and at most `most`; none where it is none."""
    resolved = resolve(tree, path)
    there = resolved.entry is not None and resolved.entry.kind == "directory"
    return sorted(tree.names(resolved.path))[:most] if there else []


def file_of(tree: Tree, path: str) -> ByteSource | None:
    """Return what reads the regular file that a path leads to; `None` where there is none, or this user may not."""
    resolved = resolve(tree, path)
    return tree.source(resolved.path) if resolved.entry is not None and resolved.entry.kind == "file" else None


def text_of(tree: Tree, path: str) -> str | None:
    """Return a text file, `None` where there is none that can be read; raises `LumisiteError` for one too large."""
    source = file_of(tree, path)
    if source is None:
        return None
    if source.size > LARGEST_TEXT_BYTES:
        message = f"{path} has {source.size} bytes, more than any text of this name"
        raise LumisiteError(Finding("file-unreadable", Severity.FAULT, message, "copy it again", tree.name))
    return source.read(0, LARGEST_TEXT_BYTES).decode("utf-8", "replace")


def head_of(tree: Tree, path: str, length: int, at: int = 0) -> bytes | None:
    """Return the first bytes of a regular file, or those from `at` on; `None` where they cannot be had, damage too."""
    try:
        source = file_of(tree, path)
        return None if source is None else source.read(at, length)
    except LumisiteError:  # sysfs answers some reads with an error: the speed of a link that is down
        return None


def small_text(tree: Tree, path: str) -> str | None:
    """Return the first 64 KiB of a text file; `None` where they cannot be had."""
    content = head_of(tree, path, _SMALL_BYTES)
    return None if content is None else content.decode("utf-8", "replace")


def first_line(tree: Tree, path: str) -> str | None:
    """Return the first line of a small file; `None` where there is none, or nothing in it that can be shown."""
    lines = (small_text(tree, path) or "").strip().splitlines()
    line = lines[0].strip() if lines else ""
    return line if line and line.isprintable() else None


def content_of(tree: Tree, path: str, most: int) -> bytes | None:
    """Return the content of a regular file of at most `most` bytes; `None` where that cannot be had."""
    content = head_of(tree, path, most + 1)
    return content if content is not None and len(content) <= most else None


def size_of(tree: Tree, path: str) -> int | None:
    """Return the size of a file in bytes; `None` where that cannot be had."""
    try:
        source = file_of(tree, path)
    except LumisiteError:
        return None
    return None if source is None else source.size


def digest_of(tree: Tree, path: str, most: int) -> str | None:
    """Return the SHA-256 of a regular file of at most `most` bytes, read in parts; `None` where that cannot be had."""
    import hashlib  # late: only `facts` asks

    size, digest = size_of(tree, path), hashlib.sha256()
    if size is None or size > most:
        return None
    for at in range(0, size, _PART_BYTES):
        digest.update(head_of(tree, path, _PART_BYTES, at) or b"")
    return digest.hexdigest()
