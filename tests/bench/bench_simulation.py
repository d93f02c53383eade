"""How often `verdict` is wrong, and what it finds: not speed, but as slow as a benchmark. The seeds are fixed."""

from __future__ import annotations

from lumisite.validate.lines import State
from tests.bench.measure import Row
from tests.support.simulation import TWELVE, TWENTY, World, innocents, rate, verdicts

#: Whole maintenances, and those of one metric.
MANY, ONE = 2_000, 1_500


#: The part of unchanged maintenances that may end so, in percent.
ALLOWED: tuple[tuple[State, float], ...] = (("fail", 1.0), ("warn", 5.0))


def run() -> list[Row]:
    """Measure everything of this module."""
    return [*_maintenances(), *_metrics(), *_nodes()]


def _maintenances() -> list[Row]:
    rows = []
    for c in (0.03, 0.05):
        found = verdicts([World(c)] * len(TWENTY), MANY, f"whole {c}", TWENTY)
        for state, limit in ALLOWED:
            name = f"unchanged, 20 metrics, 8 decide, {c:.0%} noise: {state}"
            rows.append(_row(name, found[state], MANY, limit))
    found = verdicts([World(0.05)] * 20, MANY // 2, "all of 20")
    for state, limit in ALLOWED:
        rows.append(_row(f"unchanged, all of 20 decide, 5% noise: {state}", found[state], MANY // 2, limit))
    slow = [World(0.03, 0.10), *[World(0.03)] * (len(TWENTY) - 1)]
    found = verdicts(slow, MANY, "whole slow", TWENTY)
    rows.append(_row("10% drop of one of 8 at 3% noise: found", found["fail"], MANY, 95, at_least=True))
    any_alarm = verdicts([World(c) for c in TWELVE], MANY // 4, "twelve")["fail"]
    return [*rows, _row("unchanged, 12 metrics of 1, 2 and 3% noise: fail", any_alarm, MANY // 4, 1.0)]


def _metrics() -> list[Row]:
    rows = []
    for c, limit in ((0.02, 0.5), (0.05, 1.0)):
        alarms = rate("fail", [World(c)], ONE, f"quiet {c}")
        rows.append(_row(f"one metric, unchanged, {c:.0%} noise: fail", alarms * ONE, ONE, limit))
    for c, drop, least in ((0.01, 0.10, 95), (0.02, 0.08, 90), (0.03, 0.15, 95), (0.05, 0.20, 95)):
        found = rate("fail", [World(c, drop)], ONE, f"slow {c} {drop}")
        rows.append(_row(f"one metric, {drop:.0%} drop, {c:.0%} noise: found", found * ONE, ONE, least, at_least=True))
    for before, least in ((10, 85), (20, 95)):
        found = rate("fail", [World(0.01, 0.10, strays=0.05, before=before)], ONE, f"strays {before}")
        name = f"10% found, {before} jobs before, 5% of them 30% slow"
        rows.append(_row(name, found * ONE, ONE, least, at_least=True))
    return rows


def _nodes() -> list[Row]:
    rows = []
    for nodes, runs in ((32, 1_000), (3000, 150)):
        wrong, _ = innocents(nodes, 6, runs, f"nodes {nodes}")
        rows.append(_row(f"{nodes:,} good nodes, 6 metrics, 3% noise: one is named", wrong, runs, 1.0))
    wrong, found = innocents(3000, 6, 50, "slow", slow=0.85)
    rows.append(_row("one of 3,000 nodes 15% slow, 3% noise: named", found, 50, 95, at_least=True))
    return rows


def _row(name: str, count: float, trials: int, limit: float, *, at_least: bool = False) -> Row:
    return Row(name, 100 * count / trials, limit, f"of {trials:,}", unit="%", at_least=at_least)
