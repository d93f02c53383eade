"""Drive a run: submit its jobs, follow them, judge each step as it ends, and say what became of every job.

What a job has done is read from the marks that it leaves on the shared file system; Slurm is asked only whether it
still runs. All that a run knows is on disk, so that it can be killed at any point and continued.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lumisite.errors import ToolError
from lumisite.validate.jobs import slurm
from lumisite.validate.jobs.script import CLAIM, JobPlan, Options, job_script
from lumisite.validate.lines import Gate, Sample
from lumisite.validate.probes.ddp.judge import RATE, efficiency
from lumisite.validate.probes.probe import Ended, Expected, Group, Line, rounded

if TYPE_CHECKING:
    from lumisite.site.model import Site
    from lumisite.validate.jobs.folder import Run, StepEnd


@dataclass(frozen=True)
class Pace:
    """How often to look: at the marks of jobs, and at Slurm; and how long a job's marks may lag behind its end."""

    marks_s: float = 0.3
    slurm_s: float = 4.0
    grace_s: float = 3.0


@dataclass(frozen=True)
class Setting:
    """What does not change during a run."""

    site: Site
    options: Options
    image_mark: str
    specs: Mapping[str, str]
    """The short hash of what is measured, by the group's folder."""
    pace: Pace = Pace()


@dataclass
class Job:
    """What is known of one job while the run goes on."""

    plan: JobPlan
    id: str = ""
    attempt: int = 0
    submitting: bool = False
    over: bool = False
    whole: bool = False
    """Whether it has run to its end."""
    lost_since: float = 0.0
    done_since: float = 0.0
    collected: set[str] = field(default_factory=set)
    samples: list[Sample] = field(default_factory=list)
    shown: str = ""
    """The group of steps that was last said to have begun, and what was last said of Slurm's."""
    told: str = ""

    @property
    def active(self) -> bool:
        """Whether Slurm has it, or may have it."""
        return bool(self.id) and not self.over


class Runner:
    """A run at work. `say` takes progress, one line at a time."""

    def __init__(self, run: Run, setting: Setting, plans: Sequence[JobPlan], say: Callable[[str], None]) -> None:
        self.run = run
        self.setting = setting
        self.jobs = [Job(plan) for plan in plans]
        self.say = say
        self._asked = 0.0

    def restore(self, journal: Sequence[Mapping[str, object]]) -> None:
        """Take up what the journal says; a job that was being submitted is looked for by its name."""
        by_run = {job.plan.run: job for job in self.jobs}
        for event in journal:
            job = by_run.get(str(event.get("run")))
            if job is not None:
                _apply(job, event)
                if event.get("event") == "ended":
                    self.run.keep([job_gate(job.plan, event)])
        for job in self.jobs:
            if job.submitting:
                self._look_for(job)
            self._collect(job)
            done = self.run.done(job.plan.run)
            if job.whole and done is not None:
                # They are there already, unless the machine went down before they were on its disk.
                self.run.keep(self._last_lines(job, done.time))

    def work(self) -> None:
        """Submit what is not submitted, and go on until every job is over."""
        for job in self.jobs:
            if not job.id and not job.over:
                self._submit(job)
        self._asked = time.monotonic() - max(0.0, self.setting.pace.slurm_s - 1)
        while any(not job.over for job in self.jobs):
            for job in self.jobs:
                self._look(job)
            self._ask_slurm()
            if any(not job.over for job in self.jobs):
                self.run.require_there()
                time.sleep(self.setting.pace.marks_s)

    def cancel(self) -> None:
        """Cancel what this run has in Slurm, and keep what is measured."""
        for job in self.jobs:
            if job.submitting and not job.over:
                self._look_for(job)
        mine = [job for job in self.jobs if job.active]
        slurm.cancel([job.id for job in mine])
        for job in mine:
            self.say(f"{job.plan.run}: job {job.id} cancelled")
            self._note(job, "cancelled")
            self._collect(job)

    def abandon(self) -> None:
        """Cancel what this run has in Slurm, where nothing can be written down any more."""
        slurm.cancel([job.id for job in self.jobs if job.active])

    def _submit(self, job: Job) -> None:
        attempt = job.attempt + 1
        setting, run = self.setting, self.run
        text = job_script(setting.site, job.plan, setting.options, str(run.probes), attempt)
        script = run.write_script(job.plan.run, attempt, text)
        self._note(job, "submitting", attempt=attempt)
        try:
            identity = slurm.submit(script)
        except slurm.RefusedError as error:
            self._end(job, str(error), "submit by hand what the job folder holds, and read what sbatch says")
            return
        self._note(job, "submitted", id=identity)
        self.say(f"{job.plan.run}: job {identity} on {','.join(job.plan.nodes)}")

    def _look_for(self, job: Job) -> None:
        """Find out whether a job that was being submitted has reached Slurm."""
        marks = self.run.marker(job.plan.run, f"started.{job.attempt}")
        identity = marks[0] if marks else slurm.find(f"lumisite-{job.plan.run}")
        if identity:
            self._note(job, "submitted", id=identity)
        else:
            # Should it arrive after all, it finds its place taken and ends.
            (self.run.job_folder(job.plan.run) / f"{CLAIM}.{job.attempt}").mkdir(exist_ok=True)
            job.submitting = False

    def _look(self, job: Job) -> None:
        """Read a job's marks."""
        if job.over or not job.id:
            return
        self._collect(job)
        done = self.run.done(job.plan.run)
        if done is not None:
            self._finish(job, done.code, done.time)

    def _collect(self, job: Job) -> None:
        """Judge every group whose steps have all ended since."""
        self.run.keep_facts(job.plan.run)
        for group in job.plan.groups:
            if group.folder in job.collected:
                continue
            ends = [self.run.step_end(job.plan.run, step) for step in group.steps]
            known = [end for end in ends if end is not None]
            if len(known) < len(ends):
                self._show_start(job, group)
                continue
            lines = self._judge(job, group, known)
            job.collected.add(group.folder)
            job.samples += [line for line in lines if isinstance(line, Sample)]
            self.run.keep(lines)
            began = self.run.step_began(job.plan.run, group.steps[0]) or known[-1].time
            self.say(f"{job.plan.run}: {group.folder} {_short(lines)}, {known[-1].time - began:.1f} s")

    def _show_start(self, job: Job, group: Group) -> None:
        if job.shown != group.folder and self.run.step_began(job.plan.run, group.steps[0]) is not None:
            job.shown = group.folder
            self.say(f"{job.plan.run}: {group.folder} …")

    def _judge(self, job: Job, group: Group, ends: Sequence[StepEnd]) -> Sequence[Line]:
        setting, run, first = self.setting, job.plan.run, group.steps[0]
        expected = Expected(
            probe=first.probe,
            label=first.label,
            nodes=first.nodes,
            tasks=first.tasks,
            run=run,
            time=round(ends[-1].time, 3),
            image=setting.image_mark,
            spec=setting.specs[group.folder],
        )
        ended = [
            Ended(
                step,
                tuple(self.run.records(run, step)),
                end.exit_code,
                self.run.step_words(run, step) if end.exit_code else "",
                end.time - (self.run.step_began(run, step) or -math.inf),
            )
            for step, end in zip(group.steps, ends, strict=True)
        ]
        return group.judge(ended, expected)

    def _finish(self, job: Job, code: str, when: float) -> None:
        """A job has come to its own end."""
        if code.startswith("module"):
            words = self.run.file_words(job.plan.run, "module.stderr")
            self._end(job, f"the module could not be loaded on {job.plan.nodes[0]}: {words}", "run `lumisite releases`")
            return
        silent = [group.folder for group in job.plan.groups if group.folder not in job.collected]
        if silent:
            job.done_since = job.done_since or time.monotonic()
            if time.monotonic() - job.done_since < self.setting.pace.grace_s:
                return  # files of one node may arrive in another order
            cause = f"the job ended, and {', '.join(silent)} left no result"
            self._end(job, cause, "look whether the run's file system is full, or was not there for a while")
            return
        self.run.keep(self._last_lines(job, when))
        self._note(job, "over")
        self.say(f"{job.plan.run}: done")

    def _last_lines(self, job: Job, when: float) -> list[Line]:
        cause = f"all {len(job.plan.steps)} steps have run"
        gate = Gate("job", "pass", cause, "", job.plan.run, tuple(sorted(job.plan.nodes)), when)
        return [*self._ladder(job), gate]

    def _ladder(self, job: Job) -> list[Line]:
        """Give what only all steps together tell: how training scales."""
        first = {step.label: step for step in reversed(job.plan.steps) if step.probe == "ddp"}
        ranks = {label: step.ranks for label, step in first.items()}
        rates = [sample for sample in job.samples if sample.metric.startswith(RATE)]
        return [
            replace(rate, metric=f"ddp/scaling_efficiency/{name}", value=rounded(value), unit="of linear")
            for name, value in efficiency(rates, ranks)
            for rate in rates
            if rate.metric == RATE + name
        ]

    def _ask_slurm(self) -> None:
        """Ask now and then whether the jobs still live."""
        now = time.monotonic()
        if now - self._asked < self.setting.pace.slurm_s:
            return
        self._asked = now
        active = [job for job in self.jobs if job.active]
        states = slurm.poll([job.id for job in active])
        for job in active:
            self._heed(job, states[job.id], now)

    def _heed(self, job: Job, state: slurm.JobState, now: float) -> None:
        """Act on what Slurm says of a job that has not said itself that it is done."""
        if not state.ended:
            job.lost_since = 0.0
            told = f"{state.state} ({state.reason})" if state.state else f"Slurm does not answer: {state.reason}"
            if state.state != "RUNNING" and told != job.told:
                job.told = told
                self.say(f"{job.plan.run}: job {job.id} {told}{self._out_of_service(job)}")
            return
        if not job.lost_since:
            job.lost_since = now
            self._asked = now - self.setting.pace.slurm_s + self.setting.pace.grace_s
            return
        # Its marks have had time to arrive.
        self._look(job)
        if not job.over:
            cause, advice = self._why(job, state)
            self._end(job, cause, advice)

    def _why(self, job: Job, state: slurm.JobState) -> tuple[str, str]:
        """Give the cause and the advice for a job that ended before it was done."""
        during = self._during(job)
        if state.state == "NODE_FAIL":
            lost = self._lost_nodes(job)
            names = ", ".join(lost) or f"one of {', '.join(job.plan.nodes)}"
            verb = "were" if len(lost) > 1 else "was"
            return f"{names} {verb} lost (NODE_FAIL){during}", "look at the node, then run again"
        if state.state == "TIMEOUT":
            return f"the job reached its time limit{during}", "raise validation.time_limit, or look for what hung"
        if state.state == "CANCELLED":
            return f"the job was cancelled by someone else{during}", "ask who cancelled it, then run again"
        if state.state:
            words = self.run.file_words(job.plan.run, f"slurm-{job.id}.out")
            reason = f" ({state.reason})" if state.reason not in ("", "None") else ""
            tail = f": {words}" if words else ""
            return f"the job ended as {state.state}{reason}{during}{tail}", "read the job's output in its folder"
        return f"Slurm no longer knows the job, and it did not say that it was done{during}", "ask the Slurm log"

    def _during(self, job: Job) -> str:
        """Say in which step a job was."""
        open_steps = [
            step.folder
            for step in job.plan.steps
            if self.run.step_began(job.plan.run, step) is not None and self.run.step_end(job.plan.run, step) is None
        ]
        return f" during {open_steps[-1]}" if open_steps else ""

    def _out_of_service(self, job: Job) -> str:
        """Say what to do where a job waits for nodes that take no jobs any more."""
        known = (*slurm.FREE, *slurm.BUSY, *slurm.RESERVED)
        away = [node for node in self._nodes(job) if node.state not in known]
        if not away:
            return ""
        shown = ", ".join(f"{node.name} is {node.state}" for node in away)
        names = ",".join(node.name for node in away)
        return f"; {shown}: return it to service, or stop this (Ctrl-C) and start again with --avoid {names}"

    def _lost_nodes(self, job: Job) -> list[str]:
        return [node.name for node in self._nodes(job) if node.state.startswith(("down", "fail"))]

    def _nodes(self, job: Job) -> list[slurm.Node]:
        """Give the state of a job's nodes; none where Slurm does not say."""
        try:
            nodes = slurm.nodes_of(self.setting.options.partition)
        except ToolError:
            return []
        return [node for node in nodes if node.name in job.plan.nodes]

    def _end(self, job: Job, cause: str, advice: str) -> None:
        """A job is over before its time."""
        self._note(job, "ended", cause=cause, advice=advice)
        self.say(f"{job.plan.run}: {cause}")

    def _note(self, job: Job, event: str, **more: object) -> None:
        entry = {"run": job.plan.run, "event": event, **more, "time": round(time.time(), 3)}
        self.run.note(entry)
        _apply(job, entry)
        if event == "ended":
            self.run.keep([job_gate(job.plan, entry)])


def _apply(job: Job, event: Mapping[str, object]) -> None:
    """Take one line of the journal into account."""
    kind = event.get("event")
    if kind == "submitting":
        job.submitting = True
        job.attempt = int(str(event.get("attempt", job.attempt + 1)))
    elif kind == "submitted":
        job.submitting, job.id = False, str(event["id"])
    elif kind == "cancelled":
        job.submitting, job.id = False, ""
    elif kind in ("ended", "over"):
        job.submitting, job.over, job.whole = False, True, kind == "over"


def job_gate(plan: JobPlan, event: Mapping[str, object]) -> Gate:
    """Give the line that says how a job ended before its time."""
    when = event.get("time")
    return Gate(
        gate="job",
        verdict="fail",
        cause=str(event.get("cause", "")),
        advice=str(event.get("advice", "")),
        run=plan.run,
        nodes=tuple(sorted(plan.nodes)),
        time=float(when) if isinstance(when, int | float) else 0.0,
    )


def _short(lines: Sequence[Line]) -> str:
    gates = [line for line in lines if isinstance(line, Gate)]
    bad = [gate for gate in gates if gate.verdict != "pass"]
    return f"{bad[0].verdict}: {bad[0].cause}" if bad else "passed"
