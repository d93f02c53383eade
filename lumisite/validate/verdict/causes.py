"""What follows from a bad node: what does not pass on a node that the gate `node` names follows from that.

Such a node is not asked again: steps with it are not run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from lumisite.validate.lines import Gate
from lumisite.validate.probes.probe import ProbeStep

#: The gate that runs first and looks at each node.
NODE = "node"


def following(after: Sequence[Gate]) -> dict[Gate, tuple[Gate, ...]]:
    """Return the answers that follow from what the gate `node` found on their nodes, each with these findings."""
    blamed: dict[tuple[str, str], list[Gate]] = {}
    for gate in sorted(after, key=lambda gate: gate.time):
        if gate.gate == NODE and gate.verdict == "fail":
            for node in gate.nodes:
                blamed.setdefault((gate.run, node), []).append(gate)
    found: dict[Gate, tuple[Gate, ...]] = {}
    for gate in after:
        causes = dict.fromkeys(blame for node in gate.nodes for blame in blamed.get((gate.run, node), ()))
        if causes and gate.verdict != "pass" and gate.gate != NODE:
            found[gate] = tuple(causes)
    return found


def nodes_behind(gate: Gate, causes: Mapping[Gate, Sequence[Gate]]) -> tuple[str, ...]:
    """Return the nodes of what an answer follows from, as far as it is about them."""
    return tuple(sorted({node for cause in causes[gate] for node in cause.nodes if node in gate.nodes}))


def reason_to_skip(step: ProbeStep, found: Iterable[Gate]) -> Gate | None:
    """Return the answer of the gate `node` by which one node of a step, and not all, is bad; None where none is."""
    bad = (gate for gate in found if gate.verdict == "fail" and gate.asked)
    return next((gate for gate in bad if not {*gate.nodes}.isdisjoint(step.nodes)), None)
