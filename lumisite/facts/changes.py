"""What a maintenance changed, what that touches, and what is to be done about it: as values, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from lumisite.errors import ResolveError, shown
from lumisite.facts.capture import asked_stems
from lumisite.facts.change import Change
from lumisite.facts.compare import compare
from lumisite.facts.draft import draft_lines
from lumisite.facts.facts import Facts
from lumisite.facts.site import Touch, make_context
from lumisite.facts.tell import user_lines, words
from lumisite.facts.touch import touches
from lumisite.site.model import Site
from lumisite.site.plans import LoadedPlan


@dataclass(frozen=True)
class Consequence:
    """A change, and all that it touches."""

    change: Change[Any]
    touches: tuple[Touch, ...]


@dataclass(frozen=True)
class Report:
    """What changed between two captures of a site's node. `was` and `now` are the platforms that they fit, if any."""

    site: str
    was: str
    now: str | None
    changes: tuple[Consequence, ...]
    draft: tuple[str, ...]
    users: tuple[str, ...]


def make_report(before: Facts, after: Facts, site: Site, plans: Iterable[LoadedPlan] = ()) -> Report:
    """Compare two captures; `plans` are the site's stored ones. Raises `ResolveError` for captures of another site."""
    for facts in (before, after):
        if facts.site != site.name:
            raise ResolveError(
                f"--site: the facts are of site {facts.site!r}, this is {site.name} (give the same site)"
            )
    context = make_context(site, before, after, plans)
    changes = [Consequence(one, touches(one, context)) for one in compare(before, after, asked_stems(site))]
    return Report(
        site.name,
        context.was,
        context.now,
        tuple(changes),
        draft_lines(context),
        user_lines([(one.change, bool(one.touches)) for one in changes], context),
    )


def report_lines(report: Report) -> list[str]:
    """Give the whole report for people: changes with what they touch, the draft, the text for users."""
    if not report.changes:
        return ["nothing changed"]
    now = f"fits platform {report.now}" if report.now else "fits no platform that is described"
    count = f"{len(report.changes)} {'change' if len(report.changes) == 1 else 'changes'}"
    lines = [f"{count}; the node was platform {report.was}, and now {now}", ""]
    for one in report.changes:
        lines.append(shown(words(one.change)))
        together: dict[tuple[str, str], list[str]] = {}  # what is touched for the same reason
        for touch in one.touches:
            together.setdefault((touch.what, touch.why), []).append(touch.name)
        for (what, why), names in together.items():
            lines += [shown(f"  {what + ':':8} {', '.join(names)}"), shown(f"           {why}")]
        if not one.touches:
            lines.append("  touches nothing that the site describes")
    lines += ["", "-- draft for the site description", *report.draft]
    return [*lines, "", "-- text for users", *report.users]


def to_json(report: Report) -> dict[str, Any]:
    """Give the report as JSON values."""
    return {
        "site": report.site,
        "platform_before": report.was,
        "platform_after": report.now,
        "changes": [
            {**told(one.change), "touches": [asdict(touch) for touch in one.touches]} for one in report.changes
        ],
        "draft": "\n".join(report.draft) + "\n",
        "users": "\n".join(report.users) + "\n",
    }


def told(change: Change[Any]) -> dict[str, Any]:
    """Give a change as JSON values."""
    what = shown(words(change))
    return {"kind": change.kind, "subject": change.subject, "before": change.was, "after": change.now, "what": what}
