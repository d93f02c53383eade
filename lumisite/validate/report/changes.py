"""What a maintenance changed, as a report tells it: each change in words, what it touches, and the text for users."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lumisite.facts.changes import make_report, plain, told
from lumisite.facts.compare import Kind, compare

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


def changes(
    before: Facts | None, after: Facts | None, site: Site | None, plans: Sequence[LoadedPlan] = ()
) -> tuple[tuple[Changed, ...], tuple[str, ...]]:
    """Give all changes, what matters most first, and what to tell users of them; nothing where a capture is missing.

    Without the site that the captures are of, nothing is said of what a change touches.
    """
    if before is None or after is None or before.site != after.site:
        return (), ()
    if site is None or site.name != after.site:
        return tuple(Changed(**told(one)) for one in compare(before, after)), ()
    report = make_report(before, after, site, plans)
    found = tuple(Changed(**told(one.change), touches=tuple(_together(one.touches))) for one in report.changes)
    return found, report.users if found else ()


def _together(touches: Iterable[Touch]) -> Iterator[str]:
    """Give each kind of part once, with the names of all that are touched."""
    by_what: dict[str, list[str]] = {}
    for touch in touches:
        by_what.setdefault(touch.what, []).append(touch.name)
    yield from (plain(f"{what} {', '.join(dict.fromkeys(names))}") for what, names in by_what.items())
