"""Write a verdict for a terminal: plain text, aligned, no colour, so that it can be sent on as it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lumisite.validate.report.contents import Block, aligned, headline, report_blocks, verdict_blocks
from lumisite.validate.report.gather import Report
from lumisite.validate.verdict.system import SystemVerdict


def verdict_text(verdict: SystemVerdict) -> Iterator[str]:
    """Write the verdict, line by line: gates, metrics, nodes, what to run next, and what it stands on."""
    yield verdict.verdict.upper()
    yield from _lines(verdict_blocks(verdict))
    if verdict.drain:
        yield "" if not verdict.slow_nodes else "  to drain them:"
        yield f"  {verdict.drain}"
    if verdict.next_runs:
        yield from ("", *verdict.next_runs)
    if verdict.notes:
        yield from ("", *(f"note: {text}" for text in verdict.notes))


def report_text(report: Report) -> Iterator[str]:
    """Write a report, line by line."""
    yield headline(report.verdict)
    yield from _lines(report_blocks(report))


def _lines(blocks: Iterable[Block]) -> Iterator[str]:
    for block in blocks:
        heading = block.title[:1].lower() + block.title[1:]
        if block.kind == "table":
            yield from ("", *(block.lines or aligned([block.head, *block.rows])))
        elif block.kind == "steps":
            yield from ("", heading, *(f"  {number}. {text}" for number, text in enumerate(block.lines, start=1)))
        elif block.kind == "verbatim":
            yield from ("", heading, *(f"  {line}".rstrip() for line in block.lines))
        elif block.kind == "notes":
            yield from ("", *(f"note: {text}" for text in block.lines))
