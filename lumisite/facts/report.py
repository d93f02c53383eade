"""What a maintenance changed, what that touches, the draft of the new platform, and the text for users."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from lumisite.errors import ResolveError
from lumisite.facts.change import Change, Touched
from lumisite.facts.compare import compare
from lumisite.facts.context import Context, make_context
from lumisite.facts.draft import draft_platform
from lumisite.facts.facts import Facts
from lumisite.facts.kinds import KINDS
from lumisite.facts.kinds.paths import CLOSED_KIND
from lumisite.facts.users import user_lines
from lumisite.findings.catalogue import make_finding
from lumisite.findings.writers import message
from lumisite.site.model import Site
from lumisite.site.plans import LoadedPlan
from lumisite.text import printable


@dataclass(frozen=True)
class Report:
    """What changed between two captures of a site's node. `was` and `now` are the platforms that they fit, if any."""

    site: str
    was: str
    now: str | None
    changes: tuple[Change, ...]
    draft: tuple[str, ...]
    users: tuple[str, ...]


def make_report(before: Facts, after: Facts, site: Site, plans: Iterable[LoadedPlan] = ()) -> Report:
    """Compare two captures; `plans` are the site's stored ones. Raises `ResolveError` for captures of another site."""
    for facts in (before, after):
        if facts.site != site.name:
            raise ResolveError(make_finding("facts-of-other-site", "--site", found=facts.site, site=site.name))
    context = make_context(site, before, after, plans)
    changes = tuple(replace(one, touches=touches(one, context)) for one in compare(before, after))
    draft, users = draft_platform(context), user_lines(changes, context)
    return Report(site.name, context.was, context.now, changes, draft, users)


def touches(change: Change, context: Context) -> tuple[Touched, ...]:
    """Return what a change touches, each part once."""
    kind = next(kind for kind in (CLOSED_KIND, *KINDS) if kind.name == change.kind)
    found: dict[tuple[str, str], Touched] = {}
    for touched in kind.touches(change, context):
        found.setdefault((touched.what, touched.name), touched)
    return tuple(found.values())


def report_json(report: Report) -> dict[str, Any]:
    """Return the report as JSON values."""
    return {
        "site": report.site,
        "platform_before": report.was,
        "platform_after": report.now,
        "changes": [{**change_json(one), "touches": list(map(_touched_json, one.touches))} for one in report.changes],
        "draft": "\n".join(report.draft) + "\n",
        "users": "\n".join(report.users) + "\n",
    }


def change_json(change: Change) -> dict[str, Any]:
    """Return a change as JSON values."""
    return {
        "code": change.code,
        "kind": change.kind,
        "subject": change.subject,
        "before": change.before,
        "after": change.after,
        "what": printable(f"{change.subject}: {message(change.finding)}"),
    }


def _touched_json(touched: Touched) -> dict[str, Any]:
    why = message(touched.finding(""))
    return {"what": touched.what, "name": touched.name, "code": touched.code, "why": why}
