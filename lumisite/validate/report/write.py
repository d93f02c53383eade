"""Write a report for a terminal, as Markdown, as one HTML page with plots, as JUnit XML or as JSON.

Text is plain and aligned, without colour, so that it can be sent on as it is. Markdown has GitHub's and GitLab's tables
and nothing else of theirs. The page fetches nothing and runs nothing, and its tables say what its plots show.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import get_args
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from lumisite.errors import ToolError
from lumisite.text import columns, some
from lumisite.validate.lines import State
from lumisite.validate.report.advice import advice
from lumisite.validate.report.contents import Block, headline, report_blocks, verdict_blocks
from lumisite.validate.report.gather import Report
from lumisite.validate.verdict.system import SystemVerdict

#: What Markdown or HTML would take for more than text.
_SPECIAL = "\\`*_{}[]<>|#~&"
#: States that are a `failure` in JUnit, and those that are an `error`: a skipped test looks like a passed one.
FAILED = ("fail", "bad-nodes")
OPEN = ("inconclusive", "unconfirmed")
_ILLEGAL = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


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


def escaped(text: str) -> str:
    """Write a text so that it comes out of Markdown as it is, on one line."""
    return " ".join("".join(f"\\{letter}" if letter in _SPECIAL else letter for letter in text).split())


def _page(report: Report, name: str, **values: object) -> str:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("lumisite.validate.report", "."),
        autoescape=name.endswith(".html.j2"),
        undefined=jinja2.StrictUndefined,
        comment_start_string="{##",
        comment_end_string="##}",
        trim_blocks=True,
        keep_trailing_newline=not name.endswith(".html.j2"),
    )
    environment.filters["markdown"] = escaped
    blocks = tuple(report_blocks(report))
    return environment.get_template(name).render(title=headline(report.verdict), blocks=blocks, **values)


def _html(report: Report) -> str:
    try:
        from lumisite.validate.report.plots import plots
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        raise ToolError(
            "plots need matplotlib, which is not installed (pip install 'lumisite[report]', or --format markdown)"
        ) from None
    return _page(report, "report.html.j2", state=report.verdict.verdict, plots=plots(report), states=get_args(State))


def _junit(report: Report) -> str:
    """Write JUnit's XML for CI: a test case for each gate, metric and slow node.

    What is shown only, and so cannot fail, is `skipped` where it did not pass.
    """
    verdict = report.verdict
    root = Element("testsuites", name="lumisite")
    gates, metrics, nodes = (Element("testsuite", name=name) for name in ("gates", "metrics", "nodes"))
    for gate in verdict.gates:
        details = [f"{one.cause} ({some(one.nodes)}){': ' if one.advice else ''}{one.advice}" for one in gate.causes]
        _add_case(gates, gate.gate, gate.verdict, gate.reason, details, decides=not gate.follows)
    for metric in verdict.metrics:
        details = [f"{key} {value}" for key, value in (("before", metric.before), ("after", metric.after)) if value]
        _add_case(metrics, metric.metric, metric.verdict, metric.reason, details, decides=metric.decides)
    for slow in verdict.slow_nodes:
        reason = f"{slow.below:.1%} below the median of all nodes (z {slow.z:.1f})"
        _add_case(nodes, f"{slow.node} {slow.metric}", "bad-nodes", reason, [verdict.drain or ""])
    for suite in (gates, metrics, nodes):
        tags = {"tests": "testcase", "failures": "testcase/failure", "errors": "testcase/error"}
        for count, path in (tags | {"skipped": "testcase/skipped"}).items():
            suite.set(count, str(len(suite.findall(path))))
        suite.set("time", "0")
        root.append(suite)
    for count in tags:
        root.set(count, str(sum(int(suite.get(count, "0")) for suite in root)))
    indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(root, encoding="unicode")}\n'


def _add_case(
    suite: Element, name: str, state: str, reason: str, details: Sequence[str], *, decides: bool = True
) -> None:
    case = SubElement(suite, "testcase", classname=f"lumisite.{suite.get('name')}", name=_legal(name), time="0")
    if state not in (*FAILED, *OPEN):
        SubElement(case, "system-out").text = _legal("\n".join([f"{state}: {reason}", *details]))
    elif not decides:
        why = reason if reason.startswith("follows") else f"shown only: {reason}"
        SubElement(case, "skipped", message=_legal(why)).text = _legal("\n".join(details)) or None
    else:
        tag = "failure" if state in FAILED else "error"
        SubElement(case, tag, type=state, message=_legal(reason)).text = _legal("\n".join(details))


def _legal(text: str) -> str:
    """Replace what XML 1.0 cannot hold."""
    return _ILLEGAL.sub("?", text)


#: The forms of a report; HTML raises `ToolError` where matplotlib is not installed.
WRITERS: dict[str, Callable[[Report], str]] = {
    "text": _text,
    "markdown": lambda report: _page(report, "report.md.j2"),
    "html": _html,
    "junit": _junit,
    "json": lambda report: json.dumps(asdict(report), indent=2) + "\n",
}
