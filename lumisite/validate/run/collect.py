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
from lumisite.validate.probes.probe import NODE, Ended, Expected, Group, Line
from lumisite.validate.run.folder import END, End, Run
from lumisite.validate.run.jobscript import EXIT, JUDGED, RECORDS, SKIP, SKIPPED, STEP_ERR, JobPlan
from lumisite.validate.run.request import RunRequest
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
    request: RunRequest
    report: Callable[[Finding], None]
    _reported: set[str] = field(default_factory=set)
    """What is the same in many jobs and reported already."""

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
            if len(known) < len(ends):
                if began is not None and job.group != group.folder:
                    job.group = group.folder
                    self.report(job.progress(f"{group.folder} …"))
                continue
            job.collected.add(group.folder)
            path, spec = f"{self.run.job_folder(run)}/{group.folder}", self.request.specs[group.folder]
            image, time = self.request.image_digest, known[-1].time
            expected = Expected(**vars(group.steps[0]), run=run, time=time, image=image, spec=spec, path=path)
            if any(end.code == SKIPPED for end in known):
                self._keep_skipped(job, group, expected)
            else:
                self._keep_judged(job, group, known, expected)

    def _keep_skipped(self, job: LiveJob, group: Group, expected: Expected) -> None:
        """Keep why a group was not run."""
        if cause := job.skips.get(group.folder):
            gate = skipped(expected, cause)
            self.run.keep([gate])
            self.report(job.progress(f"{group.folder} {gate.verdict}: {gate.text}"))

    def _keep_judged(self, job: LiveJob, group: Group, ends: Sequence[End], expected: Expected) -> None:
        """Judge a group that was run, keep what came of it, and mark what cannot work because of that."""
        job.skips.pop(group.folder, None)  # it had begun
        lines = list(self._judge(job, group, ends, expected))
        bad_node = next((line for line in lines if isinstance(line, Gate) and line.gate == NODE), None)
        if bad_node and group.steps[0].probe != NODE:
            # A fault of a node that shows only here: the group itself follows from it.
            lines.append(skipped(expected, bad_node))
        gates = [line for line in lines if isinstance(line, Gate)]
        for text in self._left_out(job):
            if text not in self._reported:
                self._reported.add(text)
                self.report(job.progress(text))
        self.run.keep(lines)
        self._skip(job, group, gates)
        bad = next((gate for gate in gates if gate.verdict != "pass"), None)
        fine = f": {gates[0].text}" if gates and group.steps[0].probe == NODE else ""
        came = f"{bad.verdict}: {bad.text}" if bad else f"passed{fine}"
        seconds = ends[-1].time - (self.run.step_began(job.plan.run, group.steps[0]) or ends[-1].time)
        self.report(job.progress(f"{group.folder} {came}, {seconds:.1f} s"))

    def _left_out(self, job: LiveJob) -> list[str]:
        """Return which variables of the user's login files the job does not have, each as a sentence."""
        return [
            f"{setting} of your login files is not set in the jobs, which run without these files"
            for setting in self.run.left_out(job.plan.run)
        ]

    def _skip(self, job: LiveJob, group: Group, found: Sequence[Gate]) -> None:
        """Mark the steps that cannot work, and then that this is done, for which a job waits a little."""
        for later in job.plan.groups:
            cause = None if later.folder in job.collected else reason_to_skip(later.steps[0], found)
            if cause and self.run.step_began(job.plan.run, later.steps[0]) is None:
                job.skips[later.folder] = cause
                for step in later.steps:
                    self.run.mark(job.plan.run, f"{step.folder}/{SKIP}")
        if job.end is None and (group.steps[0].probe == NODE or any(gate.verdict != "pass" for gate in found)):
            self.run.mark(job.plan.run, f"{group.folder}/{JUDGED}")

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
