"""What the slots of a trial came to, by the run's folder: how each ended, its numbers, whether it took effect."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from lumisite.errors import ResolveError
from lumisite.site.cpus import format_cpu_list
from lumisite.text import some
from lumisite.validate.lines import Gate, Sample
from lumisite.validate.probes.probe import TIMED_OUT, Group, Record, Step
from lumisite.validate.probes.records import number, rank_of, table, text, texts
from lumisite.validate.run.folder import END, SAMPLES, Run, lines_of, slot_run
from lumisite.validate.run.script import EXIT, SKIPPED, JobPlan
from lumisite.validate.trial.design import REFERENCE, Arm, Design, Outcome, Slot, SlotResult, TookEffect, values_of
from lumisite.validate.trial.jobs import SIGN, sign_name, slot_name

#: Words of a library that did not take what it was given.
_REFUSED = re.compile(r"not available|ignor|invalid|unsupported|not supported|unknown|falling back", re.IGNORECASE)


@dataclass
class Signs:
    """What a short step of an arm told, beside its ranks' environment; `cpus` are those of each rank."""

    named: Mapping[str, str] = field(default_factory=dict)
    devices: tuple[str, ...] = ()
    carried: str = ""
    cpus: tuple[str, ...] = ()
    log: tuple[str, ...] = ()


def results_of(design: Design, run: Run, plans: Sequence[JobPlan]) -> list[SlotResult]:
    """Give how all slots of jobs that are over ended, in their order; those that never began are lost.

    Raises `ResolveError` for lines that were edited.
    """
    path = run.folder / SAMPLES
    lines = lines_of(path) if path.exists() else []
    _require_once(lines, str(path))
    by_run: dict[str, list[Sample | Gate]] = {}
    for line in lines:
        by_run.setdefault(line.run, []).append(line)
    signs = _signs(design, run, plans)
    found = []
    for allocation, plan in enumerate(plans, start=1):
        left = run.left(plan.run)
        ended = next((one for one in by_run.get(plan.run, []) if isinstance(one, Gate) and one.gate == END), None)
        whole = ended is None or not ended.cause.startswith("set aside")
        for slot in design.slots_of(allocation):
            own = [group for group in plan.groups if group.steps[0].slot == slot_name(slot)]
            measured = [group for group in own if not group.steps[0].check]
            one = _Slot(run, plan, slot, design, by_run.get(slot_run(plan.run, slot_name(slot)), []), whole)
            found.append(one.result(measured, signs, left))
            found += one.checked(next(group for group in own if group.steps[0].check))
    return found


@dataclass(frozen=True)
class _Slot:
    """One slot of a job, and the lines that it left; `whole` is false where the job's lines do not count."""

    run: Run
    plan: JobPlan
    slot: Slot
    design: Design
    lines: Sequence[Sample | Gate]
    whole: bool

    def result(
        self, groups: Sequence[Group], signs: Mapping[str, Signs], left: Sequence[tuple[str, str, str]]
    ) -> SlotResult:
        """Say how it ended."""
        steps = [step for group in groups for step in group.steps]
        outcome, cause = self._outcome(steps)
        arm = self.design.by_name[self.slot.arm]
        reached, evidence = took_effect(arm, self._records(steps), signs.get(arm.name), signs.get(REFERENCE))
        last = self.slot == self.design.slots_of(self.slot.allocation)[-1]
        names = {step.folder for step in steps} | ({"end"} if last else set())
        return SlotResult(
            self.slot,
            outcome,
            values_of(line for line in self.lines if isinstance(line, Sample)),
            reached,
            evidence,
            tuple(sorted({node for step, node, _ in left if step in names})),
            self._seconds(steps),
            self.plan.nodes,
            cause,
            self.plan.run,
        )

    def checked(self, group: Group) -> Iterator[SlotResult]:
        """Give the plain reference slot after it, where one had to pass."""
        steps = group.steps
        ends = [self.run.end(self.plan.run, f"{step.folder}/{EXIT}") for step in steps]
        if self.run.step_began(self.plan.run, steps[0]) is not None and all(
            end and end.code != SKIPPED for end in ends
        ):
            outcome, cause = self._outcome(steps)
            slot = Slot(self.slot.allocation, self.slot.position, REFERENCE, 1, 1)
            yield SlotResult(
                slot, outcome, {}, "yes", "", (), self._seconds(steps), self.plan.nodes, cause, self.plan.run
            )

    def _outcome(self, steps: Sequence[Step]) -> tuple[Outcome, str]:
        probes = {step.probe for step in steps}
        bad = [one for one in self.lines if isinstance(one, Gate) and one.gate in probes and one.verdict != "pass"]
        cause = bad[0].cause if bad else ""
        if not self.whole:
            return "lost", "what the job measures was changed while it ran"
        for step in steps:
            end, began = self.run.end(self.plan.run, f"{step.folder}/{EXIT}"), self.run.step_began(self.plan.run, step)
            if end is None or began is None:
                if end is not None and end.code == SKIPPED:
                    continue
                return "lost", "the job ended before it"
            late = end.code.isdecimal() and int(end.code) in TIMED_OUT and end.time - began >= step.limit_s
            if late or any(number(record, "hung_time") for record in self.run.records(self.plan.run, step)):
                return "hung", cause
        if any(gate.verdict == "fail" for gate in bad):
            return "failed", cause
        return ("lost", cause) if bad else ("done", "")

    def _records(self, steps: Sequence[Step]) -> list[Record]:
        """Give what each rank said of itself, in every step that has run."""
        return [record for step in steps for record in self.run.records(self.plan.run, step) if "given" in record]

    def _seconds(self, steps: Sequence[Step]) -> float:
        began = [time for step in steps if (time := self.run.step_began(self.plan.run, step)) is not None]
        ends = [end.time for step in steps if (end := self.run.end(self.plan.run, f"{step.folder}/{EXIT}"))]
        return round(max(ends) - min(began), 3) if began and ends else 0.0


def _require_once(lines: Sequence[Sample | Gate], file: str) -> None:
    """Refuse two values of a metric, and a gate that passed and did not: `--resume` judges all anew, and adds it."""
    said: dict[tuple[str, str, tuple[str, ...]], Sample | bool] = {}
    for line in lines:
        name, what = (line.metric, line) if isinstance(line, Sample) else (line.gate, line.verdict == "pass")
        if said.setdefault((name, line.run, line.nodes), what) != what:
            kind = "values" if isinstance(line, Sample) else "verdicts"
            raise ResolveError(
                f"{file}: {name} of {line.run} has two {kind}: a line or a record was changed since it was measured, "
                "so this proves nothing (start a new run)"
            )


def _signs(design: Design, run: Run, plans: Sequence[JobPlan]) -> dict[str, Signs]:
    """Read the short steps, those of the first allocation that has them."""
    found: dict[str, Signs] = {}
    for plan in plans:
        for arm in design.arms:
            own = [s for s in plan.steps if s.probe == SIGN and s.slot == sign_name(arm, design)]
            records = [record for step in own for record in run.records(plan.run, step)]
            if records and arm.name not in found:
                found[arm.name] = _read_signs(arm, sorted(records, key=rank_of))
    return found


def _read_signs(arm: Arm, records: Sequence[Record]) -> Signs:
    names = [one.name for one in ([arm.tried] if arm.tried else arm.settings)]
    named = {name: next((file for one in records if (file := text(one, "named", name))), "") for name in names}
    carried: Counter[str] = Counter()
    for record in records:
        carried.update({name: int(number(record, "carried", name) or 0) for name in table(record, "carried")})
    most = carried.most_common(1)
    lines = [line for record in records for line in text(record, "log").splitlines()]
    told = (line.partition("NCCL ")[2] for line in lines if any(re.search(rf"\b{name}\b", line) for name in names))
    devices = {device for record in records for device in texts(record, "devices")}
    cpus, log = tuple(map(_cpu_list, records)), tuple(dict.fromkeys(filter(None, told)))
    return Signs(named, tuple(sorted(devices)), most[0][0] if most else "", cpus, log)


def took_effect(
    arm: Arm, records: Sequence[Record], signs: Signs | None, reference: Signs | None
) -> tuple[TookEffect, str]:
    """Say whether what an arm sets has reached all its ranks, and whether anything there acts on it."""
    if not arm.settings:
        return "yes", ""
    if not records:
        return "unknown", "no rank told its environment"
    for one in arm.settings:
        other = [record for record in records if table(record, "given").get(one.name) != one.value]
        if other:
            met = table(other[0], "given").get(one.name)
            met = "is not set" if met is None else f"is {met}"
            return "no", f"{one.name} {met} on rank {rank_of(other[0])} in the container, where {one} was asked for"
    if signs is None:
        return "unknown", "no step showed whether anything acts on it"
    refused = [line for line in signs.log if _REFUSED.search(line)]
    if refused:
        return "unknown", f"the library says: {refused[0]}"
    return _acted_on(arm, signs, reference or Signs())


def _cpu_list(record: Record) -> str:
    cpus = record.get("cpus")
    return format_cpu_list(cpu for cpu in cpus if isinstance(cpu, int)) if isinstance(cpus, list) else ""


def _acted_on(arm: Arm, signs: Signs, reference: Signs) -> tuple[TookEffect, str]:
    shown = [f"{file} names {name}" for name, file in signs.named.items() if file]
    shown += [f"the log says: {line}" for line in signs.log[:1]]
    if signs.carried and reference.carried and signs.carried != reference.carried:
        shown.append(f"{signs.carried} carried the bytes, {reference.carried} does in the reference")
    if moved := [rank for rank, (now, was) in enumerate(zip(signs.cpus, reference.cpus, strict=False)) if now != was]:
        rank = moved[0]
        shown.append(f"rank {rank} may run on CPUs {signs.cpus[rank]}, on {reference.cpus[rank]} in the reference")
    if signs.devices and (more := sorted({*signs.devices} ^ {*reference.devices})):
        shown.append(f"open in one of both only: {some(more, 3, ', ')}")
    if shown:
        return "yes", "; ".join(shown)
    return "unknown", f"it reached every rank, and no file that a rank has in use names {arm.settings[-1].name}"
