"""The file systems that a node has for its users: those that are known by their type, and those that are a question."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from lumisite.init.known import AUTOMOUNT, LOCAL, SHARED, SYSTEM, SYSTEM_TYPES
from lumisite.init.node import Node, can_be_bound
from lumisite.machine.host import Mount, parse_mounts
from lumisite.machine.tree import is_under, resolve

#: Why a mount is a question; the template has the words.
Doubt = Literal["type", "system", "silent", "name", "inside", "automount", "login", "some", "read-only", "shut"]


@dataclass(frozen=True)
class Folder:
    """A file system that users work on; `kind` is `shared` or `node-local`, `type` the kernel's word.

    Where it is not known to be one, `doubt` says why, and `kind` is empty. `target` is where a link leads. `nodes` are
    those on which it was seen; `writable` is a node-local one in which all users can make directories there.
    """

    path: str
    kind: str
    type: str
    doubt: Doubt | None = None
    target: str = ""
    nodes: tuple[str, ...] = ()
    writable: bool = False


def folders_of_all(nodes: Sequence[Node], login: Node) -> list[Folder]:
    """Return the file systems of compute nodes: those of all, and as questions those of some or of the login node."""
    answers = [{folder.path: folder for folder in folders_of(node, login)} for node in nodes]
    found: list[Folder] = []
    for path in sorted({path for folders in answers for path in folders}):
        seen = {node.name: folders[path] for node, folders in zip(nodes, answers, strict=True) if path in folders}
        folder = next(iter(seen.values()))
        if any(path not in folders or folders[path].kind != folder.kind for folders in answers):
            folder = replace(folder, kind="", doubt=folder.doubt or "some")
        writable = all(other.writable for other in seen.values())
        found.append(replace(folder, nodes=tuple(seen), writable=writable))
    known = {folder.path for folder in found}
    for folder in () if login in nodes else folders_of(login, login):
        if folder.path not in known and folder.kind != "node-local":
            found.append(replace(folder, kind="", doubt=folder.doubt or "login", nodes=(login.name,)))
    return found


def folders_of(node: Node, login: Node) -> Iterator[Folder]:
    """Return the file systems of a node, the outermost of each, and the links in / that lead to those of users.

    Shared is what is so by its type, or has on both nodes the same number and time of change.
    """
    found: list[Folder] = []
    for mount in _mounts(node):
        above = next((folder for folder in found if is_under(mount.point, folder.path)), None)
        folder = _folder(mount, node, login)
        if folder is None or (above is not None and (above.doubt or above.kind == folder.kind)):
            continue
        is_inside = above is not None and folder.kind
        found.append(Folder(folder.path, "", folder.type, "inside") if is_inside else folder)
    yield from found
    paths = {folder.path for folder in found}
    for link in node.answer.below("/"):
        target = resolve(node.answer, link).path
        for folder in found if target != link and can_be_bound(link) and link not in paths else ():
            if folder.kind and is_under(target, folder.path):
                yield Folder(link, folder.kind, "link", target=target)


def _mounts(node: Node) -> list[Mount]:
    """Return the mounts below / by their points, of several at one point the last, which hides the others."""
    mounts = {mount.point: mount for mount in parse_mounts(node.answer.lines("/proc/self/mountinfo"))}
    return [mounts[point] for point in sorted(mounts) if point != "/"]


def _folder(mount: Mount, node: Node, login: Node) -> Folder | None:
    """Return what a mount is; `None` for one that is the system's own."""
    point, of_system = mount.point, any(is_under(mount.point, folder) for folder in SYSTEM)
    lines = set(node.answer.lines("/output/stat"))
    mine = {line for line in lines if line.endswith(f" {point}")}
    if mount.kind in SYSTEM_TYPES or (of_system and mount.kind not in SHARED):
        return None
    if of_system:
        return Folder(point, "", mount.kind, "system")
    if mount.kind == AUTOMOUNT:
        return Folder(point, "", mount.kind, "automount")
    if not can_be_bound(point):
        return Folder(point, "", mount.kind, "name")
    if not mine:
        return Folder(point, "", mount.kind, "silent")
    if not any(f" directory {point}" in line for line in mine):
        return None  # a file
    is_same = node is not login and not mine.isdisjoint(login.answer.lines("/output/stat"))
    kind = "shared" if mount.kind in SHARED or is_same else "node-local" if mount.kind in LOCAL else ""
    rights = next((line for line in node.answer.lines("/output/rights") if line[11:] == point), "")
    if kind == "node-local" and mount.read_only:
        return Folder(point, "", mount.kind, "read-only")
    if kind and rights and rights[9] not in "xt":
        return Folder(point, "", mount.kind, "shut")
    writable = kind == "node-local" and rights[8:10] in ("wx", "wt")
    return Folder(point, kind, mount.kind, None if kind else "type", writable=writable)
