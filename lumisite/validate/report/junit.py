"""Write a report as JUnit XML, for CI: a test case for each gate, metric and slow node.

What failed is a `failure`; what is not decided is an `error`, because a skipped test looks like a passed one; what is
shown only, and so cannot fail, is `skipped` where it did not pass. There is so little of it that the standard library's
XML does, without a package of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from xml.etree import ElementTree

from lumisite.validate.report.gather import Report
from lumisite.validate.report.words import some
from lumisite.validate.verdict.gates import GateVerdict
from lumisite.validate.verdict.metric import MetricVerdict
from lumisite.validate.verdict.system import SystemVerdict

FAILED = ("fail", "bad-nodes")
OPEN = ("inconclusive", "unconfirmed")
_ILLEGAL = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def report_junit(report: Report) -> str:
    """Write the report as one XML document."""
    suites = [
        _suite("gates", list(_gates(report.verdict.gates))),
        _suite("metrics", list(_metrics(report.verdict.metrics))),
        _suite("nodes", list(_nodes(report.verdict))),
    ]
    root = ElementTree.Element("testsuites", name="lumisite")
    root.extend(suites)
    for count in ("tests", "failures", "errors"):
        root.set(count, str(sum(int(suite.get(count, "0")) for suite in suites)))
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'


def _suite(name: str, cases: Sequence[ElementTree.Element]) -> ElementTree.Element:
    suite = ElementTree.Element("testsuite", name=name, tests=str(len(cases)))
    for count, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(count, str(sum(case.find(tag) is not None for case in cases)))
    suite.set("time", "0")
    suite.extend(cases)
    return suite


def _case(
    kind: str, name: str, state: str, reason: str, details: Sequence[str], *, decides: bool = True
) -> ElementTree.Element:
    case = ElementTree.Element("testcase", classname=f"lumisite.{kind}", name=_legal(name), time="0")
    if state not in (*FAILED, *OPEN):
        ElementTree.SubElement(case, "system-out").text = _legal("\n".join([f"{state}: {reason}", *details]))
    elif not decides:
        ElementTree.SubElement(case, "skipped", message=_legal(f"shown only: {reason}"))
    else:
        tag = "failure" if state in FAILED else "error"
        ElementTree.SubElement(case, tag, type=state, message=_legal(reason)).text = _legal("\n".join(details))
    return case


def _gates(gates: Sequence[GateVerdict]) -> Iterator[ElementTree.Element]:
    for gate in gates:
        details = [f"{one.cause} ({some(one.nodes)}){': ' if one.advice else ''}{one.advice}" for one in gate.causes]
        yield _case("gates", gate.gate, gate.verdict, gate.reason, details)


def _metrics(metrics: Sequence[MetricVerdict]) -> Iterator[ElementTree.Element]:
    for metric in metrics:
        details = [f"{key} {value}" for key, value in (("before", metric.before), ("after", metric.after)) if value]
        yield _case("metrics", metric.metric, metric.verdict, metric.reason, details, decides=metric.decides)


def _nodes(verdict: SystemVerdict) -> Iterator[ElementTree.Element]:
    for slow in verdict.slow_nodes:
        reason = f"{slow.below:.1%} below the median of all nodes (z {slow.z:.1f})"
        details = [verdict.drain or ""]
        yield _case("nodes", f"{slow.node} {slow.metric}", "bad-nodes", reason, details)


def _legal(text: str) -> str:
    """Replace what XML 1.0 cannot hold."""
    return _ILLEGAL.sub("?", text)
