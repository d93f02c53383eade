"""Write a report as Markdown, for a status page or an issue: GitHub's and GitLab's tables, nothing else of theirs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lumisite.validate.report.epochs import epoch_rows
from lumisite.validate.report.gather import Report
from lumisite.validate.report.text import METRIC_HEAD, SCALING_HEAD, metric_row, scaling_row
from lumisite.validate.report.words import SENTENCES, some

#: What Markdown or HTML would take for more than text.
_SPECIAL = "\\`*_{}[]<>|#~&"


def report_markdown(report: Report) -> Iterator[str]:
    """Write the report, line by line."""
    verdict = report.verdict
    yield f"# {verdict.verdict.upper()}: {SENTENCES[verdict.verdict]}"
    if report.advice:
        yield from ("", "## What to do", "")
        yield from (f"{number}. {escaped(text)}" for number, text in enumerate(report.advice, start=1))
    if verdict.drain:
        yield from ("", "To drain bad nodes (nothing runs it):", "", f"    {verdict.drain}")
    if report.changes:
        touched = [(one.what, "; ".join(one.touches) or "-") for one in report.changes]
        yield from _section("What changed on the machine", ("change", "touches"), touched)
    if verdict.gates:
        rows = [(gate.gate, gate.verdict, gate.reason) for gate in verdict.gates]
        yield from _section("Gates", ("gate", "verdict", "why"), rows)
        causes = [
            (gate.gate, cause.cause, cause.advice, some(cause.nodes)) for gate in verdict.gates for cause in gate.causes
        ]
        if causes:
            yield from ("", *_table(("gate", "cause", "what to do", "nodes"), causes))
    if verdict.metrics:
        yield from _section("Metrics", METRIC_HEAD, [metric_row(metric) for metric in verdict.metrics])
    if verdict.slow_nodes:
        slow_rows = [(one.node, one.metric, f"{one.below:.1%}", f"{one.z:.1f}") for one in verdict.slow_nodes]
        yield from _section("Slow nodes", ("node", "metric", "below the median", "z"), slow_rows)
    scalings = [scaling_row(scaling, bar) for scaling in report.scalings for bar in scaling.bars]
    if scalings:
        yield from _section("Scaling", SCALING_HEAD, scalings)
    for table in report.epochs:
        head, *epochs = epoch_rows(table)
        yield from _section(f"Epochs, {table.shape}", head, epochs)
    if report.about:
        yield from _section(
            "What was run", ("", "before", "after"), [(n, old or "-", new or "-") for n, old, new in report.about]
        )
    if report.users:
        yield from ("", "## To send to users, when you have read it", "")
        yield from (f"    {line}".rstrip() for line in report.users)
    if verdict.notes:
        yield from ("", "## Notes", "")
        yield from (f"- {escaped(note)}" for note in verdict.notes)


def escaped(text: str) -> str:
    """Write a text so that it comes out as it is, on one line."""
    return " ".join("".join(f"\\{letter}" if letter in _SPECIAL else letter for letter in text).split())


def _section(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield from ("", f"## {title}", "")
    yield from _table(head, rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(map(escaped, row))} |"
