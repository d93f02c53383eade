"""Writing files, folders and trees with fixed modes, whole or with an error that names the path."""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePath

from lumisite.errors import DifferenceError, LumisiteError, ToolError, refused
from lumisite.findings.finding import Finding, Severity
from lumisite.release.tree import FaultsError, load_tree
from lumisite.render.manifest import LINK, MANIFEST, RenderedFile, path_fault
from lumisite.site.read import read_file, regular_size
from lumisite.text import printable

#: What is on the way to a final name starts so, and the next deploy into its folder removes it.
TEMPORARY = ".lumisite-new-"
_NEW_TREE = ".lumisite-tree-"


def make_tree(top: Path, files: Mapping[str, tuple[bytes, str]], *, sync: bool) -> None:
    """Fill the existing folder `top` with files, by path their content and mode; `sync`: all of it reaches the disk.

    A mode is octal digits, or `link`: then the content is where the link leads.
    Modes do not depend on the umask: folders get 0755. Raises `OSError`, and then leaves what it has written
    so far.
    """
    directories = sorted({top / parent for path in files for parent in PurePath(path).parents})
    for directory in directories:
        if directory != top:
            directory.mkdir()
        open_to_all(directory)
    for path, (content, mode) in files.items():
        if mode == LINK:
            (top / path).symlink_to(os.fsdecode(content))
        else:
            write_file(top / path, content, int(mode, 8), sync=sync)
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


def replace_entry(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Replace what is at a path, a link too, by a file in one step; all of it is on the disk then."""
    folder = make_temporary(path.parent)
    try:
        write_file(folder / path.name, content, mode, sync=True)
        (folder / path.name).replace(path)
    finally:
        remove(folder)
    sync_directory(path.parent)


def replace_file(path: Path, content: bytes, mode: int = 0o644) -> bool:
    """Make a file hold this and nothing else, in one step; returns whether it was written (it may hold it already).

    A link is followed. A new file gets the `mode`, one that was there keeps its own. Raises `OSError`.
    """
    target = Path(os.path.realpath(path))
    try:
        if os.path.lexists(target):
            if regular_size(target) == len(content) and read_file(target, len(content)) == content:
                return False
            mode = stat.S_IMODE(target.stat().st_mode)
        replace_entry(target, content, mode)
    except OSError as error:
        error.filename = str(path)  # the reader knows this name, not the one on the way there
        raise
    return True


def open_to_all(directory: Path, more: int = 0) -> None:
    """Set a folder's mode to 0755 and `more`, keeping the set-group-id bit that it has inherited."""
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
    """Set the umask while the block runs."""
    before = os.umask(bits)
    try:
        yield
    finally:
        os.umask(before)


def sync_directory(directory: Path) -> None:
    """Write the names in a folder to the disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # from a file system that has no such thing for folders
            error.filename = str(directory)
            raise
    finally:
        os.close(descriptor)


def make_temporary(directory: Path) -> Path:
    """Make a folder under a new name, for its owner alone, until it gets its final name."""
    with umask(0o022):
        return Path(tempfile.mkdtemp(prefix=TEMPORARY, dir=directory))


def remove(path: Path) -> None:
    """Remove a file, link or tree as far as it can be removed."""
    shutil.rmtree(path, ignore_errors=True)  # does nothing to a file or a link
    with suppress(OSError):
        path.unlink()


# A rendered tree in a folder that is never half a tree
#
# It is written beside the folder under a name made of the folder's, and two renames put it in its place. A run that
# ends exactly between them leaves no folder until the next run writes it again, which also removes what a killed run
# has left beside it; nothing is lost then, since only a folder that
# lumisite wrote itself, unchanged, is ever replaced. There is no fsync: the folder can be rendered again, and `deploy`
# judges it by its manifest before it copies.


def write_tree(files: Mapping[str, RenderedFile], out: Path) -> bool:
    """Make `out` exactly this tree; returns whether anything was written.

    A folder that already is this tree is not touched. Raises `DifferenceError` when `out` holds anything that
    lumisite did not write or that was edited since, `ToolError` when the system refuses; then it is as it was.
    """
    out = Path(os.path.realpath(out))
    new, old = (out.parent / f"{_NEW_TREE}{out.name}.{which}" for which in ("new", "old"))
    rendered = {path: (file.text.encode(), file.mode) for path, file in files.items()}
    for path in rendered:
        if path_fault(path):
            remedy = "use a relative path of printable characters, without `.` and `..`"
            raise LumisiteError(f"{printable(path)}: not a path of a rendered tree ({remedy})")
    try:
        make_directories(out.parent)
        for left in (new, old):  # by a run that was killed
            remove(left)
        if _is_rendered_already(out, rendered[MANIFEST][0]):
            return False
        _write(out, rendered, new, old)
    except OSError as error:
        # The reader knows `out`, not the name on the way there.
        error.filename = re.sub(re.escape(_NEW_TREE) + "[^/]*", lambda _: out.name, str(error.filename or out))
        raise refused("write", error) from error
    return True


def _is_rendered_already(out: Path, manifest: bytes) -> bool:
    """Return whether `out` is the rendered tree already; refuse what is not ours to replace."""
    if not os.path.lexists(out):
        return False
    if not out.is_dir():
        raise ToolError(f"{out}: not a directory (name one, which may be new)")
    if any(out.iterdir()):
        if not os.path.lexists(out / MANIFEST):
            text = "not empty, and not written by lumisite (no MANIFEST.json)"
            raise DifferenceError(Finding("out-unfit", Severity.FAULT, text, "name a new directory", str(out)))
        tree = load_tree(out)
        if tree.manifest_bytes == manifest and not tree.faults:
            return True
        # Nothing is lost with a file that somebody has removed, or with a mode.
        if tree.edits:
            text = "has files that lumisite did not write, which would be lost"
            advice = "move them away, or name a new directory"
            raise FaultsError(Finding("out-unfit", Severity.FAULT, text, advice, str(out)), tree.edits)
    with suppress(FileNotFoundError):  # the folder that we are in was removed
        working = Path(os.path.realpath(Path.cwd()))
        if out in (working, *working.parents):
            text = "would be replaced as a whole, and is the working directory"
            raise LumisiteError(Finding("out-unfit", Severity.FAULT, text, f"run again in {out.parent}", str(out)))
    return False


def _write(out: Path, rendered: Mapping[str, tuple[bytes, str]], new: Path, old: Path) -> None:
    """Write the tree as `new` beside `out`, and move it there; what was there is `old` for that moment."""
    try:
        new.mkdir()
        make_tree(new, rendered, sync=False)
        if os.path.lexists(out / MANIFEST):
            out.rename(old)
        new.rename(out)
    finally:
        remove(new)
        remove(old)
