"""The finding in one sentence: how much slower where, and what changed.

Its numbers are those of the verdict, in whole per cent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lumisite.text import counted, figure, some
from lumisite.validate.report.advice import ALONE, SUSPECTS, ChangeRow, percent_range, slow_nodes, slower_metrics
from lumisite.validate.samples import parse_name
from lumisite.validate.verdict.gates import GateVerdict
from lumisite.validate.verdict.metric import MetricVerdict
from lumisite.validate.verdict.system import SystemVerdict

#: Changes, gates and nodes that are named in a headline before they are only counted.
NAMED = 2
#: A longer cause is no part of a headline.
CAUSE_LENGTH = 120
#: Where something is slower, by shape; all other shapes are several nodes.
_PLACES = {"": "", "1g": " on one GPU", "1n": " inside a node"}


def headline(verdict: SystemVerdict, changed: Sequence[ChangeRow] = (), *, with_baseline: bool = True) -> str:
    """Return the verdict and the finding; nothing is claimed of the system where bad nodes leave that open."""
    slower = [metric for metric in slower_metrics(verdict) if not metric.on_slow_nodes]
    broken = [gate for gate in verdict.gates if gate.verdict == "fail" and not gate.follows]
    parts = [*_broken(broken), *_slower(slower), *_below(slower)]
    if parts:
        if verdict.verdict == "inconclusive":
            parts.append("not confirmed yet")
        parts += [*_suspects(slower, changed, gates=bool(broken)), *_nodes(verdict)]
    else:
        parts = list(_quiet(verdict, with_baseline=with_baseline))
    return f"{verdict.verdict.upper()}: {'; '.join(parts)}"


def _broken(gates: Sequence[GateVerdict]) -> Iterator[str]:
    if gates:
        cause = gates[0].causes[0].text if gates[0].causes else ""
        names = some([gate.gate for gate in gates], NAMED, ", ")
        yield f"{names} failed" + (f" ({cause})" if len(gates) == 1 and 0 < len(cause) <= CAUSE_LENGTH else "")


def _slower(slower: Sequence[MetricVerdict]) -> Iterator[str]:
    drops: dict[str, list[float]] = {}
    for metric in slower:
        if metric.change is not None and metric.change < 0:
            place = _PLACES.get(parse_name(metric.metric).shape, " between nodes")
            drops.setdefault(place, []).append(-metric.change)
    for place, values in sorted(drops.items()):
        yield f"{percent_range(values)} slower{place}"


def _below(slower: Sequence[MetricVerdict]) -> Iterator[str]:
    for metric in slower[:NAMED]:
        if metric.below_spec and metric.change is None:
            yield f"{metric.metric} is {figure(metric.after)}, the site expects {figure(metric.spec)}"


def _suspects(slower: Sequence[MetricVerdict], changed: Sequence[ChangeRow], *, gates: bool) -> Iterator[str]:
    shapes = {parse_name(metric.metric).shape for metric in slower}
    parts = ("network", "node") if gates or "" in shapes else ("node",) if shapes & {*ALONE} else ("network",)
    kinds = {kind for part in parts for kind in SUSPECTS[part]}
    subjects = [change["subject"] for change in changed if change["code"] in kinds]
    names = dict.fromkeys(subject.rpartition("/")[2] or subject for subject in subjects)
    if names:
        yield f"{some(list(names), NAMED, ', ')} changed"


def _nodes(verdict: SystemVerdict) -> Iterator[str]:
    """Yield which nodes failed, and which are slow, by how much: what to do with them says the advice."""
    if verdict.failed_nodes:
        gates = [gate for gate in verdict.gates if gate.nodes]
        causes = [cause for gate in gates for cause in gate.causes]
        reason = causes[0].cause if len(causes) == 1 else some([gate.gate for gate in gates], NAMED, ", ")
        why = f" ({reason})" if len(reason) <= CAUSE_LENGTH else ""
        yield f"{some(verdict.failed_nodes, NAMED, ', ')} failed{why}"
    if slow := slow_nodes(verdict, NAMED):
        yield slow


def _quiet(verdict: SystemVerdict, *, with_baseline: bool) -> Iterator[str]:
    """Yield what there is to report where nothing failed."""
    judged = [metric for metric in verdict.metrics if metric.decides]
    if verdict.verdict == "bad-nodes":
        yield from _nodes(verdict)
        if any(metric.on_slow_nodes for metric in judged):
            yield "jobs on other nodes are needed to judge the system"
        else:
            yield "the system is fine" if with_baseline or judged else "the others pass every gate"
    elif verdict.verdict == "pass" and not with_baseline:
        if judged:
            yield f"{counted(len(judged), 'metric')} as the site expects"
        yield "every gate passed" if verdict.gates else "no gate was measured"
        if not judged:
            yield "no baseline"
    elif verdict.verdict == "inconclusive":
        yield next(_undecided(verdict), "the measurements do not decide")
    elif verdict.verdict == "warn":
        names = [metric.metric for metric in judged if metric.verdict == "warn"]
        yield f"nothing failed, but {some(names, NAMED, ', ')} was slower in the first jobs, and is worth a look"
    else:
        quiet = {"pass": "every gate passed and nothing is slower than before"}
        yield quiet.get(verdict.verdict, "the system does not work as it did before")


def _undecided(verdict: SystemVerdict) -> Iterator[str]:
    for gate in verdict.gates:
        if gate.verdict == "inconclusive" and not gate.follows:
            yield f"{gate.gate}: {gate.reason}"
    for metric in verdict.metrics:
        if metric.decides and metric.verdict != "pass":
            yield f"{metric.metric}: {metric.reason}"
