"""Judge the high-speed interfaces of each node: alone, against the other nodes, and by errors during the step."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TypeAlias

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


#: How many nodes have which text, by interface and key; the network of its addresses is a key too.
_Counts: TypeAlias = "Mapping[tuple[str, str], Counter[str]]"


def judge_interfaces(
    records: Mapping[str, Record], exchanged: Mapping[str, Record], names: Sequence[str]
) -> Iterator[Located]:
    """Yield what is wrong with interfaces; those of one node that are so in the same way are one finding.

    `exchanged` are the records left after nodes had sent each other data.
    """
    counts = {
        (name, key): Counter(_value(record, name, key) for record in records.values())
        for name in names
        for key in ("addresses", "speed", "mtu", "network")
    }
    errors = dict(_errors(records, exchanged, names))
    for node, record in records.items():
        alike: dict[tuple[str, str], list[str]] = {}
        for name in names:
            fault = _fault(counts, record, name, names) or _other_network(counts, record, name, names)
            if (fault := fault or errors.get((node, name))) is not None:
                alike.setdefault(fault, []).append(name)
        for (message, advice), bad in alike.items():
            found = Finding("node-interface", Severity.NODE, message, f"{advice}{DRAIN}", subject=", ".join(bad))
            yield Located(found, node)


def _value(record: Record, name: str, key: str) -> str:
    """Return the text of a key of an interface, or the networks of its addresses."""
    if key != "network":
        return text(record, "interfaces", name, key)
    networks: list[str] = []
    for word in text(record, "interfaces", name, "addresses").split():
        with suppress(ValueError):
            networks.append(str(ipaddress.ip_interface(word).network))
    return " ".join(sorted(networks))


def _fault(counts: _Counts, record: Record, name: str, names: Sequence[str]) -> tuple[str, str] | None:
    """Return what is wrong and what to do: the state, then an address, then speed and MTU."""
    state = text(record, "interfaces", name, "state")
    if state not in ("up", "unknown"):
        return (f"interface is {state}" if state else "interface is missing"), HARDWARE
    addressed = any(any(counts[each, "addresses"]) for each in names)
    if addressed and value_at(record, "interfaces", name, "addresses") == "":
        return "interface has no address", "configure the address (`ip address`)"
    for key, title, unit in (("speed", "speed", "Mb/s"), ("mtu", "MTU", "bytes")):
        found, same = _value(record, name, key), counts[name, key]
        # Where nodes do not agree on one interface, those of all tell.
        most = more_than_half(same) or more_than_half(sum((counts[each, key] for each in names), Counter[str]()))
        is_known = None not in (count_in(found), count_in(most or ""))
        if is_known and found != most and most in same:
            return f"{title} is {found} {unit}, on the other nodes {most} {unit}", HARDWARE
    return None


def _other_network(counts: _Counts, record: Record, name: str, names: Sequence[str]) -> tuple[str, str] | None:
    """Return the fault of an interface with an address of another network than on all other nodes.

    Where nodes are in several networks, only that of another interface is a fault.
    """
    usual = {each: more_than_half(counts[each, "network"]) for each in names}
    found, expected = _value(record, name, "network"), usual[name]
    if not found or not expected or found == expected:
        return None
    owner = next((other for other, network in usual.items() if network == found), None)
    if not owner and counts[name, "network"][expected] < counts[name, "network"].total() - 1:
        return None
    named = f": that is the network of {owner}, so names or cables are swapped" if owner else ""
    return f"address is in {found}, on the other nodes in {expected}{named}", ADDRESSING


def _errors(
    records: Mapping[str, Record], exchanged: Mapping[str, Record], names: Sequence[str]
) -> Iterator[tuple[tuple[str, str], tuple[str, str]]]:
    """Yield node and interface, with the fault, of errors during the step that stand out from all other nodes."""
    if len(records) < 2:
        return
    for counter, least in LEAST_ERRORS.items():
        rises = {
            node: {name: _rise(record, exchanged.get(node), name, counter) for name in names}
            for node, record in records.items()
        }
        node, second = sorted(rises, key=lambda each: -max(rises[each].values(), default=0))[:2]
        most = max(rises[second].values(), default=0)
        for name, rise in rises[node].items():
            if rise >= max(least, TIMES * most):
                message = f"{counter} rose by {rise} during the step, on no other node by more than {most}"
                yield (node, name), (message, HARDWARE)


def _rise(record: Record, exchanged: Record | None, name: str, counter: str) -> int:
    """Return by how much a counter of an interface rose during the step."""
    before, after = table(record, "interfaces", name, "counters"), table(exchanged, "counters", name)
    return max(0, whole(after, counter) - whole(before, counter)) if counter in before and counter in after else 0
