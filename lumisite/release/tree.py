"""A rendered tree as it lies on disk: its manifest, its content, and where the two disagree.

Nothing is followed or trusted here: a tree may have been edited, cut short, or filled with links and pipes, and may
change at any time. So each folder and file is judged as it was opened, and what was read then is what is used.
"""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path, PurePath

from lumisite.errors import DifferenceError
from lumisite.findings.finding import Finding, Severity
from lumisite.findings.writers import line
from lumisite.render.manifest import (
    LARGEST_MANIFEST_BYTES,
    LINK,
    MANIFEST,
    NO_MANIFEST,
    FileEntry,
    Manifest,
    parse_manifest,
    sha256_of,
)
from lumisite.site.read import UnfitFileError, kind_of, read_entry, read_file

# No rendered file comes near; a larger one was put there by somebody and is not worth reading into memory.
LARGEST_FILE_BYTES = 16 * 1024 * 1024
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC

#: Findings about something that is gone.
_GONE = ("release-file-missing", "release-missing")


@dataclass(frozen=True)
class RenderedTree:
    """A tree and what is wrong with it; `contents` holds the regular files and the links that the manifest knows.

    Where no manifest can be read, `manifest` is `NO_MANIFEST`, and the faults say why. `status` has everything that is
    on disk, by its path, `.` for the folder itself.
    """

    path: Path
    manifest: Manifest
    manifest_bytes: bytes = b""
    contents: Mapping[str, bytes] = field(default_factory=dict)
    faults: tuple[Finding, ...] = ()
    status: Mapping[str, os.stat_result] = field(default_factory=dict)

    @property
    def state(self) -> str:
        """`whole`, `edited` (something was put in), `broken` (something is gone) or `missing` (all of it is)."""
        codes = {fault.code for fault in self.faults}
        if "release-missing" in codes:
            return "missing"
        if self.faults and self.manifest is NO_MANIFEST:
            return "broken"
        return "broken" if codes.intersection(_GONE) else "edited" if codes else "whole"

    @property
    def content_faults(self) -> tuple[Finding, ...]:
        """The faults that are more than an owner or a mode."""
        return tuple(fault for fault in self.faults if fault.code != "release-mode")

    @property
    def edits(self) -> tuple[Finding, ...]:
        """The faults by which somebody's work could be lost."""
        return tuple(fault for fault in self.content_faults if fault.code not in _GONE)

    def files(self) -> dict[str, tuple[bytes, str]]:
        """Return the content and the mode of each file of a tree that is whole, the manifest last."""
        known = {path: (self.contents[path], entry.mode) for path, entry in self.manifest.files.items()}
        return {**dict(sorted(known.items())), MANIFEST: (self.manifest_bytes, "0644")}


class FaultsError(DifferenceError):
    """An error with the findings that it sums up."""

    def __init__(self, finding: Finding, faults: Sequence[Finding]) -> None:
        super().__init__(finding)
        self.faults = tuple(faults)

    def __str__(self) -> str:
        """Return the message, and an indented line for each fault."""
        return super().__str__() + fault_lines(self.faults)


def load_tree(directory: Path, manifest_sha256: str | None = None) -> RenderedTree:
    """Read a tree and compare it with its own manifest, which may have to have a hash; faults are sorted by path.

    Raises `DifferenceError` that names the manifest and what is wrong with it, `OSError` when the system refuses to
    list the tree.
    """
    manifest, content = load_manifest(directory)
    known = {**manifest.files, MANIFEST: FileEntry(manifest_sha256 or sha256_of(content), "0644")}
    found, contents = _read_all(directory, known)
    faults = sorted(_faults(known, found, contents), key=lambda fault: fault.subject)
    return RenderedTree(directory, manifest, content, contents, tuple(faults), found)


def load_manifest(directory: Path) -> tuple[Manifest, bytes]:
    """Read the manifest of a tree, and return its bytes too; raises `DifferenceError` where there is none."""
    path = directory / MANIFEST
    try:
        content = read_file(path, LARGEST_MANIFEST_BYTES, follow=False)
    except FileNotFoundError:
        raise DifferenceError(_missing(str(path))) from None
    except UnfitFileError as error:
        finding = Finding("release-edited", Severity.FAULT, str(error.strerror), "look at it with `ls -l`", str(path))
        raise DifferenceError(finding) from None
    return parse_manifest(content, str(path)), content


def _read_all(directory: Path, known: Container[str]) -> tuple[dict[str, os.stat_result], dict[str, bytes]]:
    """Return the status of a directory and of all below it, and the content of the `known` files, by relative path.

    That of a link is where it leads. No link is followed. Raises `OSError` with the path that the system refuses.
    """
    found: dict[str, os.stat_result] = {}
    contents: dict[str, bytes] = {}
    top = os.open(os.path.realpath(directory), _FLAGS | os.O_DIRECTORY)
    try:
        pending = ["."]
        while pending:
            at = path = pending.pop()
            try:
                with _opened_below(top, at) as folder:
                    found[at] = os.fstat(folder)
                    for name in [entry.name for entry in os.scandir(folder)]:
                        path = os.path.normpath(f"{at}/{name}")
                        found[path] = os.stat(name, dir_fd=folder, follow_symlinks=False)
                        if stat.S_ISDIR(found[path].st_mode):
                            pending.append(path)
                        elif stat.S_ISREG(found[path].st_mode) and path in known:
                            found[path], content = read_entry(name, folder, LARGEST_FILE_BYTES)
                            contents |= {} if content is None else {path: content}
                        elif stat.S_ISLNK(found[path].st_mode) and path in known:
                            contents[path] = os.fsencode(os.readlink(name, dir_fd=folder))
            except OSError as error:
                error.filename = str(directory / path)  # what is opened in a folder is known by its last name alone
                raise
    finally:
        os.close(top)
    return found, contents


@contextmanager
def _opened_below(top: int, path: str) -> Iterator[int]:
    """Open a folder by its relative path, each folder on the way in the one before: no link can lead elsewhere."""
    folder = os.dup(top)
    try:
        for name in PurePath(path).parts:
            below = os.open(name, _FLAGS | os.O_DIRECTORY, dir_fd=folder)
            os.close(folder)
            folder = below
        yield folder
    finally:
        os.close(folder)


def fault_lines(faults: Sequence[Finding], most: int = 20) -> str:
    """Return one indented line for each fault, for the end of an error."""
    lines = [f"\n  {line(fault)}" for fault in faults[:most]]
    if len(faults) > most:
        lines.append(f"\n  and {len(faults) - most} more")
    return "".join(lines)


def utc(seconds: float) -> str:
    """Return a time in seconds since 1970 as `2026-01-21T08:00:00Z`, or as it is when no calendar has it."""
    try:
        return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return f"@{seconds:.0f}"


def _faults(
    known: Mapping[str, FileEntry], found: Mapping[str, os.stat_result], contents: Mapping[str, bytes]
) -> Iterator[Finding]:
    """Yield how what was found in a tree differs from the files that its manifest knows."""
    yield from (_missing(path) for path in known if path not in found)
    folders = {str(parent) for path in known for parent in PurePath(path).parents}
    owner = found["."].st_uid
    for path, status in found.items():
        if path in known:
            fault = _judge_file(path, status, known, contents.get(path))
        elif path in folders and stat.S_ISDIR(status.st_mode):
            fault = _judge_mode(path, status, 0o755)
        else:
            fault = _edited(path, "not written by lumisite", "move it out of the tree", status)
        if fault is None and status.st_uid not in (0, owner):
            text = f"belongs to {owner_of(status.st_uid)}, expected {owner_of(owner)} or root"
            text, advice = f"{text} (changed {utc(status.st_mtime)})", f"set it with `chown {owner_of(owner)}`"
            fault = Finding("release-mode", Severity.FAULT, text, advice, path)
        if fault is not None:
            yield fault


def _judge_file(
    path: str, status: os.stat_result, known: Mapping[str, FileEntry], content: bytes | None
) -> Finding | None:
    entry, is_link = known[path], stat.S_ISLNK(status.st_mode)
    if is_link != (entry.mode == LINK) or not (is_link or stat.S_ISREG(status.st_mode)):
        return _edited(path, f"replaced by {kind_of(status.st_mode)}", "render or deploy the tree again", status)
    if content is None or sha256_of(content) != entry.sha256:
        return _edited(path, "edited", "make the change in the site description or in a template", status)
    if not is_link:
        return _judge_mode(path, status, int(entry.mode, 8))
    # A link leads to another file of its own folder that the manifest knows.
    name = os.fsdecode(content)
    if "/" in name or str(PurePath(path).parent / name) not in known:
        return _edited(path, "leads out of the tree", "render it again", status)
    return None


def _judge_mode(path: str, status: os.stat_result, expected: int) -> Finding | None:
    # A folder may have inherited its parent's set-group-id bit, which is as it should be.
    mode = stat.S_IMODE(status.st_mode) & ~stat.S_ISGID
    if mode == expected:
        return None
    text = f"mode {mode:04o}, expected {expected:04o} ({_by(status)})"
    return Finding("release-mode", Severity.FAULT, text, f"set it with `chmod {expected:04o}`", path)


def _edited(path: str, text: str, advice: str, status: os.stat_result) -> Finding:
    return Finding("release-edited", Severity.FAULT, f"{text} ({_by(status)})", advice, path)


def _missing(path: str) -> Finding:
    return Finding("release-file-missing", Severity.FAULT, "missing", "render or deploy the tree again", path)


def _by(status: os.stat_result) -> str:
    return f"{owner_of(status.st_uid)}, {utc(status.st_mtime)}"


def user_and_node() -> str:
    """Return who changes a root, and where, for its history: `user@host`."""
    return f"{owner_of(os.getuid())}@{os.uname().nodename}"


def owner_of(uid: int) -> str:
    """Return the name of a user, or the number where there is none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"
