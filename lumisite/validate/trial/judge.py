"""What a setting is worth, from the design of a trial and what its slots left; a pure function of both.

The answer is about the setting, whether the variant has it (NAME=VALUE) or lacks it (NAME unset): *with* is the side
that has it, *without* the other, which may have another value.

- `needed`: without it more runs hang or fail than chance explains, or the workload loses more than the design's
  `needed` (20 %), at which `validate` fails a system whatever the noise.
- `harmful`: with it more runs hang or fail, or some metric is worse.
- `helps`: the workload is better, and nothing is worse. A microbenchmark alone never earns this, nor `needed`.
- `inert`: every metric's interval lies within the smallest effect of interest.
- `unverified`: nothing shows that it took effect, so that no number says anything of it, and none is given.
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

from lumisite.text import change, counted, percent
from lumisite.validate.trial.design import REFERENCE, SHAM, Arm, Design, Setting, SlotResult
from lumisite.validate.trial.effects import Effect, Metrics, Scores, estimate_effect, metrics_of
from lumisite.validate.trial.stats import adjusted, fisher, rate_interval
from lumisite.validate.trial.valid import BAD, Allocation, judge_allocations, next_allocation

Worth: TypeAlias = Literal["needed", "helps", "inert", "harmful", "unverified", "underpowered"]


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


@dataclass(frozen=True)
class Answer:
    """What one setting is worth, why, and on what that stands; effects are empty where nothing may be said in numbers.

    `effects` are by band, `sizes` by single size. `proof` says how it is known to have taken effect, or what lacks.
    """

    setting: Setting
    worth: Worth
    reason: str
    effects: tuple[Effect, ...]
    sizes: tuple[Effect, ...]
    hangs: Hangs
    proof: str


@dataclass(frozen=True)
class TrialVerdict:
    """All answers, the allocations that they stand on or that were thrown out, and what was used of the machine.

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
class _Found:
    """What is known of one variant before anything is compared among variants; `sign` is -1 for one that lacks it."""

    arm: Arm
    sign: int
    shown: bool
    proof: str
    rates: tuple[Rate, Rate]
    effects: tuple[Effect, ...]


def judge_trial(design: Design, results: Sequence[SlotResult]) -> TrialVerdict:
    """Judge all that is there of a trial; the order of results does not matter but where one slot has two."""
    allocations = judge_allocations(design, results)
    valid = [one for one in allocations if one.standing == "valid"]
    waiting = next_allocation(design, allocations)
    metrics = metrics_of(design, results)
    by_arm: dict[str, list[SlotResult]] = {}
    for result in (result for one in allocations for result in one.clean):
        by_arm.setdefault(result.slot.arm, []).append(result)
    scores = {one.number: one.scores for one in valid}
    found = _with_chances([_found(design, metrics, arm, by_arm, scores) for arm in design.of_role("variant")])
    ended, enough = waiting is None, len(valid) >= design.allocations
    return TrialVerdict(
        tuple(
            _answer(design, one, hangs, ended=ended, enough=enough)
            for one, hangs in zip(found, _hangs(found), strict=True)
        ),
        allocations,
        waiting,
        tuple(dict.fromkeys(job for one in allocations for job in one.jobs)),
        tuple(sorted({node for one in allocations for node in one.nodes})),
        len(results),
        round(sum(result.seconds for result in results) * design.nodes / 3600, 3),
    )


def _found(
    design: Design,
    metrics: Metrics,
    arm: Arm,
    by_arm: Mapping[str, Sequence[SlotResult]],
    scores: Mapping[int, Scores],
) -> _Found:
    """Find what there is of one variant, from the clean results by arm and the scores of the valid allocations."""
    sign = -1 if arm.tried is not None and arm.tried.value is None else 1
    own = by_arm.get(arm.name, ())
    shown, proof = _proof(own)
    sides = (_rate(own), _rate([*by_arm.get(REFERENCE, ()), *by_arm.get(SHAM, ())]))
    keys = sorted({key for one in scores.values() for key in one}) if shown else []
    # What the false discovery rate asks of one effect where no other one is.
    alone = design.thresholds.alpha / max(1, len(keys) * len(design.of_role("variant")))
    limits = replace(design.thresholds, alpha=alone)
    effects = (estimate_effect(metrics, key, scores, arm.name, (REFERENCE, SHAM), sign, limits) for key in keys)
    return _Found(arm, sign, shown, proof, sides, tuple(effect for effect in effects if effect is not None))


def _proof(own: Sequence[SlotResult]) -> tuple[bool, str]:
    """Tell whether an arm's setting took effect, and how that is known: once by proof, and never the contrary."""
    against = next((result for result in own if result.took_effect == "no"), None)
    if against is not None:
        return False, against.evidence or "it did not take effect"
    proved = next((result for result in own if result.took_effect == "yes"), None)
    if proved is not None:
        return True, proved.evidence or "it took effect"
    unknown = next((result.evidence for result in own if result.evidence), "")
    return False, unknown or "nothing shows that it took effect"


def _rate(results: Sequence[SlotResult]) -> Rate:
    kept = [result for result in results if result.outcome != "lost"]
    bad, hung = sum(one.outcome in BAD for one in kept), sum(one.outcome == "hung" for one in kept)
    return Rate(bad, len(kept), hung, *(rate_interval(bad, len(kept)) if kept else (0.0, 1.0)))


def _with_chances(found: Sequence[_Found]) -> list[_Found]:
    """Give each effect the false discovery rate at which it counts, among those of all settings."""
    chances = iter(adjusted([effect.p for one in found for effect in one.effects]))
    return [
        replace(one, effects=tuple(replace(effect, chance=next(chances)) for effect in one.effects)) for one in found
    ]


def _hangs(found: Sequence[_Found]) -> list[Hangs]:
    """Compare runs that hung or failed; each direction is a family of its own."""
    sides = [one.rates if one.sign > 0 else one.rates[::-1] for one in found]
    worse = adjusted([fisher(own.bad, own.runs, base.bad, base.runs) for own, base in sides])
    better = adjusted([fisher(base.bad, base.runs, own.bad, own.runs) for own, base in sides])
    return [Hangs(own, base, up, down) for (own, base), up, down in zip(sides, worse, better, strict=True)]


def _answer(design: Design, found: _Found, hangs: Hangs, *, ended: bool, enough: bool) -> Answer:
    worth, reason = _worth(design, found, hangs, ended=ended, enough=enough)
    assert found.arm.tried is not None
    bands, sizes = (tuple(one for one in found.effects if one.alone == alone) for alone in (False, True))
    return Answer(found.arm.tried, worth, reason, bands, sizes, hangs, found.proof)


def _worth(design: Design, found: _Found, hangs: Hangs, *, ended: bool, enough: bool) -> tuple[Worth, str]:
    """Decide, the worst first: what hangs, what was not shown to act, what is worse, what is better."""
    alpha = design.thresholds.alpha
    told = f"{hangs.with_it} hung or failed with it, {hangs.without} without"
    if ended and hangs.worse <= alpha:
        return "harmful", told
    if ended and hangs.better <= alpha:
        return "needed", told
    if not found.shown:
        return "unverified", found.proof
    if not ended:
        return "underpowered", "the trial has not come to its end"
    if not enough:
        return "underpowered", f"fewer than {counted(design.allocations, 'allocation')} were valid"
    if not found.effects:
        return "underpowered", f"no two allocations have numbers; {told}"
    if _more(hangs.with_it, hangs.without) or _more(hangs.without, hangs.with_it):
        return "underpowered", f"{told}, which may be chance (`--attempts` asks for the rate)"
    return _in_numbers(design, found.effects)


def _more(own: Rate, base: Rate) -> bool:
    return own.bad * base.runs > base.bad * own.runs


def _in_numbers(design: Design, effects: Sequence[Effect]) -> tuple[Worth, str]:
    limits = design.thresholds
    counts = [one for one in effects if one.chance <= limits.alpha and abs(log1p(one.effect)) >= log1p(limits.smallest)]
    worse = [one for one in counts if one.effect < 0]
    better = [one for one in counts if one.effect > 0]
    if worse:
        return "harmful", effect_text(min(worse, key=lambda one: one.effect))
    if useful := [one for one in better if one.workload]:
        best = max(useful, key=lambda one: one.effect)
        # What is lost without it, of what there is with it.
        lost = 1 - 1 / (1 + best.effect)
        return ("needed" if lost > limits.needed else "helps"), effect_text(best)
    bands = [one for one in effects if not one.alone]
    loose = [one for one in bands if not _is_nothing(one, limits.smallest)]
    more = next(iter(sorted(better, key=lambda one: -one.effect)), None)
    only = f"; only a microbenchmark gains, {effect_text(more)}" if more else ""
    if not [one for one in loose if one not in better]:
        workload = [one for one in bands if one.workload]
        if more and not workload:
            return "underpowered", f"no workload was measured{only}"
        seen = max(one.mde for one in (workload if more else bands))
        what = "workload" if more else "metric"
        unasked = "" if workload else "; no workload was measured"
        return "inert", f"no {what} changes by {percent(limits.smallest)} or more (MDE {percent(seen)}){only}{unasked}"
    widest = max(loose, key=lambda one: one.mde)
    return "underpowered", f"an effect of {percent(limits.smallest)} is not excluded: {effect_text(widest)}{only}"


def _is_nothing(effect: Effect, smallest: float) -> bool:
    """Tell whether the whole interval is smaller than what is of interest."""
    return max(abs(log1p(effect.low)), abs(log1p(effect.high))) < log1p(smallest)


def effect_text(effect: Effect) -> str:
    """Write an effect with its interval, and the smallest that would have been seen."""
    interval = f"{change(effect.low)} to {change(effect.high)}"
    return f"{effect.name}: {change(effect.effect)} ({interval}; MDE {percent(effect.mde)})"
