"""A deployment root on disk; `lumisite/paths.py` spells the names of what is in it.

ROOT/releases/<id>/   one folder for each release, never changed
ROOT/current          a relative link to one of them, the only truth about what users load
ROOT/history          one line of JSON for each time that the link was about to be moved; it is written before, so the
                      last one may be of a move that a kill has prevented
ROOT/.lock            held while a deploy or a rollback is at work
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from lumisite.errors import DifferenceError, LumisiteError, SiteError, ToolError, UnfitError, refused
from lumisite.findings.finding import Finding, Place, Severity
from lumisite.paths import CURRENT, HISTORY, LOCK, RELEASES
from lumisite.release.files import TEMPORARY, remove, replace_entry, sync_directory, umask
from lumisite.release.tree import FaultsError, RenderedTree, load_manifest, load_tree, owner_of, utc
from lumisite.release.trust import root_doubts
from lumisite.render.manifest import MANIFEST, NO_MANIFEST, Manifest, is_release_id, sha256_of
from lumisite.site.json_file import decode_values, parse_json
from lumisite.site.read import UnfitFileError, read_file
from lumisite.site.scalars import read_root_path
from lumisite.text import printable

#: A line of the history has some 200.
LARGEST_HISTORY_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class LinkMove:
    """One move of the link from release `before` (empty for the first) to `release`.

    `manifest` is the SHA-256 of the release's `MANIFEST.json` as it was deployed, `time` is UTC, `by` is
    `user@host`.
    """

    action: str
    release: str
    before: str
    manifest: str
    time: str
    by: str


@dataclass(frozen=True)
class Root:
    """A deployment root; `current` is empty where no release is deployed."""

    path: Path
    current: str
    steps: tuple[LinkMove, ...]

    def release(self, release: str) -> Path:
        """Return the folder of a release, which may not exist."""
        return self.path / RELEASES / release

    def deployed(self, release: str) -> LinkMove | None:
        """Return the last step that deployed a release, if any did."""
        return next((s for s in reversed(self.steps) if s.action == "deploy" and s.release == release), None)

    @property
    def before(self) -> str:
        """The release that rollback goes to, which may be gone; empty where there is none.

        It is what was current when the current one was deployed: what was rolled back is not come back to.
        """
        step = self.deployed(self.current)
        return step.before if step else ""


def read_root(path: Path, admin: int | None = None) -> Root:
    """Read a deployment root, which may not exist yet.

    Raises `DifferenceError` when it is not one, or when others than the user id `admin` could change it, and
    `LumisiteError` for a name that modules cannot have on their paths.
    """
    named, path = path, Path(os.path.realpath(path))
    for name in (os.path.abspath(named), str(path)):  # noqa: PTH100 - users' MODULEPATH has the name with its links
        try:
            read_root_path(name)
        except UnfitError:
            remedy = "use an absolute path of letters, digits and ._+@=-"
            raise LumisiteError(_unfit(name, "not possible as deployment root", remedy)) from None
    if os.path.lexists(path) and not path.is_dir():
        raise LumisiteError(_unfit(path, "not a directory", "name the directory of the releases; it may be new"))
    if os.path.lexists(path / MANIFEST):
        text = "written by `lumisite render` (it has a MANIFEST.json)"
        raise LumisiteError(_unfit(named, text, "name a deployment root"))
    if admin is not None and (doubts := tuple(root_doubts(named, admin))):
        raise FaultsError(doubts[0], doubts[1:])
    try:
        history = read_file(path / HISTORY, LARGEST_HISTORY_BYTES, follow=False)
    except FileNotFoundError:
        history = b""
    except UnfitFileError:
        raise ToolError(_damaged_history(Place(str(path / HISTORY)))) from None
    return Root(path, _read_current(path), parse_history(history, str(path / HISTORY)))


def _unfit(path: Path | str, text: str, remedy: str) -> Finding:
    return Finding("root-unfit", Severity.FAULT, text, remedy, str(path))


def _damaged_history(place: Place) -> Finding:
    advice = "move the file away; the next deploy starts a new one, and rollback then knows no earlier release"
    return Finding("root-damaged", Severity.FAULT, "not a history that lumisite wrote", advice, place=place)


def missing_release(path: Path) -> Finding:
    """Return that the folder of a release is not there."""
    advice = "`lumisite status ROOT --all` lists those that exist"
    return Finding("release-missing", Severity.FAULT, "missing, or not a directory", advice, str(path))


def existing_root(path: Path, admin: int | None = None) -> Root:
    """Read a deployment root that must be there."""
    root = read_root(path, admin)
    if not root.path.is_dir():
        remedy = f"name the deployment root, or create it with `lumisite deploy OUT {shlex.quote(str(path))} --apply`"
        raise LumisiteError(_unfit(path, "does not exist", remedy))
    return root


def parse_history(content: bytes, where: str) -> tuple[LinkMove, ...]:
    """Read a history; raises `DifferenceError` with the line that is not one."""
    steps = []
    for number, line in enumerate(content.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            step = decode_values(parse_json(line, where), LinkMove, where)
        except SiteError:
            step = None
        if step is None or not _is_sound(step):
            raise DifferenceError(_damaged_history(Place(where, number))) from None
        steps.append(step)
    return tuple(steps)


def _is_sound(step: LinkMove) -> bool:
    known = is_release_id(step.release) and (not step.before or is_release_id(step.before))
    return known and f"{step.time}{step.by}".isprintable()


def inspect_release(root: Root, release: str, manifest_sha256: str | None = None) -> RenderedTree:
    """Judge a release by its manifest, which must have a hash: by default that of the one that was deployed."""
    path = root.release(release)
    if not release or path.is_symlink() or not path.is_dir():
        return RenderedTree(path, NO_MANIFEST, faults=(missing_release(path),))
    step = root.deployed(release)
    try:
        return load_tree(path, manifest_sha256 or (step.manifest if step else None))
    except DifferenceError as error:
        return RenderedTree(path, NO_MANIFEST, faults=(replace(error.finding, subject=MANIFEST, place=None),))


def manifests(root: Root) -> Iterator[Manifest]:
    """Yield the manifest of each release in a root, the current one's first, then the last deployed; some may not read.

    The first one has the site of the root.
    """
    for name in dict.fromkeys([root.current, *(step.release for step in reversed(root.steps)), *_folders(root)]):
        if is_release_id(name):
            with suppress(DifferenceError, NotADirectoryError):
                yield load_manifest(root.release(name))[0]


def _folders(root: Root) -> list[str]:
    folder = root.path / RELEASES
    return sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []


def list_releases(root: Root) -> list[dict[str, Any]]:
    """Return the `release_row` of every release in a root and of the one that the link names, the newest first."""
    names = filter(is_release_id, {root.current, *_folders(root)})
    rows = [release_row(root, inspect_release(root, name)) for name in names]
    order = {step.release: number for number, step in enumerate(root.steps) if step.action == "deploy"}
    rows.sort(key=lambda row: (order.get(row["release"], -1), row["deployed"], row["release"]), reverse=True)
    return rows


def release_row(root: Root, release: RenderedTree) -> dict[str, Any]:
    """Return what is known of one release, by the keys of the JSON.

    `role` is `current`, `before` (where rollback goes) or empty; `inputs` is one hash over all inputs.
    """
    name, manifest = release.path.name, release.manifest
    step, inputs = root.deployed(name), json.dumps(dict(manifest.inputs), sort_keys=True)
    changed = "" if release.state == "missing" else utc(release.path.stat().st_mtime)
    return {
        "release": name,
        "role": {root.before: "before", root.current: "current"}.get(name, ""),
        "deployed": step.time if step else changed,
        "by": step.by if step else "",
        **{key: getattr(manifest, key) for key in ("site", "platform", "stacks", "lumisite")},
        "inputs": sha256_of(inputs.encode()) if manifest.release else "",
        "state": release.state,
        "faults": release.faults,
    }


@contextmanager
def locked(root: Path, by: str) -> Iterator[None]:
    """Lock the root against every other deploy and rollback, for `user@host`; clean up what killed ones have left.

    Raises `ToolError` at once when another holds it, naming that one.
    """
    path = root / LOCK
    try:
        descriptor = _open_lock(path, root)
    except PermissionError:
        owner = owner_of(root.stat().st_uid)
        text = f"belongs to {owner}, and you cannot write there; nothing was changed"
        raise ToolError(f"{root}: {text} (run the command as {owner})") from None
    except OSError as error:
        raise refused("lock", error) from error
    try:
        _lock(descriptor, path, root)
        with suppress(OSError):  # for the message of the one who must wait; a full disk is no reason to stop
            line = f"pid {os.getpid()}, {by}, since {utc(time.time())}\n".encode()
            os.pwrite(descriptor, line, 0)
            os.ftruncate(descriptor, len(line))
        for directory in (root, root / RELEASES):
            # What cannot be removed (another admin's) stays: it is in nobody's way, since every run takes new names.
            for left in directory.glob(TEMPORARY + "*"):
                remove(left)
        yield
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def _open_lock(path: Path, root: Path) -> int:
    # Whoever may read a file can lock it, and so keep the admin out.
    mode = 0o660 if shared_mode(root) else 0o600
    with umask(0):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    with suppress(OSError):  # another admin's
        os.fchmod(descriptor, mode)
    return descriptor


def _lock(descriptor: int, path: Path, root: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 1000, 0).decode(errors="replace").partition("\n")[0]
        text = f"another deploy or rollback is running ({printable(holder) or 'just started'}); nothing was written"
        finding = Finding("root-locked", Severity.FAULT, text, "run again when it has ended", str(root))
        raise ToolError(finding) from None
    except OSError as error:
        remedy = "use a file system with flock; on Lustre, mount option `flock`"
        raise ToolError(f"{path}: cannot be locked: {error.strerror} ({remedy})") from error


def shared_mode(root: Path) -> int:
    """Return the permission to write that the group has on a root: its admins share what is in it."""
    return stat.S_IMODE(root.stat().st_mode) & 0o020


def append_step(root: Root, action: str, release: str, by: str, manifest: str = "") -> None:
    """Add a step from `current` to the history: afterwards its line is there whole, or not at all."""
    step = LinkMove(action, release, root.current, manifest, utc(time.time()), by)
    lines = (json.dumps(asdict(entry)) + "\n" for entry in (*root.steps, step))
    replace_entry(root.path / HISTORY, "".join(lines).encode())


def point_current(root: Root, release: str) -> None:
    """Move the link to a release in one step."""
    temporary = root.path / f"{TEMPORARY}{os.urandom(6).hex()}"
    try:
        temporary.symlink_to(f"{RELEASES}/{release}")
        temporary.replace(root.path / CURRENT)
    finally:
        remove(temporary)
    sync_directory(root.path)


def _read_current(root: Path) -> str:
    link = root / CURRENT
    if not os.path.lexists(link):
        return ""
    if not link.is_symlink():
        text = "not a symbolic link, so lumisite did not write it"
        raise DifferenceError(Finding("root-damaged", Severity.FAULT, text, "move it away", str(link)))
    target = link.readlink()
    if target.parent != Path(RELEASES) or not is_release_id(target.name):
        advice = f"remove it, then `lumisite rollback {shlex.quote(str(root))} ID`"
        text = f"points to {printable(str(target))}, expected {RELEASES}/<id>"
        raise DifferenceError(Finding("root-damaged", Severity.FAULT, text, advice, str(link)))
    return target.name


def link_command(root: Path, release: str) -> str:
    """Return the command that moves the link by hand, in one step, to a release that is there."""
    new, link = (shlex.quote(f"{root}/{name}") for name in ("next", CURRENT))
    return f"ln -s {RELEASES}/{release} {new} && mv -T {new} {link}"
