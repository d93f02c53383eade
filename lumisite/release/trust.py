"""Who could change a deployment root, or a tree to deploy: by the owner and mode of each folder on the way.

Each folder belongs to root or to the admin, and no others may write it, but for two kinds: one on the way whose sticky
bit keeps what is in it to its owner (/tmp), and one that a group writes and whose set-group-id bit says that it is a
team's.
"""

from __future__ import annotations

import os
import pwd
import shlex
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from lumisite.errors import ToolError
from lumisite.findings.finding import Finding, Severity
from lumisite.paths import CURRENT, HISTORY, LOCK, POLICY, RELEASES
from lumisite.release.tree import owner_of
from lumisite.text import counted


def root_doubts(root: Path, admin: int | None = None) -> Iterator[Finding]:
    """Judge a root, the folders on the way and the names in it, by the user id `admin` (default: the root's owner)."""
    real = Path(os.path.realpath(root))
    names = (RELEASES, CURRENT, HISTORY, POLICY, LOCK)
    found = {path: path.lstat() for path in (real / name for name in names) if os.path.lexists(path)}
    if admin is None:
        admin = real.stat().st_uid if real.exists() else os.geteuid()
    yield from _doubts(root, admin, found)
    release = Path(os.path.realpath(real / CURRENT))
    if real / CURRENT in found and release.exists():  # its mode is judged with what is in it
        yield from _doubt(release, release.stat(), admin, _team(real.stat(), admin), is_mode_judged=False)


def refuse_out(path: Path, admin: int, status: Mapping[str, os.stat_result] | None = None) -> None:
    """Judge a rendered tree: the folders on the way, and what was opened in it, by its relative path.

    Raises `ToolError` where another than root and the user id `admin` could have changed what is to be deployed.
    """
    real = os.path.realpath(path)
    opened = {Path(os.path.normpath(f"{real}/{name}")): found for name, found in (status or {}).items()}
    if doubts := list(_doubts(path, admin, opened)):
        first, others = doubts[0], len({doubt.subject for doubt in doubts}) - 1
        more = f" and {counted(others, 'more path')}" if others else ""
        text = f"{first.subject} ({first.message}){more} could have been changed by others"
        advice = f"render again as {owner_of(admin)}, into a folder that only {owner_of(admin)} can change"
        raise ToolError(Finding("root-open", Severity.FAULT, text, advice, str(path)))


def _doubts(path: Path, admin: int, inside: Mapping[Path, os.stat_result]) -> Iterator[Finding]:
    """Judge a path, the folders on the way to it and to what it is a link to, and what is inside."""
    named, real = Path(os.path.abspath(path)), Path(os.path.realpath(path))  # noqa: PTH100 - links are judged too
    for folder in dict.fromkeys((*named.parents[::-1], *real.parents[::-1], named, real)):
        with suppress(OSError):  # not there, or behind a folder that shuts us out
            status = folder.lstat()
            is_sticky = folder != real and bool(status.st_mode & stat.S_ISVTX)
            yield from _doubt(folder, status, admin, _team(status, admin), is_mode_judged=not is_sticky)
    team = _team(real.stat(), admin) if inside else None
    for entry in sorted(inside):
        yield from _doubt(entry, inside[entry], admin, team)


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


def _doubt(
    path: Path, status: os.stat_result, admin: int, team: int | None, *, is_mode_judged: bool = True
) -> Iterator[Finding]:
    """Yield an owner who is not root, the admin or in the team, and a mode by which others may write."""
    owner, mode, is_link = status.st_uid, stat.S_IMODE(status.st_mode), stat.S_ISLNK(status.st_mode)
    quoted = shlex.quote(str(path))
    if owner not in (0, admin) and (team is None or team not in _groups(owner)):
        command = f"chown {'-h ' if is_link else ''}{shlex.quote(owner_of(admin))} {quoted}"
        text = f"belongs to {owner_of(owner)}, who can change what users load"
        yield Finding("root-open", Severity.FAULT, text, command, str(path))
    more = mode & (stat.S_IWOTH | (0 if team == status.st_gid else stat.S_IWGRP))
    if more and is_mode_judged and not is_link:
        who = ("g" if more & stat.S_IWGRP else "") + ("o" if more & stat.S_IWOTH else "")
        text = f"mode {mode:04o}: others can change what users load"
        yield Finding("root-open", Severity.FAULT, text, f"chmod {who}-w {quoted}", str(path))
