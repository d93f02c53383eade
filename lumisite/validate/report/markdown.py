"""Write a report as Markdown, for a status page or an issue: GitHub's and GitLab's tables, nothing else of theirs."""

from __future__ import annotations

from collections.abc import Iterator

from lumisite.validate.report.contents import headline, report_blocks
from lumisite.validate.report.gather import Report

#: What Markdown or HTML would take for more than text.
_SPECIAL = "\\`*_{}[]<>|#~&"


def report_markdown(report: Report) -> Iterator[str]:
    """Write the report, line by line."""
    yield f"# {headline(report.verdict)}"
    for block in report_blocks(report):
        if block.kind != "plots":
            yield from ("", f"## {block.title}", "")
        if block.kind == "table":
            yield f"| {' | '.join(block.head)} |"
            yield f"|{'---|' * len(block.head)}"
            yield from (f"| {' | '.join(map(escaped, row))} |" for row in block.rows)
        elif block.kind == "steps":
            yield from (f"{number}. {escaped(text)}" for number, text in enumerate(block.lines, start=1))
        elif block.kind == "verbatim":
            yield from (f"    {line}".rstrip() for line in block.lines)
        elif block.kind == "notes":
            yield from (f"- {escaped(text)}" for text in block.lines)


def escaped(text: str) -> str:
    """Write a text so that it comes out as it is, on one line."""
    return " ".join("".join(f"\\{letter}" if letter in _SPECIAL else letter for letter in text).split())
