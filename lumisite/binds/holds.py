"""What an image holds that settings depend on: read from the image where it can be, else told by its name."""

from __future__ import annotations

import os.path
from collections.abc import Iterable

from lumisite.binds.contents import read_holds
from lumisite.binds.family import recognised
from lumisite.binds.image import open_image
from lumisite.binds.tree import Tree
from lumisite.errors import LumisiteError
from lumisite.site.decode import UnfitError
from lumisite.site.images import Holds, holds_by_name
from lumisite.site.model import Site
from lumisite.site.versions import Version, parse_version


def holds_of_tree(site: Site, paths: Iterable[str], tree: Tree) -> Holds:
    """Read what the tree of an image holds; `paths` are its names, as typed and where that leads."""
    found = recognised(site, tuple(paths), tree)
    rocm, plugin = read_holds(tree)
    return Holds(None if found is None else found[0], _version(rocm), plugin)


def holds_of_image(site: Site, path: str) -> tuple[Holds, str]:
    """Read an image, or take what its name tells where it cannot be read; with a note that says why."""
    typed = os.path.abspath(path)  # noqa: PTH100 - a Path would drop what the user typed
    if "\0" in path:
        return Holds(), f"{path!r}: is no name of an image"
    real = os.path.realpath(typed)
    try:
        return holds_of_tree(site, dict.fromkeys((typed, real)), open_image(real).tree), ""
    except LumisiteError as error:
        return holds_by_name(
            site, real, typed
        ), f"{path}: taken for what its name says, since it cannot be read: {error}"


def _version(text: str | None) -> Version | None:
    try:
        return None if text is None else parse_version(text)
    except UnfitError:
        return None
