"""One job of a run while it goes on: what is known of it, and the judging of its groups of steps as they end.

What it measured may be replaced meanwhile, and variables may be set before it. Later steps that cannot work because of
what was found are marked, and not run.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lumisite.findings.finding import Finding, Severity, Value
from lumisite.paths import CURRENT
from lumisite.text import some
from lumisite.validate.lines import Gate, Sample, gate_of
from lumisite.validate.probes.probe import NODE, Ended, Expected, Group, Line
from lumisite.validate.run.folder import END, End, Run, SetBefore
from lumisite.validate.run.jobscript import EXIT, JUDGED, RECORDS, SKIP, SKIPPED, STEP_ERR, JobPlan
from lumisite.validate.run.request import RunRequest
from lumisite.validate.run.slurm import JobState
from lumisite.validate.verdict.causes import reason_to_skip
from lumisite.vendors import all_gpus

#: Variables that bear on ranks that work together, whatever a cause says; so do those of vendors.
NETWORK = ("NCCL_", "FI_", "GLOO_", "MASTER_")
#: The code of a job that measured two things.
CHANGED = "job-changed"


@dataclass
class LiveJob:
    """What is known of one job while the run goes on; `id` is that of Slurm, `end` says how it ended."""

    plan: JobPlan
    id: str = ""
    end: Gate | None = None
    asked: bool = False
    """Whether Slurm was asked to run it, and may have heard."""
    tries: int = 0
    """How often it was submitted since lumisite was started."""
    slurm: JobState = field(default_factory=lambda: JobState(None))
    """What Slurm said of it last."""
    over_since: float | None = None
    """Since when it is over, while its marks may still be on their way."""
    collected: set[str] = field(default_factory=set)
    samples: list[Sample] = field(default_factory=list)
    group: str = ""
    """The group of steps that has begun."""
    waits: Finding | None = None
    """What holds it up."""
    skips: dict[str, Gate] = field(default_factory=dict)
    """The groups that are not to run, each with the finding because of which."""

    @property
    def lost(self) -> bool:
        """Whether it ended before its time by Slurm's doing."""
        return self.end is not None and self.end.verdict == "inconclusive" and self.end.code != CHANGED

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


def expected_of(folder: Run, run: str, group: Group, time: float, request: RunRequest) -> Expected:
    """Return what the judge of a group knows of a job in the folder of a run; `time` is the group's end."""
    path, spec = f"{folder.job_folder(run)}/{group.folder}", request.specs[group.folder]
    return Expected(**vars(group.steps[0]), run=run, time=time, image=request.image_digest, spec=spec, path=path)


def ended_of(folder: Run, run: str, group: Group, ends: Sequence[End]) -> list[Ended]:
    """Return the steps of a group with what they left in the folder of a run."""
    return [
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


def skipped(expected: Expected, cause: Gate) -> Gate:
    """Return the line of a group that was not run because of a finding on some of its nodes."""
    of = tuple(node for node in cause.nodes if node in expected.nodes)
    text = f"not run, since {cause.gate} found {cause.code} on {some(of, between=', ')}"
    todo = "repair that first; then run it again"
    values: dict[str, Value] = {"cause": cause.code, "gate": cause.gate, "of": of}
    return expected.gate(Finding("step-skipped", Severity.DOUBT, text, todo, expected.folder, values=values))


def changed(states: Sequence[Mapping[str, str]], first: Mapping[str, str]) -> Finding | None:
    """Return what of a job was changed while it ran, or since the run's `first` job.

    `states` are the contents of each image and file of the release, and the target of its link, as the job went on.
    """
    for later in states[1:]:
        if changes := _differences(states[0], later, {*states[0], *later}):
            return _set_aside("what it measured was changed while the job ran", changes)
    changes = _differences(first, states[0], {*first} & {*states[0]}) if states else ()
    return _set_aside("what it measures was changed since the first job of this run", changes) if changes else None


def _set_aside(why: str, changes: Sequence[str]) -> Finding:
    text = f"set aside, since {why}: {some(changes, between=', ')}"
    return Finding("job-changed", Severity.DOUBT, text, "start a new run, and let nobody change that meanwhile")


def _differences(old: Mapping[str, str], new: Mapping[str, str], names: set[str]) -> tuple[str, ...]:
    """Return the files that differ, and the links with both their targets."""
    other = sorted(name for name in names if old.get(name) != new.get(name))
    links = [name for name in other if name.endswith(f"/{CURRENT}")]
    # Files below a link to another release are all others.
    files = [name for name in other if not any(f"{name}/".startswith(f"{link}/") for link in links)]
    return (*(f"{link} ({old.get(link)} -> {new.get(link)})" for link in links), *files)


def with_setters(lines: Sequence[Line], set_before: Sequence[SetBefore], *, together: bool) -> list[Line]:
    """Add to the advice of what did not pass the variables that were set before lumisite ran and that bear on it."""
    network = (*NETWORK, *(gpu.collectives.prefix for gpu in all_gpus())) if together else ()
    found: list[Line] = []
    for line in lines:
        if isinstance(line, Gate) and line.verdict != "pass":
            more = [setting.text for setting in set_before if setting.in_effect and _bears_on(setting, line, network)]
            line = replace(line, advice="; ".join(filter(None, [line.advice, *more])))
        found.append(line)
    return found


def _bears_on(setting: SetBefore, gate: Gate, network: tuple[str, ...]) -> bool:
    """Return whether a variable is one of the network's, binds CPUs, or is among the values of a gate."""
    if setting.name.startswith(network) or (gate.gate == "affinity" and setting.name.startswith("SLURM_CPU_BIND")):
        return True
    return re.search(rf"\b{re.escape(setting.name)}\b", json.dumps(gate.values)) is not None


@dataclass
class Collector:
    """Collects what steps of a run have left; `report` takes what happens."""

    run: Run
    report: Callable[[Finding], None]
    _told: set[str] = field(default_factory=set)
    """Which variables were set before lumisite ran, and why nodes were not checked, as far as it is reported."""

    def collect(self, job: LiveJob, request: RunRequest, *, whole: bool = True) -> None:
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
            expected = expected_of(self.run, run, group, known[-1].time, request)
            if any(end.code == SKIPPED for end in known):
                self._collect_skipped(job, group, expected)
            else:
                self._collect_judged(job, group, known, expected)

    def _collect_skipped(self, job: LiveJob, group: Group, expected: Expected) -> None:
        """Keep why a group was not run."""
        if cause := job.skips.get(group.folder):
            gate = skipped(expected, cause)
            self.run.keep([gate])
            self.report(job.progress(f"{group.folder} {gate.verdict}: {gate.cause}"))

    def _collect_judged(self, job: LiveJob, group: Group, ends: Sequence[End], expected: Expected) -> None:
        """Judge a group that was run, keep what came of it, and mark what cannot work because of that."""
        job.skips.pop(group.folder, None)  # it had begun
        judged = self._judge(job, group, ends, expected)
        bad_node = next((line for line in judged if isinstance(line, Gate) and line.gate == NODE), None)
        if bad_node and group.steps[0].probe != NODE:
            # A fault of a node that shows only here: the group itself follows from it.
            judged = [*judged, skipped(expected, bad_node)]
        lines = with_setters(judged, self._setters(job), together=expected.together)
        gates = [line for line in lines if isinstance(line, Gate)]
        for gate in gates:
            if why := str(gate.values.get("unchecked", "")):
                self._tell(job.progress(why))
        job.samples += [line for line in lines if isinstance(line, Sample)]
        self.run.keep(lines)
        self._skip(job, group, gates)
        bad = next((gate for gate in gates if gate.verdict != "pass"), None)
        came = f"{bad.verdict}: {bad.cause}" if bad else "passed"
        seconds = ends[-1].time - (self.run.step_began(job.plan.run, group.steps[0]) or ends[-1].time)
        self.report(job.progress(f"{group.folder} {came}, {seconds:.1f} s"))

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
        try:
            return group.judge(ended_of(self.run, job.plan.run, group, ends), expected)
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:  # what ranks wrote may hold anything
            text = f"the records cannot be judged ({type(error).__name__}: {error})"
            todo = f"look into {expected.path}/{RECORDS}, then run again"
            return [expected.gate(Finding("records-unreadable", Severity.DOUBT, text, todo, subject=group.folder))]

    def _setters(self, job: LiveJob) -> list[SetBefore]:
        """Return what was set before lumisite ran, and report it once."""
        found = self.run.set_before(job.plan.run)
        for setting in found:
            self._tell(Finding("variable-set", Severity.INFO, setting.text, subject=job.plan.run))
        return found

    def _tell(self, finding: Finding) -> None:
        """Report what is the same in many jobs once."""
        if finding.message not in self._told:
            self._told.add(finding.message)
            self.report(finding)
