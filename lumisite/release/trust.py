"""Who could change what users load from a deployment root, and who could not get at it.

As sshd's StrictModes judges a key (`safe_path` in OpenSSH's misc.c): each folder on the way belongs to root or to the
admin, and no others may write it. Two things are taken that sshd refuses: a folder like /tmp on the way, whose sticky
bit keeps what is in it to its owner, and one that a group writes and whose set-group-id bit says that it is a team's.
Access control lists are not read.
"""

from __future__ import annotations

import os
import pwd
import shlex
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from lumisite.machine.host import DiskTree
from lumisite.machine.tree import Entry, resolve
from lumisite.release.node_state import HostFault
from lumisite.release.tree import owner_of

_EXPECTED = "a root that users can enter, and its admins alone can change,"


@dataclass(frozen=True)
class _Way(DiskTree):
    """The tree of this machine, with each folder and link that was `met` on the way, as far as they exist."""

    met: dict[str, os.stat_result] = field(default_factory=dict)

    def look(self, path: str) -> Entry | None:
        """Tell what stands at a path."""
        with suppress(OSError):  # not there, or behind a folder that shuts us out
            self.met[path] = os.lstat(path)
        return super().look(path)


def root_doubts(root: Path, admin: int | None = None, *, whole_way: bool = False) -> Iterator[HostFault]:
    """Judge a root, the folders on the way and the names in it, by the user id `admin` (default: the root's owner).

    `whole_way`: users must be able to enter the folders on the way too, not only the root and `releases`.
    """
    way = _Way("/", met={"/": os.lstat("/")})
    resolve(way, os.path.abspath(root))  # noqa: PTH100 - links are followed one by one
    here = os.path.realpath(root)
    own = way.met.get(here)
    admin = (own.st_uid if own else os.geteuid()) if admin is None else admin
    for path, status in way.met.items():
        wide = path == here or not status.st_mode & stat.S_ISVTX
        yield from _doubts(path, status, admin, _team(status, admin), wide=wide, closed=path == here or whole_way)
    if own is None or not stat.S_ISDIR(own.st_mode):
        return
    team = _team(own, admin)
    for name in ("releases", "current", "history", ".lock"):
        place = Path(here, name)
        if not os.path.lexists(place):
            continue
        status = place.lstat()
        yield from _doubts(str(place), status, admin, team, closed=name == "releases")
        if name == "current":
            release = Path(os.path.realpath(place))
            if release.is_dir():  # its mode is judged with what is in it
                yield from _doubts(str(release), release.stat(), admin, team, wide=False)
        elif stat.S_ISLNK(status.st_mode):
            remedy = "put what it leads to there itself, or move it away"
            yield HostFault(str(place), _EXPECTED, "is a symbolic link", remedy)


def _team(status: os.stat_result, admin: int) -> int | None:
    """Give the group that shares a folder on purpose, if the admin is in it."""
    shares = stat.S_ISGID | stat.S_IWGRP
    return status.st_gid if status.st_mode & shares == shares and status.st_gid in _groups(admin) else None


def _groups(user: int) -> set[int]:
    own = {os.getegid(), *os.getgroups()} if user == os.geteuid() else set()
    try:
        entry = pwd.getpwuid(user)
    except KeyError:
        return own
    return own | set(os.getgrouplist(entry.pw_name, entry.pw_gid))


def _doubts(
    path: str, status: os.stat_result, admin: int, team: int | None, *, wide: bool = True, closed: bool = False
) -> Iterator[HostFault]:
    """Say whose something is, if neither root's, the admin's, nor of one in the team.

    Where it matters, also that others may write it (`wide`), or that users cannot enter (`closed`).
    """
    owner, mode, name = status.st_uid, stat.S_IMODE(status.st_mode), shlex.quote(path)
    is_link = stat.S_ISLNK(status.st_mode)
    if owner not in (0, admin) and (team is None or team not in _groups(owner)):
        remedy = f"chown{' -h' * is_link} {shlex.quote(owner_of(admin))} {name}"
        yield HostFault(path, _EXPECTED, f"belongs to {owner_of(owner)}, who can change what users load", remedy)
    more = mode & (stat.S_IWOTH | (0 if team == status.st_gid else stat.S_IWGRP))
    if wide and more and not is_link:
        who = ("g" if more & stat.S_IWGRP else "") + ("o" if more & stat.S_IWOTH else "")
        found = f"has mode {mode:04o}, so that others can change what users load"
        yield HostFault(path, _EXPECTED, found, f"chmod {who}-w {name}")
    if closed and stat.S_ISDIR(status.st_mode) and not mode & stat.S_IXOTH:
        yield HostFault(path, _EXPECTED, f"has mode {mode:04o}, which shuts users out", f"chmod o+x {name}")
