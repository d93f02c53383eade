"""Compare two captures: all changes, without those that only follow from another one.

A change is left out where another one that is reported is its cause: a library of a release that went as a whole, the
starters of a runtime that went. Whatever is not really inside of another change is reported beside it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence

from lumisite.facts.change import Change
from lumisite.facts.change_kinds import KINDS
from lumisite.facts.facts import Facts
from lumisite.facts.reading import is_below
from lumisite.facts.releases import release_folders
from lumisite.vendors import all_fabrics

Found = Mapping[str, Sequence[Change]]
_OF_SYSTEM = re.compile(r"/(usr/)?lib(32|64|/[\w-]+-linux-gnu)?/[^/]+")


def compare(before: Facts, after: Facts) -> tuple[Change, ...]:
    """Return every difference of two captures, what matters most first; the same captures have none.

    Left out is what only follows from another difference, and what one of the captures could not read.
    """
    closed = {*before.unreadable, *after.unreadable}
    for facts in (before, after):
        closed |= {path for path, named in facts.paths.items() if named.real and is_below(named.real, closed)}
    found: dict[str, list[Change]] = {}
    for kind in KINDS:
        found[kind.name] = [change for change in kind.changes(before, after) if not _is_closed(change, closed)]
    folders = set(_folders(found))
    for facts in (before, after):  # what is below a link is captured by its real path
        folders |= {named.real for path, named in facts.paths.items() if path in folders and named.real}
    changes = (change for kind in KINDS for change in found[kind.name])
    return tuple(change for change in changes if not _is_inside(change, folders) and not _follows(change, found))


def _is_closed(change: Change, closed: set[str]) -> bool:
    """Return whether a change is about what one of the captures could not read, or something in it."""
    if change.kind == "unreadable":
        return False
    words = [word for word in (*change.gone, *change.come, *change.kept) if word.startswith("/")]
    is_in = any(is_below(path, closed) for path in (*change.inside, *change.names, *words))
    return is_in or any(path.startswith(f"{top}/") for path in closed for top in change.inside)


def _folders(found: Found) -> Iterator[str]:
    """Yield what is there in one capture only: paths, what a link led to, mounts, and folders of releases."""
    for kind in ("path", "dangling", "mounts", "module-path"):
        yield from (change.subject for change in found[kind] if change.is_one_sided and change.subject != "/")
    for kind in ("product", "stack"):
        for change in found[kind]:
            yield from release_folders(change.subject, (*change.gone, *change.come))


def _is_inside(change: Change, folders: set[str]) -> bool:
    """Return whether all files of a change are below folders that are reported; what users may not read is apart."""
    if change.kind == "unreadable":
        return False
    return bool(change.inside) and all(is_below(posixpath.dirname(path), folders) for path in change.inside)


def _follows(change: Change, found: Found) -> bool:
    """Return whether a change follows from one of another kind."""
    kind, subject = change.kind, change.subject
    if kind in ("gpu-bus", "gpu-place") and found["gpu-count"]:
        return True
    if kind in ("gpu-place", "nic", "interface") and found["cpus"]:  # those near a device are a group
        return all(word.startswith(("numa ", "cpus ")) for word in (*change.gone, *change.come))
    if kind in ("runtime-directive", "container-start"):
        return _follows_from_runtime(change, found["runtime"])
    if kind in ("path", "dangling"):
        return _follows_as_path(change, found)
    if kind == "default":
        products = [one for one in found["product"] if one.subject == subject]
        return any(change.before in one.gone and change.after in one.come for one in products)
    if kind == "library" and found["os"]:
        carriers = {name for fabric in all_fabrics() for name in fabric.libraries}
        return subject not in carriers and bool(change.inside) and all(map(_OF_SYSTEM.fullmatch, change.inside))
    return False


def _follows_as_path(change: Change, found: Found) -> bool:
    """Return whether a path is a library or an image that is reported, or a link to what is not mounted any more."""
    libraries = (one for kind in ("soname", "library-missing", "library-new") for one in found[kind])
    reported = {name for one in (*libraries, *found["image"]) for name in one.names}
    if change.kind == "path":
        reported |= {one.subject for one in found["dangling"]}
    mounts = {mount.subject for mount in found["mounts"] if mount.is_one_sided}
    is_reported = change.subject in reported or posixpath.basename(change.subject) in reported
    return is_reported or (
        change.kind == "dangling" and any(is_below(to, mounts) for to in (*change.gone, *change.come))
    )


def _follows_from_runtime(change: Change, runtimes: Sequence[Change]) -> bool:
    """Return whether a change follows from the runtime, which is another one with its starters, or came or went."""
    name = posixpath.basename(change.subject)
    if name.startswith("starter") and runtimes:
        return True
    is_own = change.kind == "runtime-directive" or name in ("setuid starter", "configuration")
    return is_own and any(runtime.is_one_sided for runtime in runtimes)
