"""Hand edits in a release: copied aside before a deploy goes on, undone where it deploys that release."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path

from lumisite.errors import DifferenceError
from lumisite.release.files import make_directories, open_to_all, remove, sync_directory, write_file
from lumisite.release.root import Release, Root, make_shared_directory, temporary_in
from lumisite.release.tree import Fault, FaultKind, Tree, entries


def set_aside(root: Root, release: Release) -> Path | None:
    """Copy what somebody put into a release to a new `ROOT/edited/<id>-<n>/`.

    Times and modes are kept, links are copied as links; None when there is nothing to copy. Raises
    `DifferenceError` for a pipe or a device, which cannot be copied.
    """
    put_in = (FaultKind.EDITED, FaultKind.UNKNOWN)
    paths = sorted(fault.path for fault in release.faults if fault.kind in put_in)
    if not paths:
        return None
    edited = make_shared_directory(root.path, "edited")
    temporary = temporary_in(edited)
    try:
        for path in paths:
            _copy(release.path / path, temporary / path)
        open_to_all(temporary)
        for directory in (temporary, *(temporary / path for path in _directories(temporary))):
            sync_directory(directory)
        number = 1
        while os.path.lexists(edited / f"{release.release}-{number}"):
            number += 1
        kept = temporary.rename(edited / f"{release.release}-{number}")
    finally:
        remove(temporary)
    sync_directory(edited)
    return kept


def restore(root: Root, release: Release, wanted: Tree) -> None:
    """Make a release whole again from the tree that it was deployed from, each file in one step."""
    faulty = {fault.path for fault in release.faults}
    known = wanted.files()
    for fault in sorted(release.faults, key=lambda fault: fault.path, reverse=True):
        _clear(release.path, fault, known)
    for path in sorted(known):
        if path in faulty:
            _put(root, release.path / path, *known[path])
    for directory in [release.path, *(release.path / path for path in _directories(release.path))]:
        open_to_all(directory)
        sync_directory(directory)


def _copy(source: Path, target: Path) -> None:
    status = source.lstat()
    make_directories(target.parent)
    if stat.S_ISDIR(status.st_mode):
        make_directories(target)
    elif stat.S_ISLNK(status.st_mode):
        target.unlink(missing_ok=True)
        target.symlink_to(source.readlink())
    elif stat.S_ISREG(status.st_mode):
        shutil.copy2(source, target, follow_symlinks=False)
        with target.open("rb") as copied:
            os.fsync(copied.fileno())
    else:
        raise DifferenceError(f"{source}: is neither a file nor a link and cannot be set aside; remove it")


def _clear(top: Path, fault: Fault, known: Iterable[str]) -> None:
    """Take away what stands where nothing, or something of another kind, belongs."""
    path = top / fault.path
    is_directory = path.is_dir() and not path.is_symlink()
    if fault.kind is FaultKind.UNKNOWN or (fault.path in known and is_directory):
        # A folder is empty by now, unless somebody just puts a new file into it: then this rightly fails.
        path.rmdir() if is_directory else path.unlink(missing_ok=True)


def _put(root: Root, target: Path, content: bytes, mode: int) -> None:
    make_directories(target.parent)
    temporary = temporary_in(root.path / "releases")
    try:
        write_file(temporary / "file", content, mode, sync=True)
        (temporary / "file").replace(target)
    finally:
        remove(temporary)


def _directories(top: Path) -> Iterable[str]:
    return (path for path, status in entries(top).items() if stat.S_ISDIR(status.st_mode))
