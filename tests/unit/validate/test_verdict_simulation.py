"""How often a verdict is wrong, in a quick run with fixed seeds; `tests/bench/bench_simulation.py` has the whole of it."""

from __future__ import annotations

import pytest

from tests.simulation import TWELVE, World, rate


@pytest.mark.parametrize(("c", "trials"), [(0.01, 300), (0.03, 1500)])
def test_false_alarms_are_rare(c: float, trials: int) -> None:
    assert rate("fail", [World(c)], trials, f"quiet {c}") < 0.01


@pytest.mark.parametrize(("c", "trials"), [(0.01, 300), (0.02, 1500)])
def test_a_drop_of_a_tenth_is_found(c: float, trials: int) -> None:
    assert rate("fail", [World(c, drop=0.10)], trials, f"slow {c}") >= 0.95


def test_a_drop_below_the_threshold_is_no_failure() -> None:
    assert rate("fail", [World(0.01, drop=0.02)], 300, "small") == 0


def test_twelve_metrics_together_rarely_alarm() -> None:
    assert rate("fail", [World(c) for c in TWELVE], 120, "twelve") < 0.02


def test_one_slow_metric_of_twelve_is_found() -> None:
    worlds = [World(c, drop=0.10 if number == 0 else 0.0) for number, c in enumerate(TWELVE)]
    assert rate("fail", worlds, 60, "one of twelve") >= 0.95
