"""Say what a report says, in the order in which it is read, for a terminal, Markdown, one HTML page, JUnit XML or JSON.

A report is blocks; text, Markdown and HTML print each in their way. Text is plain and aligned, without colour, so that
it can be sent on as it is. Markdown has GitHub's and GitLab's tables and nothing else of theirs. The page fetches
nothing and runs nothing, and its tables say what its plots show.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import Literal, TypeAlias, get_args
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from lumisite.text import change, columns, figure, percent, some
from lumisite.validate.lines import State
from lumisite.validate.report.advice import advice
from lumisite.validate.report.gather import Report
from lumisite.validate.report.plots import Plot, lead, plots
from lumisite.validate.verdict.gates import LOOK, Cause
from lumisite.validate.verdict.metric import DECIDING, MetricVerdict
from lumisite.validate.verdict.system import SystemVerdict

#: What is told first.
WORST_FIRST: tuple[State, ...] = ("fail", "bad-nodes", "unconfirmed", "inconclusive", "warn", "pass")
METRIC_HEAD = ("metric", "unit", "before", "after", "change", "noise", "p", "verdict", "why")
Row: TypeAlias = tuple[str, ...]
#: What Markdown or HTML would take for more than text.
_SPECIAL = "\\`*_{}[]<>|#~&"
#: States that are a `failure` in JUnit, and those that are an `error`: a skipped test looks like a passed one.
FAILED = ("fail", "bad-nodes")
OPEN = ("inconclusive", "unconfirmed")
_ILLEGAL = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class Block:
    """Steps in their order, lines to be copied as they are, a table, notes, or the place of plots.

    The `lines` of a table are what a terminal prints instead, where columns would be too wide for it.
    """

    kind: Literal["steps", "verbatim", "table", "plots", "notes"]
    title: str
    lines: Sequence[str] = ()
    caption: str = ""
    head: Row = ()
    rows: Sequence[Row] = ()


def report_blocks(report: Report) -> Iterator[Block]:
    """Give what there is below the headline: what to do, what failed, what changed, then the rest."""
    verdict = report.verdict
    if report.advice:
        yield Block("steps", "What to do", report.advice)
    if verdict.drain:
        yield Block("verbatim", "To drain bad nodes (nothing runs it)", (verdict.drain,))
    judged = list(verdict_blocks(verdict))
    bad = [block for block in judged if _worst(block) < len(WORST_FIRST) - 1]
    yield from sorted(bad, key=_worst)
    if report.changes:
        yield _changes(report)
    yield from (block for block in judged if block not in bad)
    if report.scalings:
        yield _scalings(report)
    if report.about:
        sides = [(name, old or "-", new or "-") for name, old, new in report.about]
        yield Block("table", "What was run", (), "The runs", ("", "before", "after"), sides)
    yield Block("plots", "Plots")
    if report.users:
        yield Block("verbatim", "To send to users, when you have read it", report.users)
    if verdict.notes:
        yield Block("notes", "Notes", verdict.notes)


def _worst(block: Block) -> int:
    """Give the place of the worst state in a table; causes and slow nodes are there only where something failed."""
    if block.title in ("Causes", "Slow nodes"):
        return 0
    return min(
        (WORST_FIRST.index(cell) for row in block.rows for cell in row if cell in WORST_FIRST), default=len(WORST_FIRST)
    )


def verdict_blocks(verdict: SystemVerdict) -> Iterator[Block]:
    """Give what was judged: gates, metrics, nodes; in each table what is worst comes first."""
    if verdict.gates:
        gates = sorted(verdict.gates, key=lambda gate: (bool(gate.follows), WORST_FIRST.index(gate.verdict)))
        rows = [(gate.gate, gate.verdict + " (follows)" * bool(gate.follows), gate.reason) for gate in gates]
        yield Block("table", "Gates", (), "Hard gates after the change", ("gate", "verdict", "why"), rows)
    # First what is at fault, then what follows from it.
    told = [
        (gate.gate, one)
        for follows in (False, True)
        for gate in verdict.gates
        for one in gate.causes
        if bool(one.follows) == follows
    ]
    if told:
        causes = [(gate, one.cause, _to_do(one), ", ".join(one.nodes)) for gate, one in told]
        lines = [
            line
            for gate, one in told
            for line in (f"  {gate}: {one.cause} ({','.join(one.nodes)})", f"    {_to_do(one)}")
        ]
        yield Block("table", "Causes", lines, "What gates found", ("gate", "cause", "what to do", "nodes"), causes)
    if verdict.metrics:
        caption = "Metrics before and after; in brackets the jobs that decided, of how many"
        metrics = sorted(verdict.metrics, key=lambda one: (not one.decides, WORST_FIRST.index(one.verdict)))
        head, *numbers = _said([METRIC_HEAD, *map(_metric_row, metrics)])
        yield Block("table", "Metrics", (), caption, head, numbers)
    if verdict.slow_nodes:
        slow = [(one.node, one.metric, percent(one.below), f"{one.z:.1f}") for one in verdict.slow_nodes]
        lines = [f"  {node}: {metric} {below} below the median of all nodes (z {z})" for node, metric, below, z in slow]
        lines = ["slow nodes (measure them once more, then drain):", *lines]
        head = ("node", "metric", "below the median", "z")
        yield Block("table", "Slow nodes", lines, "Nodes that are slower than the others", head, slow)


def _to_do(cause: Cause) -> str:
    return f"nothing: it follows from {', '.join(cause.follows)}" if cause.follows else cause.advice or LOOK


def _changes(report: Report) -> Block:
    lines = ["what changed on the machine"]
    for one in report.changes:
        lines += [f"  {one.what}", *(f"    {touched}" for touched in one.touches)]
    rows = [(one.what, "; ".join(one.touches) or "-") for one in report.changes]
    caption = "Changes of the node, and what they touch"
    return Block("table", "What changed on the machine", lines, caption, ("change", "touches"), rows)


def _scalings(report: Report) -> Block:
    rows = [
        (
            *(scaling.name, bar.shape, figure(bar.before), figure(bar.after)),
            *("-" if part is None else percent(part, 0) for part in (bar.efficiency_before, bar.efficiency_after)),
        )
        for scaling in report.scalings
        for bar in scaling.bars
    ]
    head, *rows = _said([("rate", "shape", "before", "after", "efficiency before", "efficiency after"), *rows])
    return Block("table", "Scaling", (), "Rates by shape; efficiency against as many single nodes", head, rows)


def _said(rows: Sequence[Row]) -> list[Row]:
    """Leave out columns that say nothing below their head, as those of a baseline where there is none."""
    kept = [number for number, cells in enumerate(zip(*rows, strict=True)) if {*cells[1:]} != {"-"}]
    return [tuple(row[number] for number in kept) for row in rows]


def _metric_row(metric: MetricVerdict) -> Row:
    before, after = "-", "-"
    if metric.before is not None:
        before = f"{figure(metric.before)} ({metric.jobs_before})"
    if metric.after is not None:
        of = f" of {metric.jobs_after}" if metric.jobs_after > DECIDING else ""
        after = f"{figure(metric.after)} ({min(metric.jobs_after, DECIDING)}{of})"
    noise = chance = "-"
    if metric.change is not None and metric.noise is not None:
        noise, chance = percent(metric.noise), f"{metric.p:.2g}"
    state = metric.verdict if metric.decides else f"{metric.verdict} (shown only)"
    return metric.metric, metric.unit or "-", before, after, change(metric.change), noise, chance, state, metric.reason


def _text(report: Report) -> str:
    return "\n".join([report.headline, "; ".join(report.summary), *block_lines(report_blocks(report))]) + "\n"


def verdict_text(verdict: SystemVerdict) -> Iterator[str]:
    """Write the verdict, line by line: gates, metrics, nodes, what to run next, and what it stands on."""
    yield verdict.verdict.upper()
    yield from block_lines(verdict_blocks(verdict))
    if verdict.drain:
        yield "" if not verdict.slow_nodes else "  to drain them:"
        yield f"  {verdict.drain}"
    if verdict.verdict == "fail":
        yield from block_lines([Block("steps", "What to do", tuple(advice(verdict, ())))])
    elif verdict.next_runs:
        yield from ("", *verdict.next_runs)
    if verdict.notes:
        yield from ("", *(f"note: {text}" for text in verdict.notes))


def block_lines(blocks: Iterable[Block]) -> Iterator[str]:
    """Write blocks for a terminal."""
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


def html_page(
    title: str, state: State, summary: Sequence[str], blocks: Iterable[Block], plots: Sequence[Plot], lead: Plot | None
) -> str:
    """Write one HTML page; `lead` is that of the plots which shows the finding. Without matplotlib it has none."""
    drawn = {"plots": plots, "lead": lead} if find_spec("matplotlib") else {"plots": None, "lead": None}
    return _page("report.html.j2", title, summary, blocks, state=state, **drawn)


def _page(name: str, title: str, summary: Sequence[str], blocks: Iterable[Block], **values: object) -> str:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("lumisite.validate.report", "."),
        autoescape=name.endswith(".html.j2"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=not name.endswith(".html.j2"),
    )
    environment.filters["markdown"] = escaped
    values |= {"title": title, "summary": summary, "blocks": tuple(blocks), "states": get_args(State)}
    return environment.get_template(name).render(values)


def _markdown(report: Report) -> str:
    return _page("report.md.j2", report.headline, report.summary, report_blocks(report))


def _html(report: Report) -> str:
    drawn, verdict = plots(report), report.verdict.verdict
    blocks = report_blocks(report)
    return html_page(report.headline, verdict, report.summary, blocks, drawn, lead(report, drawn))


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
        sides = (("before", metric.before), ("after", metric.after))
        details = [f"{key} {figure(value)}" for key, value in sides if value]
        _add_case(metrics, metric.metric, metric.verdict, metric.reason, details, decides=metric.decides)
    for slow in verdict.slow_nodes:
        reason = f"{percent(slow.below)} below the median of all nodes (z {slow.z:.1f})"
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


#: The forms of a report; HTML has no plots where matplotlib is not installed.
WRITERS: dict[str, Callable[[Report], str]] = {
    "text": _text,
    "markdown": _markdown,
    "html": _html,
    "junit": _junit,
    "json": lambda report: json.dumps(asdict(report), indent=2) + "\n",
}
