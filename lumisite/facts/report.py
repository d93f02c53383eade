"""What differs between two captures, what that touches, and the text for users."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from lumisite.errors import ResolveError
from lumisite.facts.change import Change, Touched
from lumisite.facts.context import Context, make_context
from lumisite.facts.facts import Facts
from lumisite.facts.kind import Differences, parts_of
from lumisite.facts.kinds import KINDS
from lumisite.facts.kinds.paths import CLOSED_KIND, folders_of, is_below
from lumisite.facts.users import user_lines
from lumisite.findings.finding import Finding, Severity
from lumisite.site.model import Site
from lumisite.site.plans import LoadedPlan
from lumisite.text import printable

#: Where what has no path of its own is read: who cannot read that does not know it.
_READ_IN: Mapping[str, tuple[str, ...]] = {
    "os": ("/etc/os-release", "/usr/lib/os-release"),
    "kernel": ("/proc/sys/kernel/osrelease",),
    "glibc": ("/lib64/libc.so.6", "/usr/lib64/libc.so.6", "/lib/libc.so.6", "/usr/lib/libc.so.6"),
    "slurm": ("/usr/lib64/slurm/libslurmfull.so", "/usr/lib/slurm-wlm/libslurmfull.so", "/opt/slurm/lib"),
}


@dataclass(frozen=True)
class ChangeReport:
    """What changed between two captures of a site's node. `was` and `now` are the platforms that they fit, if any."""

    site: str
    was: str
    now: str | None
    changes: tuple[Change, ...]
    users: tuple[str, ...]


def make_report(before: Facts, after: Facts, site: Site, plans: Iterable[LoadedPlan] = ()) -> ChangeReport:
    """Compare two captures; `plans` are the site's stored ones. Raises `ResolveError` for captures of another site."""
    for facts in (before, after):
        if facts.site != site.name:
            message = f"the facts are of site {printable(facts.site)}, this is {site.name}"
            raise ResolveError(Finding("facts-mismatch", Severity.FAULT, message, "name the same site", "--site"))
    context = make_context(site, before, after, plans)
    changes = tuple(replace(change, touches=touches(change, context)) for change in compare(before, after))
    return ChangeReport(site.name, context.was, context.now, changes, user_lines(changes, context))


def compare(before: Facts, after: Facts) -> tuple[Change, ...]:
    """Return every difference of two captures, what matters most first; the same captures have none.

    Left out is what only follows from another difference, and what one of the captures could not read.
    """
    changes = [change for kind in KINDS for change in kind.changes(before, after)]
    closed = {change.subject for change in changes if change.kind == CLOSED_KIND.name}
    closed |= {*before.plain.get("unreadable", {}), *after.plain.get("unreadable", {})}
    if closed:
        unknown = _needed_only_below(before, closed) | _needed_only_below(after, closed)
        changes = [change for change in changes if not _is_hidden(change, closed, unknown)]
    differences = Differences(before, after, tuple(changes))
    gone = _no_folders(before, after) | differences.unmounted
    real = _led_to(before, gone) | _led_to(after, gone)
    follows = {kind.name: kind.follows for kind in KINDS}
    return tuple(
        change
        for change in changes
        if not _is_inside(change, gone, real) and not follows[change.kind](change, differences)
    )


def _is_inside(change: Change, folders: set[str], real: set[str]) -> bool:
    """Return whether a change is below one of some folders, which is reported; what users may not read is apart.

    `real` is where these folders led: there only files count that went or came with them.
    """
    if change.kind == CLOSED_KIND.name:
        return False
    if not change.paths:
        return is_below(posixpath.dirname(change.subject), folders)
    tops = [posixpath.dirname(path) for path in change.paths]
    return all(is_below(top, folders) or is_below(top, real) for top in tops)


def _no_folders(before: Facts, after: Facts) -> set[str]:
    """Return the paths where one of the captures has a folder, and the other has none, or a link that is broken."""
    pairs = {path: {named.kind, after.paths.get(path, named).kind} for path, named in before.paths.items()}
    found = {path for path, pair in pairs.items() if "directory" in pair and pair & {"none", "dangling", "file"}}
    return found | (before.dangling.keys() ^ after.dangling.keys())


def _led_to(facts: Facts, folders: set[str]) -> set[str]:
    """Return where folders are that are links, as far as the paths at and below them tell."""
    linked = {path: named.real for path, named in facts.paths.items() if named.real}
    tops = ((path, real, top) for path, real in linked.items() for top in folders_of(path) if top in folders)
    ends = ((real, path.removeprefix(top)) for path, real, top in tops)
    return {real.removesuffix(end) for real, end in ends if real.endswith(end)} - {""}


def _is_hidden(change: Change, closed: set[str], unknown: set[str]) -> bool:
    """Return whether what a capture could not read is all that a change is about."""

    def is_closed(text: str) -> bool:
        words = (text, *text.replace(",", " ").split())
        return any(word in unknown or is_below(word, closed) for word in words)

    if change.kind == CLOSED_KIND.name:
        return False
    if change.kind in _READ_IN and None in (change.before, change.after):
        return any(is_below(path, closed) for path in _READ_IN[change.kind])
    parts = [*parts_of(change.before), *parts_of(change.after)]
    if len(parts) > 2:  # of a list, what is known of the others counts
        if all(map(is_closed, parts)) or any(map(is_closed, (change.subject, *change.paths))):
            return True
    elif any(map(is_closed, change.words())):
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


def touches(change: Change, context: Context) -> tuple[Touched, ...]:
    """Return what a change touches, each part once."""
    kind = next(kind for kind in KINDS if kind.name == change.kind)
    found: dict[tuple[str, str], Touched] = {}
    for touched in kind.touches(change, context):
        found.setdefault((touched.what, touched.name), touched)
    return tuple(found.values())


def report_json(report: ChangeReport) -> dict[str, Any]:
    """Return the report as JSON values."""
    return {
        "site": report.site,
        "platform_before": report.was,
        "platform_after": report.now,
        "changes": [
            {**change_json(change), "touches": list(map(_touched_json, change.touches))} for change in report.changes
        ],
        "users": "\n".join(report.users) + "\n",
    }


def change_json(change: Change) -> dict[str, Any]:
    """Return a change as JSON values."""
    return {
        "code": change.kind,
        "subject": change.subject,
        "before": change.before,
        "after": change.after,
        "severity": change.severity.value if change.severity else None,
        "what": change.sentence,
        "advice": change.advice,
    }


def _touched_json(touched: Touched) -> dict[str, Any]:
    return {"what": touched.what, "name": touched.name, "why": printable(touched.why)}
