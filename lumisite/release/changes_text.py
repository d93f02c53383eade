"""The report on changes as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from lumisite.errors import shown
from lumisite.release.changes import Consequence, Report
from lumisite.release.changes_compare import Change
from lumisite.release.changes_words import texts, words


def report_lines(report: Report) -> list[str]:
    """Give the whole report for people: changes with what they touch, the draft, the text for users."""
    if not report.changes:
        return ["nothing changed"]
    now = f"fits platform {report.now}" if report.now else "fits no platform that is described"
    count = f"{len(report.changes)} {'change' if len(report.changes) == 1 else 'changes'}"
    lines = [f"{count}; the node was platform {report.was}, and now {now}", ""]
    for one in report.changes:
        lines += _consequence(one)
    lines += ["", "-- draft for the site description", *report.draft]
    return [*lines, "", "-- text for users", *report.users]


def _consequence(one: Consequence) -> Iterator[str]:
    """Give a change, and below it what it touches; what is touched for the same reason is told together."""
    yield plain(words(one.change))
    if not one.touches:
        yield "  touches nothing that the site describes"
    together: dict[tuple[str, str], list[str]] = {}
    for touch in one.touches:
        together.setdefault((touch.what, touch.why), []).append(touch.name)
    for (what, why), names in together.items():
        yield plain(f"  {what + ':':8} {', '.join(names)}")
        yield plain(f"           {why}")


def plain(text: str) -> str:
    """Facts come from files of others: what does not print is spelled out."""
    return text if text.isprintable() else shown(text)


def to_json(report: Report) -> dict[str, Any]:
    """Give the report as JSON values."""
    changes = [{**_change(one.change), "touches": [asdict(touch) for touch in one.touches]} for one in report.changes]
    return {
        "site": report.site,
        "platform_before": report.was,
        "platform_after": report.now,
        "changes": changes,
        "draft": "\n".join(report.draft) + "\n",
        "users": "\n".join(report.users) + "\n",
    }


def _change(change: Change[Any]) -> dict[str, Any]:
    before, after = texts(change)
    return {"kind": change.kind, "subject": change.subject, "before": before, "after": after, "what": words(change)}
