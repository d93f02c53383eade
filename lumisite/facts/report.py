"""What differs between two captures, what that touches, and the paragraph for users."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from lumisite.errors import ResolveError
from lumisite.facts.change import FAULT, INFO, Change
from lumisite.facts.change_kinds import BY_NAME, message
from lumisite.facts.compare import compare
from lumisite.facts.facts import Facts
from lumisite.facts.touches import Context, make_context, touches
from lumisite.findings.finding import Finding, Severity
from lumisite.site.model import Site
from lumisite.site.plans import LoadedPlan
from lumisite.text import printable


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
    """Yield the sentences of each change, and one for all libraries that are other files."""
    replaced: dict[str, None] = {}
    for change in changes:
        users = BY_NAME[change.kind].users
        if change.users:
            yield from (sentence + _concerned(change, context) for sentence in change.users)
        elif change.kind == "library" and change.touches:
            replaced[change.subject] = None
        elif change.severity is FAULT or (change.touches and users):
            yield (users or message)(change)
    if replaced:
        yield f"Libraries of the host that images take are other files now: {', '.join(replaced)}."


def _concerned(change: Change, context: Context) -> str:
    """Return whose images borrow what went: all families, for a list that is cut says less."""
    if change.kind not in ("soname", "library-missing"):
        return ""
    families = [name for name, borrowed in context.borrowed.items() if borrowed.intersection(change.names)]
    return f" This concerns {', '.join(families)}." if families else ""


def _dropped_releases(context: Context) -> Iterator[str]:
    """Yield the releases that the new driver does not support any more."""
    stack = context.driven
    if stack is not None and (releases := context.lost_releases(stack)):
        supported, title = str(context.new.stacks[stack].runs), context.site.stacks[stack].title
        yield f"Rebuild images with {title} {', '.join(releases)}: the new GPU driver supports {supported}."


# JSON


def report_json(report: ChangeReport) -> dict[str, Any]:
    """Return the report as JSON values."""
    changes = [
        {**change_json(change), "touches": [vars(touched) for touched in change.touches]} for change in report.changes
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
        "severity": change.severity.value,
        "what": change.sentence,
        "advice": change.advice,
    }
