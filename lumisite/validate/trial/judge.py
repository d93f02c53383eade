"""The effect of a setting, from the design of a trial and what its runs left; a pure function of both.

The answer is about the setting, whether the variant has it (NAME=VALUE) or lacks it (NAME unset): *with* is the side
that has it, *without* the other, which may have another value.

- `needed`: without it more runs hang or fail than chance explains, or the workload loses more than the design's
  `needed` (20 %), at which `validate` fails a system whatever the noise.
- `harmful`: with it more runs hang or fail, or some metric is worse.
- `helps`: the workload is better, and nothing is worse. A microbenchmark alone never earns this, nor `needed`.
- `inert`: every metric's interval lies within the smallest effect of interest.
- `unverified`: nothing shows that it took effect, so that no number is evidence, and none is given.
- `underpowered`: none of these was shown; the smallest effect that would have been seen says what was asked.

An effect counts where it is at least as large as the smallest of interest and its p passes the false discovery rate of
the design, among all metrics, bands and settings of the trial. Hangs are tested by Fisher, one-sided, with the same
rate among the settings, for either direction by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import log1p
from typing import Literal, TypeAlias

from lumisite.findings.catalogue import make_finding
from lumisite.findings.finding import Finding
from lumisite.text import change, percent
from lumisite.validate.trial.allocations import BAD, Allocation, judge_allocations, next_allocation
from lumisite.validate.trial.design import PLACEBO, REFERENCE, Arm, Design, Setting
from lumisite.validate.trial.effects import Effect, Metric, Scores, estimate_effect, metrics_of
from lumisite.validate.trial.results import RunResult
from lumisite.validate.trial.stats import adjusted, fisher, rate_interval

EffectName: TypeAlias = Literal["needed", "helps", "inert", "harmful", "unverified", "underpowered"]
#: The code of an answer; its severity decides the exit code.
CODES: Mapping[EffectName, str] = {
    "harmful": "setting-harmful",
    "needed": "setting-needed",
    "helps": "setting-helps",
    "inert": "setting-inert",
    "unverified": "setting-unverified",
    "underpowered": "setting-underpowered",
}


@dataclass(frozen=True)
class Rate:
    """How many of `runs` hung or failed, and the exact 95 % interval of the rate (Clopper and Pearson), in parts."""

    bad: int
    runs: int
    hung: int
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.bad} of {self.runs}"


@dataclass(frozen=True)
class Hangs:
    """Runs that hung or failed, with the setting and without it.

    `worse` and `better` are the false discovery rates at which it counts that more, or fewer, do so with it.
    """

    with_it: Rate
    without: Rate
    worse: float
    better: float

    def finding(self, code: str) -> Finding:
        """Return a finding of this code about both rates."""
        return make_finding(code, with_it=str(self.with_it), without=str(self.without))


@dataclass(frozen=True)
class Answer:
    """The effect of one setting, why, and the proof that it took effect; numbers are left out where they prove nothing.

    `finding` has the effect, `reasons` what it follows from. `effects` are by band, `sizes` by single size.
    """

    setting: Setting
    effect: EffectName
    finding: Finding
    reasons: tuple[Finding, ...]
    effects: tuple[Effect, ...]
    sizes: tuple[Effect, ...]
    hangs: Hangs
    proof: tuple[Finding, ...]


@dataclass(frozen=True)
class TrialVerdict:
    """All answers, the allocations that they follow from or that were thrown out, and what was used of the machine.

    `next_allocation` is the one to run or to finish, None where the stopping rule has ended the trial; before that no
    answer is given but `underpowered` and `unverified`.
    """

    answers: tuple[Answer, ...]
    allocations: tuple[Allocation, ...]
    next_allocation: int | None
    jobs: tuple[str, ...]
    nodes: tuple[str, ...]
    runs: int
    node_hours: float

    @property
    def valid(self) -> int:
        """How many allocations count."""
        return sum(one.standing == "valid" for one in self.allocations)


@dataclass(frozen=True)
class _Variant:
    """What is known of one variant before anything is compared among variants; `sign` is -1 for one that lacks it."""

    arm: Arm
    sign: int
    took_effect: bool
    proof: tuple[Finding, ...]
    rates: tuple[Rate, Rate]
    effects: tuple[Effect, ...]


def judge_trial(design: Design, results: Sequence[RunResult]) -> TrialVerdict:
    """Judge all that is there of a trial; the order of results does not matter but where one run has two."""
    allocations = judge_allocations(design, results)
    scores = {one.number: one.scores for one in allocations if one.standing == "valid"}
    waiting = next_allocation(design, allocations)
    metrics = [metric for metric in metrics_of(design, results) if any(metric in one for one in scores.values())]
    by_arm: dict[str, list[RunResult]] = {}
    for allocation in allocations:
        for result in allocation.clean:
            by_arm.setdefault(result.run.arm, []).append(result)
    variants = [_variant(design, metrics, arm, by_arm, scores) for arm in design.variants]
    # Each effect counts among those of all settings.
    chances = iter(adjusted([effect.p for variant in variants for effect in variant.effects]))
    unfinished = _unfinished(design, waiting, len(scores))
    answers = []
    for variant, hangs in zip(variants, _compare_hangs(variants), strict=True):
        effects = tuple(replace(effect, chance=next(chances)) for effect in variant.effects)
        answers.append(_answer(design, replace(variant, effects=effects), hangs, unfinished, ended=waiting is None))
    return TrialVerdict(
        tuple(answers),
        allocations,
        waiting,
        tuple(dict.fromkeys(job for one in allocations for job in one.jobs)),
        tuple(sorted({node for one in allocations for node in one.nodes})),
        len(results),
        round(sum(result.seconds for result in results) * design.nodes / 3600, 3),
    )


def _variant(
    design: Design,
    metrics: Sequence[Metric],
    arm: Arm,
    by_arm: Mapping[str, Sequence[RunResult]],
    scores: Mapping[int, Scores],
) -> _Variant:
    """Return what there is of one variant, from the clean results by arm and the scores of the valid allocations."""
    sign = -1 if arm.tried is not None and arm.tried.value is None else 1
    results = by_arm.get(arm.name, ())
    took_effect, proof = _proof(results)
    rates = _rate(results), _rate([*by_arm.get(REFERENCE, ()), *by_arm.get(PLACEBO, ())])
    # What the false discovery rate demands of one effect where no other one is.
    alone = design.thresholds.alpha / max(1, len(metrics) * len(design.variants))
    limits = replace(design.thresholds, alpha=alone)
    found = []
    for metric in metrics if took_effect else ():
        effect = estimate_effect(metric, scores, arm.name, (REFERENCE, PLACEBO), sign, limits)
        if effect is not None:
            found.append(effect)
    return _Variant(arm, sign, took_effect, proof, rates, tuple(found))


def _proof(results: Sequence[RunResult]) -> tuple[bool, tuple[Finding, ...]]:
    """Return whether a setting took effect, and how that is known: once by proof, and never the contrary."""
    for state in ("no", "yes"):
        for result in results:
            if result.took_effect == state:
                return state == "yes", result.proof or (() if state == "yes" else (make_finding("setting-not-shown"),))
    unknown = next((result.proof for result in results if result.proof), ())
    return False, unknown or (make_finding("setting-not-shown"),)


def _rate(results: Sequence[RunResult]) -> Rate:
    outcomes = [result.outcome for result in results if result.outcome != "lost"]
    bad = sum(outcome in BAD for outcome in outcomes)
    low, high = rate_interval(bad, len(outcomes)) if outcomes else (0.0, 1.0)
    return Rate(bad, len(outcomes), outcomes.count("hung"), low, high)


def _compare_hangs(variants: Sequence[_Variant]) -> list[Hangs]:
    """Compare runs that hung or failed; the settings are a family in each direction."""
    sides = [one.rates if one.sign > 0 else one.rates[::-1] for one in variants]
    worse = adjusted([fisher(one.bad, one.runs, base.bad, base.runs) for one, base in sides])
    better = adjusted([fisher(base.bad, base.runs, one.bad, one.runs) for one, base in sides])
    return [Hangs(one, base, up, down) for (one, base), up, down in zip(sides, worse, better, strict=True)]


def _unfinished(design: Design, waiting: int | None, valid: int) -> Finding | None:
    if waiting is not None:
        return make_finding("trial-not-ended")
    if valid < design.allocations:
        return make_finding("allocations-missing", valid=valid, wanted=design.allocations)
    return None


def _answer(design: Design, variant: _Variant, hangs: Hangs, unfinished: Finding | None, *, ended: bool) -> Answer:
    name, reasons = _effect(design, variant, hangs, unfinished, ended=ended)
    tried = variant.arm.tried
    assert tried is not None
    value = variant.arm.value
    subject = tried.name if value is None else f"{tried.name}={value}"
    return Answer(
        tried,
        name,
        make_finding(CODES[name], subject, variant="unset" if tried.value is None else None),
        reasons,
        tuple(effect for effect in variant.effects if not effect.alone),
        tuple(effect for effect in variant.effects if effect.alone),
        hangs,
        variant.proof,
    )


def _effect(
    design: Design, variant: _Variant, hangs: Hangs, unfinished: Finding | None, *, ended: bool
) -> tuple[EffectName, tuple[Finding, ...]]:
    """Decide, the worst first: what hangs, what was not shown to act, what is worse, what is better."""
    alpha = design.thresholds.alpha
    if ended and hangs.worse <= alpha:
        return "harmful", (hangs.finding("runs-failed"),)
    if ended and hangs.better <= alpha:
        return "needed", (hangs.finding("runs-failed"),)
    if not variant.took_effect:
        return "unverified", variant.proof
    if unfinished:
        return "underpowered", (unfinished,)
    if not variant.effects:
        return "underpowered", (make_finding("numbers-missing"), hangs.finding("runs-failed"))
    if hangs.with_it.bad * hangs.without.runs != hangs.without.bad * hangs.with_it.runs:
        return "underpowered", (hangs.finding("runs-failed-by-chance"),)
    return _by_numbers(design, variant.effects)


def _by_numbers(design: Design, effects: Sequence[Effect]) -> tuple[EffectName, tuple[Finding, ...]]:
    limits = design.thresholds
    counts = [one for one in effects if one.chance <= limits.alpha and abs(log1p(one.effect)) >= log1p(limits.smallest)]
    worst = min(counts, key=lambda one: one.effect, default=None)
    if worst and worst.effect < 0:
        return "harmful", (effect_finding("effect-measured", worst),)
    best = max((one for one in counts if one.workload), key=lambda one: one.effect, default=None)
    if best:
        # What is lost without it, of what there is with it.
        lost = 1 - 1 / (1 + best.effect)
        return "needed" if lost > limits.needed else "helps", (effect_finding("effect-measured", best),)
    bands = [one for one in effects if not one.alone]
    workload = [one for one in bands if one.workload]
    notes: tuple[Finding, ...] = ()
    gain = max(counts, key=lambda one: one.effect, default=None)
    if gain:
        notes = (effect_finding("microbenchmark-gains", gain),)
    loose = [one for one in bands if not _is_nothing(one, limits.smallest)]
    if any(one not in counts for one in loose):
        widest = max(loose, key=lambda one: one.mde)
        smallest = percent(limits.smallest)
        return "underpowered", (effect_finding("effect-not-excluded", widest, smallest=smallest), *notes)
    if gain and not workload:
        return "underpowered", (make_finding("workload-missing"), *notes)
    seen = max(one.mde for one in (workload if gain else bands))
    if not workload:
        notes = (*notes, make_finding("workload-missing"))
    what, smallest = "workload" if gain else "metric", percent(limits.smallest)
    return "inert", (make_finding("effect-excluded", what=what, smallest=smallest, mde=percent(seen)), *notes)


def _is_nothing(effect: Effect, smallest: float) -> bool:
    """Return whether the whole interval is smaller than what is of interest."""
    return max(abs(log1p(effect.low)), abs(log1p(effect.high))) < log1p(smallest)


def effect_finding(code: str, effect: Effect, smallest: str | None = None) -> Finding:
    """Return a finding about an effect, with its interval and the smallest that would have been seen."""
    return make_finding(
        code,
        metric=effect.name,
        effect=change(effect.effect),
        low=change(effect.low),
        high=change(effect.high),
        mde=percent(effect.mde),
        smallest=smallest,
    )
