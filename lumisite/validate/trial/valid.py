"""Which allocations of a trial count: each carries its own proof that it measured what it says.

Thrown out, and run again with the next order of the design, is one in which the sham differs from the references, the
last reference differs from the first, the positive control does not show, something was left on a node or a plain
reference did not pass after a hang, or slots were lost. A reference that hung or failed is no such fault but evidence,
if another arm ended well there: the allocation counts then, and has no numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log1p
from typing import Literal, TypeAlias

from lumisite.text import change, some
from lumisite.validate.trial.design import CONTROL, REFERENCE, SHAM, Design, Slot, SlotResult
from lumisite.validate.trial.effects import Key, Metrics, Scores, as_part, contrast, metrics_of

#: `open`: slots of it are still to run.
Standing: TypeAlias = Literal["valid", "thrown out", "open"]
BAD = ("hung", "failed")
NODES_SHOWN, METRICS_SHOWN = 4, 3


@dataclass(frozen=True)
class Allocation:
    """One allocation, judged: why it was thrown out, its scores where it has numbers, and its slots that are clean.

    `clean` are the results up to the first after which something was left on a node: those count for hangs, whatever
    the numbers are worth.
    """

    number: int
    standing: Standing
    reasons: tuple[str, ...]
    scores: Scores
    clean: tuple[SlotResult, ...]
    nodes: tuple[str, ...]
    jobs: tuple[str, ...]


def judge_allocations(design: Design, results: Sequence[SlotResult]) -> tuple[Allocation, ...]:
    """Judge every allocation of which there are results.

    Of two results of one slot the first counts; one of a slot that is not in the design does not.
    """
    planned: dict[int, list[Slot]] = {}
    for slot in design.slots:
        planned.setdefault(slot.allocation, []).append(slot)
    known = {*design.slots}
    by_slot: dict[Slot, SlotResult] = {}
    for result in results:
        if result.slot in known or (result.slot.check and result.slot.allocation in planned):
            by_slot.setdefault(result.slot, result)
    own: dict[int, list[SlotResult]] = {}
    for slot in sorted(by_slot, key=lambda slot: (slot.allocation, slot.position, slot.check)):
        own.setdefault(slot.allocation, []).append(by_slot[slot])
    metrics = metrics_of(design, by_slot.values())
    return tuple(_judge(design, metrics, number, planned[number], found) for number, found in own.items())


def next_allocation(design: Design, allocations: Sequence[Allocation]) -> int | None:
    """Give the number of the allocation to run or to finish, by the design's stopping rule; None where it is done."""
    standing = {one.number: one.standing for one in allocations}
    valid = 0
    for number in range(1, design.most_allocations + 1):
        if valid == design.allocations:
            return None
        if standing.get(number, "open") == "open":
            return number
        valid += standing[number] == "valid"
    return None


def _judge(
    design: Design, metrics: Metrics, number: int, planned: Sequence[Slot], results: Sequence[SlotResult]
) -> Allocation:
    missing = {*planned} - {result.slot for result in results}
    clean = _clean(results)
    scores = metrics.scores(results)
    reasons = tuple(_unclean(results))
    references = [result for result in results if result.slot.arm == REFERENCE and not result.slot.check]
    if not reasons and not missing:
        reasons = tuple(_lost(design, results))
    if not reasons and not missing:
        if not any(result.outcome == "done" for result in results):
            reasons = ("no slot ended well",)
        elif any(result.outcome in BAD for result in (references[0], references[-1])):
            scores = {}
        else:
            reasons = tuple(_untrue(design, metrics, scores, results))
    return Allocation(
        number,
        "thrown out" if reasons else "open" if missing else "valid",
        reasons,
        scores,
        clean,
        tuple(sorted({node for result in results for node in result.nodes})),
        tuple(dict.fromkeys(result.job for result in results if result.job)),
    )


def _clean(results: Sequence[SlotResult]) -> tuple[SlotResult, ...]:
    """Give the results up to the first that left something, without the checks."""
    kept = []
    for result in results:
        if result.slot.check and result.outcome in BAD:
            break
        if not result.slot.check:
            kept.append(result)
        if result.leftovers:
            break
    return tuple(kept)


def _unclean(results: Sequence[SlotResult]) -> Iterator[str]:
    for result in results:
        slot = result.slot
        if result.leftovers:
            yield f"slot {slot.position} ({slot.arm}) left processes on {some(result.leftovers, NODES_SHOWN)}"
        if slot.check and result.outcome in BAD:
            yield f"a plain reference {result.outcome} after slot {slot.position}"


def _lost(design: Design, results: Sequence[SlotResult]) -> Iterator[str]:
    """Say what was lost: the first or last reference, the sham, the control, or all slots of a variant."""
    kept = {result.slot.arm for result in results if result.outcome != "lost" and not result.slot.check}
    ends = [result for result in results if result.slot.arm == REFERENCE and not result.slot.check]
    lost = [f"slot {one.slot.position} (reference)" for one in (ends[0], ends[-1]) if one.outcome == "lost"]
    lost += [f"all slots of {arm.name}" for arm in design.arms if arm.name not in kept and arm.role != "reference"]
    if lost:
        yield f"lost: {some(lost, NODES_SHOWN, ', ')}"


def _untrue(design: Design, metrics: Metrics, scores: Scores, results: Sequence[SlotResult]) -> Iterator[str]:
    """Say which of its own proofs an allocation fails, where first and last reference ended well."""
    limits = design.thresholds
    # A band decides, not each of its sizes: of many comparisons some is beyond any limit.
    bands = {key: own for key, own in scores.items() if key.size < 0}
    if not bands and metrics.keys:
        yield "nothing was measured that decides"
        return
    ends = [one.slot.position for one in results if one.slot.arm == REFERENCE and not one.slot.check]
    first, last = ends[0], ends[-1]
    references = {key: own.get(REFERENCE, {}) for key, own in bands.items()}
    drift = {key: own[last] - own[first] for key, own in references.items() if {first, last} <= own.keys()}
    if beyond := _beyond(metrics, drift, limits.drift):
        yield f"drift from the first to the last reference: {beyond}"
    if any(result.slot.arm == SHAM and result.outcome in BAD for result in results):
        # Part of the rate of hangs, as any reference between the first and the last.
        return
    sham = {key: differs for key, own in bands.items() if (differs := contrast(own, [SHAM], [REFERENCE])) is not None}
    if beyond := _beyond(metrics, sham, limits.sham):
        yield f"the sham differs from the references: {beyond}"
    control = [result for result in results if result.slot.arm == CONTROL]
    if control and bands and all(result.outcome == "done" for result in control):
        costs = [contrast(own, [CONTROL], [REFERENCE, SHAM]) for own in bands.values()]
        worst = min((cost for cost in costs if cost is not None), default=0.0)
        if worst > log1p(-limits.control):
            yield f"the positive control does not show: {change(as_part(worst))} at most"


def _beyond(metrics: Metrics, differs: Mapping[Key, float], limit: float) -> str:
    """Say which keys differ by more than a limit."""
    most = log1p(limit)
    found = {key: value for key, value in differs.items() if abs(value) > most}
    told = [f"{change(as_part(value))} in {metrics.about(key)[0]}" for key, value in sorted(found.items())]
    return some(told, METRICS_SHOWN, ", ")
