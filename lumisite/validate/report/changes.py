"""What a maintenance changed, as a report tells it: each change in words, what it touches, and the text for users."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lumisite.errors import shown
from lumisite.facts.change import Kind
from lumisite.facts.changes import make_report, told
from lumisite.facts.compare import compare
from lumisite.site.load import load_plans

if TYPE_CHECKING:
    from lumisite.facts.facts import Facts
    from lumisite.facts.site import Touch
    from lumisite.site.load import LoadedSite


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
    before: Facts | None, after: Facts | None, loaded: LoadedSite | None
) -> tuple[tuple[Changed, ...], tuple[str, ...]]:
    """Compare two captures: give all changes, what matters most first, and what to tell users of them.

    Without the site that the captures are of, nothing is said of what a change touches, and nothing to users.
    """
    if before is None or after is None or before.site != after.site:
        return (), ()
    if loaded is None or loaded.site.name != after.site:
        return tuple(Changed(**told(one)) for one in compare(before, after)), ()
    report = make_report(before, after, loaded.site, load_plans(loaded))
    found = tuple(Changed(**told(one.change), touches=tuple(_together(one.touches))) for one in report.changes)
    return found, report.users if found else ()


def _together(touches: Iterable[Touch]) -> Iterator[str]:
    """Give each kind of part once, with the names of all that are touched."""
    by_what: dict[str, list[str]] = {}
    for touch in touches:
        by_what.setdefault(touch.what, []).append(touch.name)
    yield from (shown(f"{what} {', '.join(dict.fromkeys(names))}") for what, names in by_what.items())
