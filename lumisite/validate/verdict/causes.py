"""What follows from what: what does not pass on a node that the gate `node` names follows from that.

Such a node is not asked again: steps with it are not run. After ranks on all nodes hung, none that needs the network
is run: it would hang as well, for as long as it may.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from lumisite.findings.finding import Severity, place_severity
from lumisite.validate.lines import Gate
from lumisite.validate.probes.probe import NODE, ProbeStep

#: The code of ranks that hang together.
HUNG = "step-hung"
#: The code of a step that was not run because of what was found before it.
SKIPPED = "step-skipped"
#: The code of what `check --host` found. What the system has of it need not be why something else fails.
CHECK = "node-check"
#: The code for TCP between nodes that fails.
LINK = "node-link"


def following(after: Sequence[Gate]) -> dict[Gate, tuple[Gate, ...]]:
    """Return the answers that follow from what the gate `node` found on their nodes, each with these findings."""
    blamed: dict[tuple[str, str], list[Gate]] = {}
    for gate in sorted(after, key=lambda gate: gate.time):
        if gate.gate == NODE and gate.verdict == "fail" and (gate.code != CHECK or _of_few(gate)):
            for node in gate.nodes:
                blamed.setdefault((gate.run, node), []).append(gate)
    hung = {(gate.run, gate.gate): gate for gate in after if gate.code == HUNG}
    found: dict[Gate, tuple[Gate, ...]] = {}
    for gate in after:
        causes = dict.fromkeys(blame for node in gate.nodes for blame in blamed.get((gate.run, node), ()))
        if gate.code == SKIPPED and (hang := hung.get((gate.run, str(gate.values.get("gate"))))):
            causes[hang] = None
        if causes and gate.verdict != "pass" and gate.gate != NODE:
            found[gate] = tuple(causes)
    return found


def _of_few(gate: Gate) -> bool:
    return bool(gate.asked) and place_severity(len(gate.nodes), len(gate.asked)) is Severity.NODE


def nodes_behind(gate: Gate, causes: Mapping[Gate, Sequence[Gate]]) -> tuple[str, ...]:
    """Return the nodes of what an answer follows from, as far as it is about them."""
    return tuple(sorted({node for cause in causes[gate] for node in cause.nodes if node in gate.nodes}))


def reason_to_skip(step: ProbeStep, found: Iterable[Gate]) -> Gate | None:
    """Return the answer because of which a step cannot work; None where there is none.

    That is one of the gate `node` by which one node of the step, and not all, is bad, a link that fails between nodes
    of the step, whichever end it is, or a hang of all of its nodes.
    """
    for gate in found:
        if gate.code == LINK and step.together and gate.verdict != "pass" and {*gate.nodes} <= {*step.nodes}:
            return gate
        if gate.verdict != "fail":
            continue
        if gate.gate == NODE and gate.asked and not {*gate.nodes}.isdisjoint(step.nodes):
            return gate
        if gate.code == HUNG and len(gate.nodes) > 1 and not gate.asked and step.together and len(step.nodes) > 1:
            return gate
    return None
