"""Drive a run: submit its jobs, follow them, judge each step as it ends, and record what became of every job.

What a job has done is read from the marks that it leaves on the shared file system; Slurm only knows whether it
still runs. A run that was killed goes on from these marks, how jobs ended (`samples.jsonl`) and their names in Slurm.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import InitVar, dataclass, field, replace

from lumisite.errors import ToolError
from lumisite.findings.finding import Finding, Severity
from lumisite.site.model import Site
from lumisite.text import counted, some
from lumisite.validate.lines import gate_of, parse_time
from lumisite.validate.probes.ddp.judge import scaling
from lumisite.validate.probes.probe import quote
from lumisite.validate.run import slurm
from lumisite.validate.run.folder import END, End, Run
from lumisite.validate.run.job import Collector, LiveJob, changed, state_of
from lumisite.validate.run.jobscript import DONE, EXIT, STEP_ERR, JobPlan, job_name, job_script
from lumisite.validate.run.reasons import NODES_EVERY, check_settings, nodes_away, why_ended, why_lost, why_waits
from lumisite.validate.run.request import RunRequest

#: How often a job is submitted that Slurm lost, while all its nodes are in service.
TRIES = 3
#: How long looking at one running job may take in each round, in seconds: many jobs are looked at less often.
LOOK_S = 0.02
#: Jobs that Slurm has at once; of a divided machine, the other nodes are free for users meanwhile.
MOST_JOBS = 32


@dataclass
class Runner:
    """A run at work. `report` takes what happens, with the job as subject; `python` is one that runs lumisite on nodes.

    It looks every `marks_s` seconds at the marks of jobs, which may lag `grace_s` behind a job's end, and every
    `slurm_s` at Slurm.
    """

    run: Run
    site: Site
    request: RunRequest
    plans: InitVar[Sequence[JobPlan]]
    report: Callable[[Finding], None]
    python: Sequence[str] = ()
    marks_s: float = 0.3
    slurm_s: float = 4.0
    grace_s: float = 3.0
    progress: Callable[[float, float], None] = lambda done, total: None
    """Called with how many groups of steps are judged, or will never be, and of how many."""
    _polled: float = 0.0
    _states: dict[str, str] = field(default_factory=dict)
    """The states of nodes, which are read at most once in each round."""
    _reasons: set[str] = field(default_factory=set)
    """For what jobs of a divided machine wait, as far as it is reported."""
    _first: dict[str, str] = field(default_factory=dict)
    """What the first job of the run measured that came to its end (`Run.seen`)."""

    def __post_init__(self, plans: Sequence[JobPlan]) -> None:
        """Start with all jobs."""
        self.jobs = [LiveJob(plan) for plan in plans]
        self.collector = Collector(self.run, self.report)

    def restore(self, *, again: bool = False) -> None:
        """Restore the state of jobs from how they ended, their marks and their names in Slurm.

        With `again`, what Slurm lost is run once more.
        """
        ends = self.run.ends()
        for job in self.jobs:
            run = job.plan.run
            if end := ends.get(run):
                job.state = state_of(end)
                if job.state == "over":
                    self._first = self._first or next(iter(self.run.seen(run)), {})
                if job.state == "lost" and again:
                    self._again(job)
            elif marks := self.run.marker(run, DONE):
                job.state, job.id = "submitted", marks[0]
            elif self.run.has_script(run):
                self._find_in_slurm(job)
            if job.goes_on:
                self.collector.collect(job, self.request)

    def work(self) -> None:
        """Submit what is not submitted, and go on until every job is over."""
        self._check_settings()
        self._submit_all()
        self._polled = time.monotonic() - max(0.0, self.slurm_s - 1)
        while any(job.goes_on for job in self.jobs):
            groups = [(len(job.plan.groups), len(job.collected), job.goes_on) for job in self.jobs]
            self.progress(sum(done if goes_on else every for every, done, goes_on in groups), sum(g[0] for g in groups))
            self._states.clear()
            running = self._in_slurm()
            for job in running:
                self._read_marks(job)
            self._poll()
            if any(job.goes_on for job in self.jobs):
                time.sleep(max(self.marks_s, LOOK_S * len(running)))

    def cancel(self) -> None:
        """Cancel what this run has in Slurm, and keep what is measured."""
        for job in self.jobs:
            if job.state == "submitting":
                self._find_in_slurm(job)
        mine = self._in_slurm()
        slurm.cancel([job.id for job in mine])
        for job in mine:
            self._report(job, f"job {job.id} cancelled")
            job.state = "new"
            self.collector.collect(job, self.request)

    def _in_slurm(self) -> list[LiveJob]:
        """Return the jobs that Slurm has, or may have."""
        return [job for job in self.jobs if job.state == "submitted"]

    def _submit_all(self) -> None:
        """Submit what is not submitted, up to `MOST_JOBS` at once; what Slurm may have heard of is looked for first."""
        in_flight = sum(not job.waits_for_nodes for job in self._in_slurm())
        for job in self.jobs:
            if job.state not in ("new", "submitting") or in_flight >= MOST_JOBS:
                continue
            try:
                if job.state == "new" or not self._find_in_slurm(job):
                    self._submit(job)
            except slurm.SilentError as error:
                self._report_wait(job, replace(error.finding, subject=job.plan.run))
                return  # each question takes its time
            in_flight += job.goes_on

    def _submit(self, job: LiveJob) -> None:
        # One capture is kept.
        text = job_script(self.site, self.request, job.plan, self.python, captures=not self.run.has_facts)
        path = self.run.write_script(job.plan.run, text)
        job.state, job.tries = "submitting", job.tries + 1
        try:
            job.id = slurm.submit(path)
        except slurm.RefusedError as error:
            self._end(job, error.finding)
            return
        job.state = "submitted"
        self._report(job, f"job {job.id} on {some(job.plan.nodes)}")

    def _find_in_slurm(self, job: LiveJob) -> bool:
        """Return whether a job that may have been submitted is in Slurm, by its name."""
        identity = slurm.find(job_name(job.plan))
        if identity:
            job.state, job.id = "submitted", identity
        return identity is not None

    def _read_marks(self, job: LiveJob, *, whole: bool = False) -> None:
        """Read a job's marks: the `whole` of it once it has ended."""
        done = self.run.end(job.plan.run, DONE)
        self.collector.collect(job, self.request, whole=whole or done is not None)
        if done is not None:
            self._finish(job, done)

    def _finish(self, job: LiveJob, done: End) -> None:
        """Record that a job has come to its own end."""
        run = job.plan.run
        what, _, step = done.code.partition(":")
        if what == "module":
            words = quote(self.run.errors(run, "module.stderr"))
            text = f"the module could not be loaded on {job.plan.nodes[0]}" + (f": {words}" if words else "")
            todo = f"run `lumisite status {self.site.root} --all`"
            self._end(job, Finding("job-module-failed", Severity.FAULT, text, todo))
            return
        if what == "lost":
            self._lose_step(job, step)
            return
        silent = tuple(group.folder for group in job.plan.groups if group.folder not in job.collected)
        if silent:
            job.done_since = job.done_since or time.monotonic()
            if time.monotonic() - job.done_since < self.grace_s:
                return  # files of one node may arrive in another order
            text = f"the job ended, and left no result that can be read of {some(silent, between=', ')}"
            todo = "see whether the run's file system is full, or was away for a while"
            self._end(job, Finding("job-results-missing", Severity.DOUBT, text, todo))
            return
        if aside := changed(self.run.seen(run), self._first):
            self._end(job, aside)
            return
        self._keep_last(job, done)
        job.state = "over"
        self._report(job, f"all {len(job.plan.steps)} steps have run")

    def _keep_last(self, job: LiveJob, done: End) -> None:
        """Keep what only all steps together show: that all have run, on what, and how training scales."""
        self._first = self._first or next(iter(self.run.seen(job.plan.run)), {})
        ranks = {step.label: step.ranks for step in reversed(job.plan.steps) if step.probe == "ddp"}
        skips = sum(len(group.steps) for group in job.plan.groups if group.folder in job.skips)
        ran = len(job.plan.steps) - skips
        over = job.gate(
            Finding("job-done", Severity.INFO, f"{counted(ran, 'step')} {'has' if ran == 1 else 'have'} run"), done.time
        )
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
                self._apply_state(job, states[job.id], now)
            self._give_up()

    def _give_up(self) -> None:
        """End the jobs of a divided machine that wait for nodes which take no jobs, once all others are over."""
        left = [job for job in self.jobs if job.goes_on]
        if self.request.step_nodes and all(job.waits_for_nodes for job in left):
            slurm.cancel([job.id for job in left])
            for job in left:
                assert job.waits is not None
                self._end(job, job.waits)

    def _apply_state(self, job: LiveJob, state: slurm.JobState, now: float) -> None:
        """Apply the state that Slurm has for a job that has not reported its own end."""
        if not state.ended:
            job.lost = False
            if state.silence is not None:
                self._report_wait(job, replace(state.silence, subject=job.plan.run))
            elif state.state != "RUNNING":
                self._check_nodes(job, state)
            else:
                job.waits = None
            return
        if not job.lost:
            job.lost = True
            self._polled = now - self.slurm_s + self.grace_s
            return
        # Its marks have had time to arrive.
        self._read_marks(job, whole=True)
        if job.goes_on:
            self._end(job, self._why(job, state))
            if state.state != "CANCELLED":
                self._try_again(job)

    def _lose_step(self, job: LiveJob, step: str) -> None:
        """Record that a step was lost however often the job tried it."""
        lines = self.run.errors(job.plan.run, f"{step}/{STEP_ERR}")
        refused_by = slurm.failed_nodes(lines)
        self._end(job, why_lost(step, refused_by, nodes_away(self._nodes(job), ()), quote(lines), self._resume()))
        if not refused_by:
            self._try_again(job)

    def _resume(self) -> str:
        """Return the command that runs a job again."""
        return f"lumisite validate --resume {self.request.folder}"

    def _try_again(self, job: LiveJob) -> None:
        """Submit a lost job once more, if all its nodes are in service."""
        if job.state == "lost" and job.tries < TRIES:
            states = self._nodes(job)
            if all(states.get(name) in slurm.IN_SERVICE for name in job.plan.nodes):
                self._again(job)

    def _again(self, job: LiveJob) -> None:
        """Submit a job that Slurm lost once more; what it has measured stays."""
        self.run.drop(job.plan.run, END)
        job.state, job.lost, job.done_since = "new", False, 0.0
        self._report(job, "once more")

    def _report(self, job: LiveJob, text: str) -> None:
        self.report(job.progress(text))

    def _check_nodes(self, job: LiveJob, state: slurm.JobState) -> None:
        """Report what keeps a job from starting, with its nodes that take no jobs: looked at now and then."""
        job.looks += 1
        if job.looks > 2 and job.looks % NODES_EVERY and state.reason == job.reason:
            return
        job.reason = state.reason
        states = self._nodes(job)
        away = nodes_away(states, job.completing)
        job.completing = tuple(name for name in states if states[name] == "completing")
        self._report_wait(job, why_waits(job.plan.run, job.id, state, away))

    def _report_wait(self, job: LiveJob, finding: Finding) -> None:
        """Report what holds a job up, once; of many jobs most wait their turn, which is reported once a reason."""
        if finding == job.waits:
            return
        job.waits = finding
        if self.request.step_nodes and finding.code == "job-waits":
            if job.reason in self._reasons:
                return
            self._reasons.add(job.reason)
        self.report(finding)

    def _check_settings(self) -> None:
        """Report what Slurm's settings make impossible, and keep it as a gate of each job."""
        some_nodes = self.jobs[0].plan.nodes if self.jobs else ()
        for finding in check_settings(self.site, some_nodes):
            self.report(finding)
            for job in self.jobs:
                nodes, begun = tuple(sorted(job.plan.nodes)), parse_time(self.request.started)
                self.run.keep([gate_of(finding, "slurm", job.plan.run, nodes, begun)])

    def _why(self, job: LiveJob, state: slurm.JobState) -> Finding:
        """Return why a job ended before it was done."""
        run = job.plan.run
        open_steps = [
            step.folder
            for step in job.plan.steps
            if self.run.step_began(run, step) is not None and self.run.end(run, f"{step.folder}/{EXIT}") is None
        ]
        away = nodes_away(self._nodes(job), ())
        words = quote(self.run.errors(run, f"slurm-{job.id}.out"))
        return why_ended(state, open_steps[-1] if open_steps else "", away, words, self._resume())

    def _nodes(self, job: LiveJob) -> dict[str, str]:
        """Return the state of a job's nodes; none where Slurm does not answer."""
        with suppress(ToolError):
            if not self._states:
                self._states = dict(slurm.nodes_of(self.request.partition))
            return {name: state for name, state in self._states.items() if name in job.plan.nodes}
        return {}

    def _end(self, job: LiveJob, finding: Finding) -> None:
        """Record that a job is over before its time; nothing of it counts if it measured two things."""
        aside = changed(self.run.seen(job.plan.run), self._first)
        if aside:
            finding = replace(aside, cause=finding.code if finding.code != aside.code else None)
            self.run.drop(job.plan.run)
        end = job.gate(finding, round(time.time(), 3))
        self.run.keep([end])
        job.state = state_of(end)
        self.report(replace(finding, subject=job.plan.run))
