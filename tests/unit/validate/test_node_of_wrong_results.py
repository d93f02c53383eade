"""The node is named whose gradient is wrong, whose sums are, or that sends through another interface."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from lumisite.validate.lines import Gate
from lumisite.validate.probes.collectives.judge import collectives
from lumisite.validate.probes.ddp.judge import ddp
from lumisite.validate.probes.probe import Record
from lumisite.validate.probes.transport.judge import judge as judge_transport
from tests.support.records import target_of
from tests.unit.validate.test_measuring_judges import (
    FORCED,
    NODES,
    TWIN,
    collective,
    ended,
    expected,
    gate_of,
    model,
    rank,
)


def exchanges(*of_ranks: tuple[float, float, str]) -> list[Record]:
    """Give the records of four ranks on two nodes: each one's own gradient, what it was after, and its digest."""
    return [rank(at, 2, 4, models={"comm": model(*values)}) for at, values in enumerate(of_ranks)]


@pytest.mark.parametrize(
    ("records", "message", "nodes", "ranks"),
    [
        (exchanges((1, 3, "a"), (2, 3, "a"), (4, 3, "a"), (5, 3, "b")), "is not that of rank 0", NODES[1:], "3"),
        (exchanges((1, 3, "a"), (2, 9, "b"), (4, 3, "c"), (5, 3, "d")), "is not that of rank 0", NODES[:1], "1"),
        (exchanges((1, 3, "a"), (2, 2, "b"), (4, 3, "a"), (5, 2, "b")), "is not that of rank 0", NODES, "1,3"),
        (exchanges((1, 3, "a"), (2, 3, "a"), (4, 3, "b"), (5, 3, "b")), "is not that of rank 0", NODES, ""),
        (exchanges(*[(own, 2, "a") for own in (1, 2, 4, 5)]), "the exchanged gradient is", NODES[1:], "2"),
        (exchanges(*[(own, 7 / 3, "a") for own in (1, 2, 5, 4)]), "the exchanged gradient is", NODES[1:], "2"),
        (exchanges(*[(own, 50, "a") for own in (1, 2, 5, 4)]), "the exchanged gradient is", NODES, ""),
    ],
)
def test_the_rank_and_node_with_a_wrong_gradient_are_named(
    records: list[Record], message: str, nodes: tuple[str, ...], ranks: str
) -> None:
    gate = gate_of(list(ddp(target_of("twin")).judge([ended(records, tasks=2)], expected("ddp", 2))))
    assert (gate.code, gate.nodes, gate.values.get("ranks", "")) == ("results-wrong", nodes, ranks)
    assert message in gate.text
    assert gate.asked == (NODES if nodes != NODES else ())


def test_the_node_with_wrong_sums_is_named_unless_all_have_them() -> None:
    for wrong, nodes in (((0, 3), NODES[1:]), ((3, 3), NODES)):
        records: list[Record] = [rank(at, collectives=collective(count)) for at, count in enumerate(wrong)]
        gate = gate_of(list(collectives(target_of("twin")).judge([ended(records)], expected("collectives"))))
        assert (gate.code, gate.nodes, bool(gate.asked)) == ("results-wrong", nodes, nodes != NODES)


RIGHT, WRONG = {"eth0": 9, "hsn0": 1000}, {"eth0": 1000, "hsn0": 9}


def sending(*of_nodes: Mapping[str, int]) -> list[Record]:
    """Give the records of two nodes by what they sent."""
    return [rank(at, moved=1000, sent=sent) for at, sent in enumerate(of_nodes)]


@pytest.mark.parametrize("bad", [0, 1])
def test_the_node_that_sends_through_another_interface_is_named(bad: int) -> None:
    sent = [RIGHT, RIGHT]
    sent[bad] = WRONG
    (gate,) = judge_transport(TWIN, "gloo", [ended(sending(*sent)), FORCED], expected("transport"))
    assert isinstance(gate, Gate)
    assert (gate.code, gate.nodes, gate.asked) == ("transport-wrong-network", (NODES[bad],), NODES)
    assert "eth0 sent" in gate.text


def test_nodes_that_all_send_through_another_interface_are_no_exceptions() -> None:
    (gate,) = judge_transport(TWIN, "gloo", [ended(sending(WRONG, WRONG)), FORCED], expected("transport"))
    assert isinstance(gate, Gate)
    assert (gate.code, gate.nodes) == ("transport-wrong-network", NODES)
