"""What is mounted on a node, from the kernel's table of mounts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from lumisite.machine.tree import Tree, is_under, resolve, text_of

_MOUNTS = "/proc/self/mountinfo"


@dataclass(frozen=True)
class Mount:
    """A mount: the `point` where it is, the `kind` of file system, and whether nothing can be written there.

    `source` is what is mounted, without a server's name, and the folder in it if that is not its root. `options` are
    those of the mount and of its file system.
    """

    point: str
    kind: str
    source: str
    read_only: bool = field(compare=False)
    options: tuple[str, ...] = field(default=(), compare=False)


def mounts_of(host: Tree) -> tuple[Mount, ...]:
    """Return the mounts of a node, or of a copy that has the table too; none where they are not known.

    The kernel's table speaks of the root of this process, so it says nothing of another one. Source: proc(5).
    """
    if resolve(host, _MOUNTS).path != _MOUNTS and host.name.strip("/"):
        return ()
    return tuple(parse_mounts((text_of(host, _MOUNTS) or "").splitlines()))


def parse_mounts(lines: Iterable[str]) -> Iterator[Mount]:
    """Read lines of the kernel's table; a line that is not one of it is left out."""
    for line in lines:
        before, _, after = line.partition(" - ")
        fields, last = before.split(" "), after.split(" ")
        if len(fields) > 5 and len(last) > 2:
            what = f"{_plain(last[1]).rpartition(':')[2]} {_plain(fields[3])}".removesuffix(" /")
            options = (*fields[5].split(","), *last[-1].split(","))
            yield Mount(_plain(fields[4]), last[0], what, "ro" in options, options)


def mount_of(mounts: tuple[Mount, ...], path: str) -> Mount | None:
    """Return the mount that a path without links is on; of several at one place, the last one."""
    inside = (mount for mount in mounts if is_under(path, mount.point))
    return max(reversed(tuple(inside)), key=lambda mount: len(mount.point), default=None)


def _plain(word: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), word)
