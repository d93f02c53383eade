"""Judge who nodes are: host name, addresses, what names lead to, and who answers there, against all records of a job.

What all nodes have alike is how a site does it, whatever it is: only what differs from more than half of them is wrong.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from lumisite.findings.catalogue import make_finding
from lumisite.findings.finding import with_values
from lumisite.validate.probes.outcome import Located
from lumisite.validate.probes.probe import Record
from lumisite.validate.probes.records import text, texts


class LeadsTo(IntEnum):
    """What a name leads to, from worst to best."""

    OTHER_NODE = 0
    NOTHING = 1
    UNKNOWN = 2
    LOOPBACK = 3
    OTHER_INTERFACE = 4
    RIGHT = 5


@dataclass(frozen=True)
class Lookup:
    """What `asker` got for a name of `node`: its plain name, or that of one `interface`. `holder` is who has it."""

    asker: str
    name: str
    node: str
    interface: str
    addresses: tuple[str, ...]
    target: LeadsTo
    holder: str = ""

    @property
    def kind(self) -> tuple[str, bool]:
        """What it is compared with: a node often knows its own name in another way than those of others."""
        return self.interface, self.asker == self.node


#: How much of an address of hardware tells it: of InfiniBand's 20 bytes the GUID at their end, of others all.
MAC_LETTERS = 23
#: Addresses by node, and the interfaces there that have them.
Holders = Mapping[str, Mapping[str, frozenset[str]]]


def identities(
    records: Mapping[str, Record], interfaces: Sequence[str], management: Sequence[str], faulty: Iterable[str]
) -> Iterator[Located]:
    """Yield the nodes that are not who they should be; of `faulty` nodes, interfaces without address are known."""
    holders = _holders(records)
    known = {*faulty}
    for node, name in _wrong_names(records):
        known.add(node)
        yield Located(make_finding("host-name-differs", found=name), node)
    lookups = [*_lookups(records, interfaces, holders)]
    for address, interface, nodes in _claimed_twice(holders, (*interfaces, *management)):
        known.update(nodes)
        # Whose it is by name; where that says nothing, it may be either's.
        owners = {lookup.node for lookup in lookups if address in lookup.addresses and lookup.node in nodes}
        wrong = sorted({*nodes} - owners) if len(owners) == 1 else sorted(nodes)
        owner = next(iter(owners)) if len(owners) == 1 else None
        found = make_finding("address-twice", address, interface=interface, owner=owner, holders=tuple(sorted(nodes)))
        yield from (Located(found, node) for node in wrong)
    yield from _wrong_lookups([lookup for lookup in lookups if lookup.node not in known])
    yield from _wrong_answers(records, holders, known)


def _wrong_names(records: Mapping[str, Record]) -> Iterator[tuple[str, str]]:
    """Yield nodes whose host name is not Slurm's, where it is on most others, or that have the name of another."""
    names = {node: _short(text(record, "identity", "uname")) for node, record in records.items()}
    slurm = {node: _short(node) for node in records}
    right, known = sum(names[node] == slurm[node] for node in records), {*slurm.values()}
    for node, name in names.items():
        if name and name != slurm[node] and (name in known or 2 * right > len(records) - 1):
            yield node, name


def _short(name: str) -> str:
    return name.partition(".")[0].lower()


def _holders(records: Mapping[str, Record]) -> dict[str, dict[str, frozenset[str]]]:
    found: dict[str, dict[str, frozenset[str]]] = defaultdict(dict)
    for node, record in records.items():
        for words in map(str.split, texts(record, "identity", "addresses")):
            if len(words) == 2:
                of_node = found[words[1]]
                of_node[node] = of_node.get(node, frozenset()) | {words[0]}
    return dict(found)


def _claimed_twice(holders: Holders, interfaces: Sequence[str]) -> Iterator[tuple[str, str, list[str]]]:
    """Yield addresses that several nodes have on one of these interfaces; what all of many have is meant to be so."""
    everyone = {node for nodes in holders.values() for node in nodes}
    for address, having in holders.items():
        for interface in interfaces:
            nodes = [node for node, names in having.items() if interface in names]
            if len(nodes) > 1 and (len(nodes) < len(everyone) or len(nodes) == 2):
                yield address, interface, nodes


def _lookups(records: Mapping[str, Record], interfaces: Sequence[str], holders: Holders) -> Iterator[Lookup]:
    having = {node for nodes in holders.values() for node in nodes}
    meant = {node: (node, "") for node in having}
    meant |= {f"{node}-{interface}": (node, interface) for node in having for interface in interfaces}
    for asker, record in records.items():
        for name, *addresses in filter(None, map(str.split, texts(record, "identity", "names"))):
            if name in meant:
                node, interface = meant[name]
                allowed = (interface,) if interface else interfaces
                target, holder = _target(node, allowed, addresses, holders)
                yield Lookup(asker, name, node, interface, tuple(addresses), target, holder)


def _target(node: str, allowed: Sequence[str], addresses: Sequence[str], holders: Holders) -> tuple[LeadsTo, str]:
    """Return what the addresses of a name lead to, and the interface or the other node that has one."""
    if not addresses:
        return LeadsTo.NOTHING, ""
    own = sorted({name for address in addresses for name in holders.get(address, {}).get(node, ())})
    if any(name in allowed for name in own):
        return LeadsTo.RIGHT, ""
    if own:
        return LeadsTo.OTHER_INTERFACE, own[0]
    others = sorted({other for address in addresses for other in holders.get(address, {})})
    if others:
        return LeadsTo.OTHER_NODE, others[0]
    local = all(address.startswith("127.") or address == "::1" for address in addresses)
    return (LeadsTo.LOOPBACK if local else LeadsTo.UNKNOWN), ""


def _wrong_lookups(lookups: Sequence[Lookup]) -> Iterator[Located]:
    """Yield one finding for each node and what names lead to: of who asked, if others get it right, or of the named."""
    found: dict[tuple[str, LeadsTo], list[Lookup]] = defaultdict(list)
    targets, by_name = Counter((each.kind, each.target) for each in lookups), defaultdict(list)
    for lookup in lookups:
        by_name[lookup.name].append(lookup)
    for lookup in filter(lambda lookup: _is_wrong(lookup, targets), lookups):
        same = [other for other in by_name[lookup.name] if other is not lookup]
        # A node may know its own name by itself.
        asked = [other for other in same if other.asker != other.node] or same
        right = any(other.target > lookup.target for other in asked)
        found[lookup.asker if right else lookup.node, lookup.target].append(lookup)
    for (node, target), wrong in found.items():
        first, more = wrong[0], tuple(sorted({each.name for each in wrong[1:]} - {wrong[0].name}))
        if target == LeadsTo.NOTHING:
            yield Located(make_finding("host-name-unresolved", first.name, more=more or None), node)
            continue
        other_node = first.holder if target == LeadsTo.OTHER_NODE else None
        interface = first.holder if target == LeadsTo.OTHER_INTERFACE else None
        wrong_way = make_finding("host-name-misleads", first.name, other_node=other_node, interface=interface)
        yield Located(with_values(wrong_way, {"addresses": first.addresses, "more": more or None}), node)


def _is_wrong(lookup: Lookup, targets: Mapping[tuple[tuple[str, bool], LeadsTo], int]) -> bool:
    """Return whether most other names of its kind lead to something better; another node is never right."""
    if lookup.target in (LeadsTo.OTHER_NODE, LeadsTo.RIGHT):
        return lookup.target == LeadsTo.OTHER_NODE
    others = sum(targets.get((lookup.kind, target), 0) for target in LeadsTo) - 1
    return 2 * sum(targets.get((lookup.kind, target), 0) for target in LeadsTo if target > lookup.target) > others


def _wrong_answers(records: Mapping[str, Record], holders: Holders, known: set[str]) -> Iterator[Located]:
    """Yield nodes that answer for an address of another, and those for whom something outside of the job answers."""
    having: dict[str, set[str]] = defaultdict(set)
    for node, record in records.items():
        for line in filter(str.strip, texts(record, "identity", "macs")):
            having[line.split()[-1][-MAC_LETTERS:]].add(node)
    answers = {tuple(line.split()) for record in records.values() for line in texts(record, "identity", "answers")}
    outside, right = [], 0
    for address, full in sorted(each for each in answers if len(each) == 2):
        mac = full[-MAC_LETTERS:]
        owners = holders.get(address, {}).keys() - known
        others = sorted(having.get(mac, set()) - owners)
        if having.get(mac, set()) & owners:
            right += 1
        elif len(owners) == 1 == len(others) and others[0] not in known:
            yield Located(make_finding("address-answered", address, owner=min(owners), mac=mac), others[0])
        elif len(owners) == 1 and not others:
            outside.append((min(owners), address, mac))
    # Some networks answer for all nodes by themselves.
    if right > len(outside):
        for node, address, mac in outside:
            yield Located(make_finding("address-answered", address, mac=mac), node)
