"""The finding in one sentence: how much slower where, since when, and what changed.

Its numbers are those of the verdict, in whole per cent.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import TypeAlias

from lumisite.findings.catalogue import make_finding
from lumisite.findings.finding import Finding, Severity
from lumisite.findings.writers import message
from lumisite.site.load import LoadedSite
from lumisite.text import counted, figure, percent, some
from lumisite.validate.metric_names import parse_name
from lumisite.validate.report.advice import ALONE, SUSPECTS, ChangeRow, slower_metrics
from lumisite.validate.samples import Recorded
from lumisite.validate.verdict.metric import MetricVerdict
from lumisite.validate.verdict.system import SystemVerdict

#: Changes, gates and nodes that are named in a headline before they are only counted.
NAMED = 2
#: A longer cause is no part of a headline.
CAUSE_LENGTH = 120
#: Drops within so much of each other are one number.
ALIKE = 0.05
DAY_S = 86400
#: The codes of what is slower, by shape; all other shapes are several nodes.
_PLACES = {"": "slower-somewhere", "1g": "slower-on-gpu", "1n": "slower-inside-node"}
#: The code of each verdict, where there is no more to report.
_QUIET = {"pass": "system-passes", "warn": "worth-a-look", "fail": "system-fails"}

#: The time of a change, as days: `since` where the platform has it, else the last day `before`; empty if not known.
When: TypeAlias = Mapping[str, str]


def headline(
    verdict: SystemVerdict, changed: Sequence[ChangeRow] = (), when: When | None = None, *, with_baseline: bool = True
) -> str:
    """Return the verdict and the finding; nothing is claimed of the system where bad nodes leave that open."""
    slower = [metric for metric in slower_metrics(verdict) if not metric.on_slow_nodes]
    broken = [gate for gate in verdict.gates if gate.verdict == "fail" and not gate.follows]
    findings: list[Finding] = []
    if broken:
        causes = [cause.cause for cause in broken[0].causes if not cause.follows]
        short = len(broken) == 1 and causes and len(causes[0]) <= CAUSE_LENGTH
        names = some([gate.gate for gate in broken], NAMED, ", ")
        findings.append(make_finding("gates-failed", gates=names, reason=causes[0] if short else None))
    findings += _slower(slower, when or {})
    findings += _below(slower)
    if findings:
        if verdict.verdict == "inconclusive":
            findings.append(make_finding("drop-not-confirmed"))
        findings += [*_suspects(slower, changed, gates=bool(broken)), *_nodes(verdict)]
    else:
        findings = list(_quiet(verdict, with_baseline=with_baseline))
    return f"{verdict.verdict.upper()}: {'; '.join(map(message, findings))}"


def _slower(slower: Sequence[MetricVerdict], when: When) -> Iterator[Finding]:
    drops: dict[str, list[float]] = {}
    for metric in slower:
        if metric.change is not None and metric.change < 0:
            code = _PLACES.get(parse_name(metric.metric).shape, "slower-between-nodes")
            drops.setdefault(code, []).append(-metric.change)
    for code, values in sorted(drops.items()):
        low, high = min(values), max(values)
        if high - low <= ALIKE:
            drop = percent(statistics.median(values), 0)
        else:
            drop = f"{percent(low, 0).removesuffix(' %')} to {percent(high, 0)}"
        yield make_finding(code, drop=drop, since=when.get("since"), before=when.get("before"))


def _below(slower: Sequence[MetricVerdict]) -> Iterator[Finding]:
    below = [metric for metric in slower if metric.below_spec and metric.change is None]
    if below:
        first = below[0]
        value = " ".join(filter(None, (figure(first.after), first.unit)))
        more = len(below) - 1 or None
        yield make_finding("metric-below-site", metric=first.metric, value=value, spec=figure(first.spec), more=more)


def _suspects(slower: Sequence[MetricVerdict], changed: Sequence[ChangeRow], *, gates: bool) -> Iterator[Finding]:
    shapes = {parse_name(metric.metric).shape for metric in slower}
    parts = ("network", "node") if gates or "" in shapes else ("node",) if shapes & {*ALONE} else ("network",)
    kinds = {kind for part in parts for kind in SUSPECTS[part]}
    subjects = [change["subject"] for change in changed if change["code"] in kinds]
    names = dict.fromkeys(subject.rpartition("/")[2] or subject for subject in subjects)
    if names:
        yield make_finding("suspects-changed", names=some(list(names), NAMED, ", "))


def _nodes(verdict: SystemVerdict) -> Iterator[Finding]:
    failed = sorted({node for gate in verdict.gates for node in gate.nodes})
    slow = [node for node in verdict.bad_nodes if node not in failed]
    for nodes, what in ((failed, "failed a gate"), (slow, "slower than the others, to be measured again")):
        if nodes:
            verb = "" if nodes is failed else "is " if len(nodes) == 1 else "are "
            yield Finding("nodes-bad", Severity.NODE, f"{some(nodes, NAMED, ', ')} {verb}{what}", nodes=tuple(nodes))


def _quiet(verdict: SystemVerdict, *, with_baseline: bool) -> Iterator[Finding]:
    """Yield what there is to report where nothing failed."""
    judged = [metric for metric in verdict.metrics if metric.decides]
    if verdict.verdict == "bad-nodes":
        yield from _nodes(verdict)
        if any(metric.on_slow_nodes for metric in judged):
            yield make_finding("system-behind-nodes")
        else:
            yield make_finding("system-fine" if with_baseline or judged else "others-pass")
    elif verdict.verdict == "pass" and not with_baseline:
        if judged:
            yield make_finding("metrics-as-expected", metrics=counted(len(judged), "metric"))
        yield make_finding("every-gate-passed" if verdict.gates else "no-gate-measured")
        if not judged:
            yield make_finding("no-baseline")
    elif verdict.verdict == "inconclusive":
        name, reason = next(_undecided(verdict), (None, None))
        yield make_finding("system-undecided", name=name, reason=reason)
    else:
        yield make_finding(_QUIET[verdict.verdict])


def _undecided(verdict: SystemVerdict) -> Iterator[tuple[str, str]]:
    for gate in verdict.gates:
        if gate.verdict == "inconclusive" and not gate.follows:
            yield gate.gate, gate.reason
    for metric in verdict.metrics:
        if metric.decides and metric.verdict != "pass":
            yield metric.metric, metric.reason


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
