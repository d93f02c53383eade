"""`try`: plan and judge 10,000 slots, of few settings in many allocations and of many in few; and how time grows.

Processor time, which holds on a busy machine too. And on the twin: what of a job's time is no slot's.
"""

from __future__ import annotations

import gc
import random
import time

from lumisite.validate.trial.design import Design, TrialSetting
from lumisite.validate.trial.judge import judge_trial
from lumisite.validate.trial.results import RunResult
from tests.bench.measure import Row
from tests.support.trials import Machine, a_trial, run_slot
from tests.twin.test_try import trial_cluster, tried

SLOTS = 10_000
#: What grows as the slots gives 4, what grows as their square 16; a tenth of a second is not told more exactly.
GROWTH = 8
MACHINE = Machine(0.001, 0.005, hangs=lambda arm: 0.01)


def run() -> list[Row]:
    """Measure everything of this module."""
    rows = []
    for name, settings, attempts in (("many allocations", 1, 1), ("many settings", 40, 5), ("many attempts", 1, 500)):
        whole, quarter = (_taken(slots, settings, attempts) for slots in (SLOTS, SLOTS // 4))
        rows.append(Row(f"trial of {SLOTS:,} slots, {name}", whole, 5, f"a quarter takes {quarter:.2f} s", unit="s"))
        rows.append(Row(f"4 x the slots, {name}", whole / quarter, GROWTH, f"{whole:.2f} s and {quarter:.2f} s"))
    return [*rows, _beside_slots()]


def _beside_slots() -> Row:
    """Try on the twin, and compare the time between slots with theirs: those of the twin are short, so it is the worst."""
    with trial_cluster() as cluster:
        tried(cluster, "bench", "OMP_PROC_BIND=false --probe collectives --allocations 1 --attempts 4")
        steps = [path.parent for path in (cluster.shared / "scratch/bench/jobs").glob("*/s*-collectives-2n/began")]
        times = sorted(
            tuple(float((step / name).read_text().split()[-1]) for name in ("began", "exit")) for step in steps
        )
    slots = sum(end - began for began, end in times)
    beside = times[-1][1] - times[0][0] - slots
    return Row(
        "time between slots / in slots", beside / slots, 0.05, f"{len(times)} slots of {slots / len(times):.1f} s"
    )


def _taken(slots: int, settings: int, attempts: int) -> float:
    """Plan and judge so many slots; give the processor time, without that of making up what they measured.

    The best of three: what else stands in memory is none of it.
    """
    tried = [TrialSetting(f"TRIED{number}", "1") for number in range(settings)]
    each = len(a_trial(tried, attempts=attempts).runs_of(1))
    results = _results(a_trial(tried, attempts=attempts, allocations=round(slots / each)))
    gc.freeze()
    taken = []
    for _ in range(3):
        start = time.process_time()
        judge_trial(a_trial(tried, attempts=attempts, allocations=round(slots / each)), results)
        taken.append(time.process_time() - start)
    gc.unfreeze()
    return min(taken)


def _results(design: Design) -> list[RunResult]:
    chance = random.Random(1)
    last = [slot for slot in design.slots if slot.allocation <= design.allocations]
    return [run_slot(MACHINE, chance, slot, len(last), 0.0) for slot in last]
