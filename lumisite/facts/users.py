"""The text for users on what a maintenance changed."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

from lumisite.facts.change import Change
from lumisite.facts.context import Context
from lumisite.facts.kind import FAULT, INFO

#: Of these, users read one line with all names.
_REPLACED = ("library", "needs")
_SECTIONS = {
    "changed": "What changed",
    "rebuild": "What you must rebuild",
    "scripts": "What to look at in job scripts",
}


def user_lines(changes: Iterable[Change], context: Context) -> tuple[str, ...]:
    """Return the text, ready to be sent: users read of every change that affects a part of the site."""
    site, changes = context.site, tuple(changes)
    sections: dict[str, list[str]] = {name: [] for name in _SECTIONS}
    replaced: dict[str, None] = {}
    for change in changes:
        for section, text in change.users:
            sections[section].append(text + (_concerned(change, context) if section == "rebuild" else ""))
        if change.touches and change.kind in _REPLACED:
            replaced[change.subject] = None
        elif not change.users and (change.touches or change.severity is FAULT):
            sections["changed"].append(f"{change.sentence}.")
    if replaced:
        names = ", ".join(replaced)
        sections["changed"].append(f"Libraries of the host that images take are other files now: {names}.")
    sections["rebuild"] += _dropped(context)
    support = f"Support: {site.support.name}, {site.support.contact}"
    if not any(sections.values()):
        if all(change.severity is INFO for change in changes):
            return (f"Nothing changed on {site.title} that containers depend on.", "", support)
        return (f"{site.title} was updated. No image and no job script that we know of must change.", "", support)
    sections["rebuild"] = sections["rebuild"] or ["Nothing that we know of."]
    modules = [name for name, module in site.modules.items() if module.helper] or [*site.modules]
    sections["scripts"] += [f"Load {name} anew in each job; do not set its variables by hand." for name in modules[:1]]
    lines = [f"{site.title} was updated. This is what it means for containers.", ""]
    for section, entries in sections.items():
        if entries:
            lines += [_SECTIONS[section], *_wrapped(entries), ""]
    return (*lines, support)


def _concerned(change: Change, context: Context) -> str:
    """Return whose images borrow what went: all families, for a list that is cut says less."""
    families = [name for name, _ in context.families_borrowing(change.names("gone") or [change.subject])]
    return f" This concerns {', '.join(families)}." if families else ""


def _dropped(context: Context) -> Iterator[str]:
    """Yield the releases that the new driver does not support any more."""
    stack = context.driven
    if stack is not None and (releases := context.lost_releases(stack)):
        supported, title = str(context.stated.stacks[stack].runs), context.site.stacks[stack].title
        yield f"Images with {title} {', '.join(releases)}: the new GPU driver supports {supported}."


def _wrapped(entries: Iterable[str]) -> Iterator[str]:
    wrapper = textwrap.TextWrapper(
        78, initial_indent="- ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
    for entry in dict.fromkeys(entries):
        yield from wrapper.wrap(entry)
