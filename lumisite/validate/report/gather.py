"""What a report has: the verdict, what changed, what to do, and curves.

Everything here is a pure function of what the two runs wrote; `write` has the forms.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from lumisite import __version__
from lumisite.facts.facts import Facts
from lumisite.site.load import LoadedSite
from lumisite.text import counted
from lumisite.validate.lines import Gate
from lumisite.validate.report.advice import ChangeRow, advice, changes
from lumisite.validate.report.curves import Curve, curves_of
from lumisite.validate.report.headline import headline
from lumisite.validate.run.next_command import next_command, request_of
from lumisite.validate.samples import JobValues, Recorded
from lumisite.validate.verdict.gates import nodes_of_runs
from lumisite.validate.verdict.system import SystemVerdict, Terms, judge_system

#: What of `run.json` a report repeats.
ABOUT = ("site", "platform", "partition", "image", "env", "started")


@dataclass(frozen=True)
class Side:
    """What one run wrote; `facts` is what the machine was, `about` is its `run.json`."""

    recorded: Recorded
    facts: Facts | None = None
    about: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class RunReport:
    """Everything that a report has.

    `headline` is the verdict and the finding, `summary` when, on what, and how much was measured; `about` has rows of
    what was run, before and after; `next_command` is empty where the verdict waits for nothing.
    """

    headline: str
    summary: tuple[str, ...]
    verdict: SystemVerdict
    about: tuple[tuple[str, str, str], ...]
    changes: tuple[ChangeRow, ...]
    advice: tuple[str, ...]
    next_command: str
    curves: tuple[Curve, ...]


def make_report(before: Side | None, after: Side, terms: Terms, loaded: LoadedSite | None = None) -> RunReport:
    """Judge `after` against `before`, or alone where that is None; what changes touch follows from the site."""
    alone = before is None
    verdict = judge_system(before.recorded if before else None, after.recorded, terms)
    before = before or Side(Recorded({}))
    changed = changes(before.facts, after.facts, loaded)
    command = next_command(verdict, request_of(after.about))
    return RunReport(
        headline=headline(verdict, changed, with_baseline=not alone),
        summary=tuple(_summary(before, after, loaded)),
        verdict=verdict,
        about=tuple((key, _value(before, key), _value(after, key)) for key in ABOUT),
        changes=changed,
        advice=tuple(advice(verdict, changed, command)),
        next_command=command,
        curves=tuple(curves_of(before.recorded.series, after.recorded.series, verdict.metrics)),
    )


# ---- what was run


def _summary(before: Side, after: Side, loaded: LoadedSite | None) -> Iterator[str]:
    """Yield when and on what was measured, how much, how far to trust it, and what wrote this."""
    if site := _value(after, "site"):
        yield f"{site}, platform {_value(after, 'platform')}"
    if loaded and loaded.site.not_proved:
        yield loaded.site.not_proved
    for side, verb in ((after, "measured"), (before, "compared with")):
        every: list[Gate | JobValues] = [
            *side.recorded.gates,
            *(job for series in side.recorded.series.values() for job in series.jobs),
        ]
        if runs := nodes_of_runs(every):
            jobs, nodes = counted(len(runs), "job"), counted(len(set[str]().union(*runs.values())), "node")
            moments = [entry.time for entry in every]
            days = dict.fromkeys(filter(None, (_day(min(moments)), _day(max(moments)))))
            yield f"{verb} {jobs} on {nodes}, {' to '.join(days)}"
    yield f"lumisite {__version__}"


def _day(seconds: float) -> str:
    """Return the day (UTC) of a time in seconds since 1970; nothing for a time that no calendar has."""
    try:
        when = time.gmtime(seconds)
    except (OverflowError, OSError, ValueError):
        return ""
    return f"{when.tm_mday} {time.strftime('%B %Y', when)}"


def _value(side: Side, key: str) -> str:
    found = side.about.get(key) or ""
    if isinstance(found, Mapping):
        found = " ".join(f"{name}={value}" for name, value in found.items())
    return " ".join(str(found).split())
