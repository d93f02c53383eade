"""Deploying a rendered tree into a root, and going one release back.

The order of the writes is what keeps users safe: first the whole release, on the disk and under its final
name; then the line of the history; then the link, in one step. Killed anywhere, the link names the old or the
new release, whole, and the next run starts from there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lumisite.errors import DifferenceError, LumisiteError, ToolError
from lumisite.release.diff import Difference, compare
from lumisite.release.edits import restore, set_aside
from lumisite.release.files import make_tree, remove, sync_directory
from lumisite.release.history import Step, deployed_step, way_back
from lumisite.release.root import (
    Actor,
    Release,
    Root,
    append_step,
    inspect_release,
    make_shared_directory,
    point_current,
    read_root,
    temporary_in,
)
from lumisite.release.tree import Tree, fault_lines, load_tree
from lumisite.render.manifest import MANIFEST, sha256_of


@dataclass(frozen=True)
class Plan:
    """What a deploy of `out` would do.

    `there` is the release of the same id from before; it and `current` are None when they do not exist.
    """

    root: Root
    out: Tree
    current: Release | None
    there: Release | None
    difference: Difference

    @property
    def edited(self) -> tuple[Release, ...]:
        """The releases that matter here and are not as they were deployed."""
        faulty = [release for release in (self.current, self.there) if release and release.faults]
        return tuple({release.release: release for release in faulty}.values())

    @property
    def nothing_to_do(self) -> bool:
        """Whether users would notice nothing: then a new release would only be in rollback's way."""
        return bool(self.current) and not self.difference and not self.edited


@dataclass(frozen=True)
class Rollback:
    """A rollback that was done: `edited` is what somebody had put into the release that was left."""

    root: Root
    before: Release
    after: Release
    difference: Difference | None
    logged: bool


def load_out(path: Path) -> Tree:
    """Read the tree to deploy; raises `DifferenceError` unless it is whole and as it was rendered."""
    if not path.is_dir():
        raise LumisiteError(f"{path}: is not a directory; name one that `lumisite render` wrote")
    if not os.path.lexists(path / MANIFEST):
        raise LumisiteError(f"{path}: has no {MANIFEST}; name a directory that `lumisite render` wrote")
    tree = load_tree(path)
    if tree.content_faults:
        raise DifferenceError(
            f"{path}: is not as it was rendered; render it again (edits belong into the site description "
            f"or the templates):{fault_lines(tree.content_faults)}"
        )
    return tree


def plan_deploy(out: Tree, path: Path) -> Plan:
    """Compare a tree with what is deployed; reads only.

    Raises `DifferenceError` for a root that a deploy must not touch.
    """
    root = read_root(path)
    here = Path(os.path.realpath(out.path))
    if here in (root.path, *root.path.parents):
        raise LumisiteError(f"{path}: lies inside {out.path}, which is to be deployed into it; name another root")
    release = out.manifest.release
    there = _there(root, out) if os.path.lexists(root.release(release)) else None
    if there:
        _refuse_other_content(root, there, out)
    current = there if root.current == release else _current(root)
    old = current.tree if current else None
    return Plan(root, out, current, there, compare(old, out))


def apply_plan(plan: Plan, actor: Actor, *, set_edits_aside: bool) -> tuple[str, ...]:
    """Carry out a plan that was made under the lock; returns what is worth telling."""
    if plan.nothing_to_do:
        return (_nothing_to_do(plan),)
    if plan.edited and not set_edits_aside:
        raise DifferenceError(edits_text(plan))
    with _refusing(f"deploy into {plan.root.path}"):
        return tuple(_deploy(plan, actor))


def _deploy(plan: Plan, actor: Actor) -> Iterator[str]:
    root, release = plan.root, plan.out.manifest.release
    for edited in plan.edited:
        kept = set_aside(root, edited)
        yield f"{edited.path}: {f'edits copied to {kept}' if kept else 'nothing to copy aside'}"
    if plan.there is None:
        _copy_in(root, plan.out)
    elif plan.there.faults:
        restore(root, plan.there, plan.out)
        yield f"{plan.there.path}: is whole again"
    sync_directory(root.path / "releases")
    if root.current != release:
        manifest = sha256_of(plan.out.manifest_bytes)
        append_step(root, Step("deploy", release, root.current, manifest, actor.time, actor.by))
        point_current(root, release)
    before = f" (before: {root.current})" if root.current not in ("", release) else ""
    yield f"deployed {release}{before}"


@contextmanager
def _refusing(action: str) -> Iterator[None]:
    """Turn what the system says into one line."""
    try:
        yield
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise ToolError(f"cannot {action}: {error.strerror or error}{where}") from error


def edits_text(plan: Plan) -> str:
    """Say what was edited in the releases that a deploy meets, and what can be done."""
    found = "\n".join(
        f"{release.path}: is not as it was deployed:{fault_lines(release.faults)}" for release in plan.edited
    )
    return (
        f"{found}\ndeploy --apply refuses to go on over this: bring the edits into the site description or "
        f"the templates and render again,\n"
        f"or use --set-edits-aside, which first copies them to {plan.root.path}/edited"
    )


def roll_back(root: Root, actor: Actor) -> Rollback:
    """Move the link one release back; the caller holds the lock.

    Raises `ToolError` when there is no release before, `DifferenceError` when that release is not whole.
    """
    if not root.current:
        raise ToolError(f"{root.path}: has no current release; deploy one")
    way = way_back(root.steps, root.current)
    if len(way) < 2:
        raise ToolError(f"{root.path}: {root.current} has no release before it; nothing was changed")
    target = inspect_release(root, way[-2])
    if target.faults:
        raise DifferenceError(_not_whole(root, target))
    left = inspect_release(root, root.current)
    difference = compare(left.tree, target.tree) if left.tree and target.tree else None
    logged = True
    try:
        append_step(root, Step("rollback", target.release, root.current, "", actor.time, actor.by))
    except OSError:
        logged = False  # a full disk, say: `way_back` finds its way without the line, and users wait
    with _refusing(f"roll {root.path} back"):
        point_current(root, target.release)
    return Rollback(root, left, target, difference, logged)


def _current(root: Root) -> Release | None:
    if not root.current or not os.path.lexists(root.release(root.current)):
        return None
    return inspect_release(root, root.current)


def _there(root: Root, out: Tree) -> Release:
    path = root.release(out.manifest.release)
    if path.is_symlink() or not path.is_dir():
        raise DifferenceError(f"{path}: is not a directory, so lumisite did not make it; move it away")
    return inspect_release(root, path.name, out)


def _refuse_other_content(root: Root, there: Release, out: Tree) -> None:
    """Refuse an id that was deployed with other content: jobs that run rely on what it is."""
    step = deployed_step(root.steps, there.release)
    wanted = sha256_of(out.manifest_bytes)
    other = step.manifest != wanted if step else bool(there.faults) and not inspect_release(root, there.release).faults
    if other:
        raise DifferenceError(
            f"{there.path}: was deployed under the same id with other content, and a release never changes; "
            f"render with another id, or remove that folder when no job uses it"
        )


def _nothing_to_do(plan: Plan) -> str:
    text = f"nothing to do: {plan.root.current} is deployed"
    if plan.root.current == plan.out.manifest.release:
        return text
    return f"{text} and has the same content as {plan.out.manifest.release}"


def _copy_in(root: Root, out: Tree) -> None:
    releases = make_shared_directory(root.path, "releases")
    temporary = temporary_in(releases)
    try:
        make_tree(temporary, out.files(), sync=True)
        temporary.rename(releases / out.manifest.release)
    finally:
        remove(temporary)


def _not_whole(root: Root, target: Release) -> str:
    others = way_back(root.steps, root.current)[:-2]
    older = f"deploy an older one with `lumisite deploy {root.release('<id>')} {root.path} --apply`"
    choice = f", or {older} (there were: {', '.join(others)})" if others else ""
    return (
        f"{target.path}: is not as it was deployed; nothing was changed:{fault_lines(target.faults)}\n"
        f"to make it whole, render it again and deploy it with --set-edits-aside; to use it as it is, "
        f"ln -sfn releases/{target.release} {root.path}/current{choice}"
    )
