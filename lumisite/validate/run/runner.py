"""Drive a run: submit its jobs, follow them, judge each step as it ends, and say what became of every job.

What a job has done is read from the marks that it leaves on the shared file system; Slurm is asked only whether it
still runs. All that a run knows is on disk, so that it can be killed at any point and continued.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import InitVar, dataclass, field

from lumisite.errors import ToolError
from lumisite.findings.catalogue import make_finding
from lumisite.site.model import Site
from lumisite.validate.lines import Gate, GateOutcome, Sample
from lumisite.validate.probes.ddp.judge import scaling
from lumisite.validate.probes.probe import Ended, Expected, Group, Line
from lumisite.validate.run import slurm
from lumisite.validate.run.asked import Asked
from lumisite.validate.run.folder import End, Run, slot_run
from lumisite.validate.run.job import LiveJob, changed, with_setters
from lumisite.validate.run.script import CLAIM, DONE, EXIT, RECORDS, SKIPPED, STEP_ERR, JobPlan, job_script

#: How often a job is submitted that Slurm lost, while all its nodes are in service.
TRIES = 3


@dataclass
class Runner:
    """A run at work. `say` takes progress, one line at a time; `facts` is the command that captures a node.

    It looks every `marks_s` seconds at the marks of jobs, which may lag `grace_s` behind a job's end, and every
    `slurm_s` at Slurm.
    """

    run: Run
    site: Site
    asked: Asked
    plans: InitVar[Sequence[JobPlan]]
    say: Callable[[str], None]
    facts: Sequence[str] = ()
    marks_s: float = 0.3
    slurm_s: float = 4.0
    grace_s: float = 3.0
    progress: Callable[[float, float], None] = lambda done, total: None
    """Told how many groups of steps are judged, or will never be, and of how many."""
    _polled: float = 0.0
    _first: dict[str, str] = field(default_factory=dict)
    """What the first job of the run measured that came to its end (`Run.seen`)."""
    _named: set[str] = field(default_factory=set)
    """What was set before lumisite ran, as far as it is told."""

    def __post_init__(self, plans: Sequence[JobPlan]) -> None:
        """Begin with all jobs."""
        self.jobs = [LiveJob(plan) for plan in plans]

    def add(self, asked: Asked, plans: Sequence[JobPlan]) -> None:
        """Take up what was asked for since: of all jobs, those that are new."""
        self.asked = asked
        self.jobs += [LiveJob(plan) for plan in plans[len(self.jobs) :]]

    def restore(self, journal: Sequence[Mapping[str, object]], *, again: bool = False) -> None:
        """Take up what the journal says; a job that was being submitted is looked for by its name.

        What Slurm lost is run `again` if that is asked.
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
        self._submit_all()
        self._polled = time.monotonic() - max(0.0, self.slurm_s - 1)
        while any(job.goes_on for job in self.jobs):
            groups = [(len(job.plan.groups), len(job.collected), job.goes_on) for job in self.jobs]
            self.progress(sum(own if goes_on else every for every, own, goes_on in groups), sum(g[0] for g in groups))
            for job in self._in_slurm():
                self._look(job)
            self._ask_slurm()
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
            self.say(f"{job.plan.run}: job {job.id} cancelled")
            self._note(job, "cancelled")
            self._collect(job)

    def _in_slurm(self) -> list[LiveJob]:
        """Give the jobs that Slurm has, or may have."""
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
                self._tell(job, f"Slurm does not answer: {error}", answers=False)

    def _submit(self, job: LiveJob) -> None:
        attempt = job.attempt + 1
        text = job_script(self.site, self.asked, job.plan, attempt, self.facts)
        script = self.run.write_script(job.plan.run, attempt, text)
        self._note(job, "submitting", attempt=attempt)
        try:
            identity = slurm.submit(script)
        except slurm.RefusedError as error:
            self._end(job, str(error), "submit by hand what the job folder holds, and read what sbatch says")
            return
        self._note(job, "submitted", id=identity)
        self.say(f"{job.plan.run}: job {identity} on {','.join(job.plan.nodes)}")

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
                if began is not None and job.shown != group.folder:
                    job.shown = group.folder
                    self.say(f"{job.plan.run}: {group.folder} …")
                continue
            if all(end.code == SKIPPED for end in known):
                job.collected.add(group.folder)
                continue
            lines = with_setters(
                self._judge(job, group, known), self._set_before(job), together=group.steps[0].together
            )
            job.collected.add(group.folder)
            job.samples += [line for line in lines if isinstance(line, Sample)]
            self.run.keep(lines)
            bad = next((line for line in lines if isinstance(line, Gate) and line.verdict != "pass"), None)
            told = f"{bad.verdict}: {bad.cause}" if bad else "passed"
            seconds = known[-1].time - (began or known[-1].time)
            self.say(f"{job.plan.run}: {group.folder} {told}, {seconds:.1f} s")

    def _judge(self, job: LiveJob, group: Group, ends: Sequence[End]) -> Sequence[Line]:
        run, first = job.plan.run, group.steps[0]
        expected = Expected(
            **vars(first),
            run=slot_run(run, first.slot),
            time=ends[-1].time,
            image=self.asked.image_digest,
            spec=self.asked.specs[group.measures],
        )
        ended = [
            Ended(
                step,
                tuple(self.run.records(run, step)),
                int(end.code),
                self.run.last_words(run, f"{step.folder}/{STEP_ERR}"),
                end.time - (self.run.step_began(run, step) or -math.inf),
            )
            for step, end in zip(group.steps, ends, strict=True)
        ]
        try:
            return group.judge(ended, expected)
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:  # what ranks wrote may hold anything
            path = f"{self.run.job_folder(run) / first.folder}/{RECORDS}"
            words = f"{type(error).__name__}: {error}"
            return [expected.gate(make_finding("records-unreadable", group.folder, error=words, path=path))]

    def _set_before(self, job: LiveJob) -> list[str]:
        """Give what was set before lumisite ran, with who set it, and say it once."""
        found = [f"{what} was set before lumisite ran, by {by}" for what, by in self.run.set_before(job.plan.run)]
        for told in found:
            if told not in self._named:
                self._named.add(told)
                self.say(f"{job.plan.run}: {told}")
        return found

    def _finish(self, job: LiveJob, done: End) -> None:
        """A job has come to its own end."""
        if done.code.startswith("module"):
            words = self.run.last_words(job.plan.run, "module.stderr")
            self._end(job, f"the module could not be loaded on {job.plan.nodes[0]}: {words}", "run `lumisite releases`")
            return
        if done.code.startswith("lost"):
            self._lose_step(job, done.code.partition(":")[2])
            return
        if done.code.startswith("unclean"):
            step = done.code.partition(":")[2]
            cause = f"plain ranks did not meet in {step}, after what went wrong before it: nothing after that counts"
            self._end(job, cause, "look at the nodes for what was left there")
            return
        silent = [group.folder for group in job.plan.groups if group.folder not in job.collected]
        if silent:
            job.done_since = job.done_since or time.monotonic()
            if time.monotonic() - job.done_since < self.grace_s:
                return  # files of one node may arrive in another order
            cause = f"the job ended, and {', '.join(silent)} left no result that can be read"
            self._end(job, cause, "look whether the run's file system is full, or was not there for a while", "lost")
            return
        if changed(self.run.seen(job.plan.run), self._first):
            self._end(job, "", "", "aside")
            return
        self._keep_last(job, done)
        self._note(job, "over")
        self.say(f"{job.plan.run}: done")

    def _keep_last(self, job: LiveJob, done: End) -> None:
        """Keep what only all steps together tell: that all have run, on what, and how training scales."""
        self._first = self._first or next(iter(self.run.seen(job.plan.run)), {})
        ranks = {step.label: step.ranks for step in reversed(job.plan.steps) if step.probe == "ddp"}
        over = job.gate("pass", f"all {len(job.plan.steps)} steps have run", "", done.time)
        self.run.keep([*scaling(job.samples, ranks), over])

    def _ask_slurm(self) -> None:
        """Ask now and then whether the jobs still live."""
        now = time.monotonic()
        if now - self._polled >= self.slurm_s:
            self._polled = now
            self._submit_all()
            active = self._in_slurm()
            states = slurm.poll([job.id for job in active])
            for job in active:
                self._heed(job, states[job.id], now)

    def _heed(self, job: LiveJob, state: slurm.JobState, now: float) -> None:
        """Act on what Slurm says of a job that has not said itself that it is done."""
        if not state.ended:
            job.lost = False
            if not state.state:
                self._tell(job, f"Slurm does not answer: {state.reason}", answers=False)
            elif state.state != "RUNNING":
                self._tell(job, f"job {job.id} {state.state} ({state.reason})")
            return
        if not job.lost:
            job.lost = True
            self._polled = now - self.slurm_s + self.grace_s
            return
        # Its marks have had time to arrive.
        self._look(job)
        if job.goes_on:
            cause, advice = self._why(job, state)
            # Ended without a mark: the file system did not take it.
            self._end(job, cause, advice, "lost" if state.state in (*slurm.LOST, "COMPLETED") else "ended")
            if state.state != "CANCELLED":
                self._try_again(job)

    def _lose_step(self, job: LiveJob, step: str) -> None:
        """A step was lost however often the job asked for it."""
        words = self.run.last_words(job.plan.run, f"{step}/{STEP_ERR}")
        away = [name for name in job.plan.nodes if f" failed on node {name}:" in words]
        where, look = "", "slurmctld (scontrol ping)"
        if away:
            where, look = f" on {', '.join(away)}", f"slurmd of {', '.join(away)}"
        cause = f"Slurm did not start {step}{where}: {words or 'srun said nothing'}"
        self._end(job, cause, f"look at {look}, then {self._resume(job)}", "lost")
        if not away:
            self._try_again(job)

    def _resume(self, job: LiveJob) -> str:
        """Say how a job is run again; one whose nodes Slurm chose is another program's, which submits it."""
        resume = f"`lumisite {self.asked.purpose} --resume {self.asked.folder}` runs the job again"
        return resume if job.plan.named else "run it again"

    def _try_again(self, job: LiveJob) -> None:
        """Let a lost job be submitted once more, if all its nodes are in service."""
        if job.state == "lost" and job.plan.named and job.attempt < TRIES:
            states = self._nodes(job)
            if all(states.get(name) in slurm.IN_SERVICE for name in job.plan.nodes):
                self._again(job)

    def _again(self, job: LiveJob) -> None:
        """Let a job that Slurm lost be submitted once more; what it has measured stays."""
        self.run.set_aside(job.plan.run, end=True)
        job.state, job.lost, job.done_since = "new", False, 0.0
        self.say(f"{job.plan.run}: once more")

    def _tell(self, job: LiveJob, told: str, *, answers: bool = True) -> None:
        """Say what holds a job up, once."""
        if told != job.told:
            job.told = told
            self.say(f"{job.plan.run}: {told}{self._out_of_service(job) if answers else ''}")

    def _why(self, job: LiveJob, state: slurm.JobState) -> tuple[str, str]:
        """Give the cause and the advice for a job that ended before it was done."""
        run, resume = job.plan.run, self._resume(job)
        open_steps = [
            step.folder
            for step in job.plan.steps
            if self.run.step_began(run, step) is not None and self.run.end(run, f"{step.folder}/{EXIT}") is None
        ]
        during = f" during {open_steps[-1]}" if open_steps else ""
        match state.state:
            case "NODE_FAIL":
                lost = [name for name, state in self._nodes(job).items() if state.startswith(("down", "fail"))]
                names = ", ".join(lost) or f"one of {', '.join(job.plan.nodes)}"
                verb = "were" if len(lost) > 1 else "was"
                return f"{names} {verb} lost (NODE_FAIL){during}", f"look at the node, then {resume}"
            case "TIMEOUT":
                return f"the job reached its time limit{during}", "raise validation.time_limit, or look for what hung"
            case "CANCELLED":
                return f"the job was cancelled by someone else{during}", f"ask who cancelled it, then {resume}"
            case "":
                cause = f"Slurm no longer knows the job, and it did not say that it was done{during}"
                return cause, f"read the log of slurmctld, then {resume}"
        words = self.run.last_words(run, f"slurm-{job.id}.out")
        reason = f" ({state.reason})" if state.reason not in ("", "None") else ""
        tail = f": {words}" if words else ""
        return f"the job ended as {state.state}{reason}{during}{tail}", "read the job's output in its folder"

    def _out_of_service(self, job: LiveJob) -> str:
        """Say what to do where a job waits for nodes that take no jobs any more."""
        away = {name: state for name, state in self._nodes(job).items() if state not in slurm.IN_SERVICE}
        if not away:
            return ""
        shown = ", ".join(f"{name} is {state}" for name, state in away.items())
        return f"; {shown}: return it to service, or stop this (Ctrl-C) and start again with --avoid {','.join(away)}"

    def _nodes(self, job: LiveJob) -> dict[str, str]:
        """Give the state of a job's nodes; none where Slurm does not say."""
        with suppress(ToolError):
            states = slurm.nodes_of(self.asked.partition)
            return {name: state for name, state in states.items() if name in job.plan.nodes}
        return {}

    def _end(self, job: LiveJob, cause: str, advice: str, event: str = "ended") -> None:
        """A job is over before its time, or does not count since it measured two things."""
        if why := changed(self.run.seen(job.plan.run), self._first):
            event, cause = "aside", f"set aside: {why}" + (f"; {cause}" if cause else "")
            advice = "nothing that it measured counts; start a new run, and let nobody change that meanwhile"
        self._note(job, event, cause=cause, advice=advice)
        self.say(f"{job.plan.run}: {cause}")

    def _note(self, job: LiveJob, event: str, **more: object) -> None:
        entry = {"run": job.plan.run, "event": event, **more, "time": round(time.time(), 3)}
        self.run.note(entry)
        self._heed_event(job, entry)

    def _heed_event(self, job: LiveJob, event: Mapping[str, object]) -> None:
        """Take one line of the journal into account; what has ended stays so, and has a gate's line."""
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
            cause, advice, when = (str(event.get(name, "")) for name in ("cause", "advice", "time"))
            verdict: GateOutcome = "fail" if job.state == "ended" else "inconclusive"
            self.run.keep([job.gate(verdict, cause, advice, float(when or 0))])
