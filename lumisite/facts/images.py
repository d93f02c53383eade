"""Images in the folders of a site: which there are, and to which image their names lead."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping

from lumisite.facts.change import DOUBT, FAULT, INFO, Change
from lumisite.facts.facts import Facts, ImageFile
from lumisite.images.sif import MAGIC, MAGIC_OFFSET
from lumisite.machine.tree import Tree, head_of, names_of, resolve, size_of
from lumisite.site.model import Site
from lumisite.text import listed

#: What image files are called; anything else in a directory of images is no image.
_NAMES = (".sif", ".simg", ".img", ".sqsh", ".sqfs", ".squashfs")


def image_folders(site: Site) -> tuple[str, ...]:
    """Return the site's folders of images, and those of its families' patterns, up to the first sign of a pattern."""
    folders = [str(folder.path) for folder in site.images.folders] if site.images is not None else []
    patterns = [pattern for family in site.families.values() for pattern in family.paths]
    fixed = [posixpath.dirname(re.split(r"[*?[]", pattern)[0]) for pattern in patterns if pattern.startswith("/")]
    return tuple(dict.fromkeys(path for path in (*folders, *fixed) if path != "/"))


def capture_images(tree: Tree, site: Site) -> dict[str, dict[str, ImageFile]]:
    """Return the images of each folder and of the folders in it: where each name leads, and which image it is."""
    found: dict[str, dict[str, ImageFile]] = {}
    for folder in image_folders(site):
        images = found.setdefault(folder, {})
        for name in _image_names(tree, folder):
            image = resolve(tree, f"{folder}/{name}")
            if image.entry is None:
                images[name] = ImageFile(target=image.path)
            elif image.entry.kind == "file":
                target = image.path if image.path != f"{resolve(tree, folder).path}/{name}" else None
                images[name] = ImageFile(target, size_of(tree, image.path), _identity(tree, image.path))
    return {folder: images for folder, images in found.items() if images}


def _image_names(tree: Tree, folder: str) -> Iterator[str]:
    for name in names_of(tree, folder):
        inner = () if name.endswith(_NAMES) else names_of(tree, f"{folder}/{name}")
        yield from (path for path in (name, *(f"{name}/{below}" for below in inner)) if path.endswith(_NAMES))


def _identity(tree: Tree, path: str) -> str | None:
    """Return the UUID that every SIF gets when it is made (`pkg/sif/sif.go` of sylabs/sif: 16 bytes after the arch)."""
    head = head_of(tree, path, 64) or b""
    if len(head) < 64 or head[MAGIC_OFFSET : MAGIC_OFFSET + len(MAGIC)] != MAGIC:
        return None
    return head[48:64].hex()


# How two captures differ


def compare_images(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change for all images of a folder to which the same happened, where both captures looked.

    A name that leads to the same image elsewhere is none. Of an image that a name leads to, or led to, the name tells.
    """
    old, new = (_images(before, after), _images(after, before))
    differing = [path for path in sorted(old.keys() | new.keys()) if _content(path, old) != _content(path, new)]
    moved = {path for path in differing if path in old and path in new}
    targets = {image.target for path in moved for image in (old[path], new[path])}
    groups: dict[tuple[str, str], list[str]] = {}
    for path in (path for path in differing if path not in targets or path in moved):
        groups.setdefault((_happened(old.get(path), new.get(path)), posixpath.dirname(path)), []).append(path)
    for (how, _), paths in groups.items():
        yield _change(how, paths, old, new)


def _images(facts: Facts, other: Facts) -> dict[str, ImageFile]:
    """Return the images in the folders where both captures looked, by path."""
    folders = facts.paths.keys() & other.paths.keys()
    return {f"{top}/{name}": image for top in folders for name, image in facts.images.get(top, {}).items()}


def _content(path: str, images: Mapping[str, ImageFile]) -> tuple[object, ...]:
    """Return what two copies of one image share: the identity, or the name of the file, and the size."""
    image = images.get(path)
    return () if image is None else (image.size_bytes, image.id or posixpath.basename(image.target or path))


#: Of what happened to an image: how bad it is, what an admin reads, what to do, and what users read of its name ({0}),
#: of where that led ({1}) and of where it leads now ({2}).
_PLAN = "plan the image again if it has a bind plan"
_HAPPENED = {
    "new": (INFO, "new image", "", ""),
    "gone": (DOUBT, "image is gone", "restore it, or name another one to users", "{0} is gone."),
    "broken": (FAULT, "broken link to {2}", "restore the image or correct the link", "{0} is a broken link."),
    "replaced": (DOUBT, "another image under the same name", _PLAN, "{0} was replaced by another image."),
    "moved": (DOUBT, "{1} -> {2}", _PLAN, "{0} now leads to {2}."),
}


def _happened(old: ImageFile | None, new: ImageFile | None) -> str:
    if new is None:
        return "gone"
    if new.size_bytes is None:
        return "broken"
    if old is None or old.size_bytes is None:
        return "new"
    return "replaced" if old.target == new.target else "moved"


def _change(how: str, paths: list[str], old: Mapping[str, ImageFile], new: Mapping[str, ImageFile]) -> Change:
    severity, message, advice, users = _HAPPENED[how]
    where = {path: [side[path].target or path if path in side else None for side in (old, new)] for path in paths}
    before, after = where[paths[0]]
    others = f", as are {listed(paths[1:])}" if paths[1:] else ""
    if how == "moved" and before in new:
        users += " To stay with the image that it was, name {1} as long as it is there."
    return Change(
        "image",
        paths[0],
        before,
        after,
        message.format(paths[0], before, after) + others,
        severity,
        names=tuple(dict.fromkeys((*paths, *(target for pair in where.values() for target in pair if target)))),
        inside=tuple(paths),
        users=tuple(users.format(path, *pair) for path, pair in where.items()) if users else (),
        advice=advice,
    )
