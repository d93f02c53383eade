"""Write a report for a terminal, as Markdown, as one HTML page with plots, as JUnit XML or as JSON.

Text is plain and aligned, without colour, so that it can be sent on as it is. Markdown has GitHub's and GitLab's tables
and nothing else of theirs. The page fetches nothing and runs nothing, and its tables say what its plots show.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict

from lumisite.errors import ToolError
from lumisite.text import columns
from lumisite.validate.report.advice import advice
from lumisite.validate.report.contents import Block, headline, report_blocks, verdict_blocks
from lumisite.validate.report.gather import Report
from lumisite.validate.report.junit import report_junit
from lumisite.validate.verdict.system import SystemVerdict

#: What Markdown or HTML would take for more than text.
_SPECIAL = "\\`*_{}[]<>|#~&"
#: Words that a cell of the page may have as its colour.
STATES = ("pass", "warn", "fail", "unconfirmed", "inconclusive", "bad-nodes")


def _text(report: Report) -> str:
    return "\n".join([headline(report.verdict), *_lines(report_blocks(report))]) + "\n"


def verdict_text(verdict: SystemVerdict) -> Iterator[str]:
    """Write the verdict, line by line: gates, metrics, nodes, what to run next, and what it stands on."""
    yield verdict.verdict.upper()
    yield from _lines(verdict_blocks(verdict))
    if verdict.drain:
        yield "" if not verdict.slow_nodes else "  to drain them:"
        yield f"  {verdict.drain}"
    if verdict.verdict == "fail":
        yield from _lines([Block("steps", "What to do", tuple(advice(verdict, ())))])
    elif verdict.next_runs:
        yield from ("", *verdict.next_runs)
    if verdict.notes:
        yield from ("", *(f"note: {text}" for text in verdict.notes))


def _lines(blocks: Iterable[Block]) -> Iterator[str]:
    for block in blocks:
        heading = block.title[:1].lower() + block.title[1:]
        if block.kind == "table":
            yield from ("", *(block.lines or columns([block.head, *block.rows])))
        elif block.kind == "steps":
            yield from ("", heading, *(f"  {number}. {text}" for number, text in enumerate(block.lines, start=1)))
        elif block.kind == "verbatim":
            yield from ("", heading, *(f"  {line}".rstrip() for line in block.lines))
        elif block.kind == "notes":
            yield from ("", *(f"note: {text}" for text in block.lines))


def _markdown(report: Report) -> str:
    lines = [f"# {headline(report.verdict)}"]
    for block in report_blocks(report):
        if block.kind != "plots":
            lines += ["", f"## {block.title}", ""]
        if block.kind == "table":
            lines += [f"| {' | '.join(block.head)} |", f"|{'---|' * len(block.head)}"]
            lines += [f"| {' | '.join(map(escaped, row))} |" for row in block.rows]
        elif block.kind == "steps":
            lines += [f"{number}. {escaped(text)}" for number, text in enumerate(block.lines, start=1)]
        elif block.kind == "verbatim":
            lines += [f"    {line}".rstrip() for line in block.lines]
        elif block.kind == "notes":
            lines += [f"- {escaped(text)}" for text in block.lines]
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    """Write a text so that it comes out of Markdown as it is, on one line."""
    return " ".join("".join(f"\\{letter}" if letter in _SPECIAL else letter for letter in text).split())


def _html(report: Report) -> str:
    import jinja2

    try:
        from lumisite.validate.report.plots import plots
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        raise ToolError(
            "plots need matplotlib, which is not installed (pip install 'lumisite[report]', or --format markdown)"
        ) from None
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("lumisite.validate.report", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        comment_start_string="{##",
        comment_end_string="##}",
        trim_blocks=True,
    )
    return environment.get_template("report.html.j2").render(
        title=headline(report.verdict),
        state=report.verdict.verdict,
        blocks=tuple(report_blocks(report)),
        plots=plots(report),
        states=STATES,
    )


#: The forms of a report; HTML raises `ToolError` where matplotlib is not installed.
WRITERS: dict[str, Callable[[Report], str]] = {
    "text": _text,
    "markdown": _markdown,
    "html": _html,
    "junit": report_junit,
    "json": lambda report: json.dumps(asdict(report), indent=2) + "\n",
}
