"""Paths that the site names: what is there, links that are broken, and what users may not read."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterator

from lumisite.facts.change import Change, Touched, difference
from lumisite.facts.context import Context
from lumisite.facts.facts import Facts, Named
from lumisite.facts.kind import DOUBT, FAULT, INFO, ChangeKind, Differences
from lumisite.facts.kinds.slurm import spool_folder
from lumisite.machine.tree import LONGEST_PATH, is_under
from lumisite.vendors import all_software

#: What users may not read, and what only root's capture could.
CLOSED = ("unreadable", "private")


def compare_paths(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change for each path that both captures looked for, and where something else is now."""
    for path in sorted(before.paths.keys() & after.paths.keys()):
        old, new = before.paths[path], after.paths[path]
        # Where a library's link leads is reported with the library; whether a folder is a release, with the product.
        is_library = ".so" in posixpath.basename(path) and old.kind == new.kind == "file"
        if old != new and not is_library and posixpath.dirname(path) not in {**before.products, **after.products}:
            was, now = (
                None if named.kind == "none" else " ".join(filter(None, (named.kind, named.real)))
                for named in (old, new)
            )
            message = difference("", was, now)
            values = {"real_before": old.real or path, "real_after": new.real or path}
            yield Change(path, _text(old), _text(new), message, values)


def _text(named: Named) -> str | None:
    return None if named.kind == "none" else named.real or named.kind


def path_follows(change: Change, differences: Differences) -> bool:
    """Follow from a library that went, from an image, from a link that is broken, or from another folder of slurmd."""
    for key in differences.by_kind.get("slurm-conf", ()):
        spools = (spool_folder(key.before), spool_folder(key.after))
        if key.subject == "SlurmdSpoolDir" and any(is_under(change.subject, spool) for spool in spools):
            return True
    name = posixpath.basename(change.subject)
    is_lost = name in differences.named("soname", "gone") or name in differences.subjects("library-gone")
    return is_lost or differences.in_changed_folder(change.subject)


def path_touches(change: Change, context: Context) -> Iterator[Touched]:
    """Yield what names the path, and the plans with libraries below it."""
    yield from context.all_naming(change.subject)
    yield from context.plans_with([*context.sonames_under(change.subject), posixpath.basename(change.subject)])


def compare_links(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change for each link that is broken now, or no more."""
    for path in sorted(before.dangling.keys() | after.dangling.keys()):
        old, new = before.dangling.get(path), after.dangling.get(path)
        # Captures of before had broken links to folders only as the kind of a path.
        kinds = [facts.paths[path].kind for facts in (before, after) if path in facts.paths]
        if old != new and kinds != ["dangling", "dangling"]:
            message = f"broken link to {new}" if new else f"link is not broken any more; before it led to {old}"
            yield Change(path, old, new, message)


def link_follows(change: Change, differences: Differences) -> bool:
    """Follow from the default of a stack or the image that the link is, or from what is not mounted."""
    if change.subject in differences.image_paths:
        return True
    changed = differences.subjects("default")
    if any(is_below(target, differences.unmounted) for target in (change.before, change.after) if target):
        return True
    return any(change.subject in software.defaults and software.title in changed for _, software in all_software())


def compare_closed(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield what users may read no more, or may read again; captures by root and by a user count alike."""
    old, new = (
        {path: how for part in CLOSED for path, how in facts.plain.get(part, {}).items()} for facts in (before, after)
    )
    for path in sorted(old.keys() ^ new.keys()):
        message = "users can read it again" if path in old else "users cannot read it any more"
        yield Change(path, old.get(path), new.get(path), message, advice=new.get(path, ""))


def is_below(path: str, folders: Collection[str]) -> bool:
    """Return whether a path is one of some folders, or in one; the work is that of the path's own folders."""
    return any(folder in folders for folder in folders_of(path))


def folders_of(path: str) -> Iterator[str]:
    """Yield a path and the folders above it; no path is longer than the kernel's longest."""
    path = path[:LONGEST_PATH]
    is_absolute = path.startswith("/")
    while path.strip("/"):
        yield path
        path = path.rpartition("/")[0]
    if is_absolute:
        yield "/"


#: A fault is what is there now; where it is not any more, nothing is left to do.
_FAULT_NOW = (FAULT, INFO, FAULT)
CLOSED_KIND = ChangeKind("unreadable", compare_closed, path_touches, "", _FAULT_NOW)
KINDS = (
    ChangeKind(
        "dangling",
        compare_links,
        path_touches,
        "restore its target or correct the link",
        _FAULT_NOW,
        follows=link_follows,
    ),
    ChangeKind(
        "path",
        compare_paths,
        path_touches,
        "mount or restore it, or correct the site description",
        (DOUBT, FAULT, INFO),
        follows=path_follows,
    ),
)
