"""The design of a trial: what runs where, drawn from the seed, written and read back."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from lumisite.errors import ResolveError
from lumisite.validate.lines import Sample
from lumisite.validate.trial.design import (
    CONTROL,
    PLACEBO,
    REFERENCE,
    Design,
    TrialSetting,
    design_text,
    plan,
    read_design,
)
from lumisite.validate.trial.results import Measured, values_of

SLOW = (TrialSetting("NET", "slow"),)


def setting(text: str) -> TrialSetting:
    name, equals, value = text.partition("=")
    return TrialSetting(name, value if equals else None)


def a_design(*tried: str, seed: int = 7, attempts: int = 1, against: tuple[TrialSetting, ...] = ()) -> Design:
    settings = [setting(one) for one in tried or ("A=1", "B")]
    return plan(
        seed, settings, against=against, control=SLOW, probes=("ddp",), nodes=2, attempts=attempts, slot_s=90, sign_s=60
    )


def test_each_allocation_runs_every_arm_between_two_references() -> None:
    design = a_design()
    for number in range(1, 7):
        slots = design.runs_of(number)
        arms = [slot.arm for slot in slots]
        assert arms[0] == arms[-1] == REFERENCE
        assert sorted(arms[1:-1]) == sorted(["A=1", "B unset", PLACEBO, CONTROL])
        assert [slot.position for slot in slots] == [1, 2, 3, 4, 5, 6]
    assert (design.allocations, design.most_allocations) == (3, 6)
    assert design.job_s == 6 * 90 + 3 * 60 + 600, "slots, signs of the reference and both variants, what is beside"
    assert design.node_hours == pytest.approx(3 * design.job_s * 2 / 3600)
    assert design.most_node_hours == pytest.approx(2 * design.node_hours)


def test_the_order_is_drawn_from_the_seed_anew_for_each_allocation() -> None:
    assert a_design() == a_design()
    orders = {
        tuple(slot.arm for slot in a_design(seed=seed).runs_of(number)) for seed in range(20) for number in range(1, 7)
    }
    assert len(orders) == 24, "all orders of four arms come up in 120 draws"


def test_an_arm_changes_what_the_reference_has() -> None:
    design = a_design("A=2", "B", against=(TrialSetting("A", "1"), TrialSetting("C", "3")))
    arms = {name: {str(one) for one in arm.settings} for name, arm in design.by_name.items()}
    assert arms == {
        REFERENCE: {"A=1", "C=3"},
        PLACEBO: {"A=1", "C=3"},
        CONTROL: {"A=1", "C=3", "NET=slow"},
        "A=2": {"A=2", "C=3"},
        "B unset": {"A=1", "C=3", "B unset"},
    }
    assert [arm.tried for arm in design.variants] == [TrialSetting("A", "2"), TrialSetting("B")]


def test_an_arm_knows_the_value_that_it_is_about() -> None:
    settings = [TrialSetting("A", "2"), TrialSetting("A"), TrialSetting("B"), TrialSetting("C")]
    against = [TrialSetting("A", "1")]
    design = plan(1, settings, against=against, present={"A": "0", "B": "3"}, probes=("ddp",), nodes=2, slot_s=90)
    assert [arm.value for arm in design.variants] == ["2", "1", "3", None]


def test_a_file_that_names_an_arm_which_it_lacks_is_refused() -> None:
    text = design_text(a_design()).replace('"arm": "sham"', '"arm": "shame"', 1)
    with pytest.raises(ResolveError, match="slots"):
        read_design(text.encode(), "design.json")


def test_attempts_are_as_many_for_the_variant_as_for_reference_and_sham_together() -> None:
    slots = a_design("A=1", attempts=10).runs_of(1)
    assert sum(slot.arm == "A=1" for slot in slots) == 10
    assert sum(slot.arm in (REFERENCE, PLACEBO) for slot in slots) == 10
    assert len({(slot.arm, slot.attempt) for slot in slots}) == len(slots)


def test_the_file_says_all_thresholds_and_is_read_back() -> None:
    design = a_design()
    text = design_text(design)
    assert read_design(text.encode(), "design.json") == design
    assert text == design_text(a_design())
    assert json.loads(text)["thresholds"]["smallest"] == design.thresholds.smallest


@pytest.mark.parametrize("number", ["NaN", "Infinity", "true", '"0.03"', "1e999", "9" * 500])
def test_a_threshold_that_is_no_number_is_told(number: str) -> None:
    text = design_text(a_design()).replace('"smallest": 0.03', f'"smallest": {number}')
    with pytest.raises(ResolveError, match=r"design\.json:\d+:\d+: thresholds\.smallest: .*finite number"):
        read_design(text.encode(), "design.json")


@pytest.mark.parametrize(
    ("tried", "against", "code"),
    [
        ((), (), "nothing-to-try"),
        (("A=1", "A=1"), (), "setting-repeated"),
        (("A=1",), ("A=1",), "setting-in-reference"),
        (("A=1",), ("B=1", "B=2"), "setting-repeated"),
        (("A=1",), ("NET=slow",), "control-in-reference"),
    ],
)
def test_what_cannot_be_compared_is_refused(tried: tuple[str, ...], against: tuple[str, ...], code: str) -> None:
    with pytest.raises(ResolveError) as refused:
        plan(
            1,
            [setting(one) for one in tried],
            against=[setting(one) for one in against],
            control=SLOW,
            probes=("ddp",),
            nodes=2,
            slot_s=90,
        )
    assert refused.value.finding.code == code


def test_values_are_those_of_all_samples_of_a_metric() -> None:
    sample = Sample("ddp/step/2n", 2.0, "lower", "r", ("n1", "n2"), 0.0, "s")
    assert values_of([sample, replace(sample, value=3.0)]) == {"ddp/step/2n": Measured((2.0, 3.0), "lower")}
