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

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import expm1, log1p
from typing import Literal, TypeAlias

from lumisite.findings.catalogue import make_finding
from lumisite.findings.finding import Finding
from lumisite.text import change, percent
from lumisite.validate.trial.allocations import BAD, Allocation, judge_allocations, next_allocation
from lumisite.validate.trial.design import PLACEBO, REFERENCE, Arm, Design, Thresholds, TrialSetting
from lumisite.validate.trial.effects import Effect, Scores, estimate_effect, metrics_of
from lumisite.validate.trial.results import RunResult
from lumisite.validate.trial.size import size_for_effect, size_for_rates
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

    @property
    def seen(self) -> bool:
        """Whether any run hung or failed."""
        return bool(self.with_it.bad or self.without.bad)


@dataclass(frozen=True)
class Compared:
    """A variant and its baseline: each by what it has of the variable (None where ranks did not record it), and rates.

    `worse` and `better` are the false discovery rates at which it counts that more, or fewer, runs of the variant fail.
    """

    variant: str
    baseline: str | None
    failed: Rate
    baseline_failed: Rate
    worse: float
    better: float

    def finding(self, code: str) -> Finding:
        """Return a finding of this code about both rates."""
        return make_finding(
            code,
            variant=self.variant,
            baseline=self.baseline,
            failed=str(self.failed),
            baseline_failed=str(self.baseline_failed),
        )

    def of_effect(self, code: str, effect: Effect, smallest: str | None = None) -> Finding:
        """Return a finding about an effect, with its interval and the smallest that would have been seen."""
        return make_finding(
            code,
            metric=effect.name,
            effect=change(effect.effect),
            low=change(effect.low),
            high=change(effect.high),
            mde=percent(effect.mde),
            smallest=smallest,
            variant=self.variant,
            baseline=self.baseline,
        )


@dataclass(frozen=True)
class SettingResult:
    """The effect of one setting, why, and the proof that it took effect; numbers are left out where they prove nothing.

    `finding` has the effect, `reasons` what it follows from. `effects` are by band, `sizes` by single size; they and
    `compared` are of the variant against the baseline, `hangs` of the setting against its absence.
    """

    setting: TrialSetting
    effect: EffectName
    finding: Finding
    reasons: tuple[Finding, ...]
    effects: tuple[Effect, ...]
    sizes: tuple[Effect, ...]
    hangs: Hangs
    proof: tuple[Finding, ...]
    compared: Compared


@dataclass(frozen=True)
class TrialVerdict:
    """All answers, the allocations that they follow from or that were thrown out, and what was used of the machine.

    `next_allocation` is the one to run or to finish, None where the stopping rule has ended the trial; before that no
    answer is given but `underpowered` and `unverified`.
    """

    answers: tuple[SettingResult, ...]
    allocations: tuple[Allocation, ...]
    next_allocation: int | None
    jobs: tuple[str, ...]
    nodes: tuple[str, ...]
    runs: int
    node_hours: float

    @property
    def valid(self) -> int:
        """How many allocations count."""
        return sum(allocation.standing == "valid" for allocation in self.allocations)


def judge_trial(design: Design, results: Sequence[RunResult]) -> TrialVerdict:
    """Judge all that is there of a trial; the order of results does not matter but where one run has two."""
    allocations = judge_allocations(design, results)
    waiting = next_allocation(design, allocations)
    scores = {allocation.number: allocation.scores for allocation in allocations if allocation.standing == "valid"}
    by_arm: dict[str, list[RunResult]] = {arm.name: [] for arm in design.arms}
    for allocation in allocations:
        for result in allocation.clean:
            by_arm[result.run.arm].append(result)
    proofs = {arm: _proof(by_arm[arm.name]) for arm in design.variants}
    proved = [arm for arm, (took_effect, _) in proofs.items() if took_effect]
    effects, hangs = _effects(design, results, scores, proved), _compare_hangs(design, by_arm)
    answers = []
    for arm, (took_effect, proof) in proofs.items():
        measured = effects.get(arm, ())
        compared = _compared(arm, hangs[arm], by_arm[REFERENCE])
        if waiting is None and min(hangs[arm].worse, hangs[arm].better) <= design.thresholds.alpha:
            name: EffectName = "harmful" if hangs[arm].worse <= design.thresholds.alpha else "needed"
            reasons: tuple[Finding, ...] = (compared.finding("runs-failed"), *_at_exit(arm, by_arm))
        elif not took_effect:
            name, reasons = "unverified", proof
        elif waiting is not None:
            name, reasons = "underpowered", (make_finding("trial-not-ended"),)
        elif len(scores) < design.allocations:
            missing = make_finding("allocations-missing", valid=len(scores), wanted=design.allocations)
            name, reasons = "underpowered", (missing,)
        else:
            name, reasons = _by_measurement(design, arm, measured, compared)
        answers.append(_answer(arm, name, reasons, measured, hangs[arm], proof, compared))
    return TrialVerdict(
        tuple(answers),
        allocations,
        waiting,
        tuple(dict.fromkeys(job for allocation in allocations for job in allocation.jobs)),
        tuple(sorted({node for allocation in allocations for node in allocation.nodes})),
        len(results),
        round(sum(result.seconds for result in results) * design.nodes / 3600, 3),
    )


def _effects(
    design: Design, results: Sequence[RunResult], scores: Mapping[int, Scores], arms: Sequence[Arm]
) -> dict[Arm, tuple[Effect, ...]]:
    """Return what each of these arms changes, by the scores of the valid allocations; all effects are one family."""
    every = metrics_of(design, results)
    metrics = [metric for metric in every if any(metric in measured for measured in scores.values())]
    # What the false discovery rate demands of one effect where no other one is.
    alone = design.thresholds.alpha / max(1, len(metrics) * len(design.variants))
    limits = replace(design.thresholds, alpha=alone)
    found = {arm: [estimate_effect(metric, scores, arm, limits) for metric in metrics] for arm in arms}
    effects = {arm: [effect for effect in estimates if effect is not None] for arm, estimates in found.items()}
    chances = iter(adjusted([effect.p for estimates in effects.values() for effect in estimates]))
    return {
        arm: tuple(replace(effect, chance=next(chances)) for effect in estimates) for arm, estimates in effects.items()
    }


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


def _compare_hangs(design: Design, by_arm: Mapping[str, Sequence[RunResult]]) -> dict[Arm, Hangs]:
    """Compare runs that hung or failed; the settings are a family in each direction."""
    base = _rate([*by_arm[REFERENCE], *by_arm[PLACEBO]])
    sides = []
    for arm in design.variants:
        rate = _rate(by_arm[arm.name])
        sides.append((rate, base) if arm.sign > 0 else (base, rate))
    worse = adjusted([fisher(rate.bad, rate.runs, other.bad, other.runs) for rate, other in sides])
    better = adjusted([fisher(other.bad, other.runs, rate.bad, rate.runs) for rate, other in sides])
    pairs = zip(design.variants, sides, worse, better, strict=True)
    return {arm: Hangs(*side, more, fewer) for arm, side, more, fewer in pairs}


def _at_exit(arm: Arm, by_arm: Mapping[str, Sequence[RunResult]]) -> Iterator[Finding]:
    """Yield how many of the runs that failed had done their work, and failed when their ranks ended."""
    sides = {"variant": by_arm[arm.name], "baseline": [*by_arm[REFERENCE], *by_arm[PLACEBO]]}
    for side, results in sides.items():
        if count := sum(result.at_exit for result in results):
            yield make_finding("runs-failed-at-exit", count=count, side=side)


def _compared(arm: Arm, hangs: Hangs, references: Sequence[RunResult]) -> Compared:
    """Return a variant and its baseline, which has what the ranks of the references recorded, or what was planned."""
    assert arm.tried is not None
    name, has_it = arm.tried.name, arm.sign > 0
    values = {result.given[name] for result in references if name in result.given}
    if not values and not has_it and arm.value is not None:
        values = {arm.value}
    baseline = str(TrialSetting(name, values.pop())) if len(values) == 1 else None
    if has_it:
        return Compared(str(arm.tried), baseline, hangs.with_it, hangs.without, hangs.worse, hangs.better)
    return Compared(str(arm.tried), baseline, hangs.without, hangs.with_it, hangs.better, hangs.worse)


def _answer(
    arm: Arm,
    effect: EffectName,
    reasons: tuple[Finding, ...],
    effects: Sequence[Effect],
    hangs: Hangs,
    proof: tuple[Finding, ...],
    compared: Compared,
) -> SettingResult:
    tried = arm.tried
    assert tried is not None
    subject = tried.name if arm.value is None else f"{tried.name}={arm.value}"
    bands = tuple(measured for measured in effects if not measured.alone)
    sizes = tuple(measured for measured in effects if measured.alone)
    finding = make_finding(CODES[effect], subject, variant="unset" if tried.value is None else None)
    return SettingResult(tried, effect, finding, reasons, bands, sizes, hangs, proof, compared)


def _by_measurement(
    design: Design, arm: Arm, effects: Sequence[Effect], compared: Compared
) -> tuple[EffectName, tuple[Finding, ...]]:
    """Decide by effects, the worst first, where no more runs failed on one side than on the other."""
    one, other = compared.failed, compared.baseline_failed
    apart = one.bad * other.runs != other.bad * one.runs
    runs_needed = (size_for_rates(design, (one.bad, one.runs), (other.bad, other.runs)),) if apart else ()
    if not effects:
        least = 2 if design.allocations < 2 else None
        missing = make_finding("numbers-missing", least=least)
        return "underpowered", (missing, compared.finding("runs-failed"), *runs_needed)
    if apart:
        return "underpowered", (compared.finding("runs-failed-by-chance"), *runs_needed)
    limits = design.thresholds
    least_effect = log1p(limits.smallest)
    counts = [one for one in effects if one.chance <= limits.alpha and abs(log1p(one.effect)) >= least_effect]

    # What the setting is good for: the variant without it shows the contrary.
    def gain_of(effect: Effect) -> float:
        return arm.sign * log1p(effect.effect)

    worst = min(counts, key=gain_of, default=None)
    if worst and gain_of(worst) < 0:
        return "harmful", (compared.of_effect("effect-measured", worst),)
    best = max((effect for effect in counts if effect.workload), key=gain_of, default=None)
    if best:
        # What is lost without it, of what there is with it.
        lost = -expm1(-gain_of(best))
        return "needed" if lost > limits.needed else "helps", (compared.of_effect("effect-measured", best),)
    gain = max(counts, key=gain_of, default=None)
    return _without_effect([one for one in effects if not one.alone], counts, gain, limits, compared)


def _without_effect(
    bands: Sequence[Effect], counts: Sequence[Effect], gain: Effect | None, limits: Thresholds, compared: Compared
) -> tuple[EffectName, tuple[Finding, ...]]:
    """Decide whether an effect of interest is excluded, where none counts but gains of microbenchmarks."""
    smallest, workload = percent(limits.smallest), [effect for effect in bands if effect.workload]
    notes = (compared.of_effect("microbenchmark-gains", gain),) if gain else ()
    loose = [effect for effect in bands if not _is_nothing(effect, limits.smallest)]
    if any(effect not in counts for effect in loose):
        widest = max(loose, key=lambda effect: effect.mde)
        size = size_for_effect(widest.spread, limits.smallest)
        return "underpowered", (compared.of_effect("effect-not-excluded", widest, smallest), size, *notes)
    missing = () if workload else (make_finding("workload-missing"),)
    if gain and missing:
        return "underpowered", (*missing, *notes)
    seen = max(effect.mde for effect in (workload if gain else bands))
    what = "workload" if gain else "metric"
    excluded = make_finding("effect-excluded", what=what, smallest=smallest, mde=percent(seen))
    return "inert", (excluded, *notes, *missing)


def _is_nothing(effect: Effect, smallest: float) -> bool:
    """Return whether the whole interval is smaller than what is of interest."""
    return max(abs(log1p(effect.low)), abs(log1p(effect.high))) < log1p(smallest)
