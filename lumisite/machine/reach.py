"""What users reach through a path: the file systems that are mounted there, below it, or where links in it lead.

On some machines a shared path is a mount point; on others it is a folder of the node's own root file system, with
mount points below it, or with a link for each project into one of them. The mount table and the links tell which, so
nothing here looks into a file system but the node's own: one that does not answer keeps nobody waiting.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from dataclasses import dataclass, field

from lumisite.machine.host import DiskTree
from lumisite.machine.mounts import Mount
from lumisite.machine.tree import DirEntry, is_under, resolve

#: File systems of the kernel's that are the node's own (Documentation/filesystems in Linux 6.1).
OWN = ("ext2", "ext3", "ext4", "xfs", "btrfs", "overlay", "tmpfs", "ramfs", "rootfs", "squashfs")
#: What is mounted on a node and holds no user's files: the kernel's own, memory, and images that come and go.
NO_FILES = (
    "proc",
    "sysfs",
    "devtmpfs",
    "tmpfs",
    "ramfs",
    "rootfs",
    "squashfs",
    "fuse.squashfuse",
    "fuse.squashfuse_ll",
)


@dataclass(frozen=True)
class Reach:
    """The mount `points` that users reach through a path, and where a mount is missing.

    `missing` are empty folders of the node's own root file system, with the first link that leads there. `real` is the
    path without links.
    """

    real: str
    points: dict[str, Mount] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _OwnTree(DiskTree):
    """The root file system of a node; of others it tells no more than that everything in them may be there.

    A copy of a node can be looked at everywhere, but may lack what was mounted.
    """

    points: dict[str, Mount] = field(default_factory=dict)

    def mount(self, path: str) -> Mount | None:
        """Return the mount other than the root file system that a path without links is on."""
        above = path
        while above != "/":
            if above in self.points:
                return self.points[above]
            above = posixpath.dirname(above)
        return None

    def look(self, path: str) -> DirEntry | None:
        """Return what is at a path."""
        mount = self.mount(path)
        if mount and not self.name.strip("/"):
            return DirEntry("directory")
        seen = super().look(path)
        if seen is None and (mount or any(is_under(point, path) for point in self.points)):
            return DirEntry("directory")
        return seen


def reach(host: DiskTree, mounts: Iterable[Mount], path: str) -> Reach | None:
    """Return what users reach through a path of a node whose `mounts` are known; None where they are not."""
    points = {mount.point: mount for mount in mounts}
    root = points.pop("/", None)
    if root is None:
        return None
    if root.kind not in OWN:  # such as NFS, which nodes share
        return Reach(path, {"/": root})
    tree = _OwnTree(host.name, points=points)
    resolved = resolve(tree, path)
    if mount := tree.mount(resolved.path):
        return Reach(resolved.path, {mount.point: mount})
    found = Reach(resolved.path)
    below = (inner for inner in points.values() if is_under(inner.point, resolved.path))
    found.points.update({inner.point: inner for inner in below if inner.kind not in NO_FILES})
    if resolved.path != path:
        _follow(tree, path, found)
    if resolved.entry and resolved.entry.kind == "directory":
        for name in tree.names(resolved.path):
            _follow(tree, posixpath.join(resolved.path, name), found)
    return found


def _follow(tree: _OwnTree, path: str, found: Reach) -> None:
    """Add where a path leads, if it is a link."""
    entry = tree.look(path)
    if entry is None or entry.kind != "link":
        return
    resolved = resolve(tree, path)
    mount = tree.mount(resolved.path)
    if mount:
        if mount.kind not in NO_FILES:
            found.points[mount.point] = mount
        return
    folder = posixpath.dirname(resolved.path) if resolved.entry is None else resolved.path
    seen = tree.look(folder)
    if folder in found.missing or seen is None or seen.kind != "directory":
        return
    if not tree.names(folder) and folder not in tree.unreadable:
        found.missing[folder] = path
