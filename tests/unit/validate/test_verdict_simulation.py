"""How often a verdict is wrong, in a quick run with fixed seeds; `tests/bench/bench_simulation.py` has the whole of it."""

from __future__ import annotations

import math
import random

import pytest

from lumisite.validate.report.tables import interval_95
from tests.support.series import judged
from tests.support.simulation import TWENTY, Ring, World, blame, innocents, maintenance, verdicts


@pytest.mark.parametrize(("c", "drop"), [(0.01, 0.10), (0.05, 0.0)])
def test_the_true_change_lies_in_the_interval_of_a_report(c: float, drop: float) -> None:
    chance = random.Random(f"interval {c}")
    found = [maintenance(chance, [World(c, drop)]).metrics[0] for _ in range(300)]
    ranges = [interval_95(metric) for metric in found]
    assert sum(low <= -drop <= high for low, high in filter(None, ranges)) >= 0.92 * 300


@pytest.mark.thorough
def test_an_unchanged_system_with_twenty_metrics_rarely_fails_or_warns() -> None:
    """Of 100 such maintenances, 54 warned and 3 failed."""
    found = verdicts([World(0.05)] * len(TWENTY), 300, "twenty", TWENTY)
    assert found["fail"] <= 0.01 * 300
    assert found["warn"] <= 0.05 * 300
    # And one in five has to run five more jobs; one in twenty at 3 %.
    first = verdicts([World(0.03)] * len(TWENTY), 200, "first look", TWENTY, after=5)
    assert first["inconclusive"] <= 0.06 * 200
    assert set(first) <= {"pass", "inconclusive"}


@pytest.mark.thorough
def test_a_drop_of_a_tenth_in_one_deciding_metric_is_found_at_three_percent_of_noise() -> None:
    """It was found in 77 of 100."""
    worlds = [World(0.03, drop=0.10), *[World(0.03)] * (len(TWENTY) - 1)]
    assert verdicts(worlds, 300, "tenth", TWENTY)["fail"] >= 0.95 * 300


def test_whoever_adds_jobs_until_it_fails_gets_no_other_answer() -> None:
    """The first ten jobs are the last look at a failure: 30 jobs fail no more often than ten."""
    chance = random.Random("more jobs")
    failed = 0
    for _ in range(300):
        before, after = [chance.gauss(0, 0.03) for _ in range(10)], [chance.gauss(-0.03, 0.03) for _ in range(30)]
        looks = [
            judged([*map(math.exp, before)], [*map(math.exp, after[:count])]).verdict
            for count in (5, 7, 10, 15, 20, 30)
        ]
        assert {*looks[3:]} == {looks[2]}
        assert "fail" not in looks[:2]
        failed += looks[2] == "fail"
    assert failed


@pytest.mark.thorough
@pytest.mark.parametrize(("nodes", "runs"), [(3000, 100), (64, 300), (9, 300)])
def test_innocent_nodes_are_named_in_one_run_of_100(nodes: int, runs: int) -> None:
    """Of 3,000 nodes about five were named in each run."""
    assert innocents(nodes, 6, runs, f"innocent {nodes}")[0] <= 0.01 * runs


@pytest.mark.parametrize("nodes", [3, 4, 8])
@pytest.mark.parametrize(
    ("noise", "runs"), [((0.01, 0.01), 1), ((0.01, 0.10), 1), ((0.10, 0.10), 1), ((0.01, 0.10), 3)]
)
def test_of_few_nodes_no_innocent_one_is_named(nodes: int, noise: tuple[float, float], runs: int) -> None:
    assert blame(Ring(nodes, noise, runs), 200, f"{nodes} {noise} {runs}") <= (0.005, 0.01)


@pytest.mark.parametrize("nodes", [3, 4, 8])
@pytest.mark.parametrize(("cpu", "link"), [(1.0, 0.7), (0.5, 1.0)])
def test_of_few_nodes_the_bad_one_is_named(nodes: int, cpu: float, link: float) -> None:
    found, others = blame(Ring(nodes, (0.01, 0.10), cpu=cpu, link=link), 100, f"{nodes} {cpu} {link}")
    assert found >= 0.97
    assert others <= 0.01
