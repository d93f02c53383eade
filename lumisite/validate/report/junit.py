"""Write a report as JUnit XML, for CI: a test case for each gate, metric and slow node.

What failed is a `failure`; what is not decided is an `error`, because a skipped test looks like a passed one; what is
shown only, and so cannot fail, is `skipped` where it did not pass.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from lumisite.validate.report.gather import Report
from lumisite.validate.verdict.nodes import some

FAILED = ("fail", "bad-nodes")
OPEN = ("inconclusive", "unconfirmed")
_ILLEGAL = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def report_junit(report: Report) -> str:
    """Write the report as one XML document."""
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
