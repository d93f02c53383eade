"""What a trial found, and its design: for a terminal and as JSON."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict

from lumisite.findings.catalogue import make_finding
from lumisite.findings.writers import as_json, message
from lumisite.validate.report.templates import fill, messages
from lumisite.validate.trial.allocations import label
from lumisite.validate.trial.design import Design
from lumisite.validate.trial.effects import Effect
from lumisite.validate.trial.judge import CODES, SettingResult, TrialVerdict


def headline(verdict: TrialVerdict) -> str:
    """Return the answer to the one setting, or how many there are of each."""
    if len(verdict.answers) == 1:
        finding = verdict.answers[0].finding
        return f"{finding.subject} {message(finding)}"
    counts = Counter(answer.effect for answer in verdict.answers)
    effects = tuple(f"{counts[name]} {name}" for name in CODES if counts[name])
    return message(make_finding("settings-answered", count=len(verdict.answers), effects=effects))


def trial_text(design: Design, verdict: TrialVerdict) -> str:
    """Return what fits on a screen: of effects, those on a workload and those that count; JSON has all."""
    alpha = design.thresholds.alpha
    answers = sorted(verdict.answers, key=lambda answer: [*CODES].index(answer.effect))
    bands = [(answer, effect) for answer in answers for effect in answer.effects]
    sizes = [(answer, effect) for answer in answers for effect in answer.sizes if effect.chance <= alpha]
    return fill(
        "trial/result.txt.j2",
        headline=headline(verdict),
        answers=answers,
        verdict=verdict,
        design=design,
        hangs=[answer for answer in answers if answer.effect != "unverified" or answer.hangs.seen],
        effects={"effects": [row for row in bands if row[1].workload or row[1].chance <= alpha], "sizes": sizes},
        dropped=[allocation for allocation in verdict.allocations if allocation.standing != "valid"],
    )


def plan_text(design: Design) -> str:
    """Return all that is fixed before the first job; allocations that are run again are left out."""
    numbers = range(1, design.allocations + 1)
    orders = {number: [label(run.arm) for run in design.runs_of(number)] for number in numbers}
    return fill("trial/design.txt.j2", design=design, limits=design.thresholds, label=label, orders=orders)


def trial_document(design: Design, verdict: TrialVerdict) -> dict[str, object]:
    """Return the document of `--json`; effects are parts, of the variant against the baseline."""
    return {
        "headline": headline(verdict),
        "answers": [_answer(answer) for answer in verdict.answers],
        "allocations": [
            {
                "number": allocation.number,
                "standing": allocation.standing,
                "reasons": [message(reason) for reason in allocation.reasons],
                "nodes": allocation.nodes,
                "jobs": allocation.jobs,
            }
            for allocation in verdict.allocations
        ],
        "next_allocation": verdict.next_allocation,
        "jobs": verdict.jobs,
        "nodes": verdict.nodes,
        "slots": verdict.runs,
        "node_hours": verdict.node_hours,
        "design": asdict(design),
    }


def _effect(effect: Effect) -> dict[str, object]:
    return {name: value for name, value in asdict(effect).items() if name != "spread"}


def _answer(answer: SettingResult) -> dict[str, object]:
    return {
        "setting": str(answer.setting),
        "worth": answer.effect,
        "reason": messages(answer.reasons),
        "effects": [_effect(effect) for effect in answer.effects],
        "sizes": [_effect(effect) for effect in answer.sizes],
        "hangs": asdict(answer.hangs),
        "proof": messages(answer.proof),
        "findings": [as_json(finding) for finding in (answer.finding, *answer.reasons, *answer.proof)],
    }
