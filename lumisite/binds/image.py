"""Open an image: a SIF, a squashfs file, or the folder that one was unpacked to; nothing is run or mounted."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lumisite.binds.host import DiskTree, open_file
from lumisite.binds.sif import MAGIC, MAGIC_OFFSET, find_root
from lumisite.binds.squashfs import MAGIC as SQUASHFS_MAGIC
from lumisite.binds.squashfs import ImageError, read_squashfs
from lumisite.binds.tree import Tree


@dataclass(frozen=True)
class Image:
    """The file system that containers start from, and what a reader of the answer should know about it."""

    tree: Tree
    notes: tuple[str, ...] = ()


def open_image(path: str) -> Image:
    """Open an image; raises `ImageError`, or `ToolError` where the system refuses."""
    if "\0" not in path and Path(path).is_dir():
        return Image(DiskTree(path))
    source = open_file(path)
    head = source.read(0, MAGIC_OFFSET + len(MAGIC))
    if head[MAGIC_OFFSET:] == MAGIC:
        part, notes = find_root(source)
        return Image(read_squashfs(source, part.start, part.size), notes)
    if head.startswith(SQUASHFS_MAGIC):
        return Image(read_squashfs(source))
    if not head:
        raise ImageError(f"{path}: is empty, where a SIF or an unpacked image would be right")
    raise ImageError(f"{path}: byte 0: is neither a SIF nor a squashfs file, it begins with {head[:12]!r}")
