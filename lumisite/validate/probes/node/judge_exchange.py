"""Judge what nodes sent each other by TCP over each interface (job_exchange.py): which node's connections fail.

A link has two ends, and one that fails may be the fault of either. A node is named whose links with several others
fail, and more than half of those that it has; where fewer nodes than half are so. All else is a doubt about both ends,
or a fault of the network that is between all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from lumisite.findings.finding import Finding, Severity
from lumisite.text import some
from lumisite.validate.probes.outcome import DRAIN, Located
from lumisite.validate.probes.probe import NAMED_NODES, Record
from lumisite.validate.probes.records import rows, text

#: What the step is called.
EXCHANGE = "exchange"
#: Of the packets between two nodes, so many and such a part must have been sent again to count as lost.
LEAST_LOST, LEAST_PART = 3, 0.005
#: A node is named by as many links at least.
SEVERAL = 2
#: What fails, and what to look at, by where a connection was then; `lossy` is one that came to its end.
SYMPTOMS = {
    "connect": (
        "no TCP connection",
        "look at cable, switch port, address and firewall (`iptables -S`, `nft list ruleset`)",
    ),
    "small": ("TCP connections without an answer", "look at cable, switch port and driver"),
    "large": (
        "small packets arrive, full ones are lost",
        "compare the MTU of the interface (`ip link`) and of its switch port, then driver and firewall",
    ),
    "lossy": (
        "packets are lost and sent again",
        "look at cable, switch port and driver (`ip -s -s link show`, `tc -s qdisc`)",
    ),
}
#: Two nodes, in the order of their names.
Pair: TypeAlias = tuple[str, str]


def compare_links(records: Iterable[Record], nodes: Iterable[str], spared: Iterable[str] = ()) -> Iterator[Located]:
    """Yield what is wrong with the links of nodes; links of `spared` nodes, which have a finding, tell nothing."""
    # Interfaces that fail alike, on the same nodes, are one finding.
    alike: dict[tuple[Severity, str, tuple[str, ...], str], list[str]] = {}
    for interface, links in sorted(_links(records, {*nodes} - {*spared}).items()):
        for fault in _faults(links):
            alike.setdefault(fault, []).append(interface)
    for (severity, symptom, named, message), interfaces in alike.items():
        advice = SYMPTOMS[symptom][1] + (DRAIN if severity is Severity.NODE else "")
        finding = Finding("node-link", severity, message, advice, subject=", ".join(interfaces))
        yield from (Located(finding, name) for name in named)


def _links(records: Iterable[Record], known: set[str]) -> dict[str, dict[Pair, str]]:
    """Return what is wrong with each link (empty: nothing), by interface and pair of nodes."""
    sent: dict[str, dict[Pair, list[Record]]] = {}
    for record in records:
        for row in rows(record, "sent"):
            first, second = sorted((record["host"], text(row, "to")))
            if {first, second} <= known:
                sent.setdefault(row["interface"], {}).setdefault((first, second), []).append(row)
    return {name: {pair: _symptom(of_link) for pair, of_link in links.items()} for name, links in sent.items()}


def _symptom(sent: Sequence[Record]) -> str:
    """Return what is wrong with both directions of a link, the first of SYMPTOMS, or nothing."""
    failed = {row["at"] for row in sent}
    again, segments = (sum(row.get(key, 0) for row in sent) for key in ("again", "segments"))
    lossy = {"lossy"} if again >= max(LEAST_LOST, LEAST_PART * segments) else set()
    return next((symptom for symptom in SYMPTOMS if symptom in failed | lossy), "")


def _faults(links: Mapping[Pair, str]) -> Iterator[tuple[Severity, str, tuple[str, ...], str]]:
    """Yield severity, symptom, nodes and sentence of each fault of one interface."""
    failing = {pair: symptom for pair, symptom in links.items() if symptom}
    having, lacking = (Counter(node for pair in pairs for node in pair) for pairs in (links, failing))
    bad = {node for node, count in lacking.items() if count >= SEVERAL and 2 * count > having[node]}
    if bad and 2 * len(bad) >= len(having):
        symptom = _usual(failing.values())
        yield Severity.FAULT, symptom, tuple(sorted(having)), f"{SYMPTOMS[symptom][0]} between most nodes"
        return
    for node in sorted(bad):
        symptom = _usual(symptom for pair, symptom in failing.items() if node in pair)
        others = sorted({other for pair in failing if node in pair for other in pair} - {node})
        names = some(others, NAMED_NODES, ", ")
        message = f"{SYMPTOMS[symptom][0]}, with {len(others)} of {having[node]} nodes ({names})"
        yield Severity.NODE, symptom, (node,), message
    for pair, symptom in failing.items():
        if bad.isdisjoint(pair):
            message = f"{SYMPTOMS[symptom][0]} between {pair[0]} and {pair[1]}: one of them is at fault"
            yield Severity.DOUBT, symptom, pair, message


def _usual(symptoms: Iterable[str]) -> str:
    """Return the symptom that most links have; of several the first of SYMPTOMS."""
    counts = Counter(symptoms)
    return max(SYMPTOMS, key=lambda symptom: counts[symptom])
