"""What follows from what: of several answers of one job that one cause explains, the first is the cause.

- What a node is comes before all else: what does not pass on a node that the gate `node` names follows from that.
- Another gate names a node where it asked several and one of them failed: what fails on several of them follows.
- A step that was not run follows from the finding because of which it was not.
- Ranks that work together, or a gate, follow from what `breaks` (in the catalogue) what they need on their nodes.
- The same error again, or ranks that hang again, on the same nodes follow from the first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache

from lumisite.findings.catalogue import find_entry
from lumisite.findings.finding import Severity, place_severity
from lumisite.validate.lines import Gate
from lumisite.validate.probes.definition import definitions
from lumisite.validate.probes.probe import ProbeStep

#: The gate that runs first and looks at each node: what fails on a node that it names follows from that.
NODE = "node"
#: The code of a step that was not run; its value `cause` is the code of the finding because of which it was not.
SKIPPED = "step-skipped"
#: Codes of ranks that do not come to their end and say no more.
HUNG = ("rank-hung", "communicator-hung", "step-late")
#: Answers that are looked at as causes, of one node in one run: no job that did anything has more.
MOST_CAUSES = 100
#: The values of a finding that quote an error.
_ERRORS = ("error", "words", "refusals")


def following(after: Sequence[Gate]) -> dict[Gate, tuple[Gate, ...]]:
    """Return the answers that follow from what other answers of their job found, each with these."""
    blames = [gate for gate in after if gate.gate == NODE and gate.verdict == "fail"]
    found = dict(_caused_by(after, blames))
    left: dict[str, list[Gate]] = {}
    for gate in after:
        if gate not in found and gate.gate != NODE:
            left.setdefault(gate.gate, []).append(gate)
    for answers in left.values():
        failed = [gate for gate in answers if gate.verdict == "fail"]
        nodes = suspects(answers, failed)
        blames += [gate for gate in failed if gate.asked and len(gate.nodes) == 1 and gate.nodes[0] in nodes]
    found = dict(_caused_by(after, blames))
    in_order = sorted(after, key=lambda gate: (gate.time, gate.gate))
    failed_on = _by_place(gate for gate in in_order if gate.verdict == "fail" and gate not in found)
    for gate in in_order:
        if gate.verdict != "pass" and gate.gate != NODE and gate not in found:
            others = dict.fromkeys(other for node in gate.nodes for other in failed_on.get((gate.run, node), ()))
            causes = [other for other in others if other not in found and _explains(other, gate)]
            if causes:
                found[gate] = tuple(causes)
    return found


def _by_place(gates: Iterable[Gate]) -> dict[tuple[str, str], list[Gate]]:
    """Return the first answers about each node of each run."""
    found: dict[tuple[str, str], list[Gate]] = {}
    for gate in gates:
        for node in gate.nodes:
            known = found.setdefault((gate.run, node), [])
            if len(known) < MOST_CAUSES:
                known.append(gate)
    return found


def nodes_behind(gate: Gate, causes: Mapping[Gate, Sequence[Gate]]) -> tuple[str, ...]:
    """Return the nodes of what an answer follows from, as far as it is about them."""
    return tuple(sorted({node for cause in causes[gate] for node in cause.nodes if node in gate.nodes}))


def breaks(gate: Gate) -> str:
    """Return what does not work on the nodes of an answer by its finding; empty for nothing."""
    entry = find_entry(gate.code) if gate.verdict == "fail" and gate.code else None
    return entry.breaks if entry and gate.gate not in _together() else ""


def reason_to_skip(step: ProbeStep, found: Sequence[Gate]) -> Gate | None:
    """Return the answer by which what a step needs is broken on one of its nodes, if there is one."""
    shared = (gate for gate in found if not {*gate.nodes}.isdisjoint(step.nodes))
    return next((gate for gate in shared if breaks(gate) in step.needs), None)


def suspects(after: Sequence[Gate], failed: Sequence[Gate]) -> tuple[str, ...]:
    """Return the nodes that explain every failure; none where they do not, or are too many to be exceptions."""
    passed: dict[str, int] = {}
    for gate in after:
        if gate.verdict == "pass":
            for node in gate.nodes:
                passed[node] = max(passed.get(node, 0), len(gate.nodes))
    by_kind: dict[tuple[str, str] | None, set[str]] = {}
    for gate in failed:
        # Nodes that an answer picks out of those that it asked are bad, whatever they did in another job.
        bad = {node for node in gate.nodes if gate.asked or passed.get(node, 0) < len(gate.nodes)}
        if not bad:
            return ()
        by_kind.setdefault(gate.kind if gate.asked else None, set()).update(bad)
    every = {node for gate in after for node in gate.asked or gate.nodes}
    named = set().union(*by_kind.values())
    of_system = any(
        place_severity(len(nodes), len(every), picked_out=kind is not None) is Severity.FAULT
        for kind, nodes in by_kind.items()
    )
    return () if of_system or named == every else tuple(sorted(named))


def _caused_by(after: Sequence[Gate], blames: Sequence[Gate]) -> Iterator[tuple[Gate, tuple[Gate, ...]]]:
    # What a node is comes first, then who names it first.
    blamed = _by_place(sorted(blames, key=lambda gate: (gate.gate != NODE, gate.time, gate.gate)))
    for gate in after:
        if gate.verdict == "pass" or gate.gate == NODE:
            continue
        # Of two gates that name one node, the first is the cause.
        causes = [
            blame
            for blame in dict.fromkeys(blame for node in gate.nodes for blame in blamed.get((gate.run, node), ()))
            if blame.gate != gate.gate
            and (blame.gate == NODE or len(gate.nodes) > 1 or (blame.time, blame.gate) < (gate.time, gate.gate))
        ]
        if causes:
            yield gate, tuple(causes)


def _explains(cause: Gate, gate: Gate) -> bool:
    """Return whether one answer, which follows from no other, is the cause of another of its job."""
    if cause is gate or cause.run != gate.run or cause.verdict != "fail" or {*cause.nodes}.isdisjoint(gate.nodes):
        return False
    if gate.code == SKIPPED:
        return cause.code == gate.values.get("cause")
    if broken := breaks(cause):
        needed = ("node", "container", "network")[: 2 + (len(gate.nodes) > 1)] if gate.gate in _together() else ()
        if broken == gate.gate or broken in needed:
            return True
    if (cause.time, cause.gate) >= (gate.time, gate.gate) or cause.nodes != gate.nodes:
        return False
    if cause.code in HUNG and gate.code in HUNG:
        return cause.gate != gate.gate
    return bool(cause.code) and cause.code == gate.code and _error(cause) == _error(gate) != ()


def _error(gate: Gate) -> tuple[str, ...]:
    """Return the error that an answer quotes, whatever its numbers: processes, ports, addresses, times."""
    values = [str(gate.values[name]) for name in _ERRORS if gate.values.get(name)]
    return tuple(re.sub(r"\b(0x)?[0-9a-fA-F]*\d[0-9a-fA-F.]*\b", "0", value) for value in values)


@cache
def _together() -> frozenset[str]:
    """Return the probes whose ranks work together."""
    return frozenset(name for name, entry in definitions().items() if entry.together)
