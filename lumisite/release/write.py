"""Writing a rendered tree to a folder that is never half a tree.

The tree is written beside the folder under a temporary name, and two renames put it in its place. A run that is killed
exactly between them leaves no folder until the next run writes it again; nothing is lost then, since only a folder that
lumisite wrote itself, unchanged, is ever replaced.

There is no fsync here: the folder can be rendered again, and `deploy` judges it by its manifest before it
copies.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from lumisite.errors import DifferenceError, LumisiteError, ToolError, refused
from lumisite.release.files import make_directories, make_temporary, make_tree, remove
from lumisite.release.tree import fault_lines, load_tree
from lumisite.render.manifest import MANIFEST, RenderedFile, path_fault

_NAME = ".lumisite-tree-"


def write_tree(files: Mapping[str, RenderedFile], out: Path) -> bool:
    """Make `out` exactly this tree; returns whether anything was written.

    A folder that already is this tree is not touched. Raises `DifferenceError` when `out` holds anything that
    lumisite did not write or that was edited since, `ToolError` when the system refuses; then it is as it was.
    """
    out = Path(os.path.realpath(out))
    wanted = {path: (file.text.encode(), file.mode) for path, file in files.items()}
    for path in wanted:
        if fault := path_fault(path):
            raise LumisiteError(f"{path!r}: {fault}; a tree cannot hold such a file")
    try:
        make_directories(out.parent)
        with _alone_in(out.parent):
            if _is_wanted(out, wanted[MANIFEST][0]):
                return False
            _write(out, wanted)
    except OSError as error:
        # The reader knows `out`, not the name on the way there.
        error.filename = re.sub(re.escape(_NAME) + "[^/]*", lambda _: out.name, str(error.filename or out))
        raise refused("write", error) from error
    return True


@contextmanager
def _alone_in(parent: Path) -> Iterator[None]:
    """Keep other runs out, where the file system has locks, and remove the temporary trees of killed ones."""
    descriptor = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            for path in parent.glob(_NAME + "*"):
                if path.lstat().st_uid == os.geteuid():
                    remove(path)
        yield
    finally:
        os.close(descriptor)


def _is_wanted(out: Path, manifest: bytes) -> bool:
    """Tell whether `out` is the wanted tree already; refuse what is not ours to replace."""
    if not os.path.lexists(out):
        return False
    if not out.is_dir():
        raise ToolError(f"cannot write {out}: it is not a directory; name one, which may be new")
    if any(out.iterdir()):
        if not os.path.lexists(out / MANIFEST):
            raise DifferenceError(
                f"{out}: is not empty and has no {MANIFEST}, so lumisite did not write it; name a new directory"
            )
        tree = load_tree(out)
        if tree.manifest_bytes == manifest and not tree.faults:
            return True
        # Nothing is lost with a file that somebody has removed, or with a mode.
        edits = [fault for fault in tree.faults if fault.kind in ("edited", "unknown")]
        if edits:
            raise DifferenceError(
                f"{out}: holds what lumisite did not write and would be lost; "
                f"move it away, or name a new directory:{fault_lines(edits)}"
            )
    with suppress(FileNotFoundError):  # the folder that we are in was removed
        here = Path(os.path.realpath(Path.cwd()))
        if out in (here, *here.parents):
            raise LumisiteError(f"{out}: is replaced as a whole, and you are in it; go to {out.parent} and run again")
    return False


def _write(out: Path, wanted: Mapping[str, tuple[bytes, int]]) -> None:
    """Write the tree beside `out`, and put it there."""
    new, old = (make_temporary(out.parent, _NAME) for _ in range(2))
    try:
        make_tree(new, wanted, sync=False)
        if os.path.lexists(out / MANIFEST):
            out.rename(old)
        try:
            new.rename(out)
        except OSError:
            if os.path.lexists(old / MANIFEST):
                old.rename(out)
            raise
    finally:
        remove(new)
        remove(old)
