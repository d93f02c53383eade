"""The text for users on what a maintenance changed. Its sentences are in users.yaml."""

from __future__ import annotations

import posixpath
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from lumisite.facts.change import Change
from lumisite.facts.context import Context
from lumisite.findings.finding import Severity
from lumisite.findings.writers import fill, message
from lumisite.site.read import read_file

#: Of these, users read one line with all names.
_REPLACED = ("library", "needs")
_LARGEST_BYTES = 64 * 1024


def user_lines(changes: Iterable[Change], context: Context) -> tuple[str, ...]:
    """Return the text, ready to be sent: users read of every change that affects a part of the site."""
    texts, site, changes = _texts(), context.site, tuple(changes)
    sections: dict[str, list[str]] = {name: [] for name in texts["sections"]}
    replaced: dict[str, None] = {}
    for change in changes:
        texts_of_change = [(section, text) for section, text in _lines(change, context) if text]
        for section, text in texts_of_change:
            sections[section].append(text)
        if change.touches and change.kind in _REPLACED:
            replaced[change.subject] = None
        elif not texts_of_change and (change.touches or change.finding.severity is Severity.FAULT):
            sections["changed"].append(f"{change.subject}: {message(change.finding)}.")
    if replaced:
        sections["changed"].append(_fill("replaced", libraries=", ".join(replaced)))
    sections["rebuild"] += _dropped(context)
    support = _fill("support", name=site.support.name, contact=site.support.contact)
    if not any(sections.values()):
        is_silent = all(change.finding.severity is Severity.INFO for change in changes)
        return (_fill("nothing" if is_silent else "unnamed", site=site.title), "", support)
    sections["rebuild"] = sections["rebuild"] or [texts["no-rebuild"]]
    modules = [name for name, module in site.modules.items() if module.helper] or [*site.modules]
    sections["scripts"] += [_fill("reload", module=name) for name in modules[:1]]
    lines = [_fill("title", site=site.title), ""]
    for section, entries in sections.items():
        if entries:
            lines += [texts["sections"][section], *_wrapped(entries), ""]
    return (*lines, support)


def _lines(change: Change, context: Context) -> Iterator[tuple[str, str]]:
    """Yield the sections and the sentences of a change."""
    # Users read all names: a list in a sentence of the catalogue is cut.
    families = [name for name, _ in context.families_borrowing(change.names("gone") or [change.subject])]
    values = {
        **change.finding.values,
        "subject": change.subject,
        "families": ", ".join(families),
        "product": posixpath.basename(change.subject),
        "release_before": posixpath.basename(change.before or ""),
        "release_after": posixpath.basename(change.after or ""),
    }
    for section, templates in _texts()["lines"].get(change.code, {}).items():
        yield section, fill(templates, values)
    if change.code == "release-changed":
        for name, instead in zip(change.names("gone"), change.names("instead"), strict=True):
            yield "scripts", _fill("instead" if instead else "gone", name=name, instead=instead)


def _dropped(context: Context) -> Iterator[str]:
    """Yield the releases that the new driver does not support any more."""
    stack = context.driven
    if stack is not None and (releases := context.lost_releases(stack)):
        supported, title = str(context.stated.stacks[stack].runs), context.site.stacks[stack].title
        yield _fill("dropped", title=title, releases=", ".join(releases), range=supported)


def _wrapped(entries: Iterable[str]) -> Iterator[str]:
    wrapper = textwrap.TextWrapper(
        78, initial_indent="- ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
    for entry in dict.fromkeys(entries):
        yield from wrapper.wrap(entry)


def _fill(text: str, /, **values: Any) -> str:
    return fill([_texts()[text]], values)


@cache
def _texts() -> Mapping[str, Any]:
    texts: dict[str, Any] = yaml.safe_load(read_file(Path(__file__).with_name("users.yaml"), _LARGEST_BYTES))
    return texts
