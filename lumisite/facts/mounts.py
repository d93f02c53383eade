"""What is mounted at and around the paths that jobs use, and which control groups.

Sources: proc(5); tmpfs(5); mount.lustre(8); cgroups(7).
"""

from __future__ import annotations

import posixpath
import re

from lumisite.facts.change import Words
from lumisite.facts.reading import Texts, folders_of, is_below
from lumisite.machine.mounts import mounts_of
from lumisite.machine.tree import Tree, resolve
from lumisite.site.model import Site

_LOCAL = ("/dev/shm", "/tmp", "/var/tmp")  # noqa: S108
_OPTIONS = re.compile(r"ro|rw|noexec|nosuid|nodev|(no|local)?flock|(size|nr_inodes|mode|huge)=.*")
#: What the kernel says of a file system in user space that is not root's (fuse.txt of Linux).
_OF_USER = re.compile("user_id=[1-9][0-9]*")
_LOCKS = {"flock", "localflock"}
_SIZE = re.compile(r"(?:(?<=size=)|(?<=nr_inodes=))([0-9]{1,18})([kmg]?)$")
_SAME_SIZE = 0.05


def read_mounts(tree: Tree, site: Site) -> Texts | None:
    """Return kind and options of what is mounted at, above and below the paths of file systems; `None` if unknown.

    All that is above counts, so that a file system that is not mounted any more is the only difference. What an
    automounter mounts comes and goes by itself and is left out, as is what a user mounts.
    """
    mounts = mounts_of(tree)
    places = {path: resolve(tree, path) for path in (*_LOCAL, *(system.path for system in site.file_systems))}
    paths = {place.path for place in places.values() if place.entry is not None}
    above = {folder for path in paths for folder in folders_of(path)}
    automatic = {mount.point for mount in mounts if mount.kind == "autofs"}
    found: Texts = {}
    for mount in mounts:
        is_near = mount.point in above or is_below(mount.point, paths | places.keys())
        is_of_user = any(map(_OF_USER.fullmatch, mount.options))
        options = set(filter(_OPTIONS.fullmatch, mount.options))
        if is_near and not is_of_user and not is_below(mount.point, automatic):
            found[mount.point] = [mount.kind, *sorted(options - {"rw"} if "ro" in options else options)]
    return found if mounts else None


def is_same_mount(old: Words, new: Words) -> bool:
    """Return whether a mount is as before: half of the memory is a little more or less after an update."""
    was, now = ({_SIZE.sub("", word): _size(word) for word in words} for words in (old, new))
    return was.keys() == now.keys() and all(abs(was[key] - now[key]) <= _SAME_SIZE * was[key] for key in was)


def _size(word: str) -> int:
    found = _SIZE.search(word)
    return int(found[1]) * 1024 ** " kmg".index(found[2] or " ") if found else 0


def is_worse_mount(old: Words, new: Words) -> bool:
    """Return whether jobs cannot use a mount as before: it is gone, read-only, or without the locks that it had."""
    return not new or ("ro" in new and "ro" not in old) or bool(_LOCKS & {*old} and not _LOCKS & {*new})


def read_cgroups(tree: Tree, _: Site) -> Texts | None:
    """Return which control groups are mounted, those of version 1 with their controllers; `None` if unknown."""
    mounts = mounts_of(tree)
    first = sorted({posixpath.basename(mount.point) for mount in mounts if mount.kind == "cgroup"})
    found = ["version 2"] if any(mount.kind == "cgroup2" for mount in mounts) else []
    found += [f"version 1 of {name}" for name in first if not name.startswith("systemd")]
    return {"cgroups": found} if mounts else None
