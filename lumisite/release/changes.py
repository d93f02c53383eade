"""What a maintenance changed, what that touches, and what is to be done about it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from lumisite.errors import ResolveError
from lumisite.node.facts import Facts
from lumisite.release.changes_compare import Change, compare
from lumisite.release.changes_draft import draft_lines
from lumisite.release.changes_site import Touch, make_context
from lumisite.release.changes_touch import touches
from lumisite.release.changes_users import user_lines
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


def make_report(
    before: Facts, after: Facts, site: Site, name: str = "draft", plans: Iterable[LoadedPlan] = ()
) -> Report:
    """Compare two captures; `plans` are the site's stored ones.

    Raises `ResolveError` for captures of another site, and a bad `name` for the draft.
    """
    for facts in (before, after):
        if facts.site != site.name:
            raise ResolveError(
                f"--site: the facts are of site {facts.site!r}, this is {site.name} (give the same site)"
            )
    if not re.fullmatch(r"[\w.+-]+", name):
        raise ResolveError(f"--name: {name!r} is not a name (letters, digits, and . _ + - would be right)")
    if name in site.platforms:
        raise ResolveError(f"--name: {site.name} has a platform {name} already (have {', '.join(site.platforms)})")
    context = make_context(site, before, after, plans)
    changes = compare(before, after)
    return Report(
        site.name,
        context.was,
        context.now,
        tuple(Consequence(change, touches(change, context)) for change in changes),
        draft_lines(context, name),
        user_lines(changes, context),
    )
