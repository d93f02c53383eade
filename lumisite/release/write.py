"""Writing a rendered tree to a folder that is never half a tree.

The tree is written beside the folder under a temporary name and then takes its place: by `renameat2` with
`RENAME_EXCHANGE`, which swaps two names at once. Where the file system has no such call (Lustre and NFS
refuse it), two renames do, and a run that is killed exactly between them leaves no folder until the next run
writes it again; nothing is lost then, since only a folder that lumisite wrote itself, unchanged, is ever
replaced.

There is no fsync here: the folder can be rendered again, and `deploy` judges it by its manifest before it
copies.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from pathlib import Path

from lumisite.errors import DifferenceError, LumisiteError, ToolError, refused
from lumisite.release.files import (
    make_directories,
    make_temporary,
    make_tree,
    remove,
    remove_directories,
)
from lumisite.release.manifest import MANIFEST, RenderedFile, path_fault
from lumisite.release.tree import FaultKind, fault_lines, load_tree

_NAME = ".lumisite-tree-"
_TEMPORARY = re.escape(_NAME) + "[^/]*"
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_NO_EXCHANGE = {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EXDEV}


def write_tree(files: Mapping[str, RenderedFile], out: Path) -> bool:
    """Make `out` exactly this tree; returns whether anything was written.

    A folder that already is this tree is not touched. Raises `DifferenceError` when `out` holds anything that
    lumisite did not write or that was edited since, `ToolError` when the system refuses; then nothing is left
    behind.
    """
    out = Path(os.path.realpath(out))
    wanted = {path: (file.encoded(path), file.mode) for path, file in files.items()}
    for path in wanted:
        if fault := path_fault(path):
            raise LumisiteError(f"{path!r}: {fault}; a tree cannot hold such a file")
    try:
        while True:
            state = _state(out, wanted[MANIFEST][0])
            _remove_leftovers(out.parent)
            if state is _State.WANTED:
                return False
            if _replace(out, wanted, state):
                return True
    except OSError as error:
        # The reader knows `out`, not the name on the way there.
        error.filename = re.sub(_TEMPORARY, lambda _: out.name, str(error.filename or out))
        raise refused("write", error) from error


class _State(Enum):
    """What is at the place: nothing (or an empty folder), another tree of ours, or the wanted tree itself."""

    EMPTY = 0
    OURS = 1
    WANTED = 2


def _state(out: Path, manifest: bytes) -> _State:
    """Judge what is there, again if another run has replaced it meanwhile."""
    while True:
        before = _identity(out)
        try:
            return _judge_out(out, manifest)
        except (DifferenceError, FileNotFoundError):
            if _identity(out) == before:
                raise


def _identity(out: Path) -> tuple[int, int] | None:
    try:
        status = out.stat()
    except OSError:
        return None
    return status.st_ino, status.st_ctime_ns


def _judge_out(out: Path, manifest: bytes) -> _State:
    """Refuse what is not ours to replace."""
    if not os.path.lexists(out):
        return _State.EMPTY
    if not out.is_dir():
        raise ToolError(f"cannot write {out}: it is not a directory; name one, which may be new")
    if not any(out.iterdir()):
        _refuse_here(out)
        return _State.EMPTY
    if not os.path.lexists(out / MANIFEST):
        raise DifferenceError(
            f"{out}: is not empty and has no {MANIFEST}, so lumisite did not write it; name a new directory"
        )
    try:
        tree = load_tree(out)
    except DifferenceError as error:
        raise DifferenceError(
            f"{error}; what in {out} is worth keeping cannot be told: move it away, or name a new directory"
        ) from None
    if tree.manifest_bytes == manifest and not tree.faults:
        return _State.WANTED
    # Nothing is lost with a file that somebody has removed, or with a mode.
    edits = [fault for fault in tree.faults if fault.kind in (FaultKind.EDITED, FaultKind.UNKNOWN)]
    if edits:
        raise DifferenceError(
            f"{out}: holds what lumisite did not write and would be lost; "
            f"move it away, or name a new directory:{fault_lines(edits)}"
        )
    _refuse_here(out)
    return _State.OURS


def _refuse_here(out: Path) -> None:
    try:
        here = Path(os.path.realpath(Path.cwd()))
    except FileNotFoundError:
        return  # the folder that we are in was removed
    if out == here or out in here.parents:
        raise LumisiteError(f"{out}: is replaced as a whole, and you are in it; go to {out.parent} and run again")


def _replace(out: Path, wanted: Mapping[str, tuple[bytes, int]], state: _State) -> bool:
    """Write the tree and put it in its place; False when something has come there since it was judged."""
    made = make_directories(out.parent)
    try:
        with _temporary_directory(out.parent) as temporary:
            make_tree(temporary, ((path, *content) for path, content in wanted.items()), sync=False)
            return _swap(temporary, out) if state is _State.OURS else _move(temporary, out)
    except BaseException:
        remove_directories(made)
        raise


def _move(new: Path, out: Path) -> bool:
    try:
        new.rename(out)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            return False
        raise
    return True


def _swap(new: Path, out: Path) -> bool:
    """Put `new` where `out` is; what was there has the name `new` afterwards."""
    try:
        exchange(new, out)
    except OSError as error:
        if error.errno not in _NO_EXCHANGE:
            raise
        _swap_in_two_steps(new, out)
    return True


def _swap_in_two_steps(new: Path, out: Path) -> None:
    old = make_temporary(out.parent, _NAME)
    out.rename(old)
    try:
        new.rename(out)
    except BaseException:
        old.rename(out)
        raise
    old.rename(new)


def exchange(first: Path, second: Path) -> None:
    """Swap two names in one step (Linux `renameat2`, glibc 2.28); `OSError` where that cannot be done."""
    import ctypes  # a tenth of the time that a small render takes, and seldom needed

    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    one, two = os.fsencode(first), os.fsencode(second)
    if renameat2(_AT_FDCWD, one, _AT_FDCWD, two, _RENAME_EXCHANGE) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(second))


@contextmanager
def _temporary_directory(parent: Path) -> Iterator[Path]:
    """Make a folder that no other run takes for a leftover, and remove whatever bears its name at the end."""
    while True:
        path = make_temporary(parent, _NAME)
        descriptor = _hold(path)
        if descriptor is not None:
            break
    try:
        yield path
    finally:
        remove(path)
        os.close(descriptor)


def _hold(path: Path) -> int | None:
    """Lock a folder for the life of this process; None when another run is just removing it as a leftover."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError:
        return descriptor  # no locks on this file system: then nobody can take it for a leftover either
    if os.path.lexists(path):
        return descriptor
    os.close(descriptor)
    return None


def _remove_leftovers(parent: Path) -> None:
    """Remove the temporary trees of killed runs: ours by name and owner, and locked by no live run."""
    for path in parent.glob(_NAME + "*"):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue  # not a folder, not ours to read, or removed by another run just now
        try:
            if os.fstat(descriptor).st_uid == os.geteuid():
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove(path)
        except OSError:
            continue  # in use by a live run
        finally:
            os.close(descriptor)
