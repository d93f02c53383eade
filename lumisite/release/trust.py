"""Who could change what users load from a deployment root, or what is deployed into it, and who could not get at it.

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
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from lumisite.errors import ToolError, shown
from lumisite.machine.host import DiskTree
from lumisite.machine.tree import Entry, resolve
from lumisite.release.node_state import HostFault
from lumisite.release.tree import owner_of
from lumisite.text import counted

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


class Doubt(NamedTuple):
    """One path that others could change, or that users cannot enter: its `status`, what is wrong, and what to do."""

    path: str
    status: os.stat_result
    found: str
    remedy: str

    def fault(self) -> HostFault:
        """Return what is reported of it."""
        return HostFault(self.path, _EXPECTED, self.found, self.remedy)


def root_doubts(root: Path, admin: int | None = None, *, whole_way: bool = False) -> Iterator[HostFault]:
    """Judge a root, the folders on the way and the names in it, by the user id `admin` (default: the root's owner).

    `whole_way`: users must be able to enter the folders on the way too, not only the root and `releases`.
    """
    here = Path(os.path.realpath(root))
    own = here.lstat() if os.path.lexists(here) else None
    admin = (own.st_uid if own else os.geteuid()) if admin is None else admin
    yield from (one.fault() for one in _way_doubts(root, admin, closed=True, whole_way=whole_way))
    if own is None or not stat.S_ISDIR(own.st_mode):
        return
    team = _team(own, admin)
    for name in ("releases", "current", "history", ".lock"):
        place = here / name
        if not os.path.lexists(place):
            continue
        status = place.lstat()
        yield from (one.fault() for one in _doubts(str(place), status, admin, team, closed=name == "releases"))
        if name == "current":
            release = Path(os.path.realpath(place))
            if release.is_dir():  # its mode is judged with what is in it
                yield from (one.fault() for one in _doubts(str(release), release.stat(), admin, team, wide=False))
        elif stat.S_ISLNK(status.st_mode):
            remedy = "put what it leads to there itself, or move it away"
            yield HostFault(str(place), _EXPECTED, "is a symbolic link", remedy)


def refuse_out(path: Path, admin: int, status: Mapping[str, os.stat_result] | None = None) -> None:
    """Judge a rendered tree as a root is: the folders on the way, and what was opened in it, by its relative path.

    Raises `ToolError` where another than root and the user id `admin` could have changed what is to be deployed.
    """
    here = os.path.realpath(path)
    doubts = list(_way_doubts(path, admin))
    if status:
        team = _team(status["."], admin)
        for name in sorted(status):
            doubts += _doubts(os.path.normpath(f"{here}/{name}"), status[name], admin, team)
    if doubts:
        first, more = doubts[0], len({one.path for one in doubts}) - 1
        whose = f"owner {owner_of(first.status.st_uid)}, mode {stat.S_IMODE(first.status.st_mode):04o}"
        others = f", and {counted(more, 'path')} more" if more else ""
        raise ToolError(
            f"{shown(first.path)} ({whose}): {first.found}{others}; {shown(str(path))} cannot be deployed: render it "
            f"again as {owner_of(admin)}, into a folder that only {owner_of(admin)} can change"
        )


def _way_doubts(path: Path, admin: int, *, closed: bool = False, whole_way: bool = False) -> Iterator[Doubt]:
    """Judge a path and the folders and links on the way; users must be able to enter it (`closed`), or all of them."""
    way = _Way("/", met={"/": os.lstat("/")})
    resolve(way, os.path.abspath(path))  # noqa: PTH100 - links are followed one by one
    here = os.path.realpath(path)
    for name, status in way.met.items():
        wide = name == here or not status.st_mode & stat.S_ISVTX
        shut = whole_way or (closed and name == here)
        yield from _doubts(name, status, admin, _team(status, admin), wide=wide, closed=shut)


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
) -> Iterator[Doubt]:
    """Say whose something is, if neither root's, the admin's, nor of one in the team.

    Where it matters, also that others may write it (`wide`), or that users cannot enter (`closed`).
    """
    owner, mode, name = status.st_uid, stat.S_IMODE(status.st_mode), shlex.quote(path)
    is_link = stat.S_ISLNK(status.st_mode)
    if owner not in (0, admin) and (team is None or team not in _groups(owner)):
        remedy = f"chown{' -h' * is_link} {shlex.quote(owner_of(admin))} {name}"
        yield Doubt(path, status, f"belongs to {owner_of(owner)}, who can change what users load", remedy)
    more = mode & (stat.S_IWOTH | (0 if team == status.st_gid else stat.S_IWGRP))
    if wide and more and not is_link:
        who = ("g" if more & stat.S_IWGRP else "") + ("o" if more & stat.S_IWOTH else "")
        found = f"has mode {mode:04o}, so that others can change what users load"
        yield Doubt(path, status, found, f"chmod {who}-w {name}")
    if closed and stat.S_ISDIR(status.st_mode) and not mode & stat.S_IXOTH:
        yield Doubt(path, status, f"has mode {mode:04o}, which shuts users out", f"chmod o+x {name}")
