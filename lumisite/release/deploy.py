"""Deploying a rendered tree into a root, making a release whole again, and going one release back.

The order of the writes is what keeps users safe: first the whole release, on the disk and under its final
name; then the line of the history; then the link, in one step. Killed anywhere, the link names the old or the
new release, whole, and the next run starts from there.
"""

from __future__ import annotations

import os
import shlex
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from lumisite.errors import DifferenceError, LumisiteError, ToolError, refused
from lumisite.findings.catalogue import make_finding
from lumisite.release.diff import Difference, compare
from lumisite.release.files import (
    TEMPORARY,
    make_directories,
    make_temporary,
    make_tree,
    open_to_all,
    remove,
    replace_entry,
    sync_directory,
)
from lumisite.release.names import with_earlier_names
from lumisite.release.root import (
    Root,
    append_step,
    inspect_release,
    link_command,
    manifests,
    point_current,
    read_root,
    shared_mode,
)
from lumisite.release.tree import FaultsError, RenderedTree, judge, load_tree
from lumisite.release.trust import refuse_out
from lumisite.render.manifest import MANIFEST, is_release_id, sha256_of

#: The folder of a root where the edits in a release are kept that was made whole.
SET_ASIDE = "set-aside"


@dataclass(frozen=True)
class DeployPreview:
    """What a deploy of `out` would do.

    `existing` is the release of the same id from before; it and `current` are None when they do not exist. `site` is
    that of the root's releases.
    """

    root: Root
    out: RenderedTree
    current: RenderedTree | None
    existing: RenderedTree | None
    difference: Difference
    site: str

    @property
    def is_of_another_site(self) -> bool:
        """Whether users of one site would get what is for another."""
        return self.site != self.out.manifest.site

    @property
    def edited(self) -> tuple[RenderedTree, ...]:
        """The current release, and the one to deploy again, where they are not as they were deployed."""
        faulty = [release for release in (self.current, self.existing) if release and release.faults]
        return tuple({release.path: release for release in faulty}.values())

    @property
    def is_damaged(self) -> bool:
        """Whether the release to deploy exists already and is not as it should be."""
        return self.existing is not None and bool(self.existing.faults)

    @property
    def nothing_to_do(self) -> bool:
        """Whether users would notice nothing: then a new release would only be in rollback's way."""
        return bool(self.current) and not self.difference and not self.edited

    def edits_error(self) -> FaultsError:
        """Return the error for the edits that this deploy would go over."""
        code = "deploy-edited" if self.is_damaged else "deploy-over-edits"
        finding = make_finding(
            code,
            str(self.root.path),
            releases=tuple(release.path.name for release in self.edited),
            folder=str(self.root.path / SET_ASIDE),
            command=deploy_command(self.out.path, self.root.path),
        )
        faults = [
            replace(fault, subject=str(release.path / fault.subject))
            for release in self.edited
            for fault in release.faults
        ]
        return FaultsError(finding, faults)


@dataclass(frozen=True)
class DeployResult:
    """What a deploy did: the folder with the edits that it moved away, if any; nothing where `changed` is false."""

    changed: bool
    aside: Path | None = None


class Rollback(NamedTuple):
    """What a rollback leads away from, and to."""

    before: RenderedTree
    after: RenderedTree


def load_out(path: Path, admin: int) -> RenderedTree:
    """Read the tree to deploy; raises `DifferenceError` unless it is whole and as it was rendered.

    Raises `ToolError` where others than the user id `admin` and root could have changed it.
    """
    if not path.is_dir() or not os.path.lexists(path / MANIFEST):
        raise LumisiteError(make_finding("out-no-tree", str(path)))
    refuse_out(path, admin)
    tree = load_tree(path)
    refuse_out(path, admin, tree.status)
    if tree.content_faults:
        raise FaultsError(make_finding("out-changed", str(path)), tree.content_faults)
    return tree


def plan_deploy(out: RenderedTree, path: Path, admin: int | None = None, *, any_site: bool = True) -> DeployPreview:
    """Compare a tree with what is deployed; reads only.

    Raises `DifferenceError` for a root that a deploy by the user id `admin` must not touch, `LumisiteError` for one of
    another site unless `any_site`.
    """
    root = read_root(path, admin)
    earlier = tuple(manifests(root))
    site = earlier[0].site if earlier else out.manifest.site
    if site != out.manifest.site and not any_site:
        new = out.manifest.site
        raise LumisiteError(
            make_finding("root-of-other-site", str(root.path), out=str(out.path), site=new, root_site=site)
        )
    real = Path(os.path.realpath(out.path))
    if real in (root.path, *root.path.parents):
        raise LumisiteError(make_finding("root-inside-out", str(path), out=str(out.path)))
    named = with_earlier_names(out, earlier)
    current = existing = _existing(root, out, named)
    out = existing if existing and not existing.faults else named
    if root.current != out.manifest.release:
        exists = bool(root.current) and os.path.lexists(root.release(root.current))
        current = inspect_release(root, root.current) if exists else None
    return DeployPreview(root, out, current, existing, compare(current, out), site)


def _existing(root: Root, out: RenderedTree, named: RenderedTree) -> RenderedTree | None:
    """Return the release of the same id. It must have the same content: jobs that run rely on what it is.

    `named` is what `out` would be deployed as today; what it was deployed as may lack names of later releases.
    """
    path = root.release(out.manifest.release)
    if not os.path.lexists(path):
        return None
    if path.is_symlink() or not path.is_dir():
        raise DifferenceError(make_finding("release-no-directory", str(path)))
    found = inspect_release(root, path.name)
    if found.rendered == out.rendered and not any(fault.subject == MANIFEST for fault in found.faults):
        return found
    expected = inspect_release(root, path.name, named)
    if step := root.deployed(path.name):
        is_other = step.manifest != sha256_of(named.manifest_bytes)
    else:
        is_other = bool(expected.faults) and not found.faults
    if is_other:
        folder = None if root.current == path.name else str(path)
        raise DifferenceError(make_finding("release-id-taken", str(path), folder=folder))
    return expected


def apply_plan(plan: DeployPreview, by: str, *, set_edits_aside: bool) -> DeployResult:
    """Carry out a plan that was made under the lock; raises `FaultsError` over edits that are not to be set aside."""
    root, release = plan.root, plan.out.manifest.release
    if plan.nothing_to_do:
        return DeployResult(changed=False)
    if plan.edited and not set_edits_aside:
        raise plan.edits_error()
    kept, aside = False, root.path / SET_ASIDE / f"{release}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    try:
        releases = root.path / "releases"
        if plan.is_damaged:
            make_directories(aside.parent, shared_mode(root.path))
            kept = _make_whole(releases / release, plan.out, aside)
        elif plan.existing is None:
            make_directories(releases, shared_mode(root.path))
            temporary = make_temporary(releases)
            try:
                make_tree(temporary, plan.out.files(), sync=True)
                temporary.rename(releases / release)
            finally:
                remove(temporary)
        sync_directory(releases)
        if root.current != release or plan.is_damaged:
            append_step(root, "deploy", release, by, sha256_of(plan.out.manifest_bytes))
            point_current(root, release)
    except OSError as error:
        raise refused("deploy", error) from error
    return DeployResult(changed=True, aside=aside if kept else None)


def _make_whole(release: Path, expected: RenderedTree, aside: Path) -> bool:
    """Make the folder of a release the `expected` tree; returns whether anything was kept in the folder `aside`.

    Each file is replaced in one step, so that users have the release all the while, and a run that is killed leaves
    less to repair. Raises `OSError` when the system refuses, `FaultsError` when somebody goes on changing the release.
    """
    files = expected.files()
    # Folders first: then nobody else can put a link in the place of what is in them.
    for fault in _judge(release, expected).faults:
        if fault.code in ("release-mode", "release-owner") and fault.subject not in files:
            _repair_folder(release, fault.subject, aside)
    faulty = _judge(release, expected)
    for fault in faulty.faults:
        path = release / fault.subject
        if TEMPORARY in fault.subject:
            remove(path)
        elif fault in faulty.edits and os.path.lexists(path):
            _keep(path, aside / fault.subject, in_place=fault.subject in files)
        if fault.subject in files:
            make_directories(path.parent)
            replace_entry(path, *files[fault.subject])
    if left := _judge(release, expected).faults:
        raise FaultsError(make_finding("release-changing", str(release)), left)
    return aside.exists()


def _judge(release: Path, expected: RenderedTree) -> RenderedTree:
    return judge(release, expected.manifest, expected.manifest_bytes)


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


def deploy_command(out: Path | str, root: Path) -> str:
    """Return the command that deploys over edits in a release of a root."""
    return shlex.join(["lumisite", "deploy", str(out), str(root), "--apply", "--set-edits-aside"])


def plan_rollback(root: Root, to: str = "") -> Rollback:
    """Find the release before the current one, or the release `to`, and look whether it is whole.

    Raises `ToolError` when there is no release before, `DifferenceError` when that release is not whole.
    """
    quoted = shlex.quote(str(root.path))
    if not root.current and not to:
        raise ToolError(make_finding("root-without-release", str(root.path), quoted=quoted))
    if to and not is_release_id(to):
        raise LumisiteError(make_finding("release-id-unfit", to, quoted=quoted))
    if to and to == root.current:
        raise LumisiteError(make_finding("release-is-current", to, quoted=quoted))
    to = to or root.before
    if not to:
        raise ToolError(make_finding("rollback-end", str(root.path), release=root.current))
    target = inspect_release(root, to)
    if target.state == "missing":
        raise DifferenceError(make_finding("rollback-missing", str(target.path), quoted=quoted))
    if target.faults:
        link = link_command(root.path, target.path.name) if target.state == "edited" else None
        command = deploy_command("OUT", root.path)
        finding = make_finding("rollback-edited", str(target.path), command=command, link=link)
        raise FaultsError(finding, target.faults)
    return Rollback(inspect_release(root, root.current), target)


def roll_back(root: Root, by: str, release: str) -> bool:
    """Move the link to a release; the caller holds the lock. Return whether the history could be written."""
    logged = True
    try:
        append_step(root, "rollback", release, by)
    except OSError:
        logged = False  # a full disk, say: `way_back` finds its way without the line, and users wait
    point_current(root, release)
    return logged
