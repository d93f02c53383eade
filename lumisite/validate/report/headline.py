"""The finding in one sentence, that who reads nothing else knows: how much slower where, since when, and what changed.

Its numbers are those of the verdict, in whole per cent.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone

from lumisite.facts.change import Kind
from lumisite.site.load import LoadedSite
from lumisite.text import counted, figure, percent, some
from lumisite.validate.metric_names import parse_name
from lumisite.validate.report.advice import ALONE, SUSPECTS, Changed
from lumisite.validate.samples import Recorded
from lumisite.validate.verdict.metric import MetricVerdict
from lumisite.validate.verdict.system import SystemVerdict

#: What each verdict means, where there is no more to say.
SENTENCES = {
    "pass": "every gate passed and nothing is slower than before",
    "warn": "nothing failed, but something below is worth a look",
    "fail": "the system does not work as it did before",
    "inconclusive": "what was measured does not decide it",
    "bad-nodes": "the system is fine, some nodes are not",
}
#: Changes, gates and nodes that are named in a headline before they are only counted.
NAMED = 2
#: A longer cause is no part of a headline; it is told below.
CAUSE_SHOWN = 120
#: Drops within so much of each other are told as one number.
ALIKE = 0.05
DAY_S = 86400
#: Changes that have a subject, but no name before a colon.
_BY_SUBJECT: tuple[Kind, ...] = ("library-gone", "library-new", "dangling", "missing")
_PLACES = {"1g": "on one GPU", "1n": "inside a node", "": ""}


def headline(
    verdict: SystemVerdict, changed: Sequence[Changed] = (), since: str = "", *, with_baseline: bool = True
) -> str:
    """Give the verdict and the finding in a sentence; nothing is said of the system where bad nodes leave that open.

    `since` are the words for the time of the change, such as `since 21 January 2026`; empty where nothing tells.
    """
    slower = [one for one in verdict.metrics if one.decides and one.verdict in ("fail", "unconfirmed")]
    slower = [one for one in slower if not one.on_slow_nodes]
    broken = list(_broken(verdict))
    said = [*broken, *_slower(slower, since), *_below(slower)]
    if said:
        if verdict.verdict == "inconclusive":
            said[-1] += ", not confirmed yet"
        said += [*_suspects(slower, changed, gates=bool(broken)), *_nodes(verdict)]
    else:
        said = list(_quiet(verdict, with_baseline=with_baseline))
    return f"{verdict.verdict.upper()}: {'; '.join(said)}"


def _broken(verdict: SystemVerdict) -> Iterator[str]:
    broken = [gate for gate in verdict.gates if gate.verdict == "fail" and not gate.follows]
    if broken:
        causes = [cause.cause for cause in broken[0].causes if not cause.follows]
        short = len(broken) == 1 and causes and len(causes[0]) <= CAUSE_SHOWN
        why = f" ({causes[0]})" if short else ""
        yield f"{some([gate.gate for gate in broken], NAMED, ', ')} failed{why}"


def _slower(slower: Sequence[MetricVerdict], since: str) -> Iterator[str]:
    drops = [-one.change for one in slower if one.change is not None and one.limit is not None]
    drops = sorted(drop for drop in drops if drop > 0)
    if drops:
        together = drops[-1] - drops[0] <= ALIKE
        low, high = (percent(drop, 0) for drop in (drops[0], drops[-1]))
        much = percent(statistics.median(drops), 0) if together else f"{low.removesuffix(' %')} to {high}"
        yield " ".join(filter(None, (f"{much} slower", _place(slower), since)))


def _place(slower: Sequence[MetricVerdict]) -> str:
    shapes = {parse_name(one.metric).shape for one in slower if one.change is not None}
    places = dict.fromkeys(_PLACES.get(shape, "between nodes") for shape in sorted(shapes))
    return " and ".join(filter(None, places))


def _below(slower: Sequence[MetricVerdict]) -> Iterator[str]:
    below = [one for one in slower if one.below_spec and one.change is None]
    if below:
        first, more = below[0], f", and {len(below) - 1} more" if len(below) > 1 else ""
        value = " ".join(filter(None, (figure(first.after), first.unit)))
        yield f"{first.metric} is {value}, where the site expects {figure(first.spec)}{more}"


def _suspects(slower: Sequence[MetricVerdict], changed: Sequence[Changed], *, gates: bool) -> Iterator[str]:
    shapes = {parse_name(one.metric).shape for one in slower}
    parts = ("network", "node") if gates or "" in shapes else ("node",) if shapes & {*ALONE} else ("network",)
    kinds = {kind for part in parts for kind in SUSPECTS[part]}
    names = list(dict.fromkeys(_name(one) for one in changed if one.kind in kinds))
    if names:
        yield f"{some(names, NAMED, ', ')} changed"


def _name(one: Changed) -> str:
    name = one.subject if one.kind in _BY_SUBJECT else one.what.partition(":")[0]
    return name.removesuffix(" is gone").removesuffix(" is new").rpartition("/")[2] or name


def _nodes(verdict: SystemVerdict) -> Iterator[str]:
    if bad := verdict.bad_nodes:
        yield f"{some(bad, NAMED, ', ')} {'is' if len(bad) == 1 else 'are'} bad"


def _quiet(verdict: SystemVerdict, *, with_baseline: bool) -> Iterator[str]:
    """Say what there is to say where nothing failed."""
    judged = [one for one in verdict.metrics if one.decides]
    if verdict.verdict == "bad-nodes":
        open_still = any(one.decides and one.on_slow_nodes for one in verdict.metrics)
        yield from _nodes(verdict)
        fine = "the system is fine" if with_baseline or judged else "the others pass every gate"
        yield "how the system is, jobs without them tell" if open_still else fine
    elif verdict.verdict == "pass" and not with_baseline:
        gates = "every gate passed" if verdict.gates else "no gate was asked"
        numbers = f"{counted(len(judged), 'metric')} {'is' if len(judged) == 1 else 'are'} as the site expects"
        yield f"{gates}, and {numbers}" if judged else f"{gates}; no baseline"
    elif verdict.verdict == "inconclusive" and (reasons := list(_reasons(verdict))):
        yield f"{SENTENCES['inconclusive']} ({reasons[0]})"
    else:
        yield SENTENCES[verdict.verdict]


def _reasons(verdict: SystemVerdict) -> Iterator[str]:
    gates = [gate for gate in verdict.gates if gate.verdict == "inconclusive"]
    yield from (f"{gate.gate}: {gate.reason}" for gate in gates)
    yield from (f"{one.metric}: {one.reason}" for one in verdict.metrics if one.decides and one.verdict != "pass")


# When


def day(seconds: float) -> str:
    """Write the day (UTC) of a time in seconds since 1970; nothing for a time that no calendar has."""
    try:
        when = time.gmtime(seconds)
    except (OverflowError, OSError, ValueError):
        return ""
    return f"{when.tm_mday} {time.strftime('%B %Y', when)}"


def times(recorded: Recorded) -> list[float]:
    """Give when jobs and gates ran, in seconds since 1970, in order."""
    jobs = (job.time for series in recorded.series.values() for job in series.jobs)
    return sorted([*jobs, *(gate.time for gate in recorded.gates)])


def since(before: Recorded, after: Recorded, about: Mapping[str, object], loaded: LoadedSite | None) -> str:
    """Say since when: the day of the platform after the change, where it lies between the two runs.

    Else the last day before is all that is known: what changed did so later.
    """
    old, new = times(before), times(after)
    if not old or not new:
        return ""
    platform = loaded.site.platforms.get(str(about.get("platform"))) if loaded else None
    try:
        began = datetime.strptime(platform.since if platform else "", "%Y-%m-%d").replace(tzinfo=timezone.utc)
    except ValueError:
        pass
    else:
        if old[-1] - DAY_S < began.timestamp() < new[0] + DAY_S:
            return f"since {day(began.timestamp())}"
    return f"than on {day(old[-1])}" if day(old[-1]) else ""
