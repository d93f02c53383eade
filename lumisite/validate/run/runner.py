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
from lumisite.validate.probes.probe import quote
from lumisite.validate.run import slurm
from lumisite.validate.run.collect import Collector, LiveJob
from lumisite.validate.run.folder import End, Run
from lumisite.validate.run.job_reasons import nodes_away, why_ended, why_lost, why_waits
from lumisite.validate.run.jobscript import DONE, EXIT, STEP_ERR, job_script
from lumisite.validate.run.plan import JobPlan, job_name
from lumisite.validate.run.request import RunRequest

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
    grace_s: float = 5.0
    progress: Callable[[float, float], None] = lambda done, total: None
    """Called with how many groups of steps are judged, or will never be, and of how many."""
    _reported: set[tuple[str, ...]] = field(default_factory=set)
    """For what jobs wait, as far as it is reported."""

    def __post_init__(self, plans: Sequence[JobPlan]) -> None:
        """Start with all jobs."""
        self.jobs = [LiveJob(plan) for plan in plans]
        self.collector = Collector(self.run, self.request.image_digest, self.report)

    def restore(self, *, again: bool) -> None:
        """Restore the state of jobs from how they ended and their marks; with `again`, what Slurm lost is run again."""
        ends = self.run.ends()
        for job in self.jobs:
            run = job.plan.run
            job.end = ends.get(run)
            if again and job.end and job.end.verdict == "inconclusive":
                self.run.forget_end(run)
                job.end = None
            elif job.end is None:
                job.asked, job.id = self.run.has_script(run), next(iter(self.run.marker(run, DONE)), "")
            if job.end is None:
                self.collector.collect(job)

    def work(self) -> None:
        """Submit what is not submitted, and go on until every job is over."""
        polled = -self.slurm_s
        while left := [job for job in self.jobs if job.end is None]:
            groups = sum(len(job.plan.groups) for job in self.jobs)
            self.progress(groups - sum(len(job.plan.groups) - len(job.collected) for job in left), groups)
            if time.monotonic() - polled >= self.slurm_s:
                # What was just submitted is not asked for yet: most jobs start within seconds.
                self._poll()
                self._submit_all()
                polled = time.monotonic()
            for job in self._in_slurm():
                self._look(job)
            if any(job.end is None for job in self.jobs):
                time.sleep(self.marks_s)

    def cancel(self) -> None:
        """Cancel what this run has in Slurm, and keep what is measured."""
        for job in self.jobs:
            if job.end is None and not job.id:
                self._find_in_slurm(job)
        mine = self._in_slurm()
        slurm.cancel([job.id for job in mine])
        for job in mine:
            self._report(job, f"job {job.id} cancelled")
            job.id = ""
            self.collector.collect(job)

    def _in_slurm(self) -> list[LiveJob]:
        """Return the jobs that Slurm has, or may have."""
        return [job for job in self.jobs if job.id and job.end is None]

    # ---- submitting

    def _submit_all(self) -> None:
        """Submit what is not submitted, up to `MOST_JOBS` at once; what Slurm may have heard of is looked for first."""
        in_flight = sum(not job.waits_for_nodes for job in self._in_slurm())
        for job in self.jobs:
            if job.end is not None or job.id or in_flight >= MOST_JOBS:
                continue
            try:
                if not self._find_in_slurm(job):
                    self._submit(job)
            except slurm.SilentError as error:
                self._report_wait(job, replace(error.finding, subject=job.plan.run))
                return  # each question takes its time
            in_flight += job.end is None

    def _find_in_slurm(self, job: LiveJob) -> bool:
        """Return whether a job that Slurm may have heard of is there, by its name."""
        if job.asked:
            job.id = slurm.find(job_name(job.plan)) or ""
        return bool(job.id)

    def _submit(self, job: LiveJob) -> None:
        # One capture is kept.
        text = job_script(self.site, self.request, job.plan, self.python, captures=not self.run.has_facts)
        path = self.run.write_script(job.plan.run, text)
        job.asked = True
        try:
            job.id = slurm.submit(path)
        except slurm.RefusedError as error:
            self._end(job, error.finding)
            return
        self._report(job, f"job {job.id} on {some(job.plan.nodes)}")

    # ---- following

    def _poll(self) -> None:
        """Ask Slurm for the state of the jobs."""
        active = self._in_slurm()
        nodes: dict[str, str] | None = None
        try:
            states = slurm.poll([job.id for job in active])
        except slurm.SilentError as error:
            for job in active[:1]:
                self._report_wait(job, replace(error.finding, subject=job.plan.run))
            return
        for job in active:
            job.slurm = states[job.id]
            if job.slurm.state == "RUNNING":
                job.waits = None
            elif not job.slurm.ended:
                nodes = self._nodes() if nodes is None else nodes
                away = nodes_away({name: nodes[name] for name in job.plan.nodes if name in nodes})
                self._report_wait(job, why_waits(job.plan.run, job.id, job.slurm, away))
        left = [job for job in self.jobs if job.end is None]
        if self.request.step_nodes and all(job.waits_for_nodes for job in left):
            # Of a divided machine the rest is measured; nobody waits for these.
            slurm.cancel([job.id for job in left])
            for job in left:
                assert job.waits is not None
                self._end(job, job.waits)

    def _look(self, job: LiveJob) -> None:
        """Read a job's marks, and record how it ended once it has; marks may arrive later than its end."""
        done = self.run.end(job.plan.run, DONE)
        self.collector.collect(job, whole=done is not None)
        if done and done.code == "0" and len(job.collected) == len(job.plan.groups):
            self._finish(job, done)
        elif done and done.code != "0":
            self._end_of_script(job, done)
        elif done or job.slurm.ended:
            if job.over_since is None:
                job.over_since = time.monotonic()
            elif time.monotonic() - job.over_since >= self.grace_s:
                self.collector.collect(job)
                self._end_early(job, done)
        else:
            job.over_since = None

    def _finish(self, job: LiveJob, done: End) -> None:
        """Record that a job has run to its end."""
        ran = sum(len(group.steps) for group in job.plan.groups if group.folder not in job.skips)
        text = f"{counted(ran, 'step')} {'has' if ran == 1 else 'have'} run"
        job.end = job.gate(Finding("job-progress", Severity.INFO, text), done.time)
        self.run.keep([job.end])
        self._report(job, f"all {len(job.plan.steps)} steps have run")

    def _end_of_script(self, job: LiveJob, done: End) -> None:
        """Record why the script of a job ended itself: its module did not load, or Slurm lost a step."""
        run = job.plan.run
        what, _, step = done.code.partition(":")
        if what == "module":
            words = quote(self.run.errors(run, "module.stderr"))
            text = f"the module could not be loaded on {job.plan.nodes[0]}" + (f": {words}" if words else "")
            todo = f"run `lumisite status {self.site.root} --all`"
            self._end(job, Finding("job-module-failed", Severity.FAULT, text, todo))
            return
        lines = self.run.errors(run, f"{step}/{STEP_ERR}")
        refused_by = slurm.failed_nodes(lines)
        self._end(job, why_lost(step, refused_by, self._away(job), quote(lines), self._resume))

    def _end_early(self, job: LiveJob, done: End | None) -> None:
        """Record why a job ended of which no marks come any more: `done` itself, without some results, or by Slurm."""
        run = job.plan.run
        if done:
            silent = tuple(group.folder for group in job.plan.groups if group.folder not in job.collected)
            text = f"the job ended, and left no result that can be read of {some(silent, between=', ')}"
            todo = "see whether the run's file system is full, or was away for a while"
            self._end(job, Finding("records-unreadable", Severity.DOUBT, text, todo))
            return
        begun = [step.folder for step in job.plan.steps if self.run.step_began(run, step) is not None]
        left = [folder for folder in begun if self.run.end(run, f"{folder}/{EXIT}") is None]
        words = quote(self.run.errors(run, f"slurm-{job.id}.out"))
        self._end(job, why_ended(job.slurm, left[-1] if left else "", self._away(job), words, self._resume))

    def _end(self, job: LiveJob, finding: Finding) -> None:
        """Record that a job is over before its time."""
        job.end = job.gate(finding, round(time.time(), 3))
        self.run.keep([job.end])
        self.report(replace(finding, subject=job.plan.run))

    # ---- nodes and reports

    @property
    def _resume(self) -> str:
        """The command that runs a job again."""
        return f"lumisite validate --resume {self.request.folder}"

    def _nodes(self) -> dict[str, str]:
        """Return the states of the partition's nodes; none where Slurm does not answer."""
        with suppress(ToolError):
            return slurm.nodes_of(self.request.partition)
        return {}

    def _away(self, job: LiveJob) -> dict[str, str]:
        """Return the nodes of a job that take no jobs, with their states."""
        return nodes_away({name: state for name, state in self._nodes().items() if name in job.plan.nodes})

    def _report(self, job: LiveJob, text: str) -> None:
        self.report(job.progress(text))

    def _report_wait(self, job: LiveJob, finding: Finding) -> None:
        """Report what holds a job up; what many wait for, their turn above all, is reported once."""
        job.waits = finding
        what = (finding.code, job.slurm.reason, *finding.nodes)
        if what not in self._reported:
            self._reported.add(what)
            self.report(finding)
