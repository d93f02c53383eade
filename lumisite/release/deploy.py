"""Deploying a rendered tree into a root, and going one release back.

The order of the writes is what keeps users safe: first the whole release, on the disk and under its final
name; then the line of the history; then the link, in one step. Killed anywhere, the link names the old or the
new release, whole, and the next run starts from there.
"""

from __future__ import annotations

import os
import shlex
import time
from dataclasses import dataclass
from pathlib import Path

from lumisite.errors import DifferenceError, LumisiteError, ToolError, refused, shown
from lumisite.release.diff import Difference, compare
from lumisite.release.files import make_directories, make_temporary, make_tree, remove, sync_directory
from lumisite.release.names import with_earlier_names
from lumisite.release.repair import make_whole
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
from lumisite.release.tree import Tree, fault_lines, load_tree
from lumisite.release.trust import refuse_out
from lumisite.render.manifest import MANIFEST, is_release_id, sha256_of

#: The folder of a root where the edits in a release are kept that was made whole.
SET_ASIDE = "set-aside"


@dataclass(frozen=True)
class Plan:
    """What a deploy of `out` would do.

    `there` is the release of the same id from before; it and `current` are None when they do not exist. `site` is that
    of the root's releases.
    """

    root: Root
    out: Tree
    current: Tree | None
    there: Tree | None
    difference: Difference
    site: str

    @property
    def is_of_another_site(self) -> bool:
        """Whether users of one site would get what is for another."""
        return self.site != self.out.manifest.site

    @property
    def edited(self) -> tuple[Tree, ...]:
        """The releases that matter here and are not as they were deployed."""
        faulty = [release for release in (self.current, self.there) if release and release.faults]
        return tuple({release.path: release for release in faulty}.values())

    @property
    def is_damaged(self) -> bool:
        """Whether the release to deploy is there already and not as it should be."""
        return self.there is not None and bool(self.there.faults)

    @property
    def nothing_to_do(self) -> bool:
        """Whether users would notice nothing: then a new release would only be in rollback's way."""
        return bool(self.current) and not self.difference and not self.edited


def load_out(path: Path, admin: int) -> Tree:
    """Read the tree to deploy; raises `DifferenceError` unless it is whole and as it was rendered.

    Raises `ToolError` where others than the user id `admin` and root could have changed it.
    """
    if not path.is_dir():
        raise LumisiteError(f"{path}: is not a directory; name one that `lumisite render` wrote")
    if not os.path.lexists(path / MANIFEST):
        raise LumisiteError(f"{path}: has no {MANIFEST}; name a directory that `lumisite render` wrote")
    refuse_out(path, admin)
    tree = load_tree(path)
    refuse_out(path, admin, tree.status)
    if tree.content_faults:
        raise DifferenceError(
            f"{path}: is not as it was rendered; render it again (edits belong into the site description "
            f"or the templates):{fault_lines(tree.content_faults)}"
        )
    return tree


def plan_deploy(out: Tree, path: Path, admin: int | None = None, *, any_site: bool = True) -> Plan:
    """Compare a tree with what is deployed; reads only.

    Raises `DifferenceError` for a root that a deploy by the user id `admin` must not touch, `LumisiteError` for one of
    another site unless `any_site`.
    """
    root = read_root(path, admin)
    earlier = tuple(manifests(root))
    site = earlier[0].site if earlier else out.manifest.site
    if site != out.manifest.site and not any_site:
        raise LumisiteError(
            f"{out.path}: is of site {shown(out.manifest.site)}, and {root.path} is the deployment root of site "
            f"{shown(site)}; nothing was written: name the root of {shown(out.manifest.site)}, or give --change-site "
            f"where users of {shown(site)} shall get it"
        )
    here = Path(os.path.realpath(out.path))
    if here in (root.path, *root.path.parents):
        raise LumisiteError(f"{path}: lies inside {out.path}, which is to be deployed into it; name another root")
    current = there = _there(root, out, named := with_earlier_names(out, earlier))
    out = there if there and not there.faults else named
    if root.current != out.manifest.release:
        exists = bool(root.current) and os.path.lexists(root.release(root.current))
        current = inspect_release(root, root.current) if exists else None
    return Plan(root, out, current, there, compare(current, out), site)


def apply_plan(plan: Plan, by: str, *, set_edits_aside: bool) -> str:
    """Carry out a plan that was made under the lock; returns what to tell of it."""
    root, release = plan.root, plan.out.manifest.release
    if plan.nothing_to_do:
        same = f" and has the same content as {release}" if root.current != release else ""
        return f"nothing to do: {root.current} is deployed{same}"
    if plan.edited and not set_edits_aside:
        raise DifferenceError(edits_text(plan))
    kept, aside = False, root.path / SET_ASIDE / f"{release}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    try:
        releases = root.path / "releases"
        if plan.is_damaged:
            make_directories(aside.parent, shared_mode(root.path))
            kept = make_whole(releases / release, plan.out, aside)
        elif plan.there is None:
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
    before = f" (before: {root.current})" if root.current not in ("", release) else ""
    return f"deployed {release}{before}{f'; what was edited in it is in {aside}' if kept else ''}"


def edits_text(plan: Plan) -> str:
    """Say what was edited in the releases that a deploy meets, and what can be done."""
    found = "\n".join(
        f"{release.path}: is not as it was deployed:{fault_lines(release.faults)}" for release in plan.edited
    )
    if plan.is_damaged:
        then = f"makes that release what it was, and keeps what was edited in {plan.root.path / SET_ASIDE}"
    else:
        then = "leaves the edits in the folder of that release, which users no longer get"
    return (
        f"{found}\ndeploy --apply refuses to go on over this: bring the edits into the site description or "
        f"the templates and render again, or\n{deploy_command(plan.out.path, plan.root.path)} {then}"
    )


def deploy_command(out: Path | str, root: Path) -> str:
    """Return the command that deploys over edits in a release of a root."""
    return shlex.join(["lumisite", "deploy", str(out), str(root), "--apply", "--set-edits-aside"])


def roll_back(root: Root, by: str, to: str = "") -> tuple[Tree, Tree, bool]:
    """Move the link one release back, or to the release `to`; the caller holds the lock.

    Gives the release that users had, the one that they have now, and whether the history tells of it. Raises
    `ToolError` when there is no release before, `DifferenceError` when that release is not whole.
    """
    place = shlex.quote(str(root.path))
    if not root.current and not to:
        raise ToolError(
            f"{root.path}: has no current release; deploy one, or go to one that is there: `lumisite releases {place}` "
            f"lists them, `lumisite rollback {place} ID` goes"
        )
    if to and (not is_release_id(to) or to == root.current):
        why = "is what users load already" if to == root.current else "is no id of a release"
        raise LumisiteError(f"{shown(to)}: {why}; `lumisite releases {place}` lists them")
    to = to or root.before
    if not to:
        raise ToolError(f"{root.path}: {root.current} has no release before it; nothing was changed")
    target = inspect_release(root, to)
    if target.state == "missing":
        raise DifferenceError(
            f"{target.path}: is missing; nothing was changed: `lumisite releases {place}` lists what is there, and "
            f"`lumisite rollback {place} ID` goes to any of it"
        )
    if target.faults:
        link = link_command(root.path, target.path.name)
        as_it_is = f"; to use it as it is, {link}" if target.state == "edited" else ""
        raise DifferenceError(
            f"{target.path}: is not as it was deployed; nothing was changed:{fault_lines(target.faults)}\n"
            f"to make it what it was, render it again as OUT and {deploy_command('OUT', root.path)}{as_it_is}"
        )
    left = inspect_release(root, root.current)
    logged = True
    try:
        append_step(root, "rollback", target.path.name, by)
    except OSError:
        logged = False  # a full disk, say: `way_back` finds its way without the line, and users wait
    point_current(root, target.path.name)
    return left, target, logged


def _there(root: Root, out: Tree, named: Tree) -> Tree | None:
    """Give the release of the same id. It must have the same content: jobs that run rely on what it is.

    `named` is what `out` would be deployed as today; what it was deployed as may lack names of later releases.
    """
    path = root.release(out.manifest.release)
    if not os.path.lexists(path):
        return None
    if path.is_symlink() or not path.is_dir():
        raise DifferenceError(f"{path}: is not a directory, so lumisite did not make it; put the folder itself there")
    own = inspect_release(root, path.name)
    as_told = own.rendered == out.rendered and not any(fault.path == MANIFEST for fault in own.faults)
    there = own if as_told else inspect_release(root, path.name, named)
    step = root.deployed(path.name)
    if as_told:
        is_other = False
    elif step:
        is_other = step.manifest != sha256_of(named.manifest_bytes)
    else:
        is_other = bool(there.faults) and not own.faults
    if is_other:
        unused = "" if root.current == path.name else ", or remove that folder when no job uses it"
        raise DifferenceError(
            f"{path}: was deployed under the same id with other content, and a release never changes; "
            f"render with another id{unused}"
        )
    return there
