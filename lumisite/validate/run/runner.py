"""Drive a run: submit its jobs, follow them, judge each step as it ends, and record what became of every job.

What a job has done is read from the marks that it leaves on the shared file system; Slurm only knows whether it
still runs. All that a run knows is on disk, so that it can be killed at any point and continued.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import InitVar, dataclass, field, replace

from lumisite.errors import ToolError
from lumisite.findings.catalogue import make_finding
from lumisite.findings.finding import Finding, Severity, with_values
from lumisite.site.model import Site
from lumisite.validate.lines import Gate, Sample, gate_of, parse_time
from lumisite.validate.probes.ddp.judge import scaling
from lumisite.validate.probes.probe import Group, Line, quote
from lumisite.validate.run import script, slurm
from lumisite.validate.run.folder import End, Run
from lumisite.validate.run.job import LiveJob, changed, ended_of, expected_of, skipped, with_setters
from lumisite.validate.run.reasons import NODES_EVERY, check_settings, nodes_away, why_ended, why_waits
from lumisite.validate.run.request import RunRequest
from lumisite.validate.run.script import CLAIM, DONE, EXIT, RECORDS, STEP_ERR, JobPlan, job_script
from lumisite.validate.verdict.causes import breaks, reason_to_skip

#: How often a job is submitted that Slurm lost, while all its nodes are in service.
TRIES = 3


@dataclass
class Runner:
    """A run at work. `report` takes what happens, with the job as subject; `facts` is the command that captures a node.

    It looks every `marks_s` seconds at the marks of jobs, which may lag `grace_s` behind a job's end, and every
    `slurm_s` at Slurm.
    """

    run: Run
    site: Site
    request: RunRequest
    plans: InitVar[Sequence[JobPlan]]
    report: Callable[[Finding], None]
    facts: Sequence[str] = ()
    marks_s: float = 0.3
    slurm_s: float = 4.0
    grace_s: float = 3.0
    progress: Callable[[float, float], None] = lambda done, total: None
    """Called with how many groups of steps are judged, or will never be, and of how many."""
    _polled: float = 0.0
    _first: dict[str, str] = field(default_factory=dict)
    """What the first job of the run measured that came to its end (`Run.seen`)."""
    _set_before: set[Finding] = field(default_factory=set)
    """What was set before lumisite ran, as far as it is reported."""

    def __post_init__(self, plans: Sequence[JobPlan]) -> None:
        """Start with all jobs."""
        self.jobs = [LiveJob(plan) for plan in plans]

    def add(self, request: RunRequest, plans: Sequence[JobPlan]) -> None:
        """Add the jobs of a request that are new."""
        self.request = request
        self.jobs += [LiveJob(plan) for plan in plans[len(self.jobs) :]]

    def restore(self, journal: Sequence[Mapping[str, object]], *, again: bool = False) -> None:
        """Restore the state of jobs from the journal; one that was being submitted is looked for by its name.

        With `again`, what Slurm lost is run once more.
        """
        by_run = {job.plan.run: job for job in self.jobs}
        for event in journal:
            if job := by_run.get(str(event.get("run"))):
                self._heed_event(job, event)
        for job in self.jobs:
            if job.state == "submitting":
                self._look_for(job)
            if job.state == "lost" and again:
                self._again(job)
            if job.state != "aside":
                self._collect(job)
            if job.state == "over" and (done := self.run.end(job.plan.run, DONE)) is not None:
                # They are there already, unless the machine went down before they were on its disk.
                self._keep_last(job, done)

    def work(self) -> None:
        """Submit what is not submitted, and go on until every job is over."""
        self._check_settings()
        self._submit_all()
        self._polled = time.monotonic() - max(0.0, self.slurm_s - 1)
        while any(job.goes_on for job in self.jobs):
            groups = [(len(job.plan.groups), len(job.collected), job.goes_on) for job in self.jobs]
            self.progress(sum(done if goes_on else every for every, done, goes_on in groups), sum(g[0] for g in groups))
            for job in self._in_slurm():
                self._look(job)
            self._poll()
            if any(job.goes_on for job in self.jobs):
                time.sleep(self.marks_s)

    def cancel(self) -> None:
        """Cancel what this run has in Slurm, and keep what is measured."""
        for job in self.jobs:
            if job.state == "submitting":
                self._look_for(job)
        mine = self._in_slurm()
        slurm.cancel([job.id for job in mine])
        for job in mine:
            self._report(job, "job-stopped", id=job.id)
            self._note(job, "cancelled")
            self._collect(job)

    def _in_slurm(self) -> list[LiveJob]:
        """Return the jobs that Slurm has, or may have."""
        return [job for job in self.jobs if job.state == "submitted"]

    def _submit_all(self) -> None:
        """Submit what is not submitted; what Slurm may have heard before it fell silent is looked for first."""
        for job in self.jobs:
            try:
                if job.state == "submitting":
                    self._look_for(job)
                if job.state in ("new", "cancelled"):
                    self._submit(job)
            except slurm.SilentError as error:
                self._waits(job, replace(error.finding, subject=job.plan.run))

    def _submit(self, job: LiveJob) -> None:
        attempt = job.attempt + 1
        text = job_script(self.site, self.request, job.plan, attempt, self.facts)
        path = self.run.write_script(job.plan.run, attempt, text)
        self._note(job, "submitting", attempt=attempt)
        try:
            identity = slurm.submit(path)
        except slurm.RefusedError as error:
            self._end(job, error.finding)
            return
        self._note(job, "submitted", id=identity)
        self._report(job, "job-submitted", nodes=job.plan.nodes, id=identity)

    def _look_for(self, job: LiveJob) -> None:
        """Find out whether a job that was being submitted has reached Slurm."""
        marks = self.run.marker(job.plan.run, f"started.{job.attempt}")
        identity = marks[0] if marks else slurm.find(f"lumisite-{job.plan.run}")
        if identity:
            self._note(job, "submitted", id=identity)
        else:
            # Should it arrive after all, it finds its place taken and ends.
            (self.run.job_folder(job.plan.run) / f"{CLAIM}.{job.attempt}").mkdir(exist_ok=True)
            job.state = "new"

    def _look(self, job: LiveJob) -> None:
        """Read a job's marks."""
        self._collect(job)
        if (done := self.run.end(job.plan.run, DONE)) is not None:
            self._finish(job, done)

    def _collect(self, job: LiveJob) -> None:
        """Judge every group whose steps have all ended since."""
        self.run.keep_facts(job.plan.run)
        for group in job.plan.groups:
            if group.folder in job.collected:
                continue
            began = self.run.step_began(job.plan.run, group.steps[0])
            ends = [self.run.end(job.plan.run, f"{step.folder}/{EXIT}") for step in group.steps]
            known = [end for end in ends if end is not None]
            if len(known) < len(ends):
                if began is not None and job.group != group.folder:
                    job.group = group.folder
                    self._report(job, "steps-began", step=group.folder)
                continue
            if any(end.code == script.SKIPPED for end in known):
                job.collected.add(group.folder)
                if cause := job.skips.get(group.folder):
                    gate = skipped(expected_of(job.plan.run, group, known[-1].time, self.request), cause)
                    self.run.keep([gate])
                    self._report(
                        job, "steps-judged", step=group.folder, verdict=gate.verdict, cause=gate.cause, seconds=0
                    )
                continue
            job.skips.pop(group.folder, None)  # it had begun
            judged = self._judge(job, group, known)
            lines = with_setters(judged, self._setters(job), together=group.steps[0].together)
            job.collected.add(group.folder)
            job.samples += [line for line in lines if isinstance(line, Sample)]
            self.run.keep(lines)
            self._skip(job, group, [line for line in lines if isinstance(line, Gate) and breaks(line)])
            bad = next((line for line in lines if isinstance(line, Gate) and line.verdict != "pass"), None)
            seconds = known[-1].time - (began or known[-1].time)
            if bad:
                self._report(
                    job, "steps-judged", step=group.folder, verdict=bad.verdict, cause=bad.cause, seconds=seconds
                )
            else:
                self._report(job, "steps-passed", step=group.folder, seconds=seconds)

    def _skip(self, job: LiveJob, group: Group, broken: Sequence[Gate]) -> None:
        """Mark the steps that need what is broken; the job waits a little for the mark that a group is judged."""
        job.broken += broken
        for later in job.plan.groups if broken else ():
            cause = reason_to_skip(later.steps[0], job.broken)
            begun = later.folder in job.collected or self.run.step_began(job.plan.run, later.steps[0]) is not None
            if cause and not begun and later.folder not in job.skips:
                job.skips[later.folder] = cause
                for step in later.steps:
                    self.run.mark(job.plan.run, f"{step.folder}/{script.SKIP}")
        if job.goes_on and job.plan.named and not group.steps[0].together:
            self.run.mark(job.plan.run, f"{group.folder}/{script.JUDGED}")

    def _judge(self, job: LiveJob, group: Group, ends: Sequence[End]) -> Sequence[Line]:
        run, first = job.plan.run, group.steps[0]
        expected = expected_of(run, group, ends[-1].time, self.request)
        try:
            return group.judge(ended_of(self.run, run, group, ends), expected)
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:  # what ranks wrote may hold anything
            path = f"{self.run.job_folder(run) / first.folder}/{RECORDS}"
            words = f"{type(error).__name__}: {error}"
            return [expected.gate(make_finding("records-unreadable", group.folder, error=words, path=path))]

    def _setters(self, job: LiveJob) -> list[Finding]:
        """Return what was set before lumisite ran, and report it once."""
        found = self.run.set_before(job.plan.run)
        for finding in found:
            if finding not in self._set_before:
                self._set_before.add(finding)
                self.report(replace(finding, subject=job.plan.run))
        return found

    def _finish(self, job: LiveJob, done: End) -> None:
        """Record that a job has come to its own end."""
        run = job.plan.run
        what, _, step = done.code.partition(":")
        if what == "module":
            words = quote(self.run.errors(run, "module.stderr"))
            self._end(job, make_finding("job-module-failed", node=job.plan.nodes[0], words=words))
            return
        if what == "lost":
            self._lose_step(job, step)
            return
        if what == "unclean":
            self._end(job, make_finding("job-unclean", step=step))
            return
        silent = tuple(group.folder for group in job.plan.groups if group.folder not in job.collected)
        if silent:
            job.done_since = job.done_since or time.monotonic()
            if time.monotonic() - job.done_since < self.grace_s:
                return  # files of one node may arrive in another order
            self._end(job, make_finding("job-results-missing", steps=silent))
            return
        if aside := changed(self.run.seen(run), self._first):
            self._end(job, aside)
            return
        self._keep_last(job, done)
        self._note(job, "over")
        self._report(job, "job-done", steps=len(job.plan.steps))

    def _keep_last(self, job: LiveJob, done: End) -> None:
        """Keep what only all steps together show: that all have run, on what, and how training scales."""
        self._first = self._first or next(iter(self.run.seen(job.plan.run)), {})
        ranks = {step.label: step.ranks for step in reversed(job.plan.steps) if step.probe == "ddp"}
        skips = sum(len(group.steps) for group in job.plan.groups if group.folder in job.skips)
        over = job.gate(make_finding("job-done", steps=len(job.plan.steps) - skips), done.time)
        self.run.keep([*scaling(job.samples, ranks), over])

    def _poll(self) -> None:
        """Poll Slurm now and then for the state of the jobs."""
        now = time.monotonic()
        if now - self._polled >= self.slurm_s:
            self._polled = now
            self._submit_all()
            active = self._in_slurm()
            states = slurm.poll([job.id for job in active])
            for job in active:
                self._heed(job, states[job.id], now)

    def _heed(self, job: LiveJob, state: slurm.JobState, now: float) -> None:
        """Apply the state that Slurm has for a job that has not reported its own end."""
        if not state.ended:
            job.lost = False
            if state.silence is not None:
                self._waits(job, replace(state.silence, subject=job.plan.run))
            elif state.state != "RUNNING":
                self._look_at_nodes(job, state)
            return
        if not job.lost:
            job.lost = True
            self._polled = now - self.slurm_s + self.grace_s
            return
        # Its marks have had time to arrive.
        self._look(job)
        if job.goes_on:
            self._end(job, self._why(job, state))
            if state.state != "CANCELLED":
                self._try_again(job)

    def _lose_step(self, job: LiveJob, step: str) -> None:
        """Record that a step was lost however often the job tried it."""
        lines = self.run.errors(job.plan.run, f"{step}/{STEP_ERR}")
        away = slurm.failed_nodes(lines)
        words, resume = quote(lines), self._resume(job)
        self._end(job, make_finding("job-step-lost", nodes=away, step=step, words=words, resume=resume))
        if not away:
            self._try_again(job)

    def _resume(self, job: LiveJob) -> str:
        """Return the command that runs a job again; one whose nodes Slurm chose is submitted by another program."""
        return f"lumisite {self.request.purpose} --resume {self.request.folder}" if job.plan.named else ""

    def _try_again(self, job: LiveJob) -> None:
        """Submit a lost job once more, if all its nodes are in service."""
        if job.state == "lost" and job.plan.named and job.attempt < TRIES:
            states = self._nodes(job)
            if all(states.get(name) in slurm.IN_SERVICE for name in job.plan.nodes):
                self._again(job)

    def _again(self, job: LiveJob) -> None:
        """Submit a job that Slurm lost once more; what it has measured stays."""
        self.run.set_aside(job.plan.run, end=True)
        job.state, job.lost, job.done_since = "new", False, 0.0
        self._report(job, "job-again")

    def _report(self, job: LiveJob, code: str, *, nodes: Sequence[str] = (), **values: str | int | float) -> None:
        self.report(with_values(make_finding(code, job.plan.run, nodes=nodes), values))

    def _look_at_nodes(self, job: LiveJob, state: slurm.JobState) -> None:
        """Report what keeps a job from starting, with its nodes that take no jobs: looked at now and then."""
        job.looks += 1
        if job.looks > 2 and job.looks % NODES_EVERY and state.reason == job.reason:
            return
        job.reason = state.reason
        states = self._nodes(job)
        away = nodes_away(states, job.completing)
        job.completing = tuple(name for name in states if states[name] == "completing")
        self._waits(job, why_waits(job.plan.run, job.id, state, away))

    def _waits(self, job: LiveJob, finding: Finding) -> None:
        """Report what holds a job up, once."""
        if (finding, finding.values) != (job.waits, job.waits and job.waits.values):
            job.waits = finding
            self.report(finding)

    def _check_settings(self) -> None:
        """Report what Slurm's settings make impossible, and keep it as a gate of each job."""
        for finding in check_settings(self.site):
            self.report(finding)
            for job in self.jobs:
                nodes, begun = tuple(sorted(job.plan.nodes)), parse_time(self.request.started)
                self.run.keep([gate_of(finding, "slurm", job.plan.run, nodes, begun)])

    def _why(self, job: LiveJob, state: slurm.JobState) -> Finding:
        """Return why a job ended before it was done."""
        run, lost = job.plan.run, []
        open_steps = [
            step.folder
            for step in job.plan.steps
            if self.run.step_began(run, step) is not None and self.run.end(run, f"{step.folder}/{EXIT}") is None
        ]
        if state.state == "NODE_FAIL":
            lost = [name for name, is_now in self._nodes(job).items() if is_now.startswith(("down", "fail"))]
        words = quote(self.run.errors(run, f"slurm-{job.id}.out"))
        return why_ended(job, state, open_steps[-1] if open_steps else "", lost, words, self._resume(job))

    def _nodes(self, job: LiveJob) -> dict[str, str]:
        """Return the state of a job's nodes; none where Slurm does not answer."""
        with suppress(ToolError):
            states = slurm.nodes_of(self.request.partition)
            return {name: state for name, state in states.items() if name in job.plan.nodes}
        return {}

    def _end(self, job: LiveJob, finding: Finding) -> None:
        """Record that a job is over before its time, or does not count since it measured two things."""
        aside = changed(self.run.seen(job.plan.run), self._first)
        if aside:
            ended = finding.code if finding.code != aside.code else ""
            finding = replace(aside, cause=ended or None, values={**aside.values, "ended": ended})
        event = "aside" if aside else "ended" if finding.severity is Severity.FAULT else "lost"
        gate = job.gate(finding, 0.0)
        about = {"code": gate.code, "values": gate.values, "nodes": list(gate.nodes)}
        self._note(job, event, cause=gate.cause, advice=gate.advice, **about)
        self.report(replace(finding, subject=job.plan.run))

    def _note(self, job: LiveJob, event: str, **more: object) -> None:
        entry = {"run": job.plan.run, "event": event, **more, "time": round(time.time(), 3)}
        self.run.note(entry)
        self._heed_event(job, entry)

    def _heed_event(self, job: LiveJob, event: Mapping[str, object]) -> None:
        """Apply one line of the journal; what has ended stays so, and has a gate's line."""
        if job.state == "lost" and event["event"] == "submitting":
            self.run.set_aside(job.plan.run, end=True)
            job.state = "new"
        if not job.goes_on:
            return
        job.state = str(event["event"])
        job.id = str(event.get("id", job.id))
        job.attempt = int(str(event.get("attempt", job.attempt)))
        if job.state == "aside":
            self.run.set_aside(job.plan.run)
        if job.state in ("ended", "lost", "aside"):
            self.run.keep([job.gate_of(event)])
