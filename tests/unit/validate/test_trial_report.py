"""What a trial found, in each of its forms."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace

import pytest

from lumisite.findings.catalogue import make_finding
from lumisite.findings.exit_code import exit_code
from lumisite.findings.writers import message
from lumisite.validate.trial.design import Design, TrialSetting, plan
from lumisite.validate.trial.judge import TrialVerdict, judge_trial
from lumisite.validate.trial.report import headline, trial_document, trial_text
from tests.support.trials import MIB, Machine, a_trial, run_trial, tried

SETTINGS = (TrialSetting("SLOWS", "1"), TrialSetting("HANGS", "<b>"), TrialSetting("NOTHING", "1"))
PARTS = {"SLOWS=1": ("all_reduce_busbw/4MiB/", 0.5)}


def one_size(arm: str, metric: str) -> float:
    of, part = PARTS.get(arm, ("", 1.0))
    return math.log(part) if of in metric else 0.0


def a_verdict(settings: Sequence[TrialSetting] = SETTINGS) -> tuple[Design, TrialVerdict]:
    machine = Machine(0.001, 0.003, effect=one_size, hangs=lambda arm: 0.7 * arm.startswith("HANGS"))
    design = a_trial(settings, 3, attempts=8)
    return design, tried(machine, 3, design)


DESIGN, VERDICT = a_verdict()


def test_the_headline_counts_answers_or_gives_the_one() -> None:
    counts = make_finding("settings-answered", count=3, effects=("2 harmful", "1 inert"))
    assert headline(VERDICT) == message(counts)
    _, alone = a_verdict([TrialSetting("NOTHING", "1")])
    (answer,) = alone.answers
    assert (answer.finding.code, answer.finding.subject) == ("setting-inert", "NOTHING=1")
    assert headline(alone) == f"NOTHING=1 {message(answer.finding)}"


@pytest.mark.parametrize(
    ("code", "exit_status"),
    [
        *((f"setting-{effect}", 0) for effect in ("needed", "helps", "inert")),
        ("setting-harmful", 1),
        *((f"setting-{effect}", 4) for effect in ("unverified", "underpowered")),
    ],
)
def test_an_answer_decides_the_exit_code(code: str, exit_status: int) -> None:
    assert exit_code([make_finding(code), make_finding("setting-inert")]) == exit_status


def test_text_has_answers_first_then_runs_that_failed_and_effects_by_size() -> None:
    text = trial_text(DESIGN, VERDICT)
    assert text.index("SLOWS=1 is harmful") < text.index("NOTHING=1 is inert")
    hangs = re.search(r"^HANGS=<b> +(\d+) of 24 \((\d+) hung\) +\d+ % to \d+ % +0 of 24", text, re.MULTILINE)
    assert hangs
    assert hangs[1] == hangs[2]
    assert re.search(r"^SLOWS=1 +collectives/all_reduce_busbw/2n, 4MiB +-[45]\d\.\d %", text, re.MULTILINE)
    assert re.findall(r"2n, ([0-9]+MiB)  ", text) == ["4MiB"], "of sizes, only what counts"
    assert len(text.splitlines()) < 40


def test_what_is_needed_is_named_with_the_value_that_ranks_have() -> None:
    machine = Machine(metrics=(), hangs=lambda arm: float(arm.endswith("unset")))
    setting, control = TrialSetting("USE_LIBUV"), [TrialSetting("C", "1")]
    design = plan(5, [setting], present={"USE_LIBUV": "0"}, control=control, probes=("ddp",), nodes=2, slot_s=60)
    line = trial_text(design, tried(machine, 5, design)).splitlines()[0]
    sides = "3 of 3 runs failed with USE_LIBUV unset (variant), 0 of 9 with USE_LIBUV=0 (baseline)"
    assert line == f"USE_LIBUV=0 is needed: {sides}"


def test_text_names_allocations_that_were_thrown_out() -> None:
    machine = Machine(0.001, 0.003, drift=lambda allocation: 0.3 * (allocation == 2))
    design = a_trial(seed=5)
    verdict = tried(machine, 5, design)
    reasons = verdict.allocations[1].reasons
    assert [reason.code for reason in reasons] == ["reference-drifts", "placebo-differs"]
    assert message(reasons[0]) in trial_text(design, verdict)


def test_json_has_all_numbers_and_the_design() -> None:
    told = json.loads(json.dumps(trial_document(DESIGN, VERDICT)))
    assert [one["worth"] for one in told["answers"]] == ["harmful", "harmful", "inert"]
    slow = next(one for one in told["answers"][0]["sizes"] if one["first"] == 4 * MIB)
    assert slow["effect"] == pytest.approx(-0.5, abs=0.02)
    assert sorted(slow["each"]) == ["1", "2", "3"]
    assert [one["code"] for one in told["answers"][1]["findings"]] == ["setting-harmful", "runs-failed"]
    assert told["design"]["thresholds"]["smallest"] == 0.03
    assert [one["standing"] for one in told["allocations"]] == ["valid"] * 3


def test_of_what_is_unverified_no_number_is_told() -> None:
    design = a_trial([TrialSetting("NOBODY", "reads")], 1)
    results = [replace(one, took_effect="unknown", proof=()) for one in run_trial(design, Machine(), 1)]
    verdict = judge_trial(design, results)
    (answer,) = verdict.answers
    assert (answer.finding.code, answer.effects, answer.sizes) == ("setting-unverified", (), ())
    assert not re.search(r"MDE|with it", trial_text(design, verdict))
