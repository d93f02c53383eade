"""Which nodes a run takes."""

from __future__ import annotations

import pytest

from lumisite.errors import ToolError
from lumisite.validate.run.node_sets import choose_node_sets


def nodes(text: str) -> dict[str, str]:
    return {name: state for name, _, state in (word.partition(":") for word in text.split())}


@pytest.mark.parametrize(
    ("state", "size", "wanted", "found"),
    [
        ("a:idle b:idle c:idle d:idle", 2, 2, [("a", "b"), ("c", "d")]),
        ("a:idle b:idle c:idle", 2, 2, [("a", "b")]),
        ("a:drained b:idle c:down d:idle e:idle f:idle", 2, 2, [("b", "d"), ("e", "f")]),
        ("a:allocated b:idle c:idle", 1, 3, [("b",), ("c",), ("a",)]),
        ("a:maint b:idle", 1, 2, [("b",)]),
    ],
)
def test_free_nodes_first_and_never_drained_ones(
    state: str, size: int, wanted: int, found: list[tuple[str, ...]]
) -> None:
    assert choose_node_sets(nodes(state), size, wanted) == found


def test_in_a_reservation_its_nodes_count_as_free() -> None:
    assert choose_node_sets(nodes("a:maint b:reserved c:idle"), 1, 3, reserved=True, only=["a", "b"]) == [
        ("a",),
        ("b",),
    ]


def test_too_few_nodes_are_refused_with_their_states() -> None:
    with pytest.raises(ToolError) as refused:
        choose_node_sets(nodes("a:drained b:down c:idle"), 2, 1)
    assert "2 nodes are needed and 1 are usable: a drained, b down (" in str(refused.value)
    with pytest.raises(ToolError) as refused:
        choose_node_sets(nodes("a:drained b:down c:idle"), 2, 1, reasons={"a": "bad DIMM"})
    assert ": a drained (bad DIMM), b down (" in str(refused.value)
