"""Series of a metric, as jobs before and after a change give them."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from lumisite.site.scalars import Line
from lumisite.site.validation import MetricRule
from lumisite.validate.samples import JobValues, Recorded, Series
from lumisite.validate.verdict.gates import GateVerdict
from lumisite.validate.verdict.metric import MetricVerdict, judge_metric
from lumisite.validate.verdict.system import SystemVerdict, Terms, judge_system

RULE = MetricRule(metric=Line("m"))
#: Two disjoint sets of nodes, and two more to confirm on.
SETS = (("n1", "n2"), ("n3", "n4"), ("n5", "n6"), ("n7", "n8"))
STEADY = [100.0, 100.4, 99.7, 100.1, 99.9, 100.2, 99.6, 100.3, 99.8, 100.5]


def series(
    values: Sequence[float], *, sets: Sequence[tuple[str, ...]] = SETS[:2], better: str = "higher", at: int = 0
) -> Series:
    jobs = [JobValues(f"j{at + n}", at + n, {sets[n % len(sets)]: value}) for n, value in enumerate(values)]
    return Series("m", "higher" if better == "higher" else "lower", tuple(jobs))


def after(values: Sequence[float], *, sets: Sequence[tuple[str, ...]] = SETS, better: str = "higher") -> Series:
    """Jobs after the change: five on the first two sets, the others on the next two."""
    first, later = (
        series(values[:5], sets=sets[:2], better=better, at=100),
        series(values[5:], sets=sets[2:], better=better, at=200),
    )
    return replace(first, jobs=first.jobs + later.jobs)


def judged(
    before: Sequence[float], new: Sequence[float], rule: MetricRule = RULE, better: str = "higher"
) -> MetricVerdict:
    return judge_metric(series(before, better=better), after(new, better=better), rule)


def scaled(factor: float, count: int) -> list[float]:
    return [value * factor for value in STEADY[:count]]


def per_node(
    speeds: Sequence[float], *, runs: int = 3, seed: int = 1, noise: float = 0.01, metric: str = "gemm"
) -> Series:
    chance = random.Random(seed)
    jobs = []
    for run in range(runs):
        values: dict[tuple[str, ...], float] = {
            (f"n{node}",): speed * chance.lognormvariate(0, noise) for node, speed in enumerate(speeds)
        }
        jobs.append(JobValues(f"{metric}{run}", 50 + run, values))
    return Series(metric, "higher", tuple(jobs))


def system(before: Sequence[Series], new: Sequence[Series]) -> SystemVerdict:
    old, after = (Recorded({one.metric: one for one in side}) for side in (before, new))
    return judge_system(old, after, Terms())


def codes(judged: MetricVerdict | GateVerdict) -> list[str]:
    return [finding.code for finding in judged.findings]


def write(path: str, *every: Series) -> list[str]:
    lines = [
        json.dumps(
            {
                "metric": one.metric,
                "value": value,
                "better": one.better,
                "run": job.run,
                "nodes": list(nodes),
                "time": job.time,
            }
        )
        for one in every
        for job in one.jobs
        for nodes, value in job.values.items()
    ]
    Path(path).write_text("".join(line + "\n" for line in lines))
    return lines
