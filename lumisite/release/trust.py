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

from lumisite.errors import ToolError
from lumisite.findings.catalogue import make_finding
from lumisite.findings.finding import Finding
from lumisite.machine.host import DiskTree
from lumisite.machine.tree import DirEntry, resolve
from lumisite.release.tree import owner_of


@dataclass(frozen=True)
class _Way(DiskTree):
    """The tree of this machine, which records the status of each folder and link on the way, as far as they exist."""

    passed: dict[str, os.stat_result] = field(default_factory=dict)

    def look(self, path: str) -> DirEntry | None:
        """Return what is at a path."""
        with suppress(OSError):  # not there, or behind a folder that shuts us out
            self.passed[path] = os.lstat(path)
        return super().look(path)


def root_doubts(root: Path, admin: int | None = None, *, whole_way: bool = False) -> Iterator[Finding]:
    """Judge a root, the folders on the way and the names in it, by the user id `admin` (default: the root's owner).

    `whole_way`: users must be able to enter the folders on the way too, not only the root and `releases`.
    """
    real = Path(os.path.realpath(root))
    status = real.lstat() if os.path.lexists(real) else None
    admin = (status.st_uid if status else os.geteuid()) if admin is None else admin
    yield from _way_doubts(root, admin, closed=True, whole_way=whole_way)
    if status is None or not stat.S_ISDIR(status.st_mode):
        return
    team = _team(status, admin)
    for name in ("releases", "current", "history", "policy", ".lock"):
        path = real / name
        if not os.path.lexists(path):
            continue
        yield from _doubts(str(path), path.lstat(), admin, team, closed=name == "releases")
        if name == "current":
            release = Path(os.path.realpath(path))
            if release.is_dir():  # its mode is judged with what is in it
                yield from _doubts(str(release), release.stat(), admin, team, wide=False)
        elif path.is_symlink():
            yield make_finding("root-link", str(path), target=str(path.readlink()))


def refuse_out(path: Path, admin: int, status: Mapping[str, os.stat_result] | None = None) -> None:
    """Judge a rendered tree as a root is: the folders on the way, and what was opened in it, by its relative path.

    Raises `ToolError` where another than root and the user id `admin` could have changed what is to be deployed.
    """
    real = os.path.realpath(path)
    doubts = list(_way_doubts(path, admin))
    if status:
        team = _team(status["."], admin)
        for name in sorted(status):
            doubts += _doubts(os.path.normpath(f"{real}/{name}"), status[name], admin, team)
    if doubts:
        first, *others = dict.fromkeys(doubt.subject for doubt in doubts)
        values = doubts[0].values
        finding = make_finding(
            "out-untrusted",
            str(path),
            cause=doubts[0].code,
            path=first,
            owner=values["owner"],
            mode=values["mode"],
            more=len(others) or None,
            admin=owner_of(admin),
        )
        raise ToolError(finding)


def _way_doubts(path: Path, admin: int, *, closed: bool = False, whole_way: bool = False) -> Iterator[Finding]:
    """Judge a path and the folders and links on the way; users must be able to enter it (`closed`), or all of them."""
    way = _Way("/", passed={"/": os.lstat("/")})
    resolve(way, os.path.abspath(path))  # noqa: PTH100 - links are followed one by one
    real = os.path.realpath(path)
    for name, status in way.passed.items():
        wide = name == real or not status.st_mode & stat.S_ISVTX
        shut = whole_way or (closed and name == real)
        yield from _doubts(name, status, admin, _team(status, admin), wide=wide, closed=shut)


def _team(status: os.stat_result, admin: int) -> int | None:
    """Return the group that shares a folder on purpose, if the admin is in it."""
    shares = stat.S_ISGID | stat.S_IWGRP
    return status.st_gid if status.st_mode & shares == shares and status.st_gid in _groups(admin) else None


def _groups(user: int) -> set[int]:
    groups = {os.getegid(), *os.getgroups()} if user == os.geteuid() else set()
    with suppress(KeyError):
        entry = pwd.getpwuid(user)
        groups.update(os.getgrouplist(entry.pw_name, entry.pw_gid))
    return groups


def _doubts(
    path: str, status: os.stat_result, admin: int, team: int | None, *, wide: bool = True, closed: bool = False
) -> Iterator[Finding]:
    """Yield a finding for an owner who is neither root, nor the admin, nor in the team.

    Where it matters, also for what others may write (`wide`), and for what users cannot enter (`closed`).
    """
    owner, mode, is_link = status.st_uid, stat.S_IMODE(status.st_mode), stat.S_ISLNK(status.st_mode)
    quoted = shlex.quote(path)

    def doubt(code: str, command: str) -> Finding:
        return make_finding(code, path, owner=owner_of(owner), mode=f"{mode:04o}", command=f"{command} {quoted}")

    if owner not in (0, admin) and (team is None or team not in _groups(owner)):
        yield doubt("root-owner", f"chown {'-h ' if is_link else ''}{shlex.quote(owner_of(admin))}")
    more = mode & (stat.S_IWOTH | (0 if team == status.st_gid else stat.S_IWGRP))
    if wide and more and not is_link:
        who = ("g" if more & stat.S_IWGRP else "") + ("o" if more & stat.S_IWOTH else "")
        yield doubt("root-writable", f"chmod {who}-w")
    if closed and stat.S_ISDIR(status.st_mode) and not mode & stat.S_IXOTH:
        yield doubt("root-shut", "chmod o+x")
