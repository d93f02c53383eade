"""Write a report as JUnit XML, for CI: a test case for each gate, metric and slow node.

What failed is a `failure`; what is not decided is an `error`, because a skipped test looks like a passed one; what is
shown only, and so cannot fail, is `skipped` where it did not pass. There is so little of it that the standard library's
XML does, without a package of its own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree

from lumisite.validate.report.gather import Report
from lumisite.validate.report.words import some
from lumisite.validate.verdict.gates import GateVerdict
from lumisite.validate.verdict.metric import MetricVerdict
from lumisite.validate.verdict.nodes import SlowNode

FAILED = ("fail", "bad-nodes")
OPEN = ("inconclusive", "unconfirmed")
_ILLEGAL = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def report_junit(report: Report) -> str:
    """Write the report as one XML document."""
    verdict = report.verdict
    root = ElementTree.Element("testsuites", name="lumisite")
    for name, cases in (
        ("gates", [_gate(gate) for gate in verdict.gates]),
        ("metrics", [_metric(metric) for metric in verdict.metrics]),
        ("nodes", [_node(slow, verdict.drain) for slow in verdict.slow_nodes]),
    ):
        suite = ElementTree.SubElement(root, "testsuite", name=name, tests=str(len(cases)))
        for count, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            suite.set(count, str(sum(case.find(tag) is not None for case in cases)))
        suite.set("time", "0")
        suite.extend(cases)
    for count in ("tests", "failures", "errors"):
        root.set(count, str(sum(int(suite.get(count, "0")) for suite in root)))
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'


def _gate(gate: GateVerdict) -> ElementTree.Element:
    details = [f"{one.cause} ({some(one.nodes)}){': ' if one.advice else ''}{one.advice}" for one in gate.causes]
    return _case("gates", gate.gate, gate.verdict, gate.reason, details)


def _metric(metric: MetricVerdict) -> ElementTree.Element:
    details = [f"{key} {value}" for key, value in (("before", metric.before), ("after", metric.after)) if value]
    return _case("metrics", metric.metric, metric.verdict, metric.reason, details, decides=metric.decides)


def _node(slow: SlowNode, drain: str | None) -> ElementTree.Element:
    reason = f"{slow.below:.1%} below the median of all nodes (z {slow.z:.1f})"
    return _case("nodes", f"{slow.node} {slow.metric}", "bad-nodes", reason, [drain or ""])


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


def _legal(text: str) -> str:
    """Replace what XML 1.0 cannot hold."""
    return _ILLEGAL.sub("?", text)
