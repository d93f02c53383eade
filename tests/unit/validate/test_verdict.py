"""One metric and the whole system, judged by jobs before and after a change."""

from __future__ import annotations

import itertools
import math
import random
import re
import statistics
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from lumisite.cli import main
from lumisite.site.scalars import Line
from lumisite.site.validation import MetricRule
from lumisite.validate.lines import Gate, line_json
from lumisite.validate.verdict.metric import judge_metric
from lumisite.validate.verdict.stats import (
    HALF_DROP,
    LOOK_ALPHA,
    LOOKS,
    excludes_drop,
    lower_tail,
    noise_of_jobs,
    shift,
    spread,
)
from tests.support.series import RULE, SETS, STEADY, after, codes, judged, per_node, scaled, series, system, write

Output = pytest.CaptureFixture[str]


# ---- the statistics


def test_ties_are_exact_by_counting_every_choice() -> None:
    chance = random.Random(2)
    for _ in range(60):
        values = [float(chance.randrange(4)) for _ in range(chance.randrange(2, 10))]
        size = chance.randrange(1, len(values))

        def rank(value: float, values: list[float] = values) -> Fraction:
            below, same = sum(other < value for other in values), values.count(value)
            return below + Fraction(same + 1, 2)

        ranks = [rank(value) for value in values]
        seen = sum(ranks[:size])
        sums = [sum(chosen) for chosen in itertools.combinations(ranks, size)]
        assert lower_tail(values[:size], values[size:]) == Fraction(sum(one <= seen for one in sums), len(sums))


def test_chances_noise_and_shift_are_those_of_the_handbook() -> None:
    assert lower_tail(range(5), range(5, 15)) == Fraction(1, 3003)
    assert lower_tail([5, 5], [5, 5, 5]) == 1
    # The noise is robust and has a floor; the shift is that of most pairs.
    assert spread([0.0] * 9 + [5.0]) == noise_of_jobs([0.0] * 9 + [5.0], [1.0] * 5) == 0.005
    assert spread([-0.02, -0.01, 0.0, 0.01, 0.02]) == pytest.approx(0.014826)
    chance = random.Random(3)
    found = [noise_of_jobs(*([chance.gauss(side, 0.03) for _ in range(8)] for side in (0, 9))) for _ in range(300)]
    assert statistics.median(found) == pytest.approx(0.03, rel=0.05)
    assert shift([0.0] * 10, [-0.1] * 4 + [5.0]) == -0.1


@pytest.mark.thorough
def test_of_noisy_jobs_each_look_has_its_share_of_the_chance() -> None:
    """Looking after each job until a halving is excluded: 1 in 100 real ones may be passed, however many jobs there are."""
    chance = random.Random(6)
    passed = 0
    for _ in range(400):
        before = [chance.gauss(0, 0.3) for _ in range(10)]
        after = [chance.gauss(math.log(0.5), 0.3) for _ in range(30)]
        passed += any(excludes_drop(HALF_DROP, before, after[:count]) for count in range(3, 31))
    assert passed <= 0.02 * 400
    assert sum(LOOK_ALPHA for _ in LOOKS) == pytest.approx(0.01)


# ---- one metric

STRAY = [93.0, 93.5, 94.0, 101.0, 102.0]
#: Three of five jobs are very slow: p = 0.03 says nothing, the floor does, and five more have to confirm it.
FLOOR = [75.0, 76.0, 77.0, 101.0, 102.0]
NOISY = [100.0, 110.0, 90.0, 118.0, 84.0, 107.0, 93.0, 103.0, 97.0, 125.0]
WILD = [100.0, 140.0, 70.0, 160.0, 55.0, 115.0, 82.0, 107.0, 93.0, 175.0]
LOW_AND_HIGH = [50.0, 60.0, 100.0, 110.0, 120.0]
#: Slower by a third than four quiet jobs; of these one may have been as slow.
THIRD = [70.0, 76.0, 66.0, 72.0, 64.0, 74.0, 68.0, 63.0, 71.0, 77.0]


@pytest.mark.parametrize(
    ("before", "new", "verdict", "found", "reason"),
    [
        (STEADY, STEADY[:5], "pass", "fine", "^no drop of 4.9 % or more$"),
        (STEADY, scaled(0.97, 5), "pass", "fine", "^no drop of 4.9 % or more$"),
        (STEADY, scaled(1.13, 10), "pass", "faster", "^faster by 13.0 %$"),
        (STEADY[:4], scaled(1.0, 3), "pass", "fine", r"the baseline has 4 jobs \(10 are recommended\)$"),
        (STEADY[:4], scaled(0.78, 3), "unconfirmed", "slower unconfirmed", "0 of 5 jobs on other nodes are there"),
        (STEADY[:4], scaled(0.78, 10), "fail", "slower slower", ""),
        # What counts is confirmed, is gone, or counts still and may be chance.
        (STEADY, STRAY, "unconfirmed", "slower unconfirmed", "slower by 6.0 %, p = 0.3;"),
        (STEADY, [*STRAY, *scaled(1.0, 5)], "pass", "slower fine", "not confirmed by 5 more jobs: "),
        (STEADY, [*STRAY, 93.0, 93.2, 92.0, 103.0, 104.0], "warn", "slower fine", "not confirmed by 5 more jobs: "),
        # A drop of more than a fifth needs no test.
        (STEADY, FLOOR, "unconfirmed", "slower unconfirmed", ""),
        (STEADY, FLOOR * 2, "fail", "slower slower", ""),
        (STEADY, [*FLOOR, *scaled(1.0, 5)], "warn", "slower fine", ""),
        # But in noise, where a drop fails by its chance alone.
        ([100.0, 101.0, 99.0, 102.0], THIRD, "fail", "slower slower", ""),
        ([100.0, 101.0, 99.0, 55.0], THIRD, "warn", "slower fine", ""),
        # Noisy jobs say what they rule out.
        (NOISY, [98.0, 99.0, 100.0, 101.0, 108.0], "pass", "fine", "of 20.0 % or more, though jobs differ by 10.7 %$"),
        (NOISY, [84.0, 86.0, 88.0, 90.0, 92.0], "pass", "fine", "a drop of 20.0 %, but it has not dropped by half"),
        (NOISY, [40.0, 41.0, 42.0, 43.0, 44.0] * 2, "fail", "slower slower", ""),
        # And when they are looked at again.
        (WILD, LOW_AND_HIGH, "inconclusive", "few-jobs", "a drop by half; the next look is after 5 more jobs"),
        (WILD, [*LOW_AND_HIGH, *WILD, *WILD[:5]], "pass", "fine", "it has not dropped by half"),
        (WILD, [50.0, 60.0, 75.0, 130.0, 140.0] * 2, "inconclusive", "few-jobs", "the next look is after 10 more jobs"),
    ],
)
def test_what_jobs_show_of_a_metric(
    before: list[float], new: list[float], verdict: str, found: str, reason: str
) -> None:
    metric = judged(before, new)
    assert (metric.verdict, codes(metric)) == (verdict, [f"metric-{code}" for code in found.split()])
    assert re.search(reason, metric.reason)
    # Noisy jobs are looked at after 5, 10, 20 and 30.
    assert metric.more_jobs == {"unconfirmed": 5, "inconclusive": len(new)}.get(verdict, 0)


@pytest.mark.parametrize("better", ["higher", "lower"])
def test_a_drop_is_unconfirmed_then_confirmed_or_refuted(better: str) -> None:
    slow = 0.88 if better == "higher" else 1 / 0.88
    first = judged(STEADY, scaled(slow, 5), better=better)
    assert (first.verdict, first.jobs_before, first.jobs_compared) == ("unconfirmed", 10, 5)
    assert first.change == pytest.approx(-0.12, abs=0.005)
    assert first.p == pytest.approx(1 / 3003, rel=1e-4)
    both = judged(STEADY, scaled(slow, 10), better=better)
    assert (both.verdict, codes(both)) == ("fail", ["metric-slower", "metric-slower"])
    assert re.fullmatch(
        r"slower by 1[12]\.\d %, p = 0\.00033; confirmed by 5 more jobs: 1[12]\.\d %, p = 5\.4e-06", both.reason
    )
    assert both.p == pytest.approx(5.4e-6, rel=0.01)
    refuted = judged(STEADY, [*scaled(slow, 5), *scaled(1.0, 5)], better=better)
    assert (refuted.verdict, codes(refuted)) == ("warn", ["metric-slower", "metric-fine"])
    assert codes(judged(STEADY, scaled(1 / slow, 10), better=better)) == ["metric-faster"]


def test_later_jobs_on_the_same_nodes_do_not_confirm() -> None:
    one_set = series(scaled(0.88, 10), sets=SETS[:1], at=100)
    assert judge_metric(series(STEADY), one_set, RULE).verdict == "unconfirmed"
    other_set = replace(one_set, jobs=one_set.jobs[:5] + series(scaled(0.88, 5), sets=SETS[1:2], at=200).jobs)
    assert judge_metric(series(STEADY), other_set, RULE).verdict == "fail"
    waiting = judge_metric(series(STEADY), replace(other_set, jobs=other_set.jobs[:9]), RULE)
    assert waiting.reason.endswith("; 4 of 5 jobs on other nodes are there to confirm it")


@pytest.mark.parametrize("factor", [1.0, 0.78, 0.4])
@pytest.mark.parametrize(("before", "new"), [(1, 10), (2, 10), (3, 10), (3, 20), (10, 1), (10, 2), (1, 1)])
def test_too_few_jobs_decide_nothing_however_slow_and_say_how_many_are_missing(
    before: int, new: int, factor: float
) -> None:
    """One job before and ten after at -22 % were a failure, with p = 0.09."""
    verdict = judged(STEADY[:before], [value * factor for value in (STEADY * 2)[:new]])
    assert (verdict.verdict, codes(verdict)) == ("inconclusive", ["metric-few-jobs"])
    assert (verdict.noise, verdict.limit, verdict.p) == (None, None, None)
    missing = [f"{4 - before} before"] * (before < 4) + [f"{3 - new} after"] * (new < 3)
    assert verdict.reason == (
        f"too few jobs: {before} before and {min(new, 5)} after; {' and '.join(missing)} are missing (best 10 and 5)"
    )


@pytest.mark.parametrize(
    ("factor", "threshold", "verdict"), [(0.93, 0.05, "fail"), (0.93, 0.10, "pass"), (0.97, 0.01, "fail")]
)
def test_the_threshold_can_be_set(factor: float, threshold: float, verdict: str) -> None:
    assert judged(STEADY, scaled(factor, 10), MetricRule(metric=Line("m"), threshold=threshold)).verdict == verdict


# ---- the system


def test_a_metric_on_one_side_only_is_inconclusive() -> None:
    gone = system([series(STEADY), replace(series(STEADY), metric="gone")], [after(scaled(1.0, 5))])
    assert (gone.exit_code, codes(gone.metrics[0])) == (4, ["metric-unmeasured"])
    assert gone.metrics[0].reason == "not measured after"
    assert system([], [after(scaled(1.0, 5))]).metrics[0].reason == "not measured before"
    assert system([], []).exit_code == 4


def test_thirty_jobs_are_the_last_look() -> None:
    found = system([series([*WILD[:4]] * 2)], [series([50.0, 100.0, 200.0, 60.0, 400.0, 90.0] * 5, at=100)])
    assert (found.exit_code, found.metrics[0].more_jobs) == (4, 0)
    assert "30 jobs are the last look" in found.metrics[0].reason
    assert "take a longer baseline" in found.metrics[0].findings[-1].advice


def test_the_worst_metric_decides() -> None:
    fine, slow = after(scaled(1.0, 5)), replace(after(scaled(0.8, 10)), metric="x")
    before = [series(STEADY), replace(series(STEADY), metric="x")]
    assert system(before, [fine, slow]).exit_code == 1
    assert system(before, [fine, replace(slow, jobs=slow.jobs[:5])]).exit_code == 4
    mixed = after([*STRAY, 93.0, 93.2, 92.0, 103.0, 104.0])
    assert system(before, [fine, replace(mixed, metric="x")]).verdict == "warn"
    assert system(before, [fine, replace(fine, metric="x")]).verdict == "pass"


def test_metrics_share_one_chance_of_error_and_what_fails_leaves_its_share_to_the_others() -> None:
    """One in 167 is more than half of the chance, and less than all of it (Holm)."""
    few, slower = [100.0, 101.0, 99.0, 102.0], [*scaled(0.9, 4), 101.5, *scaled(0.9, 5)]
    for factor, verdicts in ((0.8, ["fail", "fail"]), (1.0, ["warn", "pass"])):
        others = [replace(series(few), metric="x")], [replace(after(scaled(factor, 10)), metric="x")]
        found = system([series(few), *others[0]], [after(slower), *others[1]]).metrics
        assert [metric.verdict for metric in found] == verdicts
        assert found[0].p == pytest.approx(6 / 1001)


def test_the_order_of_lines_and_files_changes_no_byte(capsys: Output) -> None:
    chance = random.Random(7)
    old = write("before", series(STEADY), per_node([100.0] * 16), replace(series(NOISY), metric="z"))
    new = write(
        "after", after(scaled(0.9, 10)), per_node([100.0] * 15 + [80.0], seed=4), replace(after(NOISY), metric="z")
    )
    new += [
        line_json(Gate(gate, "fail" if node == "x1" else "pass", f"cause {rank}", "", node, (node,), 100.0, rank))
        for gate in ("g", "h")
        for node in ("x1", "x2", "x3")
        for rank in range(4)
    ]
    outputs = set()
    for _ in range(12):
        chance.shuffle(old)
        chance.shuffle(new)
        cut = chance.randrange(len(new))
        for name, lines in (("before", old), ("one", new[:cut]), ("two", new[cut:])):
            Path(name).write_text("\n".join(lines))
        for form in ([], ["--json"]):
            assert main(["verdict", "--before", "before", "--after", "two", "--after", "one", *form]) == 1
            outputs.add(capsys.readouterr().out)
    assert len(outputs) == 2
