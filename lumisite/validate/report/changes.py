"""What a maintenance changed, as a report tells it: each change in words, what it touches, and the text for users."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lumisite.facts.changes import make_report, plain
from lumisite.facts.compare import Change, Kind, compare
from lumisite.facts.words import texts, words

if TYPE_CHECKING:
    from lumisite.facts.facts import Facts
    from lumisite.facts.touch import Touch
    from lumisite.site.model import Site
    from lumisite.site.plans import LoadedPlan


@dataclass(frozen=True)
class Changed:
    """A change as `changes` tells it; `touches` are parts of the site, such as `module singularity-CPEbits`."""

    kind: Kind
    subject: str
    before: str | None
    after: str | None
    what: str
    touches: tuple[str, ...] = ()


@dataclass(frozen=True)
class Changes:
    """All changes, what matters most first, and what to tell users of them; empty where there is nothing to compare."""

    changed: tuple[Changed, ...] = ()
    users: tuple[str, ...] = ()


def changes(before: Facts | None, after: Facts | None, site: Site | None, plans: Sequence[LoadedPlan] = ()) -> Changes:
    """Compare two captures; without the site they are of, nothing is said of what a change touches."""
    if before is None or after is None or before.site != after.site:
        return Changes()
    if site is None or site.name != after.site:
        return Changes(tuple(_told(one) for one in compare(before, after)))
    report = make_report(before, after, site, plans=plans)
    told = tuple(_told(one.change, one.touches) for one in report.changes)
    return Changes(told, report.users if told else ())


def _told(change: Change[Any], touches: Iterable[Touch] = ()) -> Changed:
    return Changed(change.kind, change.subject, *texts(change), plain(words(change)), tuple(_together(touches)))


def _together(touches: Iterable[Touch]) -> Iterator[str]:
    """Give each kind of part once, with the names of all that are touched."""
    by_what: dict[str, list[str]] = {}
    for touch in touches:
        by_what.setdefault(touch.what, []).append(touch.name)
    yield from (plain(f"{what} {', '.join(dict.fromkeys(names))}") for what, names in by_what.items())
