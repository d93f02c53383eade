"""Collect what the steps of a job have left, and judge each group of steps when its last one has ended.

Later steps that cannot work because of what was found are marked, and not run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from lumisite.errors import LumisiteError
from lumisite.findings.finding import Finding, Severity
from lumisite.text import some
from lumisite.validate.lines import Gate, gate_of
from lumisite.validate.probes.probe import NODE, Ended, Expected, Group, Line, spec_hash
from lumisite.validate.run.folder import END, End, Run
from lumisite.validate.run.jobscript import EXIT, JUDGED, RECORDS, SKIP, SKIPPED, STEP_ERR
from lumisite.validate.run.plan import JobPlan
from lumisite.validate.run.slurm import JobState
from lumisite.validate.verdict.causes import reason_to_skip


@dataclass
class LiveJob:
    """What is known of one job while the run goes on; `id` is that of Slurm, `end` says how it ended."""

    plan: JobPlan
    id: str = ""
    end: Gate | None = None
    asked: bool = False
    """Whether Slurm was asked to run it, and may have heard."""
    slurm: JobState = field(default_factory=lambda: JobState(None))
    """What Slurm said of it last."""
    over_since: float | None = None
    """Since when it is over, while its marks may still be on their way."""
    collected: set[str] = field(default_factory=set)
    group: str = ""
    """The group of steps that has begun."""
    waits: Finding | None = None
    """What holds it up."""
    skips: dict[str, Gate] = field(default_factory=dict)
    """The groups that are not to run, each with the finding because of which."""

    @property
    def waits_for_nodes(self) -> bool:
        """Whether it waits for nodes that take no jobs."""
        return self.waits is not None and self.waits.code == "job-nodes-away"

    def progress(self, text: str) -> Finding:
        """Return what happens to it while it is well."""
        return Finding("job-progress", Severity.INFO, text, subject=self.plan.run)

    def gate(self, finding: Finding, time: float) -> Gate:
        """Return the line that says how it ended: of the nodes that the finding names, or of all."""
        return gate_of(finding, END, self.plan.run, tuple(sorted(finding.nodes or self.plan.nodes)), time)


def skipped(expected: Expected, cause: Gate) -> Gate:
    """Return the line of a group that was not run because of a finding on some of its nodes."""
    of = tuple(node for node in cause.nodes if node in expected.nodes)
    text = f"not run, since {cause.gate} found {cause.code} on {some(of, between=', ')}"
    todo = "repair that first; then run it again"
    gate = expected.gate(Finding("step-skipped", Severity.DOUBT, text, todo, expected.folder, cause=cause.code))
    return replace(gate, values={**gate.values, "gate": cause.gate, "of": of})


@dataclass
class Collector:
    """Collects what steps of a run have left; `report` takes what happens."""

    run: Run
    image_digest: str
    report: Callable[[Finding], None]
    _left_out: set[str] = field(default_factory=set)
    """Settings that jobs do not have, as far as they are reported: they are the same in many jobs."""

    def collect(self, job: LiveJob, *, whole: bool = True) -> None:
        """Judge every group whose steps have all ended since; without `whole`, none behind one that has not begun."""
        run = job.plan.run
        self.run.keep_facts(run)
        for group in job.plan.groups:
            if group.folder in job.collected:
                continue
            began = self.run.step_began(run, group.steps[0])
            ends = [self.run.end(run, f"{step.folder}/{EXIT}") for step in group.steps]
            known = [end for end in ends if end is not None]
            if began is None and not known and not whole:
                return
            if len(known) == len(ends):
                job.collected.add(group.folder)
                self._keep(job, group, known)
            elif began is not None and job.group != group.folder:
                job.group = group.folder
                self.report(job.progress(f"{group.folder} …"))

    def _keep(self, job: LiveJob, group: Group, ends: Sequence[End]) -> None:
        """Keep what came of a group of which all steps have ended."""
        path = f"{self.run.job_folder(job.plan.run)}/{group.folder}"
        expected = Expected(
            **vars(group.steps[0]),
            run=job.plan.run,
            time=ends[-1].time,
            image=self.image_digest,
            spec=spec_hash(group),
            path=path,
        )
        if all(end.code != SKIPPED for end in ends):
            self._keep_judged(job, group, ends, expected)
        elif cause := job.skips.get(group.folder):
            gate = skipped(expected, cause)
            self.run.keep([gate])
            self.report(job.progress(f"{group.folder} {gate.verdict}: {gate.text}"))

    def _keep_judged(self, job: LiveJob, group: Group, ends: Sequence[End], expected: Expected) -> None:
        """Judge a group that was run, keep what came of it, and mark what cannot work because of that."""
        job.skips.pop(group.folder, None)  # it had begun
        of_node = group.steps[0].probe == NODE
        lines = list(self._judge(job, group, ends, expected))
        bad_node = next((line for line in lines if isinstance(line, Gate) and line.gate == NODE), None)
        if bad_node and not of_node:
            # A fault of a node that shows only here: the group itself follows from it.
            lines.append(skipped(expected, bad_node))
        self._report_left_out(job)
        self.run.keep(lines)
        gates = [line for line in lines if isinstance(line, Gate)]
        bad = next((gate for gate in gates if gate.verdict != "pass"), None)
        self._skip(job, gates)
        if job.end is None and (of_node or bad):
            self.run.mark(job.plan.run, f"{group.folder}/{JUDGED}")
        came = f"{bad.verdict}: {bad.text}" if bad else "passed"
        if not bad and of_node and gates:
            came = f"passed: {gates[0].text}"
        seconds = ends[-1].time - (self.run.step_began(job.plan.run, group.steps[0]) or ends[-1].time)
        self.report(job.progress(f"{group.folder} {came}, {seconds:.1f} s"))

    def _report_left_out(self, job: LiveJob) -> None:
        """Report which variables of the user's login files the job does not have."""
        for setting in self.run.left_out(job.plan.run):
            if setting not in self._left_out:
                self._left_out.add(setting)
                text = f"{setting} of your login files is not set in the jobs, which run without these files"
                self.report(job.progress(text))

    def _skip(self, job: LiveJob, found: Sequence[Gate]) -> None:
        """Mark the steps that cannot work because of what was found."""
        for later in job.plan.groups:
            cause = None if later.folder in job.collected else reason_to_skip(later.steps[0], found)
            if cause and self.run.step_began(job.plan.run, later.steps[0]) is None:
                job.skips[later.folder] = cause
                for step in later.steps:
                    self.run.mark(job.plan.run, f"{step.folder}/{SKIP}")

    def _judge(self, job: LiveJob, group: Group, ends: Sequence[End], expected: Expected) -> Sequence[Line]:
        run, folder = job.plan.run, self.run
        steps = [
            Ended(
                step,
                tuple(folder.records(run, step)),
                int(end.code),
                folder.errors(run, f"{step.folder}/{STEP_ERR}"),
                end.time - (folder.step_began(run, step) or -math.inf),
                f"{folder.job_folder(run)}/{step.folder}",
            )
            for step, end in zip(group.steps, ends, strict=True)
        ]
        try:
            return group.judge(steps, expected)
        except (ArithmeticError, AttributeError, LookupError, LumisiteError, TypeError, ValueError) as error:
            # What ranks wrote may hold anything.
            text = f"the records cannot be judged ({type(error).__name__}: {error})"
            todo = f"look into {expected.path}/{RECORDS}, then run again"
            return [expected.gate(Finding("records-unreadable", Severity.DOUBT, text, todo, subject=group.folder))]
