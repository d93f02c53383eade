"""Deploying a rendered tree into a root, and going one release back.

The order of the writes is what keeps users safe: first the whole release, on the disk and under its final
name; then the line of the history; then the link, in one step. Killed anywhere, the link names the old or the
new release, whole, and the next run starts from there.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from lumisite.errors import DifferenceError, LumisiteError, ToolError, refused
from lumisite.findings.catalogue import make_finding
from lumisite.release.diff import Difference, compare
from lumisite.release.files import make_directories, make_temporary, make_tree, remove, sync_directory
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
from lumisite.release.tree import FaultsError, RenderedTree, load_tree
from lumisite.release.trust import refuse_out
from lumisite.render.manifest import MANIFEST, is_release_id, sha256_of


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
    def nothing_to_do(self) -> bool:
        """Whether users would notice nothing: then a new release would only be in rollback's way."""
        return bool(self.current) and not self.difference and not self.edited

    def refuse_damage(self) -> None:
        """Raise `FaultsError` where the release to deploy is there already and is not as it should be."""
        if self.existing is not None and self.existing.faults:
            raise FaultsError(make_finding("deploy-edited", str(self.existing.path)), self.existing.faults)


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


def plan_deploy(out: RenderedTree, path: Path, admin: int, *, any_site: bool) -> DeployPreview:
    """Compare a tree with what is deployed; reads only.

    Raises `DifferenceError` for a root that a deploy by the user id `admin` must not touch, `LumisiteError` for one of
    another site unless `any_site`.
    """
    root = read_root(path, admin)
    newest = next(manifests(root), None)
    site = newest.site if newest else out.manifest.site
    if site != out.manifest.site and not any_site:
        new = out.manifest.site
        raise LumisiteError(
            make_finding("root-of-other-site", str(root.path), out=str(out.path), site=new, root_site=site)
        )
    real = Path(os.path.realpath(out.path))
    if real in (root.path, *root.path.parents):
        raise LumisiteError(make_finding("root-inside-out", str(path), out=str(out.path)))
    current = existing = _existing(root, out)
    if root.current != out.manifest.release:
        exists = bool(root.current) and os.path.lexists(root.release(root.current))
        current = inspect_release(root, root.current) if exists else None
    return DeployPreview(root, out, current, existing, compare(current, out), site)


def _existing(root: Root, out: RenderedTree) -> RenderedTree | None:
    """Return the release of the same id. It must have the same content: jobs that run rely on what it is."""
    path = root.release(out.manifest.release)
    if not os.path.lexists(path):
        return None
    if path.is_symlink() or not path.is_dir():
        raise DifferenceError(make_finding("release-no-directory", str(path)))
    expected = inspect_release(root, path.name, out)
    if step := root.deployed(path.name):
        is_other = step.manifest != sha256_of(out.manifest_bytes)
    else:
        is_other = bool(expected.faults) and not inspect_release(root, path.name).faults
    if is_other:
        folder = None if root.current == path.name else str(path)
        raise DifferenceError(make_finding("release-id-taken", str(path), folder=folder))
    return expected


def apply_plan(plan: DeployPreview, by: str) -> bool:
    """Carry out a plan that was made under the lock; return whether anything changed.

    Raises `FaultsError` where the release is there and is not as it was deployed: nothing is written into it. One that
    is left for a new one stays as it is.
    """
    root, release = plan.root, plan.out.manifest.release
    if plan.nothing_to_do:
        return False
    plan.refuse_damage()
    try:
        releases = root.path / "releases"
        if plan.existing is None:
            make_directories(releases, shared_mode(root.path))
            temporary = make_temporary(releases)
            try:
                make_tree(temporary, plan.out.files(), sync=True)
                temporary.rename(releases / release)
            finally:
                remove(temporary)
        sync_directory(releases)
        if root.current != release:
            append_step(root, "deploy", release, by, sha256_of(plan.out.manifest_bytes))
            point_current(root, release)
    except OSError as error:
        raise refused("deploy", error) from error
    return True


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
        finding = make_finding("rollback-edited", str(target.path), link=link)
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
