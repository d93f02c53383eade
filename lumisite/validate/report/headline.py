"""The finding in one sentence: how much slower where, since when, and what changed.

Its numbers are those of the verdict, in whole per cent.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import TypeAlias

from lumisite.site.load import LoadedSite
from lumisite.text import counted, figure, some
from lumisite.validate.metric_names import parse_name
from lumisite.validate.report.advice import (
    ALONE,
    SUSPECTS,
    ChangeRow,
    failed_nodes,
    percent_range,
    slow_nodes,
    slower_metrics,
)
from lumisite.validate.samples import Recorded
from lumisite.validate.verdict.gates import GateVerdict, cause_alone
from lumisite.validate.verdict.metric import MetricVerdict
from lumisite.validate.verdict.system import SystemVerdict

#: Changes, gates and nodes that are named in a headline before they are only counted.
NAMED = 2
#: A longer cause is no part of a headline.
CAUSE_LENGTH = 120
DAY_S = 86400
#: Where something is slower, by shape; all other shapes are several nodes.
_PLACES = {"": "", "1g": " on one GPU", "1n": " inside a node"}

#: The time of a change, as days: `since` where the platform has it, else the last day `before`; empty if not known.
When: TypeAlias = Mapping[str, str]


def headline(
    verdict: SystemVerdict, changed: Sequence[ChangeRow] = (), when: When | None = None, *, with_baseline: bool = True
) -> str:
    """Return the verdict and the finding; nothing is claimed of the system where bad nodes leave that open."""
    slower = [metric for metric in slower_metrics(verdict) if not metric.on_slow_nodes]
    broken = [gate for gate in verdict.gates if gate.verdict == "fail" and not gate.follows]
    parts = [*_broken(broken), *_slower(slower, when or {}), *_below(slower)]
    if parts:
        if verdict.verdict == "inconclusive":
            parts.append("not confirmed yet")
        parts += [*_suspects(slower, changed, gates=bool(broken)), *_nodes(verdict)]
    else:
        parts = list(_quiet(verdict, with_baseline=with_baseline))
    return f"{verdict.verdict.upper()}: {'; '.join(parts)}"


def _broken(gates: Sequence[GateVerdict]) -> Iterator[str]:
    if gates:
        causes = [cause.cause for cause in gates[0].causes if not cause.follows]
        short = len(gates) == 1 and causes and len(causes[0]) <= CAUSE_LENGTH
        names = some([gate.gate for gate in gates], NAMED, ", ")
        yield f"{names} failed ({causes[0]})" if short else f"{names} failed"


def _slower(slower: Sequence[MetricVerdict], when: When) -> Iterator[str]:
    drops: dict[str, list[float]] = {}
    for metric in slower:
        if metric.change is not None and metric.change < 0:
            place = _PLACES.get(parse_name(metric.metric).shape, " between nodes")
            drops.setdefault(place, []).append(-metric.change)
    since = f" since {when['since']}" if when.get("since") else f" than on {when['before']}" if when else ""
    for place, values in sorted(drops.items()):
        yield f"{percent_range(values)} slower{place}{since}"


def _below(slower: Sequence[MetricVerdict]) -> Iterator[str]:
    below = [metric for metric in slower if metric.below_spec and metric.change is None]
    if below:
        first = below[0]
        value = " ".join(filter(None, (figure(first.after), first.unit)))
        more = f"; and {len(below) - 1} more" if len(below) > 1 else ""
        yield f"{first.metric} is {value}, the site expects {figure(first.spec)}{more}"


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
    if failed := failed_nodes(verdict):
        gates = [gate for gate in verdict.gates if gate.nodes]
        causes = [cause for gate in gates for cause in gate.causes if not cause.follows]
        reason = cause_alone(causes[0]) if len(causes) == 1 else some([gate.gate for gate in gates], NAMED, ", ")
        why = f" ({reason})" if len(reason) <= CAUSE_LENGTH else ""
        yield f"{some(failed, NAMED, ', ')} failed{why}"
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


# ---- when


def day(seconds: float) -> str:
    """Return the day (UTC) of a time in seconds since 1970; nothing for a time that no calendar has."""
    try:
        when = time.gmtime(seconds)
    except (OverflowError, OSError, ValueError):
        return ""
    return f"{when.tm_mday} {time.strftime('%B %Y', when)}"


def times(recorded: Recorded) -> list[float]:
    """Return when jobs and gates ran, in seconds since 1970, in order."""
    jobs = [job.time for series in recorded.series.values() for job in series.jobs]
    return sorted([*jobs, *(gate.time for gate in recorded.gates)])


def time_of_change(before: Recorded, after: Recorded, about: Mapping[str, object], loaded: LoadedSite | None) -> When:
    """Return the day of the platform after the change where it lies between the two runs.

    Else the last day before is all that is known: what changed did so later.
    """
    old, new = times(before), times(after)
    if not old or not new:
        return {}
    platform = loaded.site.platforms.get(str(about.get("platform"))) if loaded else None
    try:
        began = datetime.strptime(platform.since if platform else "", "%Y-%m-%d").replace(tzinfo=timezone.utc)
    except ValueError:
        return {"before": day(old[-1])}
    if old[-1] - DAY_S < began.timestamp() < new[0] + DAY_S:
        return {"since": day(began.timestamp())}
    return {"before": day(old[-1])}
