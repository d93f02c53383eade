"""What the runs of a trial came to, by the run's folder: how each ended, and its numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from lumisite.errors import ResolveError
from lumisite.findings.catalogue import make_finding
from lumisite.findings.finding import Finding
from lumisite.validate.lines import Better, Gate, Sample
from lumisite.validate.probes.probe import TIMED_OUT, ProbeStep, Record
from lumisite.validate.probes.records import number, table
from lumisite.validate.run.folder import SAMPLES, End, Run, lines_of, slot_run
from lumisite.validate.run.script import EXIT, SKIPPED, JobPlan
from lumisite.validate.trial.design import REFERENCE, Design, PlannedRun
from lumisite.validate.trial.jobs import slot_name
from lumisite.validate.trial.proof import Signs, TookEffect, find_proof, read_signs

#: The codes of steps whose ranks did their work, and then did not end well.
EXIT_HUNG = "exit-hung"
AT_EXIT = ("exit-failed", EXIT_HUNG)
#: How a run ended. `hung`: the watchdog ended it; `failed`: it ended itself, without success; `lost`: neither, through
#: Slurm, a node or a person, so that it is no evidence.
Outcome: TypeAlias = Literal["done", "hung", "failed", "lost"]


@dataclass(frozen=True)
class Measured:
    """What one run measured of one metric; values are finite and above 0."""

    values: tuple[float, ...]
    better: Better


@dataclass(frozen=True)
class RunResult:
    """How one run ended.

    `values` are by metric, as samples name them. `took_effect` says whether what the arm sets reached the rank and was
    acted on, `proof` how that is known. `given` are the variables of the trial as all ranks that recorded one had it,
    None for one that was not set. `at_exit`: the ranks had done their work, and failed when they ended. `leftovers` are
    nodes on which processes were left after the run was ended. `job` is Slurm's id.
    """

    run: PlannedRun
    outcome: Outcome
    values: Mapping[str, Measured] = field(default_factory=dict)
    took_effect: TookEffect = "unknown"
    proof: tuple[Finding, ...] = ()
    given: Mapping[str, str | None] = field(default_factory=dict)
    at_exit: bool = False
    leftovers: tuple[str, ...] = ()
    seconds: float = 0.0
    nodes: tuple[str, ...] = ()
    job: str = ""


def results_of(design: Design, run: Run, plans: Sequence[JobPlan]) -> list[RunResult]:
    """Return how all runs of jobs that are over ended, in their order; those that never began are lost.

    Raises `ResolveError` for lines that were edited.
    """
    path = run.folder / SAMPLES
    lines = lines_of(path) if path.exists() else []
    _check_repeated(lines, str(path))
    by_run: dict[str, list[Sample | Gate]] = {}
    for line in lines:
        by_run.setdefault(line.run, []).append(line)
    signs = read_signs(design, run, plans)
    dropped = run.set_aside_jobs()
    found: list[RunResult] = []
    for allocation, plan in enumerate(plans, start=1):
        job = _Job(run, plan, design, lost=plan.run in dropped)
        for planned in design.runs_of(allocation):
            found += job.results(planned, by_run.get(slot_run(plan.run, slot_name(planned)), []), signs)
    return found


def _check_repeated(lines: Sequence[Sample | Gate], file: str) -> None:
    """Refuse two values of a metric, and a gate with two verdicts: `--resume` judges all anew, and adds it."""
    known: dict[tuple[str, str, tuple[str, ...]], Sample | str] = {}
    for line in lines:
        name, value = (line.metric, line) if isinstance(line, Sample) else (line.gate, line.verdict)
        if known.setdefault((name, line.run, line.nodes), value) != value:
            raise ResolveError(make_finding("result-repeated", file, name=name, run=line.run))


def values_of(samples: Iterable[Sample]) -> dict[str, Measured]:
    """Return what the samples of one run measured, by metric."""
    found: dict[str, list[Sample]] = {}
    for sample in samples:
        found.setdefault(sample.metric, []).append(sample)
    return {
        name: Measured(tuple(sample.value for sample in measured), measured[0].better)
        for name, measured in found.items()
    }


def _given(records: Sequence[Record]) -> dict[str, str | None]:
    """Return the variables that ranks recorded, without those that they have different values of."""
    found: dict[str, set[str | None]] = {}
    for record in records:
        for name, value in table(record, "given").items():
            found.setdefault(name, set()).add(None if value is None else str(value))
    return {name: next(iter(values)) for name, values in found.items() if len(values) == 1}


@dataclass(frozen=True)
class _Job:
    """A job of a trial; one that is `lost` counts for nothing."""

    run: Run
    plan: JobPlan
    design: Design
    lost: bool

    def results(
        self, planned: PlannedRun, lines: Sequence[Sample | Gate], signs: Mapping[str, Signs]
    ) -> Iterator[RunResult]:
        """Yield how a run ended, and the plain reference run after it, where one had to pass."""
        slot = slot_name(planned)
        every = [step for group in self.plan.groups for step in group.steps if group.steps[0].slot == slot]
        steps, checks = [step for step in every if not step.check], [step for step in every if step.check]
        arm = self.design.by_name[planned.arm]
        records = [record for step in steps for record in self.run.records(self.plan.run, step) if "given" in record]
        ranks = max((step.ranks for step in steps), default=0)
        took_effect, proof = find_proof(arm, records, ranks, signs.get(arm.name), signs.get(REFERENCE))
        folders = {step.folder for step in steps}
        if planned == self.design.runs_of(planned.allocation)[-1]:
            folders.add("end")
        leftovers = {node for folder, node, _ in self.run.left(self.plan.run) if folder in folders}
        yield RunResult(
            planned,
            self._outcome(steps, lines),
            values_of(line for line in lines if isinstance(line, Sample)),
            took_effect,
            proof,
            _given(records),
            any(line.code in AT_EXIT for line in lines if isinstance(line, Gate)),
            tuple(sorted(leftovers)),
            self._seconds(steps),
            self.plan.nodes,
            self.plan.run,
        )
        if all(self._ran(step) for step in checks):
            check = PlannedRun(planned.allocation, planned.position, REFERENCE, check=1)
            yield RunResult(check, self._outcome(checks, lines), seconds=self._seconds(checks))

    def _began(self, step: ProbeStep) -> float | None:
        return self.run.step_began(self.plan.run, step)

    def _end(self, step: ProbeStep) -> End | None:
        return self.run.end(self.plan.run, f"{step.folder}/{EXIT}")

    def _ran(self, step: ProbeStep) -> bool:
        end = self._end(step)
        return end is not None and end.code != SKIPPED and self._began(step) is not None

    def _outcome(self, steps: Sequence[ProbeStep], lines: Sequence[Sample | Gate]) -> Outcome:
        if self.lost:
            return "lost"
        for step in steps:
            end, began = self._end(step), self._began(step)
            if end is not None and end.code == SKIPPED and began is None:
                continue
            if end is None or began is None:
                return "lost"
            late = end.code.isdecimal() and int(end.code) in TIMED_OUT and end.time - began >= step.limit_s
            if late or any(number(record, "hung_time") for record in self.run.records(self.plan.run, step)):
                return "hung"
        probes = {step.probe for step in steps}
        gates = [line for line in lines if isinstance(line, Gate) and line.gate in probes]
        if any(gate.code == EXIT_HUNG for gate in gates):
            return "hung"
        verdicts = {gate.verdict for gate in gates}
        return "failed" if "fail" in verdicts else "lost" if "inconclusive" in verdicts else "done"

    def _seconds(self, steps: Sequence[ProbeStep]) -> float:
        began = [time for step in steps if (time := self._began(step)) is not None]
        ends = [end.time for step in steps if (end := self._end(step))]
        return round(max(ends) - min(began), 3) if began and ends else 0.0
