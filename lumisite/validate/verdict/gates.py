"""Judge hard gates: a gate that fails after a change is a failure, of the system or of the nodes that it fails on.

Nodes are blamed, and the system is not, where every failing answer has a node that never passed the same gate in a job
of at least as many nodes, and these nodes are fewer than half of all that answered. Half or more is the system.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from lumisite.validate.lines import Gate

if TYPE_CHECKING:
    from typing import TypeAlias

GateState: TypeAlias = Literal["pass", "fail", "bad-nodes", "inconclusive"]


@dataclass(frozen=True)
class Cause:
    """One cause that jobs named, what to do about it, and the nodes and ranks that it was seen on."""

    cause: str
    advice: str
    nodes: tuple[str, ...]
    runs: tuple[str, ...]
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True)
class GateVerdict:
    """One gate, judged: `runs` answered after the change, `bad` of them did not pass; `nodes` are those to blame."""

    gate: str
    verdict: GateState
    reason: str
    runs: int
    bad: int
    causes: tuple[Cause, ...] = ()
    nodes: tuple[str, ...] = ()
    failed_before: bool = False


def judge_gates(before: Sequence[Gate], after: Sequence[Gate]) -> tuple[GateVerdict, ...]:
    """Judge every gate that answered after the change or passed before it, by name."""
    names = {gate.gate for gate in after} | {gate.gate for gate in before if gate.verdict == "pass"}
    return tuple(
        _judge([gate for gate in before if gate.gate == name], [gate for gate in after if gate.gate == name], name)
        for name in sorted(names)
    )


def _judge(before: Sequence[Gate], after: Sequence[Gate], name: str) -> GateVerdict:
    if not after:
        return GateVerdict(name, "inconclusive", "passed before, and was not asked after", 0, 0)
    failed = [gate for gate in after if gate.verdict == "fail"]
    told = failed or [gate for gate in after if gate.verdict == "inconclusive"]
    runs, bad = (len({gate.run for gate in gates}) for gates in (after, told))
    nodes = _suspects(after, failed)
    jobs = f"{runs} job{'s' if runs > 1 else ''}"
    state: GateState = "pass"
    reason = f"passed in all {jobs}"
    if failed:
        state = "bad-nodes" if nodes else "fail"
        reason = f"failed in {bad} of {jobs}" + (f", only on {','.join(nodes)}" if nodes else "")
    elif told:
        state, reason = "inconclusive", f"not shown in {bad} of {jobs}"
    known = any(gate.verdict == "fail" for gate in before)
    if known:
        reason += "; it failed before the change" + (" too" if told else "")
    return GateVerdict(name, state, reason, runs, bad, tuple(_causes(told)), nodes, known)


def _suspects(after: Sequence[Gate], failed: Sequence[Gate]) -> tuple[str, ...]:
    """Name the nodes that explain every failure; none where they do not, or are too many to be exceptions."""
    passed: dict[str, int] = {}
    for gate in after:
        if gate.verdict == "pass":
            for node in gate.nodes:
                passed[node] = max(passed.get(node, 0), len(gate.nodes))
    suspects = set()
    for gate in failed:
        own = {node for node in gate.nodes if passed.get(node, 0) < len(gate.nodes)}
        if not own:
            return ()
        suspects |= own
    every = {node for gate in after for node in gate.nodes}
    return tuple(sorted(suspects)) if 2 * len(suspects) < len(every) else ()


def _causes(gates: Iterable[Gate]) -> Iterable[Cause]:
    """Gather what was said, the most frequent first."""
    told: dict[tuple[str, str], list[Gate]] = {}
    for gate in gates:
        told.setdefault((gate.cause, gate.advice), []).append(gate)
    for (cause, advice), own in sorted(told.items(), key=lambda item: (-len(item[1]), item[0])):
        yield Cause(
            cause,
            advice,
            tuple(sorted({node for gate in own for node in gate.nodes})),
            tuple(sorted({gate.run for gate in own})),
            tuple(sorted({gate.rank for gate in own if gate.rank is not None})),
        )
