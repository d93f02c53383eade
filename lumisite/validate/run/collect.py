"""Judge the groups of steps of a job as they end, and mark later steps that cannot work because of what was found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from lumisite.findings.finding import Finding, Severity
from lumisite.validate.lines import Gate, Sample
from lumisite.validate.probes.probe import Group, Line
from lumisite.validate.run import script
from lumisite.validate.run.folder import End, Run, SetBefore
from lumisite.validate.run.job import LiveJob, ended_of, expected_of, skipped, with_setters
from lumisite.validate.run.request import RunRequest
from lumisite.validate.run.script import EXIT, RECORDS
from lumisite.validate.verdict.causes import NODE, reason_to_skip


@dataclass
class Collector:
    """Collects what steps of a run have left; `report` takes what happens."""

    run: Run
    report: Callable[[Finding], None]
    _set_before: set[SetBefore] = field(default_factory=set)
    """What was set before lumisite ran, as far as it is reported."""

    def collect(self, job: LiveJob, request: RunRequest, *, whole: bool = True) -> None:
        """Judge every group whose steps have all ended since; without `whole`, none behind one that has not begun."""
        self.run.keep_facts(job.plan.run)
        for group in job.plan.groups:
            if group.folder in job.collected:
                continue
            began = self.run.step_began(job.plan.run, group.steps[0])
            ends = [self.run.end(job.plan.run, f"{step.folder}/{EXIT}") for step in group.steps]
            known = [end for end in ends if end is not None]
            if began is None and not known and not whole:
                return
            if len(known) < len(ends):
                if began is not None and job.group != group.folder:
                    job.group = group.folder
                    self.report(job.progress(f"{group.folder} …"))
                continue
            if any(end.code == script.SKIPPED for end in known):
                job.collected.add(group.folder)
                if cause := job.skips.get(group.folder):
                    gate = skipped(expected_of(job.plan.run, group, known[-1].time, request), cause)
                    self.run.keep([gate])
                    self.report(_judged(job, group, gate, 0))
                continue
            job.skips.pop(group.folder, None)  # it had begun
            judged = self._judge(job, group, known, request)
            bad_node = next((line for line in judged if isinstance(line, Gate) and line.gate == NODE), None)
            if bad_node and group.steps[0].probe != NODE:
                # A fault of a node that shows only here: the group itself follows from it.
                judged = [*judged, skipped(expected_of(job.plan.run, group, known[-1].time, request), bad_node)]
            lines = with_setters(judged, self._setters(job), together=group.steps[0].together)
            job.collected.add(group.folder)
            job.samples += [line for line in lines if isinstance(line, Sample)]
            self.run.keep(lines)
            self._skip(job, group, [line for line in lines if isinstance(line, Gate)])
            bad = next((line for line in lines if isinstance(line, Gate) and line.verdict != "pass"), None)
            seconds = known[-1].time - (began or known[-1].time)
            if bad:
                self.report(_judged(job, group, bad, seconds))
            else:
                self.report(job.progress(f"{group.folder} passed, {seconds:.1f} s"))

    def _skip(self, job: LiveJob, group: Group, found: Sequence[Gate]) -> None:
        """Mark the steps that cannot work, and then, behind the nodes, that they are judged: the job waits for that."""
        for later in job.plan.groups:
            cause = reason_to_skip(later.steps[0], found)
            begun = later.folder in job.collected or self.run.step_began(job.plan.run, later.steps[0]) is not None
            if cause and not begun:
                job.skips[later.folder] = cause
                for step in later.steps:
                    self.run.mark(job.plan.run, f"{step.folder}/{script.SKIP}")
        if job.goes_on and group.steps[0].probe == NODE:
            self.run.mark(job.plan.run, f"{group.folder}/{script.JUDGED}")

    def _judge(self, job: LiveJob, group: Group, ends: Sequence[End], request: RunRequest) -> Sequence[Line]:
        run, first = job.plan.run, group.steps[0]
        expected = expected_of(run, group, ends[-1].time, request)
        try:
            return group.judge(ended_of(self.run, run, group, ends), expected)
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:  # what ranks wrote may hold anything
            path = f"{self.run.job_folder(run) / first.folder}/{RECORDS}"
            text = f"the records cannot be judged ({type(error).__name__}: {error})"
            todo = f"look into {path}, then run again"
            return [expected.gate(Finding("records-unreadable", Severity.DOUBT, text, todo, subject=group.folder))]

    def _setters(self, job: LiveJob) -> list[SetBefore]:
        """Return what was set before lumisite ran, and report it once."""
        found = self.run.set_before(job.plan.run)
        for setting in found:
            if setting not in self._set_before:
                self._set_before.add(setting)
                self.report(Finding("variable-set", Severity.INFO, setting.text, subject=job.plan.run))
        return found


def _judged(job: LiveJob, group: Group, gate: Gate, seconds: float) -> Finding:
    """Return the report of a group that did not pass."""
    return job.progress(f"{group.folder} {gate.verdict}: {gate.cause}, {seconds:.1f} s")
