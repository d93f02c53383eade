"""Judge hard gates: a gate that fails after a change is a failure, of the system or of the nodes that it fails on.

Nodes are blamed, and the system is not, where every failing answer names its nodes among those that it asked, or has a
node that never passed the same gate in a job of at least as many nodes, and these nodes are fewer than half of all that
were asked. Half or more by one cause is the system.

A cause is told once: what fails in the same job on a node that another gate names follows from it, and counts no more.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from lumisite.text import counted
from lumisite.validate.lines import Gate, State
from lumisite.validate.samples import Job

#: The gate that is asked first and tells what each node is: what fails on a node that it names follows from that.
NODE = "node"
#: What to do where a gate does not say.
LOOK = "look at its step, in the folder jobs of the run"


@dataclass(frozen=True)
class Cause:
    """One cause that jobs named, what to do about it, and the nodes and ranks that it was seen on.

    Where it follows from bad nodes that another gate names, `follows` has these.
    """

    cause: str
    advice: str
    nodes: tuple[str, ...]
    runs: tuple[str, ...]
    ranks: tuple[int, ...] = ()
    follows: tuple[str, ...] = ()


@dataclass(frozen=True)
class GateVerdict:
    """One gate, judged: `runs` answered after the change, `bad` of them did not pass; `nodes` are those to blame.

    `follows` are bad nodes that other gates name, where no job without them shows this gate: it decides nothing then.
    """

    gate: str
    verdict: State
    reason: str
    runs: int
    bad: int
    causes: tuple[Cause, ...] = ()
    nodes: tuple[str, ...] = ()
    failed_before: bool = False
    follows: tuple[str, ...] = ()


def judge_gates(before: Sequence[Gate], after: Sequence[Gate]) -> tuple[GateVerdict, ...]:
    """Judge every gate that answered after the change or passed before it, by name; what nodes are comes first."""
    after = _asked(after)
    behind = following(after)
    names = {gate.gate for gate in after} | {gate.gate for gate in before if gate.verdict == "pass"}
    order = sorted(names, key=lambda name: (name != NODE, name))
    sides = {name: [[gate for gate in side if gate.gate == name] for side in (before, after)] for name in order}
    return tuple(_judge(name, old, new, behind) for name, (old, new) in sides.items())


def following(after: Sequence[Gate]) -> dict[Gate, tuple[str, ...]]:
    """Give the answers that follow from what another gate of their job says of a node, each with these nodes.

    What each node is comes before all else. Another gate names a node where it asked several and one of them failed.
    """
    blames = [gate for gate in after if gate.gate == NODE and gate.verdict == "fail"]
    found = dict(_behind(after, blames))
    left = [gate for gate in after if gate not in found and gate.gate != NODE]
    for name in {gate.gate for gate in left}:
        own = [gate for gate in left if gate.gate == name]
        failed = [gate for gate in own if gate.verdict == "fail"]
        nodes = _suspects(own, failed)
        blames += [gate for gate in failed if gate.asked and len(gate.nodes) == 1 and gate.nodes[0] in nodes]
    return dict(_behind(after, blames))


def _behind(after: Sequence[Gate], blames: Sequence[Gate]) -> Iterator[tuple[Gate, tuple[str, ...]]]:
    for gate in after:
        if gate.verdict == "pass" or gate.gate == NODE:
            continue
        # Of two gates that name one node, the first is the cause.
        nodes = {
            blame.nodes
            for blame in blames
            if blame.run == gate.run
            and blame.gate != gate.gate
            and (blame.gate == NODE or len(gate.nodes) > 1 or (blame.time, blame.gate) < (gate.time, gate.gate))
        }
        if seen := {node for names in nodes for node in names if node in gate.nodes}:
            yield gate, tuple(sorted(seen))


def nodes_of_runs(every: Iterable[Gate | Job]) -> dict[str, set[str]]:
    """Give the nodes of each run, as far as any of these tells."""
    runs: dict[str, set[str]] = {}
    for one in every:
        runs.setdefault(one.run, set()).update(one.nodes)
    return runs


def _asked(gates: Sequence[Gate]) -> list[Gate]:
    """Let answers on single nodes say which nodes their job has, where they do not."""
    runs = nodes_of_runs(gates)
    return [
        replace(gate, asked=tuple(sorted(runs[gate.run]))) if gate.gate == NODE and not gate.asked else gate
        for gate in gates
    ]


def _judge(
    name: str, before: Sequence[Gate], after: Sequence[Gate], behind: Mapping[Gate, tuple[str, ...]]
) -> GateVerdict:
    if not after:
        return GateVerdict(name, "inconclusive", "passed before, and was not asked after", 0, 0)
    own, followed = ([gate for gate in after if (gate in behind) == follows] for follows in (False, True))
    failed = [gate for gate in own if gate.verdict == "fail"]
    told = failed or [gate for gate in own if gate.verdict == "inconclusive"]
    runs, bad = (len({gate.run for gate in gates}) for gates in (after, told or followed))
    nodes = _suspects(own, failed)
    jobs = counted(runs, "job")
    follows = tuple(sorted({node for gate in followed for node in behind[gate]}))
    shown = len({gate.run for gate in own} - {gate.run for gate in followed})
    state: State = "pass"
    reason = f"passed in all {jobs}"
    if failed:
        state = "bad-nodes" if nodes else "fail"
        reason = f"failed in {bad} of {jobs}" + (f", only on {','.join(nodes)}" if nodes else "")
    elif told:
        state, reason = "inconclusive", f"not shown in {bad} of {jobs}"
    elif followed:
        state = "pass" if shown else "inconclusive"
        reason = f"{f'passed in {shown} of {jobs}; the rest ' if shown else ''}follows from {','.join(follows)}"
    known = any(gate.verdict == "fail" for gate in before)
    if known:
        reason += "; it failed before the change" + (" too" if told else "")
    causes = (*_causes(told), *(replace(one, follows=follows) for one in _causes(followed)))
    pure = follows if state == "inconclusive" and not told else ()
    return GateVerdict(name, state, reason, runs, bad, causes, nodes, known, pure)


def _suspects(after: Sequence[Gate], failed: Sequence[Gate]) -> tuple[str, ...]:
    """Name the nodes that explain every failure; none where they do not, or are too many to be exceptions."""
    passed: dict[str, int] = {}
    for gate in after:
        if gate.verdict == "pass":
            for node in gate.nodes:
                passed[node] = max(passed.get(node, 0), len(gate.nodes))
    suspects: dict[str, set[str]] = {}
    for gate in failed:
        # Nodes that an answer picks out of those that it asked are bad, whatever they did in another job.
        own = {node for node in gate.nodes if gate.asked or passed.get(node, 0) < len(gate.nodes)}
        if not own:
            return ()
        suspects.setdefault(_alike(gate) if gate.asked else "", set()).update(own)
    every = {node for gate in after for node in gate.asked or gate.nodes}
    named = set().union(*suspects.values())
    many = any(2 * len(nodes) >= len(every) for nodes in suspects.values())
    return () if many or named == every else tuple(sorted(named))


def _alike(gate: Gate) -> str:
    """Give a cause without its nodes and numbers, in which the same cause differs from node to node."""
    names = "|".join(sorted(map(re.escape, gate.asked), key=len, reverse=True))
    return re.sub(r"\d+", "#", re.sub(rf"(ranks? [\d,-]+ on )?\b({names})\b(, ({names})\b)*", "NODE", gate.cause))


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
