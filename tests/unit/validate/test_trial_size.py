"""What an undecided answer says of the size of a trial that would decide, by the tests that decide it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from lumisite.validate.trial.design import TrialSetting
from lumisite.validate.trial.results import RunResult
from lumisite.validate.trial.stats import fisher
from tests.support.trials import a_trial
from tests.unit.validate.test_trial_judge import CALM, TRIED, answer, arm_is, codes, ran


def power(runs: tuple[int, int], rates: tuple[float, float], alpha: float) -> float:
    """Give the chance that Fisher's test decides, by every outcome there is."""

    def chance(bad: int, count: int, rate: float) -> float:
        return math.comb(count, bad) * rate**bad * (1 - rate) ** (count - bad)

    every = [(bad, others) for bad in range(runs[0] + 1) for others in range(runs[1] + 1)]
    return sum(
        chance(bad, runs[0], rates[0]) * chance(others, runs[1], rates[1])
        for bad, others in every
        if fisher(bad, runs[0], others, runs[1]) <= alpha
    )


@pytest.mark.parametrize("settings", [1, 4])
def test_of_rates_it_names_the_size_that_would_decide_in_nine_of_ten_trials(settings: int) -> None:
    names = [TrialSetting("TRIED", "1"), *(TrialSetting(f"OTHER{number}", "1") for number in range(1, settings))]
    one = ran(CALM, arm_is(TRIED, 2, outcome="failed", values={}), a_trial(names)).answers[0]
    values, rates, alpha = one.reasons[1].values, (1 / 3, 0.0), 0.005 / settings
    attempts, allocations = values["attempts"], values["allocations"]
    assert isinstance(attempts, int)
    assert isinstance(allocations, int)
    assert power((3 * attempts, 3 * attempts), rates, alpha) >= 0.9
    assert power((3 * attempts - 3, 3 * attempts - 3), rates, alpha) < 0.9
    assert power((allocations, 3 * allocations), rates, alpha) >= 0.9
    assert power((allocations - 1, 3 * allocations - 3), rates, alpha) < 0.9


def test_of_rates_that_no_affordable_trial_tells_apart_it_says_so() -> None:
    def some(result: RunResult) -> RunResult:
        bad = result.run.arm in (TRIED, "reference") and result.run.attempt <= (6 if result.run.arm == TRIED else 5)
        between = result.run.position not in (1, len(a_trial(attempts=10).runs_of(1)))
        return replace(result, outcome="failed", values={}) if bad and between else result

    one = answer(ran(CALM, some, a_trial(attempts=10)))
    assert codes(one) == ["runs-failed-by-chance", "size-beyond"]
    assert (one.reasons[1].values["power"], one.reasons[1].values["most_runs"]) == (0.9, 150)


def test_of_a_metric_it_names_the_allocations_after_which_the_smallest_effect_is_seen() -> None:
    design = a_trial()
    machine = replace(CALM, slot=0.01)
    one = answer(ran(machine, design=design))
    assert codes(one) == ["effect-not-excluded", "size-needed"]
    count = one.reasons[1].values["allocations"]
    assert isinstance(count, int)
    assert count > 3
    widest = max(one.effects, key=lambda effect: effect.mde)
    assert widest.spread.mde(3) == pytest.approx(math.log1p(widest.mde))
    assert widest.spread.mde(count) <= math.log1p(0.03) < widest.spread.mde(count - 1)
    larger = answer(ran(machine, design=a_trial(allocations=2 * count)))
    assert larger.effect == "inert"
