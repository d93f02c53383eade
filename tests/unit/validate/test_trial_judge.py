"""What the slots of a trial say: which allocations count, and each answer that a setting can get."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from lumisite.validate.trial.design import Design, Measured, Setting, SlotResult, Thresholds, plan
from lumisite.validate.trial.judge import Answer, TrialVerdict, judge_trial
from tests.support.trials import CONTROL, METRICS, MIB, Machine, a_trial, run_trial

CALM = Machine(allocation=0.002, slot=0.002)
TRIED = "TRIED=1"
Change = Callable[[SlotResult], SlotResult | None]


def factor(part: float, *, of: str = "", arm: str = TRIED) -> Machine:
    """Give a machine on which an arm is faster by a part in the metrics whose names hold a text."""
    return replace(CALM, effect=lambda name, metric: math.log1p(part) if name == arm and of in metric else 0.0)


def ran(machine: Machine = CALM, change: Change = lambda result: result, design: Design | None = None) -> TrialVerdict:
    """Judge what a trial left, changed slot by slot; None is a slot of which nothing is left."""
    design = design or a_trial()
    return judge_trial(design, list(filter(None, map(change, run_trial(design, machine, 1)))))


def answer(verdict: TrialVerdict) -> Answer:
    (one,) = verdict.answers
    return one


def arm_is(arm: str, allocation: int, **changes: object) -> Change:
    """Change the slots of an arm in one allocation."""

    def change(result: SlotResult) -> SlotResult:
        mine = result.slot.arm == arm and result.slot.allocation == allocation
        return replace(result, **changes) if mine else result  # type: ignore[arg-type]

    return change


def test_an_inert_setting() -> None:
    one = answer(ran())
    assert one.worth == "inert"
    assert one.reason.startswith("no metric changes by 3.0 % or more (MDE ")
    assert {effect.metric for effect in one.effects} > {"ddp/samples_per_s/comm/2n", "collectives/all_reduce_busbw/2n"}
    assert all(effect.low < 0 < effect.high < 0.03 for effect in one.effects if abs(effect.effect) < 0.001)


def test_what_helps_the_workload() -> None:
    one = answer(ran(factor(0.07)))
    assert one.worth == "helps"
    assert one.reason.startswith("ddp/samples_per_s/")
    assert len(one.effects) == 8
    assert sum(effect.low < 0.07 < effect.high for effect in one.effects) >= 7
    for effect in one.effects:
        assert effect.effect == pytest.approx(0.07, abs=0.01)
        assert sorted(effect.each) == [1, 2, 3]


def test_a_gain_of_the_microbenchmark_alone_never_helps() -> None:
    one = answer(ran(factor(0.5, of="collectives")))
    assert one.worth == "inert"
    assert "only a microbenchmark gains, collectives/" in one.reason


def test_a_gain_of_the_microbenchmark_alone_is_not_known_without_a_workload() -> None:
    one = answer(ran(factor(0.5), lambda result: replace(result, values=without_workload(result))))
    assert one.worth == "underpowered"
    assert "no workload was measured" in one.reason


def test_inert_without_a_workload_says_so() -> None:
    one = answer(ran(CALM, lambda result: replace(result, values=without_workload(result))))
    assert (one.worth, one.reason.endswith("no workload was measured")) == ("inert", True)


def without_workload(result: SlotResult) -> dict[str, Measured]:
    return {name: value for name, value in result.values.items() if not name.startswith("ddp")}


def test_what_makes_one_size_slower_is_harmful() -> None:
    one = answer(ran(factor(-0.3, of="all_reduce_busbw/4MiB/")))
    assert one.worth == "harmful"
    assert one.reason.startswith("collectives/all_reduce_busbw/2n, 4MiB: -")
    sizes = {effect.first: effect.effect for effect in one.sizes if effect.metric == "collectives/all_reduce_busbw/2n"}
    assert sizes[4 * MIB] == pytest.approx(-0.3, abs=0.02)
    assert sizes[8 * MIB] == pytest.approx(0, abs=0.02)


def test_harm_is_worse_than_help() -> None:
    machine = replace(
        CALM,
        effect=lambda arm, metric: 0.0 if arm != TRIED else -0.1 if "all_gather" in metric else 0.2,
    )
    assert answer(ran(machine)).worth == "harmful"


def test_without_what_is_needed_the_workload_is_much_slower() -> None:
    assert answer(ran(factor(0.5))).worth == "needed"
    assert answer(ran(factor(0.5, of="collectives"))).worth != "needed"


@pytest.mark.parametrize(("part", "worth"), [(-0.5, "needed"), (-0.07, "helps"), (0.07, "harmful"), (0.0, "inert")])
def test_the_answer_to_an_absence_is_about_the_setting(part: float, worth: str) -> None:
    one = answer(ran(factor(part, arm="GONE unset"), design=a_trial([Setting("GONE")])))
    assert one.worth == worth
    if worth == "helps":
        assert all(effect.effect > 0 for effect in one.effects)


def test_lower_is_better_where_the_metric_says_so() -> None:
    def as_times(result: SlotResult) -> SlotResult:
        values = {
            name: replace(one, better="lower", values=tuple(1 / value for value in one.values))
            for name, one in result.values.items()
        }
        return replace(result, values=values)

    assert answer(ran(factor(0.07), as_times)).worth == "helps"


@pytest.mark.parametrize(
    ("took_effect", "evidence", "proof"),
    [("no", "the rank has TRIED=0", "the rank has TRIED=0"), ("unknown", "", "nothing shows that it took effect")],
)
def test_what_is_not_shown_to_act_is_unverified_and_has_no_number(took_effect: str, evidence: str, proof: str) -> None:
    one = answer(ran(factor(0.5), lambda result: replace(result, took_effect=took_effect, evidence=evidence)))  # type: ignore[arg-type]
    assert (one.worth, one.reason, one.effects, one.sizes) == ("unverified", proof, (), ())


def test_one_slot_in_which_it_did_not_act_is_enough_to_doubt_all() -> None:
    one = answer(ran(factor(0.07), arm_is(TRIED, 2, took_effect="no", evidence="not in the rank")))
    assert (one.worth, one.reason) == ("unverified", "not in the rank")


def test_a_hang_of_every_run_is_harmful_even_if_nothing_else_is_known() -> None:
    machine = replace(CALM, hangs=lambda arm: float(arm == TRIED))
    one = answer(ran(machine, lambda result: replace(result, took_effect="unknown")))
    assert (one.worth, one.reason) == ("harmful", "3 of 3 hung or failed with it, 0 of 9 without")
    assert one.hangs.with_it.low == pytest.approx(0.292, abs=0.001)
    assert one.hangs.with_it.high == 1.0
    assert one.hangs.without.high == pytest.approx(0.336, abs=0.001)


def test_a_hang_of_the_reference_makes_it_needed() -> None:
    machine = replace(CALM, hangs=lambda arm: 0.91 if arm in ("reference", "sham", "control") else 0.0)
    one = answer(ran(machine, design=a_trial(attempts=6)))
    assert one.worth == "needed"
    assert one.hangs.without.bad > one.hangs.with_it.bad == 0
    of_absence = replace(CALM, hangs=lambda arm: 0.91 if arm == "GONE unset" else 0.0)
    assert answer(ran(of_absence, design=a_trial([Setting("GONE")], attempts=6))).worth == "needed"


def test_one_hang_is_no_proof_and_is_not_passed_over() -> None:
    one = answer(ran(CALM, arm_is(TRIED, 2, outcome="hung", values={})))
    assert one.worth == "underpowered"
    assert one.reason.startswith("1 of 3 hung or failed with it, 0 of 9 without, which may be chance (`--attempts`")


def test_what_was_lost_counts_for_nothing() -> None:
    one = answer(ran(CALM, arm_is(TRIED, 1, outcome="lost", values={})))
    assert one.hangs.with_it.runs == 2


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (arm_is("reference", 2, leftovers=("n2",)), "slot 1 (reference) left processes on n2"),
        (arm_is("sham", 2, outcome="lost"), "lost: all slots of sham"),
        (arm_is("control", 2, values={}), "the positive control does not show"),
        (lambda one: replace(one, outcome="failed") if one.slot.allocation == 2 else one, "no slot ended well"),
    ],
)
def test_an_allocation_that_proves_nothing_is_thrown_out(change: Change, reason: str) -> None:
    verdict = ran(CALM, change)
    assert [one.standing for one in verdict.allocations] == ["valid", "thrown out", "valid"]
    assert verdict.allocations[1].reasons[0].startswith(reason)
    assert verdict.next_allocation == 4, "it is run again"
    assert answer(verdict).worth == "underpowered"


@pytest.mark.parametrize(("arm", "reason"), [("sham", "the sham differs"), ("reference", "drift from the first")])
def test_a_sham_that_differs_and_a_last_reference_that_does_throw_out(arm: str, reason: str) -> None:
    def slower(result: SlotResult) -> SlotResult:
        slot = result.slot
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
    assert any(one.startswith(reason) for one in verdict.allocations[2].reasons)


def test_a_plain_reference_that_hangs_after_a_hang_throws_out_and_ends_what_counts() -> None:
    design = a_trial()
    results = run_trial(design, CALM, 1)
    at = next(number for number, one in enumerate(results) if one.slot.allocation == 2 and one.slot.arm == TRIED)
    hung = replace(results[at], outcome="hung", values={})
    check = replace(hung, slot=replace(hung.slot, arm="reference", check=1))
    passed = replace(check, outcome="done")
    for last, standing, runs in ((passed, "valid", 3), (check, "thrown out", 3)):
        verdict = judge_trial(design, [*results[:at], hung, last, *results[at + 1 :]])
        assert verdict.allocations[1].standing == standing
        assert answer(verdict).hangs.with_it.runs == runs
        assert answer(verdict).hangs.without.runs == (9 if standing == "valid" else 9 - after(design, hung))
    assert f"a plain reference hung after slot {hung.slot.position}" in verdict.allocations[1].reasons


def test_after_something_was_left_on_a_node_no_hang_counts() -> None:
    design = a_trial()
    machine = replace(CALM, hangs=lambda arm: float(arm == TRIED))
    results = map(arm_is("reference", 2, leftovers=("n1",)), run_trial(design, machine, 1))
    hangs = answer(judge_trial(design, list(filter(None, results)))).hangs
    assert (hangs.with_it.runs, hangs.without.runs) == (2, 7), "of the second allocation, the first reference alone"


def after(design: Design, hung: SlotResult) -> int:
    """Count the references and shams that come after a slot."""
    later = (slot for slot in design.slots_of(hung.slot.allocation) if slot.position > hung.slot.position)
    return sum(slot.arm in ("reference", "sham") for slot in later)


def test_a_trial_ends_by_its_rule_and_answers_nothing_before() -> None:
    design = a_trial()
    results = run_trial(design, factor(0.5), 1)
    assert judge_trial(design, []).next_allocation == 1
    for count in range(len(results)):
        verdict = judge_trial(design, results[:count])
        assert verdict.next_allocation == min(3, 1 + count // len(design.slots_of(1)))
        assert answer(verdict).worth in ("underpowered", "unverified")
        if answer(verdict).worth == "underpowered":
            assert answer(verdict).reason == "the trial has not come to its end"
    assert judge_trial(design, results).next_allocation is None
    shams = [replace(one, values={}) if one.slot.arm == "control" else one for one in results]
    assert judge_trial(design, shams).next_allocation == 4


def test_after_all_allocations_are_thrown_out_the_trial_is_over() -> None:
    verdict = ran(replace(CALM, drift=lambda _allocation: 0.2))
    assert (len(verdict.allocations), verdict.valid, verdict.next_allocation) == (6, 0, None)
    assert answer(verdict).reason == "fewer than 3 allocations were valid"


def test_no_slot_counts_twice_and_none_that_was_not_planned() -> None:
    design = a_trial()
    results = run_trial(design, CALM, 1)
    other = [replace(one, outcome="hung", values={}) for one in results]
    strange = [replace(one, slot=replace(one.slot, allocation=9)) for one in other]
    assert judge_trial(design, [*results, *other, *strange]).answers == judge_trial(design, results).answers


def test_the_order_of_results_does_not_matter() -> None:
    design = a_trial(attempts=3)
    results = run_trial(design, factor(0.07), 1)
    mixed = random.Random(1).sample(results, len(results))
    assert judge_trial(design, mixed).answers == judge_trial(design, results).answers


def test_several_settings_share_one_family_of_comparisons() -> None:
    settings = [Setting("TRIED", "1"), *(Setting(f"OTHER{number}", "1") for number in range(30))]
    alone, among = (ran(factor(0.04), design=a_trial(own)).answers[0] for own in (settings[:1], settings))
    assert among.worth == "helps"
    first = {effect.name: effect for effect in alone.effects}
    assert any(one.chance > 3 * one.p for one in among.effects if one.name in first)


def test_a_trial_of_hangs_alone_needs_no_numbers() -> None:
    machine = replace(CALM, hangs=lambda arm: float(arm == TRIED))
    verdict = ran(machine, lambda result: replace(result, values={}))
    assert (verdict.valid, answer(verdict).worth) == (3, "harmful")
    quiet = ran(CALM, lambda result: replace(result, values={}))
    assert answer(quiet).reason == "no two allocations have numbers; 0 of 3 hung or failed with it, 0 of 9 without"


def test_the_effect_of_an_allocation_that_differs_from_the_others_widens_the_interval() -> None:
    def wild(result: SlotResult) -> SlotResult:
        part = {1: 1.2, 2: 1.0, 3: 0.9}.get(result.slot.allocation, 1.0) if result.slot.arm == TRIED else 1.0
        values = {
            name: replace(one, values=tuple(value * part for value in one.values))
            for name, one in result.values.items()
        }
        return replace(result, values=values)

    one = answer(ran(CALM, wild))
    assert one.worth == "underpowered"
    assert all(effect.high - effect.low > 0.5 for effect in one.effects)


def test_values_at_the_ends_of_what_is_measured_are_judged() -> None:
    def wild(result: SlotResult) -> SlotResult:
        size = 1e100 if result.slot.position % 2 else 1e-100
        return replace(result, values={name: replace(one, values=(size,)) for name, one in result.values.items()})

    design = a_trial(thresholds=Thresholds(sham=1e300, drift=1e300, control=-1e300))
    effects = answer(ran(CALM, wild, design)).effects
    assert effects
    assert all(math.isfinite(effect.mde) and effect.mde > 1e50 for effect in effects)


def test_identical_values_are_no_effect() -> None:
    def same(result: SlotResult) -> SlotResult:
        part = 0.5 if result.slot.arm == "control" else 1.0
        return replace(result, values={name: replace(one, values=(part,)) for name, one in result.values.items()})

    assert answer(ran(CALM, same)).worth == "inert"


def test_metrics_that_were_not_named_in_the_design_decide_nothing() -> None:
    design = plan(1, [Setting("TRIED", "1")], control=CONTROL, probes=("ddp",), metrics=("ddp/*",), nodes=2, slot_s=60)
    one = answer(ran(factor(0.5, of="collectives"), design=design))
    assert {effect.metric for effect in one.effects} == {name for name in METRICS if name.startswith("ddp")}
    assert one.worth == "inert"
