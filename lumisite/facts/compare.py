"""Two captures of a node to the list of what differs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lumisite.facts.change import Change
from lumisite.facts.facts import Facts
from lumisite.facts.kind import Differences
from lumisite.facts.kinds import KINDS
from lumisite.facts.kinds.paths import CLOSED_KIND, is_below
from lumisite.machine.tree import is_under

#: The kinds of what has no path at all.
_WITHOUT_PATH = ("os", "kernel", "glibc", "slurm", "release")


def compare(before: Facts, after: Facts) -> tuple[Change, ...]:
    """Return every difference of two captures, what matters most first; the same captures have none.

    Left out is what only follows from another difference, and what one of the captures could not read.
    """
    closed = tuple(replace(change, kind=CLOSED_KIND.name) for change in CLOSED_KIND.compare(before, after))
    differences = Differences(before, after, tuple(_readable(before, after, {change.subject for change in closed})))
    gone = _no_folders(before, after)
    follows = {kind.name: kind.follows for kind in KINDS}
    found = []
    for change in differences.changes:
        paths = change.paths or (change.subject,)
        in_gone_folder = any(is_under(path, folder) and path != folder for path in paths for folder in gone)
        if not in_gone_folder and not follows[change.kind](change, differences):
            found.append(change)
    return (*closed, *found)


def _no_folders(before: Facts, after: Facts) -> list[str]:
    """Return the paths where one of the captures has a folder, and the other has none."""
    pairs = {path: {named.kind, after.paths.get(path, named).kind} for path, named in before.paths.items()}
    return [path for path, pair in pairs.items() if "directory" in pair and pair & {"none", "dangling", "file"}]


def _readable(before: Facts, after: Facts, closed: set[str]) -> Iterator[Change]:
    """Yield the differences, without those of what one of the captures could not read."""
    closed = {*closed, *before.plain.get("unreadable", {}), *after.plain.get("unreadable", {})}
    behind = _needed_only_below(before, closed) | _needed_only_below(after, closed)
    for kind in KINDS:
        for change in kind.compare(before, after):
            found = replace(change, kind=kind.name)
            if not closed or not _is_hidden(found, closed, behind):
                yield found


def _is_hidden(change: Change, closed: set[str], behind: set[str]) -> bool:
    if change.kind in _WITHOUT_PATH and None in (change.before, change.after):
        return True
    if any(word in behind or is_below(word, closed) for word in change.words()):
        return True
    # A folder of releases or of links is known by what is in it, and a deployed file by its path in the release.
    return any(path.startswith(f"{change.subject}/") or path.endswith(f"/{change.subject}") for path in closed)


def _needed_only_below(facts: Facts, closed: set[str]) -> set[str]:
    """Return the SONAMEs of libraries that could not be read, and of those that only these need."""
    needing: dict[str, set[str]] = {}
    for library in facts.libraries.values():
        for name in library.needed:
            needing.setdefault(name, set()).add(library.soname or "")
    found = {name for name, path in facts.loads.items() if is_below(path, closed)}
    while more := {name for name, users in needing.items() if users <= found} - found:
        found |= more
    return found
