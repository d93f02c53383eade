"""Judge hard gates: a gate that fails after a change is a failure, of the system or of the nodes that it fails on.

Nodes are blamed, and the system is not, where every failing answer names its nodes among those that it asked, or has a
node that never passed the same gate in a job of at least as many nodes, and these nodes are fewer than half of all that
were asked, or the only one that an answer picks out. Half or more by one cause is the system.

What follows from a bad node (`causes`) counts as that node's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from lumisite.findings.finding import Finding, Severity, place_severity
from lumisite.findings.writers import sentences
from lumisite.text import some
from lumisite.validate.lines import Gate, State
from lumisite.validate.probes.probe import NODE
from lumisite.validate.samples import JobValues
from lumisite.validate.verdict.causes import following, nodes_behind

SEE_STEP = "look at its step, in the folder jobs of the run"


@dataclass(frozen=True)
class Cause:
    """One cause that jobs named, what to do about it, and the nodes that it was seen on; `code` is its finding's.

    `location` are the ranks and nodes of it, empty where answers differ in them.
    """

    cause: str
    location: str
    advice: str
    nodes: tuple[str, ...]
    code: str = ""

    @property
    def text(self) -> str:
        """Where and what."""
        return f"{self.location}: {self.cause}" if self.location else self.cause


@dataclass(frozen=True)
class GateVerdict:
    """One gate, judged: `runs` answered after the change, `bad` of them did not pass; `nodes` are those to blame.

    `follows` are the nodes of what other gates found, where no job without it shows this gate: it decides nothing then.
    """

    gate: str
    verdict: State
    findings: tuple[Finding, ...]
    runs: int
    bad: int
    causes: tuple[Cause, ...] = ()
    nodes: tuple[str, ...] = ()
    failed_before: bool = False
    follows: tuple[str, ...] = ()

    @property
    def reason(self) -> str:
        """The findings in words."""
        return sentences(self.findings)


def judge_gates(before: Sequence[Gate], after: Sequence[Gate]) -> tuple[GateVerdict, ...]:
    """Judge every gate that answered after the change or passed before it, by name; what nodes are comes first."""
    after = _with_all_nodes(after)
    caused_by = following(after)
    names = {gate.gate for gate in after} | {gate.gate for gate in before if gate.verdict == "pass"}
    old, new = _by_name(before), _by_name(after)
    return tuple(
        _judge(name, old.get(name, []), new.get(name, []), caused_by)
        for name in sorted(names, key=lambda name: (name != NODE, name))
    )


def _by_name(gates: Iterable[Gate]) -> dict[str, list[Gate]]:
    found: dict[str, list[Gate]] = {}
    for gate in gates:
        found.setdefault(gate.gate, []).append(gate)
    return found


def nodes_of_runs(every: Iterable[Gate | JobValues]) -> dict[str, set[str]]:
    """Return the nodes of each run, as far as gates and jobs name them."""
    runs: dict[str, set[str]] = {}
    for entry in every:
        runs.setdefault(entry.run, set()).update(entry.nodes)
    return runs


def _with_all_nodes(gates: Sequence[Gate]) -> list[Gate]:
    """Return the gates; those on single nodes get all nodes of their job as `asked`, where they have none."""
    runs = nodes_of_runs(gates)
    return [
        replace(gate, asked=tuple(sorted(runs[gate.run]))) if gate.gate == NODE and not gate.asked else gate
        for gate in gates
    ]


def _judge(
    name: str, before: Sequence[Gate], after: Sequence[Gate], caused_by: Mapping[Gate, tuple[Gate, ...]]
) -> GateVerdict:
    if not after:
        message, advice = "passed before the change, and did not run after it", "run this probe again"
        not_run = Finding("gate-not-run", Severity.DOUBT, message, advice, name)
        return GateVerdict(name, "inconclusive", (not_run,), 0, 0)
    plain, followed = ([gate for gate in after if (gate in caused_by) == follows] for follows in (False, True))
    failed = [gate for gate in plain if gate.verdict == "fail"]
    wrong = failed or [gate for gate in plain if gate.verdict == "inconclusive"]
    runs, bad = (len({gate.run for gate in gates}) for gates in (after, wrong or followed))
    nodes = _suspects(plain, failed)
    follows = tuple(sorted({node for gate in followed for node in nodes_behind(gate, caused_by)}))
    state: State = "pass"
    if failed:
        state = "bad-nodes" if nodes else "fail"
        severity = Severity.NODE if nodes else Severity.FAULT
        message = f"failed in {bad} of {runs} jobs" + (f", only on {some(nodes, between=', ')}" if nodes else "")
        finding = Finding("gate-failed", severity, message, SEE_STEP, name, nodes=nodes)
    elif wrong:
        state = "inconclusive"
        finding = Finding("gate-unclear", Severity.DOUBT, f"not answered in {bad} of {runs} jobs", SEE_STEP, name)
    elif followed:
        passed = len({gate.run for gate in plain} - {gate.run for gate in followed})
        state = "pass" if passed else "inconclusive"
        finding = _follows(name, follows, [cause for gate in followed for cause in caused_by[gate]], passed, runs)
    else:
        finding = Finding("gate-passed", Severity.INFO, f"passed in {runs} of {runs} jobs", subject=name)
    failed_before = any(gate.verdict == "fail" for gate in before)
    if failed_before:
        finding = replace(finding, message=f"{finding.message}; it failed before the change")
    only_follows = follows if state == "inconclusive" and not wrong else ()
    return GateVerdict(name, state, (finding,), runs, bad, tuple(_causes(wrong)), nodes, failed_before, only_follows)


def _follows(name: str, nodes: tuple[str, ...], causes: Iterable[Gate], passed: int, jobs: int) -> Finding:
    """Return that a gate follows from what was found on these nodes."""
    codes = list(dict.fromkeys(cause.code or cause.gate for cause in causes))
    message = f"follows from {some(nodes, between=', ')} ({some(codes, between=', ')})"
    if passed:
        message = f"passed in {passed} of {jobs} jobs, the rest {message}"
    advice = "repair that first, or run it on other nodes"
    return Finding("gate-follows", Severity.DOUBT, message, advice, name, nodes=nodes, cause=codes[0])


def _suspects(after: Sequence[Gate], failed: Sequence[Gate]) -> tuple[str, ...]:
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


def _causes(gates: Iterable[Gate]) -> Iterator[Cause]:
    """Yield each cause once, the most frequent first."""
    alike: dict[tuple[str, str, str], list[Gate]] = {}
    for gate in gates:
        alike.setdefault((gate.code, gate.cause, gate.advice), []).append(gate)
    for (code, cause, advice), same in sorted(alike.items(), key=lambda item: (-len(item[1]), item[0])):
        locations = {gate.location for gate in same}
        location = locations.pop() if len(locations) == 1 else ""
        nodes = sorted({node for gate in same for node in gate.nodes})
        yield Cause(cause, location, advice or SEE_STEP, tuple(nodes), code)
