"""The page about all that can be wrong, from the catalogue: one heading for each code, so that each has an anchor."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from docs.markdown import notice, plain, table
from lumisite.findings.catalogue import CatalogueEntry, catalogue
from lumisite.findings.exit_code import EXIT_CODES

INTRODUCTION = """\
Each finding that a command prints ends with its code in brackets. `lumisite why CODE` prints what is written here.
The worst finding of a run decides the exit code."""


def findings_page() -> str:
    """Return the page, group by group as the catalogue has them."""
    entries = sorted(catalogue().values(), key=lambda entry: (entry.group, entry.code))
    severities = [[f"`{severity.value}`", str(code)] for severity, code in EXIT_CODES.items()]
    lines = [
        "# Findings",
        notice("lumisite/findings/*.yaml"),
        INTRODUCTION,
        table(["severity", "exit code"], severities),
    ]
    for group, members in groupby(entries, key=lambda entry: entry.group):
        lines.append(f"## {group[:1].upper()}{group[1:]}")
        for entry in members:
            lines += _section(entry)
    return "\n\n".join(lines) + "\n"


def _section(entry: CatalogueEntry) -> Iterator[str]:
    yield f"### {entry.code}"
    yield f"{plain(entry.title[:1].upper() + entry.title[1:])} ({entry.severity.value})."
    yield "\n".join(f"- `{template}`" for template in entry.text)
    if entry.advice:
        yield "What to do: " + "; or: ".join(plain(template) for template in entry.advice)
    if entry.meaning:
        yield plain(entry.meaning)
