"""What a trial found, in each of its forms."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace

import pytest

from lumisite.validate.trial.design import Design, Setting
from lumisite.validate.trial.judge import TrialVerdict, judge_trial
from lumisite.validate.trial.report import headline, text, trial_document
from tests.support.trials import MIB, Machine, a_trial, run_trial, tried

SETTINGS = (Setting("SLOWS", "1"), Setting("HANGS", "<b>"), Setting("NOTHING", "1"))
PARTS = {"SLOWS=1": ("all_reduce_busbw/4MiB/", 0.5)}


def one_size(arm: str, metric: str) -> float:
    of, part = PARTS.get(arm, ("", 1.0))
    return math.log(part) if of in metric else 0.0


def a_verdict(settings: Sequence[Setting] = SETTINGS) -> tuple[Design, TrialVerdict]:
    machine = Machine(0.001, 0.003, effect=one_size, hangs=lambda arm: 0.7 * arm.startswith("HANGS"))
    design = a_trial(settings, 3, attempts=8)
    return design, tried(machine, 3, design)


DESIGN, VERDICT = a_verdict()


def test_the_headline_counts_answers_or_gives_the_one() -> None:
    assert headline(VERDICT) == "3 settings: 2 harmful, 1 inert"
    design, alone = a_verdict([Setting("NOTHING", "1")])
    assert headline(alone) == "NOTHING=1 is inert"
    assert text(design, alone).startswith("NOTHING=1 is inert\n3 of 3 allocations valid, 3 wanted; ")


def test_text_says_answers_first_then_hangs_as_counts_and_effects_by_size() -> None:
    said = text(DESIGN, VERDICT)
    assert said.index("SLOWS=1: harmful") < said.index("NOTHING=1: inert")
    hangs = re.search(r"^HANGS=<b> +(\d+) of 24 \((\d+) hung\) +\d+ % to \d+ % +0 of 24", said, re.MULTILINE)
    assert hangs
    assert hangs[1] == hangs[2]
    assert re.search(r"^SLOWS=1 +collectives/all_reduce_busbw/2n, 4MiB +-[45]\d\.\d %", said, re.MULTILINE)
    assert re.findall(r"2n, ([0-9]+MiB)  ", said) == ["4MiB"], "of sizes, only what counts"
    assert len(said.splitlines()) < 40


def test_text_says_which_allocations_were_thrown_out() -> None:
    machine = Machine(0.001, 0.003, drift=lambda allocation: 0.3 * (allocation == 2))
    design = a_trial(seed=5)
    said = text(design, tried(machine, 5, design))
    assert re.search(r"^2 +thrown out +drift from the first to the last reference: -2\d", said, re.MULTILINE)
    assert "3 of 4 allocations valid, 3 wanted" in said


def test_json_has_all_numbers_and_the_design() -> None:
    told = json.loads(json.dumps(trial_document(DESIGN, VERDICT)))
    assert [one["worth"] for one in told["answers"]] == ["harmful", "harmful", "inert"]
    slow = next(one for one in told["answers"][0]["sizes"] if one["first"] == 4 * MIB)
    assert slow["effect"] == pytest.approx(-0.5, abs=0.02)
    assert sorted(slow["each"]) == ["1", "2", "3"]
    assert told["design"]["thresholds"]["smallest"] == 0.03
    assert [one["standing"] for one in told["allocations"]] == ["valid"] * 3


def test_of_what_is_unverified_no_number_is_told() -> None:
    design = a_trial([Setting("NOBODY", "reads")], 1)
    results = [replace(one, took_effect="unknown", evidence="") for one in run_trial(design, Machine(), 1)]
    verdict = judge_trial(design, results)
    said = text(design, verdict)
    assert "NOBODY=reads is unverified" in said
    assert "nothing shows that it took effect" in said
    assert not re.search(r"MDE|with it", said)
