"""What a trial found: the answers first, then what they stand on, for a terminal or as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace

from lumisite.text import change, counted, percent, some
from lumisite.validate.report.write import Block, block_lines
from lumisite.validate.trial.design import Design
from lumisite.validate.trial.effects import Effect
from lumisite.validate.trial.judge import Answer, Rate, TrialVerdict, Worth

#: Answers, from what is told first to what is told last.
WORST_FIRST: tuple[Worth, ...] = ("harmful", "needed", "helps", "inert", "unverified", "underpowered")
NODES_SHOWN = 16


def headline(verdict: TrialVerdict) -> str:
    """Say what was found in one line."""
    if len(verdict.answers) == 1:
        (answer,) = verdict.answers
        return f"{answer.setting} is {answer.worth}" if answer.worth != "helps" else f"{answer.setting} helps"
    counts = Counter(answer.worth for answer in verdict.answers)
    told = ", ".join(f"{counts[worth]} {worth}" for worth in WORST_FIRST if counts[worth])
    return f"{counted(len(verdict.answers), 'setting')}: {told}"


def summary(design: Design, verdict: TrialVerdict) -> tuple[str, ...]:
    """Give what the answers stand on, a few words each."""
    ran = len(verdict.allocations)
    return (
        f"{verdict.valid} of {counted(ran, 'allocation')} valid, {design.allocations} wanted",
        f"{counted(verdict.runs, 'slot')} on {counted(len(verdict.nodes), 'node')}",
        f"{verdict.node_hours:g} node hours",
        *(() if verdict.next_allocation is None else ("the trial has not come to its end",)),
    )


def worst_first(verdict: TrialVerdict) -> list[Answer]:
    """Give the answers in the order in which they are told."""
    return sorted(verdict.answers, key=lambda answer: WORST_FIRST.index(answer.worth))


def blocks(verdict: TrialVerdict) -> Iterator[Block]:
    """Give what there is below the headline."""
    answers = worst_first(verdict)
    rows = [(str(answer.setting), answer.worth, answer.reason, answer.proof) for answer in answers]
    lines = [line for row in rows for line in (f"{row[0]}: {row[1]}", f"  {row[2]}", f"  took effect: {row[3]}")]
    yield Block(
        "table", "Answers", lines, "What each setting is worth", ("setting", "worth", "why", "took effect"), rows
    )
    if (hangs := _hangs(answers)).rows:
        yield hangs
    if effects := [(answer, effect) for answer in answers for effect in answer.effects]:
        yield _effects("Effects", "With the setting against without it, 95 % interval", effects)
    if sizes := [(answer, effect) for answer in answers for effect in answer.sizes]:
        yield _effects("Effects by size", "Each size by itself", sizes)
    if verdict.allocations:
        yield _allocations(verdict)


def _hangs(answers: Sequence[Answer]) -> Block:
    head = ("setting", "with it", "rate", "without", "rate", "p worse", "p better")
    rows = [
        (
            str(answer.setting),
            *_rate(answer.hangs.with_it),
            *_rate(answer.hangs.without),
            _chance(answer.hangs.worse),
            _chance(answer.hangs.better),
        )
        for answer in answers
        if answer.worth != "unverified" or answer.hangs.with_it.bad or answer.hangs.without.bad
    ]
    return Block(
        "table", "Runs that hung or failed", (), "Counts, with the exact 95 % interval of the rate", head, rows
    )


def _rate(rate: Rate) -> tuple[str, str]:
    hung = f" ({rate.hung} hung)" if rate.bad else ""
    return f"{rate}{hung}", f"{percent(rate.low, 0)} to {percent(rate.high, 0)}"


def _chance(chance: float) -> str:
    return f"{chance:.2g}" if chance >= 1e-6 else "<1e-6"


def _effects(title: str, caption: str, found: Sequence[tuple[Answer, Effect]]) -> Block:
    head = ("setting", "metric", "effect", "interval", "MDE", "p", "allocations")
    rows = [
        (
            str(answer.setting),
            effect.name,
            change(effect.effect),
            f"{change(effect.low)} to {change(effect.high)}",
            percent(effect.mde),
            _chance(effect.chance),
            " ".join(change(part) for part in effect.each.values()),
        )
        for answer, effect in found
    ]
    return Block("table", title, (), caption, head, rows)


def _allocations(verdict: TrialVerdict) -> Block:
    rows = [
        (
            str(one.number),
            one.standing,
            "; ".join(one.reasons) or "-",
            some(one.nodes, NODES_SHOWN),
            some(one.jobs) or "-",
        )
        for one in verdict.allocations
    ]
    head = ("allocation", "standing", "why", "nodes", "job")
    return Block("table", "Allocations", (), "Those that count, and those that were run again", head, rows)


def design_rows(design: Design) -> Iterator[tuple[str, str]]:
    """Say all that is fixed before the first job; of allocations, those in place of others are left out."""
    limits = design.thresholds
    yield "seed", str(design.seed)
    yield "probes", ", ".join(design.probes)
    for arm in design.arms:
        yield arm.name, f"{arm.role}: {', '.join(map(str, arm.settings)) or 'nothing changed'}"
    for number in range(1, design.allocations + 1):
        yield f"allocation {number}", ", ".join(slot.arm for slot in design.slots_of(number))
    yield "what decides", ", ".join(design.metrics)
    yield "workload", ", ".join(design.workload)
    yield "of interest from", percent(limits.smallest)
    yield "needed from", f"{percent(limits.needed)} of the workload lost without it"
    yield "false discoveries", f"at most {percent(limits.alpha)}"
    own = {"sham off by": limits.sham, "drift of": limits.drift, "control below": limits.control}
    yield "thrown out", ", ".join(f"{what} {percent(limit)}" for what, limit in own.items())
    yield "stops", f"at {design.allocations} valid allocations, or {design.most_allocations} in all"
    again = f"{design.most_node_hours:g} where allocations are run again"
    yield "node hours", f"{design.node_hours:g} at most on {counted(design.nodes, 'node')}, {again}"


def trial_document(design: Design, verdict: TrialVerdict) -> dict[str, object]:
    """Give the document of `--json`; numbers are parts, of the setting against its absence."""
    return {
        "headline": headline(verdict),
        "answers": [{**asdict(answer), "setting": str(answer.setting)} for answer in verdict.answers],
        "allocations": [
            {name: getattr(one, name) for name in ("number", "standing", "reasons", "nodes", "jobs")}
            for one in verdict.allocations
        ],
        "next_allocation": verdict.next_allocation,
        "jobs": verdict.jobs,
        "nodes": verdict.nodes,
        "slots": verdict.runs,
        "node_hours": verdict.node_hours,
        "design": asdict(design),
    }


def text(design: Design, verdict: TrialVerdict) -> str:
    """Write what fits on a screen: of effects, those on a workload and those that count; JSON has all."""
    alpha = design.thresholds.alpha
    answers = [
        replace(
            answer,
            effects=tuple(one for one in answer.effects if one.workload or one.chance <= alpha),
            sizes=tuple(one for one in answer.sizes if one.chance <= alpha),
        )
        for answer in verdict.answers
    ]
    thrown = tuple(one for one in verdict.allocations if one.standing != "valid")
    short = replace(verdict, answers=tuple(answers), allocations=thrown)
    lines = [headline(verdict), "; ".join(summary(design, verdict)), *block_lines(blocks(short))]
    return "\n".join(lines) + "\n"
