"""How often a verdict is wrong, in a quick run with fixed seeds; `tests/bench/bench_simulation.py` has the whole of it."""

from __future__ import annotations

import pytest

from tests.simulation import TWELVE, Ring, World, blame, rate


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


def test_noise_alone_is_no_failure_and_what_it_hides_is_told() -> None:
    for c in (0.10, 0.30, 0.50):
        assert rate("fail", [World(c)], 300, f"noisy {c}") < 0.03
    # A drop by half is never passed over.
    assert (
        rate("pass", [World(0.30, drop=0.5)], 150, "half") + rate("warn", [World(0.30, drop=0.5)], 150, "half") < 0.05
    )
    # What does not change is rarely left open, but in the loudest noise.
    assert rate("inconclusive", [World(0.15)], 150, "calm") < 0.10
