"""What is mounted where, as the kernel tells it (proc(5), /proc/pid/mountinfo)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from lumisite.machine.host import DiskTree
from lumisite.machine.tree import resolve

_TABLE = "/proc/self/mountinfo"
_MOST_BYTES = 16 * 1024 * 1024
_MOST_READS = 65_536


@dataclass(frozen=True)
class Mount:
    """A mount: the `point` where it is, the `kind` of file system, and whether nothing can be written there.

    `source` is what is mounted, without a server's name, and the folder in it if that is not its root.
    """

    point: str
    kind: str
    source: str
    read_only: bool = field(compare=False)


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
    return tuple(parse_mounts(content.decode(errors="replace").splitlines()))


def parse_mounts(lines: Iterable[str]) -> Iterator[Mount]:
    """Read lines of the kernel's table; a line that is not one of it is left out."""
    for line in lines:
        before, _, after = line.partition(" - ")
        fields, last = before.split(" "), after.split(" ")
        if len(fields) > 5 and len(last) > 2:
            what = f"{_plain(last[1]).rpartition(':')[2]} {_plain(fields[3])}".removesuffix(" /")
            options = (*fields[5].split(","), *last[-1].split(","))
            yield Mount(_plain(fields[4]), last[0], what, "ro" in options)


def mount_of(mounts: tuple[Mount, ...], path: str) -> Mount | None:
    """Give the mount that a path without links is on; of several at one place, the last one."""
    inside = (one for one in mounts if f"{path}/".startswith(f"{one.point.rstrip('/')}/"))
    return max(reversed(tuple(inside)), key=lambda one: len(one.point), default=None)


def _plain(word: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), word)
