"""Trials that were never run: results as a machine with known noise, drift, hangs and effects would leave them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from lumisite.validate.trial.design import Design, PlannedRun, Thresholds, TrialSetting, plan
from lumisite.validate.trial.judge import TrialVerdict, judge_trial
from lumisite.validate.trial.results import Measured, Outcome, RunResult

MIB = 1 << 20
#: Metrics as two nodes measure them: curves of collectives, and a workload of two models.
METRICS = (
    *(f"collectives/all_reduce_busbw/{1 << power}MiB/2n" for power in range(10)),
    *(f"collectives/{name}_busbw/{size}/2n" for name in ("all_gather", "reduce_scatter") for size in ("16MiB", "1GiB")),
    "ddp/samples_per_s/comm/2n",
    "ddp/samples_per_s/compute/2n",
)
CONTROL = (TrialSetting("CHANNELS", "4"),)


@dataclass(frozen=True)
class Machine:
    """A machine: standard deviations of the logarithms between allocations and between slots of one, in parts.

    With `shared` noise all metrics of a slot go up and down together, as in the worst case for the mean of a band;
    otherwise each by itself, as in the worst case for the number of comparisons. `effect` gives the logarithm by which
    an arm changes a metric, `hangs` the chance that an arm hangs, `drift` the logarithm by which the last slot of an
    allocation is slower than the first. `metrics` is what slots measure, nothing where only hangs are of interest.
    """

    allocation: float = 0.003
    slot: float = 0.0109
    shared: bool = False
    effect: Callable[[str, str], float] = lambda _arm, _metric: 0.0
    hangs: Callable[[str], float] = lambda _arm: 0.0
    drift: Callable[[int], float] = lambda _allocation: 0.0
    metrics: Sequence[str] = METRICS

    def noisier(self, times: float) -> Machine:
        """Give the same machine with more noise."""
        return replace(self, allocation=self.allocation * times, slot=self.slot * times)


def a_trial(
    settings: Sequence[TrialSetting] = (TrialSetting("TRIED", "1"),),
    seed: int = 1,
    *,
    allocations: int = 3,
    attempts: int = 1,
    control: Sequence[TrialSetting] = CONTROL,
    thresholds: Thresholds | None = None,
) -> Design:
    """Plan a trial of settings on two nodes."""
    return plan(
        seed,
        settings,
        control=control,
        probes=("collectives", "ddp"),
        nodes=2,
        allocations=allocations,
        attempts=attempts,
        slot_s=60,
        thresholds=thresholds,
    )


def run_slot(machine: Machine, chance: random.Random, slot: PlannedRun, of: int, base: float) -> RunResult:
    """Give what one slot leaves; `of` is how many its allocation has, `base` the logarithm of what that can do."""
    outcome: Outcome = "hung" if chance.random() < machine.hangs(slot.arm) else "done"
    values = {}
    late = machine.drift(slot.allocation) * (slot.position - 1) / max(1, of - 1)
    common = chance.gauss(0, machine.slot)
    for metric in machine.metrics if outcome == "done" else ():
        own = common if machine.shared else chance.gauss(0, machine.slot)
        hurt = machine.effect(slot.arm, metric)
        if slot.arm == "control":
            hurt += math.log(0.4)
        values[metric] = Measured((math.exp(5 + base + own - late + hurt),), "higher")
    return RunResult(slot, outcome, values, "yes", (), seconds=30.0, nodes=("n1", "n2"), job="1")


def run_trial(design: Design, machine: Machine, seed: int) -> list[RunResult]:
    """Run a trial to its end, by its stopping rule."""
    return _ended(design, machine, seed)[0]


def _ended(design: Design, machine: Machine, seed: int) -> tuple[list[RunResult], TrialVerdict]:
    """Give the results of a trial, and the verdict that ended it."""
    chance = random.Random(seed)
    results: list[RunResult] = []
    due = design.allocations
    for number in range(1, design.most_allocations + 1):
        slots, base = design.runs_of(number), chance.gauss(0, machine.allocation)
        results += [run_slot(machine, chance, slot, len(slots), base) for slot in slots]
        if number == min(due, design.most_allocations):  # before, the rule cannot end it
            verdict = judge_trial(design, results)
            if verdict.next_allocation is None:
                return results, verdict
            due += design.allocations - verdict.valid
    raise AssertionError("the stopping rule ends no trial")


def tried(machine: Machine, seed: int, design: Design | None = None) -> TrialVerdict:
    """Plan, run and judge a trial whose order and noise follow from the seed."""
    return _ended(design or a_trial(seed=seed), machine, seed)[1]
