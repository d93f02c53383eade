"""Judge the high-speed interfaces of each node: alone, against the other nodes, and by errors during the step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from lumisite.findings.finding import Finding, Severity
from lumisite.validate.probes.node.judge_readings import HARDWARE, compare, interface_readings
from lumisite.validate.probes.outcome import DRAIN, Located
from lumisite.validate.probes.probe import Record
from lumisite.validate.probes.records import table, text, value_at

#: Errors that were counted while nodes sent each other data: what is counted since a node was started may be old. So
#: many stand out, and so many times what any other node has.
LEAST_ERRORS = {"rx_errors": 20, "tx_errors": 20, "carrier_changes": 2}
TIMES = 10


def judge_interfaces(
    records: Mapping[str, Record], exchanged: Mapping[str, Record], names: Sequence[str]
) -> Iterator[Located]:
    """Yield what is wrong with interfaces; those of one node that are so in the same way are one finding.

    `exchanged` are the records left after nodes had sent each other data.
    """
    located = [*_unfit(records, names)]
    located += compare(records, interface_readings(names), located)
    known = {(each.node, each.finding.subject) for each in located}
    located += (each for each in _errors(records, exchanged, names) if (each.node, each.finding.subject) not in known)
    alike: dict[Located, list[str]] = {}
    for each in sorted(located, key=lambda each: names.index(each.finding.subject)):
        alike.setdefault(replace(each, finding=replace(each.finding, subject="")), []).append(each.finding.subject)
    for each, bad in alike.items():
        yield replace(each, finding=replace(each.finding, subject=", ".join(bad)))


def _finding(name: str, message: str, advice: str = HARDWARE) -> Finding:
    return Finding("node-interface", Severity.NODE, message, f"{advice}{DRAIN}", subject=name)


def _unfit(records: Mapping[str, Record], names: Sequence[str]) -> Iterator[Located]:
    """Yield the interfaces that are not up, or have no address where any has one."""
    addressed = any(text(record, "interfaces", name, "addresses") for record in records.values() for name in names)
    for node, record in records.items():
        for name in names:
            state = text(record, "interfaces", name, "state")
            if state not in ("up", "unknown"):
                yield Located(_finding(name, f"interface is {state or 'missing'}"), node)
            elif addressed and value_at(record, "interfaces", name, "addresses") == "":
                yield Located(_finding(name, "interface has no address", "configure the address (`ip address`)"), node)


def _errors(records: Mapping[str, Record], exchanged: Mapping[str, Record], names: Sequence[str]) -> Iterator[Located]:
    """Yield the errors during the step that stand out from all other nodes."""
    if len(exchanged) < 2:
        return
    for counter, least in LEAST_ERRORS.items():
        rises = {
            node: {name: _rise(records.get(node, {}), after, name, counter) for name in names}
            for node, after in exchanged.items()
        }
        node, second = sorted(rises, key=lambda each: -max(rises[each].values(), default=0))[:2]
        most = max(rises[second].values(), default=0)
        for name, rise in rises[node].items():
            if rise >= max(least, TIMES * most):
                message = f"{counter} rose by {rise} during the step, on no other node by more than {most}"
                yield Located(_finding(name, message), node)


def _rise(before: Record, after: Record, name: str, counter: str) -> int:
    """Return by how much a counter of an interface rose during the step."""
    first, last = table(before, "interfaces", name, "counters"), table(after, "counters", name)
    return last[counter] - first[counter] if counter in first and counter in last else 0
