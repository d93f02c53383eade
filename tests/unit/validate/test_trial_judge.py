"""What the runs of a trial show: which allocations count, and each answer that a setting can get."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from lumisite.findings.catalogue import make_finding
from lumisite.findings.finding import Finding
from lumisite.validate.trial.design import Design, Thresholds, TrialSetting, plan
from lumisite.validate.trial.judge import SettingResult, TrialVerdict, judge_trial
from lumisite.validate.trial.proof import TookEffect
from lumisite.validate.trial.results import Measured, RunResult
from tests.support.trials import CONTROL, METRICS, MIB, Machine, a_trial, run_trial

CALM = Machine(allocation=0.002, slot=0.002)
TRIED = "TRIED=1"
NOT_REACHED = make_finding("setting-not-reached", name="TRIED", actual="0", rank=0, setting=TRIED)
Change = Callable[[RunResult], RunResult | None]


def factor(part: float, *, of: str = "", arm: str = TRIED) -> Machine:
    """Give a machine on which an arm is faster by a part in the metrics whose names hold a text."""
    return replace(CALM, effect=lambda name, metric: math.log1p(part) if name == arm and of in metric else 0.0)


def ran(machine: Machine = CALM, change: Change = lambda result: result, design: Design | None = None) -> TrialVerdict:
    """Judge what a trial left, changed run by run; None is a run of which nothing is left."""
    design = design or a_trial()
    return judge_trial(design, list(filter(None, map(change, run_trial(design, machine, 1)))))


def answer(verdict: TrialVerdict) -> SettingResult:
    (one,) = verdict.answers
    return one


def codes(one: SettingResult) -> list[str]:
    return [reason.code for reason in one.reasons]


def arm_is(arm: str, allocation: int, **changes: object) -> Change:
    """Change the runs of an arm in one allocation."""

    def change(result: RunResult) -> RunResult:
        mine = result.run.arm == arm and result.run.allocation == allocation
        return replace(result, **changes) if mine else result  # type: ignore[arg-type]

    return change


def test_an_inert_setting() -> None:
    one = answer(ran())
    assert one.effect == "inert"
    assert codes(one) == ["effect-excluded"]
    assert one.reasons[0].values["what"] == "metric"
    assert {effect.metric for effect in one.effects} > {"ddp/samples_per_s/comm/2n", "collectives/all_reduce_busbw/2n"}
    assert all(effect.low < 0 < effect.high < 0.03 for effect in one.effects if abs(effect.effect) < 0.001)


def test_what_helps_the_workload() -> None:
    one = answer(ran(factor(0.07)))
    assert one.finding.code == "setting-helps"
    assert codes(one) == ["effect-measured"]
    assert str(one.reasons[0].values["metric"]).startswith("ddp/samples_per_s/")
    assert len(one.effects) == 8
    assert sum(effect.low < 0.07 < effect.high for effect in one.effects) >= 7
    for effect in one.effects:
        assert effect.effect == pytest.approx(0.07, abs=0.01)
        assert sorted(effect.each) == [1, 2, 3]


def test_a_gain_of_the_microbenchmark_alone_never_helps() -> None:
    one = answer(ran(factor(0.5, of="collectives")))
    assert one.effect == "inert"
    assert codes(one) == ["effect-excluded", "microbenchmark-gains"]
    assert str(one.reasons[1].values["metric"]).startswith("collectives/")


def test_a_gain_of_the_microbenchmark_alone_is_not_known_without_a_workload() -> None:
    one = answer(ran(factor(0.5), lambda result: replace(result, values=without_workload(result))))
    assert one.effect == "underpowered"
    assert codes(one) == ["workload-missing", "microbenchmark-gains"]


def test_inert_without_a_workload_says_so() -> None:
    one = answer(ran(CALM, lambda result: replace(result, values=without_workload(result))))
    assert (one.effect, codes(one)) == ("inert", ["effect-excluded", "workload-missing"])


def without_workload(result: RunResult) -> dict[str, Measured]:
    return {name: value for name, value in result.values.items() if not name.startswith("ddp")}


def test_what_makes_one_size_slower_is_harmful() -> None:
    one = answer(ran(factor(-0.3, of="all_reduce_busbw/4MiB/")))
    assert one.effect == "harmful"
    assert one.reasons[0].values["metric"] == "collectives/all_reduce_busbw/2n, 4MiB"
    sizes = {effect.first: effect.effect for effect in one.sizes if effect.metric == "collectives/all_reduce_busbw/2n"}
    assert sizes[4 * MIB] == pytest.approx(-0.3, abs=0.02)
    assert sizes[8 * MIB] == pytest.approx(0, abs=0.02)


def test_harm_is_worse_than_help() -> None:
    machine = replace(
        CALM,
        effect=lambda arm, metric: 0.0 if arm != TRIED else -0.1 if "all_gather" in metric else 0.2,
    )
    assert answer(ran(machine)).effect == "harmful"


def test_without_what_is_needed_the_workload_is_much_slower() -> None:
    assert answer(ran(factor(0.5))).effect == "needed"
    assert answer(ran(factor(0.5, of="collectives"))).effect != "needed"


@pytest.mark.parametrize(("part", "worth"), [(-0.5, "needed"), (-0.07, "helps"), (0.07, "harmful"), (0.0, "inert")])
def test_the_answer_to_an_absence_is_about_the_setting(part: float, worth: str) -> None:
    one = answer(ran(factor(part, arm="GONE unset"), design=a_trial([TrialSetting("GONE")])))
    assert one.effect == worth
    if worth == "helps":
        assert all(effect.effect < 0 for effect in one.effects), "the variant, without it, is slower"
    if part:
        (reason,) = one.reasons
        assert (reason.values["variant"], reason.values["baseline"]) == ("GONE unset", None)
        assert str(reason.values["effect"]).startswith("-" if part < 0 else "+")


@pytest.mark.parametrize(
    ("setting", "given", "baseline"),
    [
        (TrialSetting("GONE"), "0", "GONE=0"),
        (TrialSetting("GONE", "1"), None, "GONE unset"),
        (TrialSetting("GONE", "1"), "2", "GONE=2"),
    ],
)
def test_an_effect_names_what_each_side_has_of_the_variable(
    setting: TrialSetting, given: str | None, baseline: str
) -> None:
    def recorded(result: RunResult) -> RunResult:
        return replace(result, given={"GONE": given} if result.run.arm == "reference" else {})

    one = answer(ran(factor(-0.5, arm=str(setting)), recorded, a_trial([setting])))
    (reason,) = one.reasons
    assert (reason.values["variant"], reason.values["baseline"]) == (str(setting), baseline)
    assert str(reason.values["effect"]).startswith("-5")
    assert one.finding.code == ("setting-needed" if setting.value is None else "setting-harmful")


def test_runs_that_failed_when_they_ended_are_counted() -> None:
    machine = replace(CALM, hangs=lambda arm: float(arm == TRIED))
    one = answer(ran(machine, lambda result: replace(result, at_exit=result.outcome == "hung")))
    assert [(reason.code, dict(reason.values)) for reason in one.reasons[1:]] == [
        ("runs-failed-at-exit", {"count": 3, "side": "variant"})
    ]


def test_lower_is_better_where_the_metric_says_so() -> None:
    def as_times(result: RunResult) -> RunResult:
        values = {
            name: replace(one, better="lower", values=tuple(1 / value for value in one.values))
            for name, one in result.values.items()
        }
        return replace(result, values=values)

    assert answer(ran(factor(0.07), as_times)).effect == "helps"


@pytest.mark.parametrize(
    ("took_effect", "proof", "code"),
    [("no", (NOT_REACHED,), "setting-not-reached"), ("unknown", (), "setting-not-shown")],
)
def test_what_is_not_shown_to_act_is_unverified_and_has_no_number(
    took_effect: TookEffect, proof: tuple[Finding, ...], code: str
) -> None:
    one = answer(ran(factor(0.5), lambda result: replace(result, took_effect=took_effect, proof=proof)))
    assert (one.finding.code, codes(one), one.effects, one.sizes) == ("setting-unverified", [code], (), ())


def test_one_run_in_which_it_did_not_act_is_enough_to_doubt_all() -> None:
    one = answer(ran(factor(0.07), arm_is(TRIED, 2, took_effect="no", proof=(NOT_REACHED,))))
    assert (one.effect, one.reasons) == ("unverified", (NOT_REACHED,))


def test_a_hang_of_every_run_is_harmful_even_if_nothing_else_is_known() -> None:
    machine = replace(CALM, hangs=lambda arm: float(arm == TRIED))
    one = answer(ran(machine, lambda result: replace(result, took_effect="unknown")))
    assert (one.finding.code, codes(one)) == ("setting-harmful", ["runs-failed"])
    rates = {"variant": TRIED, "baseline": None, "failed": "3 of 3", "baseline_failed": "0 of 9"}
    assert one.reasons[0].values == rates
    assert one.hangs.with_it.low == pytest.approx(0.292, abs=0.001)
    assert one.hangs.with_it.high == 1.0
    assert one.hangs.without.high == pytest.approx(0.336, abs=0.001)


def test_a_hang_of_the_reference_makes_it_needed() -> None:
    machine = replace(CALM, hangs=lambda arm: 0.91 if arm in ("reference", "sham", "control") else 0.0)
    one = answer(ran(machine, design=a_trial(attempts=6)))
    assert one.finding.code == "setting-needed"
    assert one.hangs.without.bad > one.hangs.with_it.bad == 0
    of_absence = replace(CALM, hangs=lambda arm: 0.91 if arm == "GONE unset" else 0.0)
    assert answer(ran(of_absence, design=a_trial([TrialSetting("GONE")], attempts=6))).effect == "needed"


def test_one_hang_is_no_proof_and_is_not_passed_over() -> None:
    one = answer(ran(CALM, arm_is(TRIED, 2, outcome="hung", values={})))
    assert one.effect == "underpowered"
    assert codes(one) == ["runs-failed-by-chance", "size-needed"]
    rates = {"variant": TRIED, "baseline": None, "failed": "1 of 3", "baseline_failed": "0 of 9"}
    assert one.reasons[0].values == rates


def test_what_was_lost_counts_for_nothing() -> None:
    one = answer(ran(CALM, arm_is(TRIED, 1, outcome="lost", values={})))
    assert one.hangs.with_it.runs == 2


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (arm_is("reference", 2, leftovers=("n2",)), "run-left-processes"),
        (arm_is("sham", 2, outcome="lost"), "run-lost"),
        (arm_is("reference", 2, outcome="lost"), "run-lost"),
        (arm_is("control", 2, values={}), "control-not-seen"),
        (lambda one: replace(one, outcome="failed") if one.run.allocation == 2 else one, "no-run-ended"),
        (lambda one: replace(one, values={}) if one.run.allocation == 2 else one, "nothing-decides"),
    ],
)
def test_an_allocation_that_proves_nothing_is_thrown_out(change: Change, code: str) -> None:
    verdict = ran(CALM, change)
    assert [one.standing for one in verdict.allocations] == ["valid", "thrown out", "valid"]
    assert verdict.allocations[1].reasons[0].code == code
    assert verdict.next_allocation == 4, "it is run again"
    assert answer(verdict).effect == "underpowered"


@pytest.mark.parametrize(("arm", "code"), [("sham", "placebo-differs"), ("reference", "reference-drifts")])
def test_a_placebo_that_differs_and_a_last_reference_that_does_throw_out(arm: str, code: str) -> None:
    def slower(result: RunResult) -> RunResult:
        slot = result.run
        if slot.allocation != 3 or slot.arm != arm or (arm == "reference" and slot.position == 1):
            return result
        return replace(
            result,
            values={
                name: replace(one, values=tuple(value * 0.9 for value in one.values))
                for name, one in result.values.items()
            },
        )

    verdict = ran(CALM, slower)
    assert verdict.allocations[2].standing == "thrown out"
    assert any(one.code == code for one in verdict.allocations[2].reasons)


def test_a_plain_reference_that_hangs_after_a_hang_throws_out_and_ends_what_counts() -> None:
    design = a_trial()
    results = run_trial(design, CALM, 1)
    at = next(number for number, one in enumerate(results) if one.run.allocation == 2 and one.run.arm == TRIED)
    hung = replace(results[at], outcome="hung", values={})
    check = replace(hung, run=replace(hung.run, arm="reference", check=1))
    passed = replace(check, outcome="done")
    for last, standing, runs in ((passed, "valid", 3), (check, "thrown out", 3)):
        verdict = judge_trial(design, [*results[:at], hung, last, *results[at + 1 :]])
        assert verdict.allocations[1].standing == standing
        assert answer(verdict).hangs.with_it.runs == runs
        assert answer(verdict).hangs.without.runs == (9 if standing == "valid" else 9 - after(design, hung))
    (reason,) = (one for one in verdict.allocations[1].reasons if one.code == "plain-reference-bad")
    assert reason.values == {"outcome": "hung", "position": hung.run.position}


def test_after_something_was_left_on_a_node_no_hang_counts() -> None:
    design = a_trial()
    machine = replace(CALM, hangs=lambda arm: float(arm == TRIED))
    results = map(arm_is("reference", 2, leftovers=("n1",)), run_trial(design, machine, 1))
    hangs = answer(judge_trial(design, list(filter(None, results)))).hangs
    assert (hangs.with_it.runs, hangs.without.runs) == (2, 7), "of the second allocation, the first reference alone"


def after(design: Design, hung: RunResult) -> int:
    """Count the references and shams that come after a slot."""
    later = (slot for slot in design.runs_of(hung.run.allocation) if slot.position > hung.run.position)
    return sum(slot.arm in ("reference", "sham") for slot in later)


def test_a_trial_ends_by_its_rule_and_answers_nothing_before() -> None:
    design = a_trial()
    results = run_trial(design, factor(0.5), 1)
    assert judge_trial(design, []).next_allocation == 1
    for count in range(len(results)):
        verdict = judge_trial(design, results[:count])
        assert verdict.next_allocation == min(3, 1 + count // len(design.runs_of(1)))
        assert answer(verdict).effect in ("underpowered", "unverified")
        if answer(verdict).effect == "underpowered":
            assert codes(answer(verdict)) == ["trial-not-ended"]
    assert judge_trial(design, results).next_allocation is None
    shams = [replace(one, values={}) if one.run.arm == "control" else one for one in results]
    assert judge_trial(design, shams).next_allocation == 4


def test_after_all_allocations_are_thrown_out_the_trial_is_over() -> None:
    verdict = ran(replace(CALM, drift=lambda _allocation: 0.2))
    assert (len(verdict.allocations), verdict.valid, verdict.next_allocation) == (6, 0, None)
    assert answer(verdict).finding.code == "setting-underpowered"
    assert codes(answer(verdict)) == ["allocations-missing"]


def test_no_run_counts_twice_and_none_that_was_not_planned() -> None:
    design = a_trial()
    results = run_trial(design, CALM, 1)
    other = [replace(one, outcome="hung", values={}) for one in results]
    strange = [replace(one, run=replace(one.run, allocation=9)) for one in other]
    assert judge_trial(design, [*results, *other, *strange]).answers == judge_trial(design, results).answers


def test_the_order_of_results_does_not_matter() -> None:
    design = a_trial(attempts=3)
    results = run_trial(design, factor(0.07), 1)
    mixed = random.Random(1).sample(results, len(results))
    assert judge_trial(design, mixed).answers == judge_trial(design, results).answers


def test_several_settings_share_one_family_of_comparisons() -> None:
    settings = [TrialSetting("TRIED", "1"), *(TrialSetting(f"OTHER{number}", "1") for number in range(30))]
    alone, among = (ran(factor(0.04), design=a_trial(own)).answers[0] for own in (settings[:1], settings))
    assert among.effect == "helps"
    first = {effect.name: effect for effect in alone.effects}
    assert any(one.chance > 3 * one.p for one in among.effects if one.name in first)


def test_a_trial_of_hangs_alone_needs_no_numbers() -> None:
    machine = replace(CALM, hangs=lambda arm: float(arm == TRIED))
    verdict = ran(machine, lambda result: replace(result, values={}))
    assert (verdict.valid, answer(verdict).effect) == (3, "harmful")
    quiet = ran(CALM, lambda result: replace(result, values={}))
    assert codes(answer(quiet)) == ["numbers-missing", "runs-failed"]


def test_the_effect_of_an_allocation_that_differs_from_the_others_widens_the_interval() -> None:
    def wild(result: RunResult) -> RunResult:
        part = {1: 1.2, 2: 1.0, 3: 0.9}.get(result.run.allocation, 1.0) if result.run.arm == TRIED else 1.0
        values = {
            name: replace(one, values=tuple(value * part for value in one.values))
            for name, one in result.values.items()
        }
        return replace(result, values=values)

    one = answer(ran(CALM, wild))
    assert (one.effect, codes(one)) == ("underpowered", ["effect-not-excluded", "size-beyond"])
    assert all(effect.high - effect.low > 0.5 for effect in one.effects)


def test_values_at_the_ends_of_what_is_measured_are_judged() -> None:
    def wild(result: RunResult) -> RunResult:
        size = 1e100 if result.run.position % 2 else 1e-100
        return replace(result, values={name: replace(one, values=(size,)) for name, one in result.values.items()})

    design = a_trial(thresholds=Thresholds(sham=1e300, drift=1e300, control=-1e300))
    effects = answer(ran(CALM, wild, design)).effects
    assert effects
    assert all(math.isfinite(effect.mde) and effect.mde > 1e50 for effect in effects)


def test_identical_values_are_no_effect() -> None:
    def same(result: RunResult) -> RunResult:
        part = 0.5 if result.run.arm == "control" else 1.0
        return replace(result, values={name: replace(one, values=(part,)) for name, one in result.values.items()})

    assert answer(ran(CALM, same)).effect == "inert"


def test_metrics_that_were_not_named_in_the_design_decide_nothing() -> None:
    design = plan(
        1, [TrialSetting("TRIED", "1")], control=CONTROL, probes=("ddp",), metrics=("ddp/*",), nodes=2, slot_s=60
    )
    one = answer(ran(factor(0.5, of="collectives"), design=design))
    assert {effect.metric for effect in one.effects} == {name for name in METRICS if name.startswith("ddp")}
    assert one.effect == "inert"
