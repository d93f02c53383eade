"""Judge what the links of nodes counted during a step (job/lumisite_links.py): one that stands out is a finding.

Counters of losses grow a little on healthy machines, so only what one node has, and no other anything like it, counts.
All that has grown is kept beside the numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from lumisite.findings.catalogue import make_finding
from lumisite.findings.finding import Finding, Severity
from lumisite.validate.lines import Gate
from lumisite.validate.probes.probe import Ended, Expected, Judge, Line, Record, Vector
from lumisite.validate.probes.records import number, rows, table, text, whole

#: The gate of these findings.
LINKS = "links"
#: The part of a record that has TCP's counters as a whole.
TCP = "tcp"
#: A counter of losses stands out that has grown by so much, and by so many times what it has on any other node.
LEAST_LOSSES, TIMES = 20, 10
#: A drop counts as such a part of the packets; kernels drop what nobody has asked for.
LEAST_DROPPED = 1e-4
#: A link that went down in a step does not do so by itself.
FLAPS = "carrier_changes"
#: Segments that TCP has sent again stand out from so many on, from this part of all, and if it is so many times that of
#: any other connection; of fewer segments that were sent, the part is noise.
LEAST_RESENT, LEAST_RESENT_PART, TIMES_PART, LEAST_SENT = 100, 5e-3, 5, 10_000
#: So many tell of a link on which little was sent.
LEAST_ELSEWHERE = 3

Counters = Mapping[str, Mapping[str, int]]


def with_links(judge: Judge) -> Judge:
    """Return a judge that looks at the links beside what it judges, in the first step."""

    def judged(steps: Sequence[Ended], expected: Expected) -> Sequence[Line]:
        return [*judge(steps, expected), *link_lines(steps[0].records, expected)]

    return judged


def link_lines(records: Iterable[Record], expected: Expected) -> list[Line]:
    """Return what has grown on each node, and a gate line for each link that stands out."""
    every = [record for record in records if text(record, "host") in expected.nodes]
    grown = {text(record, "host"): _counters(record) for record in every if table(record, "links")}
    job = replace(expected, probe=LINKS)
    found = [*_losses(grown), *_resent(_edges(every))] if len(expected.nodes) > 1 else []
    # A link that loses packets has them sent again: the counters come first.
    first: dict[tuple[str, ...], Finding] = {}
    for finding in found:
        first.setdefault(finding.nodes, finding)
    lines: list[Gate] = [job.gate(finding) for finding in first.values()]
    return [*_vectors(grown, expected), *lines]


def _counters(record: Record) -> Counters:
    links = table(record, "links")
    return {name: {counter: whole(links, name, counter) for counter in table(links, name)} for name in links}


def _vectors(grown: Mapping[str, Counters], expected: Expected) -> Iterator[Vector]:
    for host, counters in grown.items():
        for name, counter, value in _all_losses(counters):
            series = f"{expected.probe}/links/{name}_{counter}/{expected.label}"
            yield Vector(series, expected.run, (host,), 0, (float(value),), "")


def _all_losses(counters: Counters) -> Iterator[tuple[str, str, int]]:
    for name, of_link in counters.items():
        for counter, value in of_link.items():
            if not counter.endswith("_packets") and counter != "OutSegs":
                yield name, counter, value


def _losses(grown: Mapping[str, Counters]) -> Iterator[Finding]:
    """Yield the interfaces and adapters whose errors, drops or flaps stand out from those of all other nodes."""
    for host, counters in grown.items():
        others = [theirs for other, theirs in grown.items() if other != host]
        bad: dict[str, list[str]] = {}
        for name, counter, value in _all_losses(counters):
            most = max((each.get(counter, 0) for theirs in others for each in theirs.values()), default=0)
            packets = counters[name].get(f"{counter[:2]}_packets", 0)
            least = 1 if counter == FLAPS else LEAST_LOSSES
            if re.search("drop|discard", counter):
                least = max(least, round(LEAST_DROPPED * packets))
            if name != TCP and others and value >= least and value >= TIMES * most:
                bad.setdefault(name, []).append(f"{counter} +{value}")
        for name, counted in bad.items():
            yield make_finding("link-errors", name, nodes=(host,), counters=tuple(counted))


# ---- TCP


@dataclass(frozen=True)
class _Edge:
    """What one node has sent to another over one interface, in segments; `resent` are those that were lost.

    A busy node answers late, and TCP sends again what has arrived: such segments are not counted.
    """

    source: str
    target: str
    interface: str
    sent: int
    resent: int

    @property
    def nodes(self) -> frozenset[str]:
        """Its ends."""
        return frozenset((self.source, self.target))

    @property
    def part(self) -> float:
        """The part that was sent again."""
        return self.resent / self.sent if self.sent else 0.0

    @property
    def is_bad(self) -> bool:
        """Whether so much was sent again that the link loses packets."""
        return self.resent >= LEAST_RESENT and self.part >= LEAST_RESENT_PART


def _edges(records: Sequence[Record]) -> list[_Edge]:
    interfaces = {
        address: (text(record, "host"), str(name))
        for record in records
        for address, name in table(record, "addresses").items()
    }
    sums: dict[tuple[str, str, str], list[int]] = {}
    for stream in chain.from_iterable(rows(record, "streams") for record in records):
        source, target = (interfaces.get(text(stream, key)) for key in ("from", "to"))
        if source and target and source[0] != target[0]:
            total = sums.setdefault((source[0], target[0], source[1]), [0, 0])
            sent, resent, twice = (int(number(stream, key) or 0) for key in ("sent", "resent", "got_twice"))
            total[0] += sent
            total[1] += max(0, resent - twice)
    return [_Edge(*ends, *total) for ends, total in sums.items()]


def _resent(edges: Sequence[_Edge]) -> Iterator[Finding]:
    """Yield the node on whose link packets are lost: all bad edges have it as an end.

    Of two such nodes it is the one that loses some of the little that it has with others. Else it may be either.
    """
    bad = [edge for edge in edges if edge.is_bad]
    ends = sorted(frozenset.intersection(*(edge.nodes for edge in bad))) if bad else []
    # The way back of one connection tells of the same time; other ways of its ends may suffer from the same fault.
    quiet = [edge for edge in edges if edge not in bad and (not edge.nodes & {*ends} or edge.nodes == {*ends})]
    rest = max((edge.part for edge in quiet if edge.sent >= LEAST_SENT), default=0.0)
    sent, resent = sum(edge.sent for edge in bad), sum(edge.resent for edge in bad)
    if not ends or resent < TIMES_PART * rest * sent:
        return
    elsewhere = [edge for edge in edges if edge not in bad and edge.nodes != {*ends}]
    lost = {node: sum(edge.resent for edge in elsewhere if node in edge.nodes) for node in ends}
    for node in ends if len(ends) > 1 else ():
        if lost[node] >= LEAST_ELSEWHERE and all(lost[node] >= 3 * lost[other] for other in ends if other != node):
            ends = [node]
    yield make_finding(
        "link-resends",
        max(bad, key=lambda edge: edge.resent).interface,
        nodes=ends,
        severity=Severity.NODE if len(ends) == 1 else Severity.DOUBT,
        sent=sent,
        resent=resent,
        part=resent / sent,
        rest=rest,
        sources=tuple(sorted({edge.source for edge in bad})),
        targets=tuple(sorted({edge.target for edge in bad})),
        either=", ".join(ends) if len(ends) > 1 else None,
    )
