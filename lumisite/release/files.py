"""Writing files and folders with fixed modes, whole or with an error that names the path."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePath

from lumisite.site.read import read_file, regular_size

#: What is on the way to a final name starts so, and the next deploy into its folder removes it. `render` has its own.
TEMPORARY = ".lumisite-new-"


def make_tree(top: Path, files: Mapping[str, tuple[bytes, int]], *, sync: bool) -> None:
    """Fill the existing folder `top` with files, by path their content and mode; `sync`: all of it reaches the disk.

    Modes do not depend on the umask: folders get 0755. Raises `OSError`, and then leaves what it has written
    so far.
    """
    directories = sorted({top / parent for path in files for parent in PurePath(path).parents})
    for directory in directories:
        if directory != top:
            directory.mkdir()
        open_to_all(directory)
    for path, (content, mode) in files.items():
        write_file(top / path, content, mode, sync=sync)
    if sync:
        for directory in directories:
            sync_directory(directory)


def write_file(path: Path, content: bytes, mode: int, *, sync: bool) -> None:
    """Write a file that does not exist yet."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        os.fchmod(descriptor, mode)
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        if sync:
            os.fsync(descriptor)
    except OSError as error:
        error.filename = str(path)  # calls on a descriptor do not know it
        raise
    finally:
        os.close(descriptor)


def put_file(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Put a file in the place of what is there, a link too, in one step; all of it is on the disk then."""
    folder = make_temporary(path.parent)
    try:
        write_file(folder / path.name, content, mode, sync=True)
        (folder / path.name).replace(path)
    finally:
        remove(folder)
    sync_directory(path.parent)


def replace_file(path: Path, content: bytes) -> bool:
    """Make a file hold this and nothing else, in one step; returns whether it was written (it may hold it already).

    A link is followed. A new file gets mode 0644, one that was there keeps its own. Raises `OSError`.
    """
    target = Path(os.path.realpath(path))
    mode = 0o644
    try:
        if os.path.lexists(target):
            if regular_size(target) == len(content) and read_file(target, len(content)) == content:
                return False
            mode = stat.S_IMODE(target.stat().st_mode)
        put_file(target, content, mode)
    except OSError as error:
        error.filename = str(path)  # the reader knows this name, not the one on the way there
        raise
    return True


def open_to_all(directory: Path, more: int = 0) -> None:
    """Give a folder mode 0755 and `more`, keeping the set-group-id bit that it has inherited."""
    directory.chmod(0o755 | more | (directory.stat().st_mode & stat.S_ISGID))


def make_directories(path: Path, more: int = 0) -> None:
    """Make a folder and its missing parents on the disk, all with mode 0755 and `more`."""
    missing = [parent for parent in (path, *path.parents) if not os.path.lexists(parent)]
    for directory in reversed(missing):
        # Open to all from the start: a kill before the chmod must not leave users outside.
        with umask(0o022 & ~more):
            directory.mkdir()
        open_to_all(directory, more)
        sync_directory(directory.parent)


@contextmanager
def umask(bits: int) -> Iterator[None]:
    """Let what is made have no permissions but these taken away."""
    before = os.umask(bits)
    try:
        yield
    finally:
        os.umask(before)


def sync_directory(directory: Path) -> None:
    """Bring the names in a folder to the disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # what a file system says that has no such thing for folders
            error.filename = str(directory)
            raise
    finally:
        os.close(descriptor)


def make_temporary(directory: Path, prefix: str = TEMPORARY) -> Path:
    """Make a folder under a new name, for its owner alone, until it gets its final name."""
    with umask(0o022):
        return Path(tempfile.mkdtemp(prefix=prefix, dir=directory))


def remove(path: Path) -> None:
    """Remove a file, link or tree as far as it can be removed."""
    shutil.rmtree(path, ignore_errors=True)  # does nothing to a file or a link
    with suppress(OSError):
        path.unlink()
