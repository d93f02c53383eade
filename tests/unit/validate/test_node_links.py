"""Whose link it is: the judge on what nodes sent each other."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from lumisite.validate.probes.node.judge_exchange import compare_links

HSN = ("hsn0", "hsn1")
#: What one row of a record is where this is wrong.
BROKEN: dict[str, dict[str, Any]] = {"connect": {"at": "connect"}, "large": {"at": "large"}, "lossy": {"again": 9}}


def exchanged(nodes: Iterable[str], broken: Callable[[str, str, str], str] = lambda *_: "") -> list[dict[str, Any]]:
    """Records of nodes that all sent to each other; `broken` says what is wrong from one to another on an interface."""
    found: dict[str, dict[str, Any]] = {name: {"host": name, "local_rank": 0, "sent": []} for name in nodes}
    for (source, target), name in itertools.product(itertools.permutations(found, 2), HSN):
        row: dict[str, Any] = {"to": target, "interface": name, "at": "", "error": "", "again": 0, "segments": 290}
        found[source]["sent"].append(row | BROKEN.get(broken(source, target, name), {}))
    return [*found.values()]


def found(records: list[dict[str, Any]], spared: Iterable[str] = ()) -> list[tuple[str, str, tuple[str, ...]]]:
    nodes = [record["host"] for record in records]
    alike: dict[tuple[str, str, str], list[str]] = {}
    for entry in compare_links(records, nodes, spared):
        finding = entry.finding
        alike.setdefault((finding.severity.value, finding.subject, finding.message), []).append(entry.node)
    return [(severity, f"{subject}: {message}", tuple(names)) for (severity, subject, message), names in alike.items()]


SIX = tuple(f"n{number}" for number in range(1, 7))


@pytest.mark.parametrize("size", [1, 2, 3, 6])
def test_links_that_work_are_no_finding_and_a_packet_may_be_lost(size: int) -> None:
    records = exchanged(SIX[:size])
    for record in records:
        for row in record["sent"]:
            row["again"] = 1
    assert found(records) == []


@pytest.mark.parametrize("size", [3, 4, 6])
@pytest.mark.parametrize(("symptom", "words"), [("connect", "no TCP connection"), ("large", "full ones are lost")])
def test_a_node_is_named_whose_incoming_packets_are_lost(size: int, symptom: str, words: str) -> None:
    records = exchanged(SIX[:size], lambda _, target, name: symptom if (target, name) == ("n2", "hsn1") else "")
    ((severity, message, names),) = found(records)
    assert (severity, names) == ("node", ("n2",))
    assert message.startswith("hsn1: ")
    assert words in message
    assert f"with {size - 1} of {size - 1} nodes" in message


def test_interfaces_that_fail_alike_are_one_finding() -> None:
    ((_, message, names),) = found(exchanged(SIX, lambda source, *_: "lossy" if source == "n6" else ""))
    assert message.startswith("hsn0, hsn1: packets are lost and sent again, with 5 of 5 nodes")
    assert names == ("n6",)


@pytest.mark.parametrize(
    ("nodes", "pair"), [(SIX[:2], ("n1", "n2")), (SIX[:3], ("n1", "n3")), (SIX, ("n3", "n4"))], ids=["2", "3", "6"]
)
def test_of_one_link_both_ends_are_in_doubt(nodes: tuple[str, ...], pair: tuple[str, str]) -> None:
    records = exchanged(nodes, lambda source, target, name: "connect" if {source, target} == {*pair} else "")
    assert found(records) == [
        ("doubt", f"hsn0, hsn1: no TCP connection between {pair[0]} and {pair[1]}: one of them is at fault", pair)
    ]


@pytest.mark.parametrize("nodes", [SIX[:3], SIX[:4], SIX], ids=["3", "4", "6"])
def test_a_network_on_which_nothing_works_is_no_nodes_fault(nodes: tuple[str, ...]) -> None:
    ((severity, message, names),) = found(exchanged(nodes, lambda *_: "connect"))
    assert (severity, message, names) == ("fault", "hsn0, hsn1: no TCP connection between most nodes", nodes)


def test_links_of_a_node_with_a_finding_show_nothing() -> None:
    records = exchanged(SIX, lambda source, target, _: "connect" if "n2" in (source, target) else "")
    assert found(records, ["n2"]) == []
