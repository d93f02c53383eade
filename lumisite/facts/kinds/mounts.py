"""How the file systems of jobs are mounted. Sources: tmpfs(5), mount.lustre(8)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lumisite.facts.change import Change, Touched
from lumisite.facts.context import Context
from lumisite.facts.kind import Differences
from lumisite.facts.kinds.paths import is_below
from lumisite.machine.tree import Tree, resolve, small_text
from lumisite.site.model import Site

_LOCAL = ("/dev/shm", "/tmp", "/var/tmp")  # noqa: S108
_OPTIONS = re.compile(r"ro|rw|noexec|nosuid|nodev|(no|local)?flock|(size|nr_inodes|mode|huge)=.*")
_SIZE = re.compile(r"(?:(?<=size=)|(?<=nr_inodes=))([0-9]{1,18})([kmg]?)$")
_SAME_SIZE = 0.05


def read_mounts(tree: Tree, site: Site) -> dict[str, str] | None:
    """Return kind and options of what is mounted at, above and below the paths of file systems; `None` if unknown.

    What an automounter mounts comes and goes by itself, and is left out.
    """
    from lumisite.machine.host import mount_of, mounts_of, parse_mounts  # comparing needs nothing that looks at a node

    mounts = mounts_of(tree) or tuple(parse_mounts(_older_table(tree)))
    places = {path: resolve(tree, path) for path in (*_LOCAL, *(system.path for system in site.file_systems))}
    paths = {place.path for place in places.values() if place.entry is not None}
    nearest = {found.point for path in paths if (found := mount_of(mounts, path)) is not None}
    below = paths | places.keys()
    last = {mount.point: mount for mount in mounts if mount.point in nearest or is_below(mount.point, below)}
    kept = {point: set(filter(_OPTIONS.fullmatch, mount.options)) for point, mount in last.items()}
    texts = {
        point: " ".join((last[point].kind, *sorted(options - {"rw"} if "ro" in options else options)))
        for point, options in kept.items()
    }
    automatic = {mount.point for mount in mounts if mount.kind == "autofs"}
    kept_texts = {point: text for point, text in texts.items() if not is_below(point, automatic)}
    return {point: text for point, text in kept_texts.items() if (point + text).isprintable()} if mounts else None


def _older_table(tree: Tree) -> Iterator[str]:
    """Yield the lines of a copy that has /proc/mounts or fstab alone, as the newer table has them."""
    texts = (small_text(tree, path) for path in ("/proc/mounts", "/etc/fstab") if tree.name.strip("/"))
    for words in (line.split() for line in next(filter(None, texts), "").splitlines()):
        if len(words) >= 4 and not words[0].startswith("#"):
            yield f"0 0 0:0 / {words[1]} {words[3]} - {words[2]} {words[0]} {words[3]}"


def is_same_mount(was: str | None, now: str | None) -> bool:
    """Return whether a mount is as before: half of the memory is a little more or less after an update."""
    old, new = ({_SIZE.sub("", word): _size(word) for word in (text or "").split()} for text in (was, now))
    return old.keys() == new.keys() and all(abs(old[key] - new[key]) <= _SAME_SIZE * old[key] for key in old)


def is_worse_mount(was: str | None, now: str | None) -> bool:
    """Return whether jobs cannot use a mount as before: it is gone, read-only, or without the locks that it had."""
    old, new = ({*(text or "").split()} for text in (was, now))
    locks = {"flock", "localflock"}
    return now is None or bool("ro" in new - old or (old & locks and not new & locks))


def _size(word: str) -> int:
    found = _SIZE.search(word)
    return int(found[1]) * 1024 ** " kmg".index(found[2] or " ") if found else 0


def mount_follows(change: Change, differences: Differences) -> bool:
    """Follow from a path that is another one now."""
    return is_below(change.subject, differences.subjects("path", "dangling"))


def mount_touches(change: Change, context: Context) -> Iterator[Touched]:
    """Yield the ranks of all jobs, and what names a path on the mount."""
    yield Touched("site", "partitions", f"ranks on the node get {change.subject}")
    if change.subject != "/":
        yield from context.all_naming(change.subject)
