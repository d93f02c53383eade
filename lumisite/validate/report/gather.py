"""What a report has: the verdict, what changed, what to do, and the numbers behind the plots.

Everything here is a pure function of what the two runs wrote; `write` has the forms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from lumisite import __version__
from lumisite.facts.facts import Facts
from lumisite.site.load import LoadedSite
from lumisite.text import counted
from lumisite.validate.metric_names import Name, parse_name, shape_order
from lumisite.validate.report.advice import ChangeRow, advice, changes
from lumisite.validate.report.headline import day, headline, time_of_change, times
from lumisite.validate.run.commands import Commands, commands_of, request_of
from lumisite.validate.samples import Recorded, Series
from lumisite.validate.verdict.gates import nodes_of_runs
from lumisite.validate.verdict.metric import MetricVerdict
from lumisite.validate.verdict.nodes import job_value
from lumisite.validate.verdict.system import SystemVerdict, Terms, judge_system

#: What of `run.json` a report repeats, with its label.
ABOUT = {
    "site": "site",
    "platform": "platform",
    "partition": "partition",
    "backend": "back-end",
    "image": "image",
    "image_digest": "image digest",
    "spec": "what is measured",
    "env": "set variables",
    "started": "started",
    "lumisite": "lumisite",
}


@dataclass(frozen=True)
class Side:
    """What one run wrote; `facts` is what the machine was, `about` is its `run.json`."""

    recorded: Recorded
    facts: Facts | None = None
    about: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Point:
    """One size of a bandwidth curve: the lowest, middle and highest job; sizes in bytes."""

    size: int
    low: float
    middle: float
    high: float


@dataclass(frozen=True)
class Curve:
    """A metric that was measured at several sizes."""

    name: str
    unit: str
    before: tuple[Point, ...]
    after: tuple[Point, ...]


@dataclass(frozen=True)
class Bar:
    """A rate on one shape; an efficiency is the part of what as many single nodes (or GPUs) would reach."""

    shape: str
    before: float | None
    after: float | None
    efficiency_before: float | None
    efficiency_after: float | None


@dataclass(frozen=True)
class Scaling:
    """A rate on one GPU, one node, several nodes."""

    name: str
    unit: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class RunReport:
    """Everything that a report has; `users` is the text on the changes that can be sent to users, line by line.

    `headline` is the verdict and the finding, `summary` when, on what, and how much was measured.
    """

    headline: str
    summary: tuple[str, ...]
    verdict: SystemVerdict
    about: tuple[tuple[str, str, str], ...]
    changes: tuple[ChangeRow, ...]
    users: tuple[str, ...]
    advice: tuple[str, ...]
    commands: Commands
    curves: tuple[Curve, ...]
    scalings: tuple[Scaling, ...]


def make_report(
    before: Side | None,
    after: Side,
    terms: Terms,
    loaded: LoadedSite | None = None,
    nodes: Mapping[str, str] | None = None,
) -> RunReport:
    """Judge `after` against `before`, or alone where that is None; what changes touch follows from the site.

    `nodes` are those of the partition with their states, where Slurm is there to say them.
    """
    alone = before is None
    verdict = judge_system(before.recorded if before else None, after.recorded, terms)
    before = before or Side(Recorded({}))
    changed, users = changes(before.facts, after.facts, loaded)
    commands = commands_of(verdict, request_of(after.about), nodes)
    when = time_of_change(before.recorded, after.recorded, after.about, loaded)
    return RunReport(
        headline=headline(verdict, changed, when, with_baseline=not alone),
        summary=tuple(_summary(before, after)),
        verdict=verdict,
        about=tuple(_about(before, after)),
        changes=changed,
        users=users,
        advice=tuple(advice(verdict, changed, commands, alone=alone)),
        commands=commands,
        curves=tuple(_curves(before.recorded.series, after.recorded.series, verdict.metrics)),
        scalings=tuple(_scalings(verdict.metrics)),
    )


# ---- what was run


def _amount(side: Side) -> dict[str, Any]:
    """Return the days of a run, and how many jobs and nodes it had; nothing where nothing was run."""
    jobs = [job for series in side.recorded.series.values() for job in series.jobs]
    runs = nodes_of_runs([*side.recorded.gates, *jobs])
    if not runs:
        return {}
    moments = times(side.recorded)
    days = dict.fromkeys(filter(None, (day(moments[0]), day(moments[-1]))))
    return {"days": " to ".join(days), "jobs": len(runs), "nodes": len(set[str]().union(*runs.values()))}


def _summary(before: Side, after: Side) -> Iterator[str]:
    """Yield when and on what was measured, how much, and what wrote this."""
    site, platform = (_value(after, key) for key in ("site", "platform"))
    if site:
        yield f"{site}, platform {platform}" if platform else site
    for side, verb in ((after, "measured"), (before, "compared with")):
        if amount := _amount(side):
            jobs, nodes = counted(amount["jobs"], "job"), counted(amount["nodes"], "node")
            yield f"{verb} {jobs} on {nodes}, {amount['days']}"
    yield f"lumisite {__version__}"


def _about(before: Side, after: Side) -> Iterator[tuple[str, str, str]]:
    for key, label in ABOUT.items():
        old, new = _value(before, key), _value(after, key)
        if old or new:
            yield label, old, new
    earlier, later = _amount(before), _amount(after)
    for name in ("days", "jobs", "nodes"):
        yield name, str(earlier.get(name, "")), str(later.get(name, ""))


def _value(side: Side, key: str) -> str:
    found = side.about.get(key) or ""
    if isinstance(found, Mapping):
        found = " ".join(f"{name}={value}" for name, value in found.items())
    return " ".join(str(found).split())


# ---- the numbers of plots


def _families(
    metrics: Iterable[MetricVerdict], family_of: Callable[[Name], str]
) -> Iterator[tuple[str, str, dict[Name, MetricVerdict]]]:
    """Yield the metrics of one family, by their names, with its name and unit; what has no family is left out."""
    families: dict[str, dict[Name, MetricVerdict]] = {}
    for metric in metrics:
        name = parse_name(metric.metric)
        families.setdefault(family_of(name), {})[name] = metric
    for family, members in sorted(families.items()):
        if family and len(members) > 1:
            yield family, next((metric.unit for metric in members.values() if metric.unit), ""), members


def _curves(
    before: Mapping[str, Series], after: Mapping[str, Series], metrics: Iterable[MetricVerdict]
) -> Iterator[Curve]:
    """Yield curves through the numbers that were judged; the lowest and the highest are of all jobs."""

    def family_of(name: Name) -> str:
        return "" if name.size is None else f"{name.quantity}/{name.shape}".strip("/")

    for family, unit, members in _families(metrics, family_of):
        old: list[Point] = []
        new: list[Point] = []
        for name, metric in sorted(members.items(), key=lambda item: item[0].size or 0):
            for points, middle, series in ((old, metric.before, before), (new, metric.after, after)):
                if middle is not None:
                    values = [job_value(job, metric.better) for job in series[metric.metric].jobs]
                    points.append(Point(name.size or 0, min(values), middle, max(values)))
        yield Curve(family, unit, tuple(old), tuple(new))


def _scalings(metrics: Iterable[MetricVerdict]) -> Iterator[Scaling]:
    def family_of(name: Name) -> str:
        # A model may follow: ddp/samples_per_s/comm.
        rate = any(part.endswith("_per_s") for part in name.quantity.split("/"))
        return name.quantity if name.shape and name.size is None and rate else ""

    for family, unit, members in _families(metrics, family_of):
        old = {name.shape: metric.before for name, metric in members.items()}
        new = {name.shape: metric.after for name, metric in members.items()}
        shapes = [shape for shape in sorted(old, key=shape_order) if old[shape] or new[shape]]
        bars = [Bar(name, old[name], new[name], _efficiency(old, name), _efficiency(new, name)) for name in shapes]
        if bars:
            yield Scaling(family, unit, tuple(bars))


def _efficiency(rates: Mapping[str, float | None], shape: str) -> float | None:
    rate, single = rates.get(shape), rates.get("1n")
    return rate / single / int(shape[:-1]) if rate and single and shape.endswith("n") else None
