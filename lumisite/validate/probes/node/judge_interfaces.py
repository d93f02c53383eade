"""Judge the high-speed interfaces of each node: alone, against the other nodes, and by errors during the step."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

from lumisite.findings.finding import Finding, Severity
from lumisite.validate.probes.outcome import DRAIN, Located
from lumisite.validate.probes.probe import Record
from lumisite.validate.probes.records import count_in, more_than_half, table, text, value_at, whole

#: Errors that were counted while nodes sent each other data: what is counted since a node was started may be old. So
#: many stand out, and so many times what any other node has.
LEAST_ERRORS = {"rx_errors": 20, "tx_errors": 20, "carrier_changes": 2}
TIMES = 10
HARDWARE = "look at cable, switch port and driver (`ip -s -s link show`, dmesg)"
ADDRESSING = "correct the address and the name of the interface (`ip address`)"


@dataclass(frozen=True)
class _Interfaces:
    """The interfaces of all nodes of a job. `exchanged` are the records left after nodes had sent each other data."""

    records: Mapping[str, Record]
    exchanged: Mapping[str, Record]
    names: Sequence[str]

    @cached_property
    def counts(self) -> Mapping[tuple[str, str], Counter[str]]:
        """How many nodes have which text, by interface and key; the network of its addresses is a key too."""
        found: dict[tuple[str, str], Counter[str]] = {}
        for name in self.names:
            for key in ("addresses", "speed", "mtu"):
                found[name, key] = Counter(text(each, "interfaces", name, key) for each in self.records.values())
            found[name, "network"] = Counter(_network(record, name) for record in self.records.values())
        return found

    @cached_property
    def rises(self) -> Mapping[str, Mapping[tuple[str, str], int]]:
        """By how much each counter rose during the step, by node and interface."""
        return {
            counter: {(node, name): self._rise(counter, node, name) for node in self.records for name in self.names}
            for counter in LEAST_ERRORS
        }

    def _rise(self, counter: str, node: str, name: str) -> int:
        before = table(self.records[node], "interfaces", name, "counters")
        after = table(self.exchanged.get(node), "counters", name)
        return max(0, whole(after, counter) - whole(before, counter)) if counter in before and counter in after else 0


def judge_interfaces(
    records: Mapping[str, Record], exchanged: Mapping[str, Record], names: Sequence[str]
) -> Iterator[Located]:
    """Yield what is wrong with interfaces; those of one node that are so in the same way are one finding."""
    interfaces = _Interfaces(records, exchanged, names)
    errors = dict(_errors(interfaces))
    for node, record in records.items():
        alike: dict[tuple[str, str], list[str]] = {}
        for name in names:
            fault = _fault(interfaces, record, name) or _other_network(interfaces, record, name)
            if (fault := fault or errors.get((node, name))) is not None:
                alike.setdefault(fault, []).append(name)
        for (message, advice), bad in alike.items():
            advice = f"{advice}{DRAIN}"
            found = Finding("node-interface", Severity.NODE, message, advice, subject=", ".join(bad))
            yield Located(found, node)


def _fault(interfaces: _Interfaces, record: Record, name: str) -> tuple[str, str] | None:
    """Return what is wrong and what to do: the state, then an address, then speed and MTU."""
    state = text(record, "interfaces", name, "state")
    if state not in ("up", "unknown"):
        return (f"interface is {state}" if state else "interface is missing"), HARDWARE
    addressed = any(any(interfaces.counts[each, "addresses"]) for each in interfaces.names)
    if addressed and value_at(record, "interfaces", name, "addresses") == "":
        return "interface has no address", "configure the address (`ip address`)"
    for key, title, unit in (("speed", "speed", "Mb/s"), ("mtu", "MTU", "bytes")):
        found, same = text(record, "interfaces", name, key), interfaces.counts[name, key]
        # Where nodes do not agree on one interface, those of all tell.
        most = more_than_half(same) or more_than_half(
            sum((interfaces.counts[each, key] for each in interfaces.names), Counter[str]())
        )
        is_known = None not in (count_in(found), count_in(most or ""))
        if is_known and found != most and most in same:
            return f"{title} is {found} {unit}, on the other nodes {most} {unit}", HARDWARE
    return None


def _network(record: Record, name: str) -> str:
    """Return the networks of an interface's addresses, empty where it has none."""
    networks: list[str] = []
    for word in text(record, "interfaces", name, "addresses").split():
        with suppress(ValueError):
            networks.append(str(ipaddress.ip_interface(word).network))
    return " ".join(sorted(networks))


def _other_network(interfaces: _Interfaces, record: Record, name: str) -> tuple[str, str] | None:
    """Return the fault of an interface with an address of another network than on all other nodes.

    Where nodes are in several networks, only that of another interface is a fault.
    """
    usual = {each: more_than_half(interfaces.counts[each, "network"]) for each in interfaces.names}
    found, expected = _network(record, name), usual[name]
    if not found or not expected or found == expected:
        return None
    owner = next((other for other, network in usual.items() if network == found), None)
    if not owner and interfaces.counts[name, "network"][expected] < len(interfaces.records) - 1:
        return None
    named = f": that is the network of {owner}, so names or cables are swapped" if owner else ""
    return f"address is in {found}, on the other nodes in {expected}{named}", ADDRESSING


def _errors(interfaces: _Interfaces) -> Iterator[tuple[tuple[str, str], tuple[str, str]]]:
    """Yield node and interface, with the fault, of errors during the step that stand out from all other nodes."""
    if len(interfaces.records) < 2:
        return
    names = interfaces.names
    for counter, least in LEAST_ERRORS.items():
        rises = interfaces.rises[counter]
        largest = {
            node: max((rises[node, name] for name in interfaces.names), default=0) for node in interfaces.records
        }
        node, *others = sorted(largest, key=lambda each: -largest[each])
        most = largest[others[0]]
        for name in names:
            if rises[node, name] >= max(least, TIMES * most):
                message = f"{counter} rose by {rises[node, name]} during the step, on no other node by more than {most}"
                yield (node, name), (message, HARDWARE)
