"""Follow the name of an image to the file behind it, link by link."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass

from lumisite.binds.tree import MOST_LINKS, Entry, Tree, resolve


@dataclass(frozen=True)
class Trail:
    """Where a name leads: what each `links` says as it is written, and the `real` path at the end.

    Without an end, `trouble` says why in words. Links among the folders on the way count for `real` only.
    """

    links: tuple[str, ...]
    real: str | None
    kind: str = ""
    trouble: str = ""


def follow(tree: Tree, path: str) -> Trail:
    """Follow an absolute path of a tree."""
    links: list[str] = []
    while True:
        folder = resolve(tree, posixpath.dirname(path))
        if folder.entry is None:
            return _broken(links, folder.path, folder.trouble)
        here = posixpath.join(folder.path, posixpath.basename(path))
        entry = tree.look(here)
        if entry is None:
            return _broken(links, here, "is not there")
        if entry.kind != "link":
            return Trail(tuple(links), here, entry.kind)
        links.append(entry.link)
        if len(links) > MOST_LINKS:
            return Trail(tuple(links[:2]), None, trouble="is a loop of links")
        path = posixpath.join(folder.path, entry.link)
        if posixpath.basename(path) in ("", ".", ".."):
            return _to_folder(tree, path, links)


def _to_folder(tree: Tree, path: str, links: list[str]) -> Trail:
    place = resolve(tree, path)
    entry: Entry | None = place.entry
    if entry is None:
        return _broken(links, place.path, place.trouble)
    return Trail(tuple(links), place.path, entry.kind)


def _broken(links: list[str], where: str, trouble: str) -> Trail:
    if links:
        trouble = f"leads to {where}, which is not there" if trouble == "is not there" else f"{where}: {trouble}"
    return Trail(tuple(links), None, trouble=trouble)
