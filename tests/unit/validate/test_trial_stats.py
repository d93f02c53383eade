"""The exact sums agree with scipy, which the package itself does without."""

from __future__ import annotations

import importlib
import math
from functools import cache
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lumisite.validate.trial.stats import adjusted, fisher, rate_interval, reach, seen_from, within


@cache
def peer() -> Any:
    """Scipy's statistics, which take seconds to import: not in each process that only asks which tests there are."""
    return importlib.import_module("scipy.stats")


@pytest.mark.thorough
@given(st.floats(-50, 50), st.integers(1, 400))
def test_students_t_is_that_of_scipy(t: float, freedom: int) -> None:
    # With one degree of freedom scipy gives 1.0 close to none, where 1 - 2 |t| / pi is right, which the next test holds.
    assume(freedom > 1 or abs(t) > 1e-6)
    assert 1 - within(t, freedom) == pytest.approx(2 * peer().t.sf(abs(t), freedom), abs=1e-10)


@given(st.floats(-1e-6, 1e-6))
def test_students_t_is_right_close_to_none_too(t: float) -> None:
    assert within(t, 1) == pytest.approx(2 * abs(t) / math.pi, rel=1e-9)


@given(st.sampled_from([0.8, 0.95, 0.99, 0.995, 0.99999]), st.integers(1, 400))
def test_the_quantile_of_t_is_that_of_scipy(chance: float, freedom: int) -> None:
    assert reach(chance, freedom) == pytest.approx(peer().t.ppf((1 + chance) / 2, freedom), rel=1e-9)


@given(st.sampled_from([0.005, 0.0005, 0.00001]), st.integers(2, 400))
def test_what_is_seen_in_nine_of_ten_trials_is_so_by_scipy(alpha: float, freedom: int) -> None:
    least = peer().t.ppf(1 - alpha / 2, freedom)
    assert peer().nct.sf(least, freedom, seen_from(alpha, freedom)) == pytest.approx(0.9, abs=0.003)


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 30), st.integers(0, 30))
def test_fishers_test_is_that_of_scipy(bad: int, good: int, other_bad: int, other_good: int) -> None:
    expected = peer().fisher_exact([[bad, good], [other_bad, other_good]], alternative="greater").pvalue
    assert fisher(bad, bad + good, other_bad, other_bad + other_good) == pytest.approx(expected, rel=1e-9)


@given(st.integers(0, 60), st.integers(1, 60))
def test_the_interval_of_a_rate_is_that_of_scipy(bad: int, runs: int) -> None:
    bad = min(bad, runs)
    interval = peer().binomtest(bad, runs).proportion_ci(method="exact")
    assert rate_interval(bad, runs) == pytest.approx((interval.low, interval.high), abs=1e-9)


def test_the_interval_of_a_rate_of_many_runs() -> None:
    interval = peer().binomtest(300, 20000).proportion_ci(method="exact")
    assert rate_interval(300, 20000) == pytest.approx((interval.low, interval.high), rel=1e-6)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30), st.floats(1e-9, 1))
def test_what_counts_at_a_rate_is_what_the_step_up_rule_takes(chances: list[float], rate: float) -> None:
    ordered = sorted(chances)
    most = max((n for n, chance in enumerate(ordered, start=1) if chance <= rate * n / len(ordered)), default=0)
    found = adjusted(chances)
    assert all(0 <= chance <= rank <= 1 for chance, rank in zip(chances, found, strict=True))
    # The rule itself rounds: at its edge either is right.
    assert sum(one < rate * (1 - 1e-9) for one in found) <= most <= sum(one <= rate * (1 + 1e-9) for one in found)
