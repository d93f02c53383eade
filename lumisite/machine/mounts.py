"""What is mounted where, as the kernel tells it (proc(5), /proc/pid/mountinfo)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lumisite.machine.host import DiskTree
from lumisite.machine.tree import resolve

_TABLE = "/proc/self/mountinfo"
_MOST_BYTES = 16 * 1024 * 1024
_MOST_READS = 65_536


@dataclass(frozen=True)
class Mount:
    """A mount: the `point` where it is, the `kind` of file system, and whether nothing can be written there."""

    point: str
    kind: str
    read_only: bool


def mounts_of(host: DiskTree) -> tuple[Mount, ...]:
    """Give the mounts of a node, or of a copy that has the table too; none where they are not known.

    The kernel's table speaks of the root of this process, so it says nothing of another one.
    """
    place = resolve(host, _TABLE)
    if place.entry is None or (place.path != _TABLE and host.name.strip("/")):
        return ()
    source = host.source(place.path)
    content = b""
    # The kernel gives a page or so at a time.
    for _ in range(_MOST_READS if source is not None else 0):
        part = source.read(len(content), _MOST_BYTES - len(content)) if source is not None else b""
        content += part
        if not part or len(content) >= _MOST_BYTES:
            break
    found = []
    for line in content.decode(errors="replace").splitlines():
        words, _, after = line.partition(" - ")
        fields = words.split(" ")
        if len(fields) > 5 and after:
            options = (*fields[5].split(","), *after.split(" ")[-1].split(","))
            found.append(Mount(_plain(fields[4]), after.split(" ")[0], "ro" in options))
    return tuple(found)


def mount_of(mounts: tuple[Mount, ...], path: str) -> Mount | None:
    """Give the mount that a path without links is on; of several at one place, the last one."""
    inside = (one for one in mounts if f"{path}/".startswith(f"{one.point.rstrip('/')}/"))
    return max(reversed(tuple(inside)), key=lambda one: len(one.point), default=None)


def _plain(word: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), word)
