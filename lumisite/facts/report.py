"""What differs between two captures, what that touches, and the paragraph for users."""

from __future__ import annotations

import posixpath
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from lumisite.errors import ResolveError
from lumisite.facts.change import FAULT, INFO, Change, Touched
from lumisite.facts.context import Context, make_context
from lumisite.facts.due import Differences
from lumisite.facts.facts import Facts
from lumisite.facts.kinds import CLOSED, KINDS
from lumisite.facts.reading import folders_of, is_below
from lumisite.findings.finding import Finding, Severity
from lumisite.site.model import Site
from lumisite.site.plans import LoadedPlan
from lumisite.text import printable

_BY_NAME = {kind.name: kind for kind in KINDS}
#: Of these, users read one sentence with all names.
_REPLACED = ("library", "needs")


@dataclass(frozen=True)
class ChangeReport:
    """What changed between two captures of a site's node. `was` and `now` are the platforms that they fit, if any.

    `users` are the lines of one paragraph that can be sent as it is.
    """

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
    users = textwrap.wrap(_for_users(changes, context), 78, break_long_words=False, break_on_hyphens=False)
    return ChangeReport(site.name, context.was, context.now, changes, tuple(users))


def touches(change: Change, context: Context) -> tuple[Touched, ...]:
    """Return what a change touches, each part once."""
    found: dict[tuple[str, str], Touched] = {}
    for touched in _BY_NAME[change.kind].touches(change, context):
        found.setdefault((touched.what, touched.name), touched)
    return tuple(found.values())


# What differs


def compare(before: Facts, after: Facts) -> tuple[Change, ...]:
    """Return every difference of two captures, what matters most first; the same captures have none.

    Left out is what only follows from another difference, and what one of the captures could not read.
    """
    changes = [change for kind in KINDS for change in kind.changes(before, after)]
    closed = {*before.closed, *after.closed}
    if closed:
        unknown = _needed_only_below(before, closed) | _needed_only_below(after, closed)
        changes = [change for change in changes if not _is_closed(change, closed, unknown)]
    differences = Differences(before, after, tuple(changes))
    gone = _no_folders(before, after) | differences.unmounted
    real = _led_to(before, gone) | _led_to(after, gone)
    return tuple(
        change
        for change in changes
        if not _is_inside(change, gone, real) and not _BY_NAME[change.kind].follows(change, differences)
    )


def _is_inside(change: Change, folders: set[str], real: set[str]) -> bool:
    """Return whether a change is below one of some folders, which is reported; what users may not read is apart.

    `real` is where these folders led: there only files count that went or came with them.
    """
    if change.kind == CLOSED.name:
        return False
    if not change.paths:
        return is_below(posixpath.dirname(change.subject), folders)
    return all(is_below(posixpath.dirname(path), folders | real) for path in change.paths)


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


# What could not be read


def _is_closed(change: Change, closed: set[str], unknown: set[str]) -> bool:
    """Return whether what a capture could not read is all that a change is about."""

    def is_hidden(text: str) -> bool:
        return any(word in unknown or is_below(word, closed) for word in (text, *text.replace(",", " ").split()))

    kind = _BY_NAME[change.kind]
    if kind is CLOSED:
        return False
    if kind.where and kind.read is None and change.is_one_sided:
        return any(is_below(path, closed) for path in kind.where)
    about = (change.subject, *change.paths)
    words = (*change.names("gone"), *change.names("come"))
    if kind.read is not None and len(words) > 2:  # of a list, what is known of the others counts
        found = all(map(is_hidden, words)) or any(map(is_hidden, about))
    else:
        named = words if kind.read else [name for names in change.values.values() for name in names]
        texts = [text for text in (change.before, change.after) if text]
        found = any(map(is_hidden, (*about, *named, *texts)))
    # A folder of releases or of links is known by what is in it, and a deployed file by its path in the release.
    return found or any(path.startswith(f"{change.subject}/") or path.endswith(f"/{change.subject}") for path in closed)


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


# The paragraph for users


def _for_users(changes: tuple[Change, ...], context: Context) -> str:
    """Return one paragraph on every change that affects a part of the site, ready to be sent."""
    site = context.site
    support = f"Support: {site.support.name}, {site.support.contact}"
    sentences = list(dict.fromkeys((*_sentences(changes, context), *_dropped_releases(context))))
    if not sentences:
        if all(change.severity is INFO for change in changes):
            return f"Nothing changed on {site.title} that containers depend on. {support}"
        return f"{site.title} was updated. No image and no job script that we know of must change. {support}"
    modules = [name for name, module in site.modules.items() if module.helper] or [*site.modules]
    anew = [f"Load {name} anew in each job; do not set its variables by hand." for name in modules[:1]]
    return " ".join((f"{site.title} was updated. This is what it means for containers.", *sentences, *anew, support))


def _sentences(changes: Iterable[Change], context: Context) -> Iterator[str]:
    """Yield a sentence a change, and one for all libraries that are other files."""
    replaced: dict[str, None] = {}
    for change in changes:
        if change.users:
            yield from (sentence + _concerned(change, context) for sentence in change.users)
        elif change.touches and change.kind in _REPLACED:
            replaced[change.subject] = None
        elif change.touches and change.kind == "links":
            yield f"The links in {change.subject} lead to other releases."
        elif change.touches or change.severity is FAULT:
            yield f"{change.what_changed}.{_concerned(change, context)}"
    if replaced:
        yield f"Libraries of the host that images take are other files now: {', '.join(replaced)}."


def _concerned(change: Change, context: Context) -> str:
    """Return whose images borrow what went: all families, for a list that is cut says less."""
    if change.kind not in ("soname", "library-gone", "gives", "wants", "missing"):
        return ""
    families = [name for name, _ in context.families_borrowing(change.names("gone") or [change.subject])]
    return f" This concerns {', '.join(families)}." if families else ""


def _dropped_releases(context: Context) -> Iterator[str]:
    """Yield the releases that the new driver does not support any more."""
    stack = context.driven
    if stack is not None and (releases := context.lost_releases(stack)):
        supported, title = str(context.stated.stacks[stack].runs), context.site.stacks[stack].title
        yield f"Rebuild images with {title} {', '.join(releases)}: the new GPU driver supports {supported}."


# JSON


def report_json(report: ChangeReport) -> dict[str, Any]:
    """Return the report as JSON values."""
    changes = [
        {
            **change_json(change),
            "touches": [{**vars(touched), "why": printable(touched.why)} for touched in change.touches],
        }
        for change in report.changes
    ]
    return {
        "site": report.site,
        "platform_before": report.was,
        "platform_after": report.now,
        "changes": changes,
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
