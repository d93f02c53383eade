"""What an image holds that settings depend on: read from the image where it can be, else told by its name."""

from __future__ import annotations

import os.path
from collections.abc import Iterable

from lumisite.binds.contents import read_holds
from lumisite.binds.family import recognised
from lumisite.binds.image import open_image
from lumisite.binds.tree import Tree
from lumisite.errors import LumisiteError
from lumisite.site.images import Holds, holds_by_name, told_release
from lumisite.site.model import Site


def holds_inside(family: str | None, tree: Tree) -> Holds:
    """Read what an image of a family holds."""
    rocm, plugin = read_holds(tree)
    return Holds(family, told_release(rocm), plugin)


def holds_of_tree(site: Site, paths: Iterable[str], tree: Tree) -> Holds:
    """Recognise an image and read what it holds; `paths` are its names, as typed and where that leads."""
    found = recognised(site, tuple(paths), tree)
    return holds_inside(None if found is None else found[0], tree)


def holds_of_image(site: Site, path: str) -> tuple[Holds, str]:
    """Read an image, or take what its name tells where it cannot be read; with a note that says why."""
    if "\0" in path:
        return Holds(), f"{path!r}: is no name of an image"
    typed = os.path.abspath(path)  # noqa: PTH100 - a Path would drop what the user typed
    real = os.path.realpath(typed)
    try:
        return holds_of_tree(site, dict.fromkeys((typed, real)), open_image(real).tree), ""
    except LumisiteError as error:
        note = f"{path}: taken for what its name says, since it cannot be read: {error}"
    return holds_by_name(site, real, typed), note
