"""Deploying a rendered tree into a root, and going one release back.

The order of the writes is what keeps users safe: first the whole release, on the disk and under its final
name; then the line of the history; then the link, in one step; at last `prune` removes old releases that no job can
use any more. Killed anywhere, the link names the old or the new release, whole, and the next run starts from there.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from lumisite.errors import DifferenceError, LumisiteError, ToolError, refused
from lumisite.findings.finding import Finding, Severity
from lumisite.paths import RELEASES
from lumisite.release.diff import Difference, compare
from lumisite.release.files import make_directories, make_temporary, make_tree, remove, sync_directory
from lumisite.release.root import (
    Root,
    append_step,
    inspect_release,
    link_command,
    manifests,
    missing_release,
    point_current,
    read_root,
    shared_mode,
)
from lumisite.release.tree import FaultsError, RenderedTree, load_tree
from lumisite.release.trust import refuse_out
from lumisite.render.manifest import MANIFEST, is_release_id, sha256_of
from lumisite.text import printable


@dataclass(frozen=True)
class DeployPreview:
    """What a deploy of `out` would do.

    `existing` is the release of the same id from before; it and `current` are None when they do not exist.
    """

    root: Root
    out: RenderedTree
    current: RenderedTree | None
    existing: RenderedTree | None
    difference: Difference

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
        """Raise `DifferenceError` where the release to deploy is there already and is not as it should be."""
        if self.existing is not None and self.existing.state == "missing":
            text, advice, path = "no directory of its own", "move it away and deploy again", str(self.existing.path)
            raise DifferenceError(Finding("release-damaged", Severity.FAULT, text, advice, path))
        if self.existing is not None and self.existing.faults:
            text = "not as it was deployed; `deploy` writes nothing into a release that is there"
            advice = "undo what is named here, or move this folder away and deploy again"
            finding = Finding("release-damaged", Severity.FAULT, text, advice, str(self.existing.path))
            raise FaultsError(finding, self.existing.faults)


def load_out(path: Path, admin: int) -> RenderedTree:
    """Read the tree to deploy; raises `DifferenceError` unless it is whole and as it was rendered.

    Raises `ToolError` where others than the user id `admin` and root could have changed it.
    """
    if not path.is_dir() or not os.path.lexists(path / MANIFEST):
        text, advice = "not a directory with a MANIFEST.json", "name a directory that `lumisite render` wrote"
        raise LumisiteError(Finding("out-unfit", Severity.FAULT, text, advice, str(path)))
    refuse_out(path, admin)
    tree = load_tree(path)
    refuse_out(path, admin, tree.status)
    if tree.content_faults:
        advice = "render it again; edits belong into the site description or the templates"
        finding = Finding("out-changed", Severity.FAULT, "changed since it was rendered", advice, str(path))
        raise FaultsError(finding, tree.content_faults)
    return tree


def plan_deploy(out: RenderedTree, path: Path, admin: int) -> DeployPreview:
    """Compare a tree with what is deployed; reads only.

    Raises `DifferenceError` for a root that a deploy by the user id `admin` must not touch, `LumisiteError` for one of
    another site.
    """
    root = read_root(path, admin)
    newest = next(manifests(root), None)
    site = newest.site if newest else out.manifest.site
    if site != out.manifest.site:
        text = f"holds releases of site {site}, and {out.path} is of site {out.manifest.site}; nothing was written"
        advice = f"name the root of site {out.manifest.site}, which may be new"
        raise LumisiteError(Finding("root-unfit", Severity.FAULT, text, advice, str(root.path)))
    real = Path(os.path.realpath(out.path))
    if real in (root.path, *root.path.parents):
        raise LumisiteError(f"{path}: is inside {out.path}, the tree to deploy (name another root)")
    release, manifest_sha256 = out.manifest.release, sha256_of(out.manifest_bytes)
    existing = inspect_release(root, release, manifest_sha256) if os.path.lexists(root.release(release)) else None
    current = existing
    if root.current != release:
        exists = bool(root.current) and os.path.lexists(root.release(root.current))
        current = inspect_release(root, root.current) if exists else None
    return DeployPreview(root, out, current, existing, compare(current, out))


def apply_plan(plan: DeployPreview, by: str) -> bool:
    """Carry out a plan that was made under the lock; return whether anything changed.

    Raises `DifferenceError` where the release is there and is not as it was deployed: nothing is written into it. One
    that is left for a new one stays as it is.
    """
    root, release = plan.root, plan.out.manifest.release
    if plan.nothing_to_do:
        return False
    plan.refuse_damage()
    try:
        releases = root.path / RELEASES
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


def plan_rollback(root: Root, to: str = "") -> RenderedTree:
    """Return the release before the current one, or the release `to`.

    Raises `ToolError` when there is no release before, `DifferenceError` when that release is not whole.
    """
    quoted = shlex.quote(str(root.path))
    others = (
        f"`lumisite status {quoted} --all` lists what exists, and `lumisite rollback {quoted} ID` goes to any of it"
    )
    if not root.current and not to:
        raise ToolError(f"{root.path}: no current release (deploy one; {others})")
    if to and not is_release_id(to):
        raise LumisiteError(f"{printable(to)}: not the id of a release ({others})")
    if to and to == root.current:
        raise LumisiteError(f"{to}: already the current release ({others})")
    to = to or root.before
    if not to:
        raise ToolError(f"{root.path}: no release before {root.current}; nothing was changed ({others})")
    target = inspect_release(root, to)
    if target.state == "missing":
        raise DifferenceError(missing_release(target.path))
    if target.faults:
        advice = "undo what is named here, or move this folder away, render it again and deploy it"
        if target.state == "edited":
            advice = f"undo what is named here; to use it as it is: {link_command(root.path, target.path.name)}"
        text = "not as it was deployed; nothing was changed"
        finding = Finding("release-damaged", Severity.FAULT, text, advice, str(target.path))
        raise FaultsError(finding, target.faults)
    return target


def roll_back(root: Root, by: str, release: str) -> bool:
    """Move the link to a release; the caller holds the lock. Return whether the history could be written."""
    logged = True
    try:
        append_step(root, "rollback", release, by)
    except OSError:
        logged = False  # a full disk, say: the link alone says what is current, and users wait
    point_current(root, release)
    return logged
