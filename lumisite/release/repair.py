"""Making a deployed release what it was: each file is replaced in one step, and what was edited is kept beside it.

Users have the release all the while, and a run that is killed leaves less to repair.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from lumisite.errors import DifferenceError
from lumisite.release.files import TEMPORARY, make_directories, open_to_all, put_file, remove
from lumisite.release.tree import Fault, Tree, fault_lines, judge


def make_whole(release: Path, wanted: Tree, aside: Path) -> bool:
    """Make the folder of a release exactly the `wanted` tree; returns whether anything was kept in the folder `aside`.

    Raises `OSError` when the system refuses, `DifferenceError` when somebody goes on changing the release.
    """
    files = wanted.files()
    # Folders first: then nobody else can put a link in the place of what is in them.
    for fault in _faults(release, wanted):
        if fault.kind == "mode" and fault.path not in files:
            _repair_folder(release, fault.path, aside)
    for fault in _faults(release, wanted):
        path = release / fault.path
        if TEMPORARY in fault.path:
            remove(path)
        elif fault.kind in ("edited", "unknown") and os.path.lexists(path):
            _keep(path, aside / fault.path, in_place=fault.path in files)
        if fault.path in files:
            make_directories(path.parent)
            put_file(path, *files[fault.path])
    if left := list(_faults(release, wanted)):
        raise DifferenceError(
            f"{release}: is changed while it is repaired; run again when nobody does:{fault_lines(left)}"
        )
    return aside.exists()


def _faults(release: Path, wanted: Tree) -> Iterator[Fault]:
    yield from judge(release, wanted.manifest, wanted.manifest_bytes).faults


def _repair_folder(release: Path, name: str, aside: Path) -> None:
    """Open a folder to all; one of somebody else is moved away, whole."""
    path = release / name
    if path.lstat().st_uid in (0, release.lstat().st_uid):
        open_to_all(path)
    else:
        _keep(path, aside / name, in_place=False)


def _keep(path: Path, to: Path, *, in_place: bool) -> None:
    """Move what is at a path; a file that users load stays there (`in_place`) until another replaces it."""
    make_directories(to.parent)
    if in_place and (path.is_symlink() or not path.is_dir()):
        with suppress(OSError):  # a file system without hard links, or a file of somebody else
            os.link(path, to, follow_symlinks=False)
            return
    path.rename(to)
