"""A Slurm that the test plays, and the runner at work with it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from lumisite.findings.finding import Finding
from lumisite.validate.lines import Gate, Sample
from lumisite.validate.probes.outcome import passed
from lumisite.validate.probes.probe import Ended, Expected, Group, Line, ProbeStep, Srun
from lumisite.validate.run import slurm
from lumisite.validate.run.folder import RUN, SAMPLES, Run, create_run, lines_of
from lumisite.validate.run.jobscript import DONE, EXIT, RECORDS, SKIP, SKIPPED
from lumisite.validate.run.plan import JobPlan
from lumisite.validate.run.runner import Runner
from tests.support.requests import LOADED, a_request

NODES = ("nid000001", "nid000002")


class KilledError(BaseException):
    """The runner is gone, as after kill -9: nothing that it holds in memory is left."""


@dataclass
class PlayedJob:
    """A job as Slurm has it; its folder has its script and its marks."""

    id: str
    folder: Path
    nodes: tuple[str, ...]
    steps: list[str]
    state: str = "RUNNING"

    @property
    def is_live(self) -> bool:
        """Whether it has not ended."""
        return self.state in ("PENDING", "RUNNING")

    def done(self) -> None:
        """Leave the mark that its script has come to its end."""
        (self.folder / DONE).write_text(f"{self.id} 0 1000\n")


class PlayedSlurm:
    """Slurm, played: one more step of each running job ends, as its script would end it, each time the runner sleeps."""

    def __init__(self, names: Sequence[str] = NODES) -> None:
        self.jobs: dict[str, PlayedJob] = {}
        self.nodes = dict.fromkeys(names, "idle")
        self.reasons: dict[str, str] = {}
        self.cancelled: list[str] = []
        self.stop_after: int | None = None
        """How many steps of a job end before the job itself does, in the middle of the next."""
        self.end_state = "COMPLETED"

    def submit(self, script: str) -> str:
        text, name = Path(script).read_text(), str(len(self.jobs) + 1)
        (nodes,) = re.findall(r"^#SBATCH --nodelist=(\S+)$", text, re.MULTILINE)
        steps = re.findall(r"^step (\S+)", text, re.MULTILINE)
        self.jobs[name] = PlayedJob(name, Path(script).parent, tuple(nodes.split(",")), steps)
        return name

    def find(self, name: str) -> str | None:
        found = [job.id for job in self.jobs.values() if job.is_live and name == f"lumisite-{job.folder.name}"]
        return found[-1] if found else None

    def poll(self, jobs: Sequence[str]) -> Mapping[str, slurm.JobState]:
        states = {job: self.jobs[job].state for job in jobs}
        return {job: slurm.JobState(state, "Resources" * (state == "PENDING")) for job, state in states.items()}

    def cancel(self, jobs: Sequence[str]) -> None:
        self.cancelled += jobs
        for job in jobs:
            self.jobs[job].state = "CANCELLED"

    def nodes_of(self, _partition: str) -> dict[str, str]:
        return self.nodes

    def reasons_of(self, _nodes: object) -> dict[str, str]:
        return self.reasons

    def go_on(self) -> None:
        for job in self.jobs.values():
            if job.state == "RUNNING":
                self._end_step(job)

    def _end_step(self, job: PlayedJob) -> None:
        ended = [name for name in job.steps if (job.folder / name / EXIT).exists()]
        if len(ended) == len(job.steps):
            self._end_job(job)
            return
        step = job.folder / job.steps[len(ended)]
        if (step / SKIP).exists():
            (step / EXIT).write_text(f"{SKIPPED} 200.5\n")
            return
        (step / RECORDS).mkdir(parents=True, exist_ok=True)
        (step / "began").write_text("100.0\n")
        if self._is_lost(job, len(ended)):
            return
        for name, text in self._records(step.name, job.nodes):
            (step / RECORDS / name).write_text(text)
        (step / EXIT).write_text("0 200.5\n")

    def _end_job(self, job: PlayedJob) -> None:
        job.state = "COMPLETED"
        job.done()

    def _is_lost(self, job: PlayedJob, ended: int) -> bool:
        """End a job before its time, where that is to be."""
        if self.stop_after != ended:
            return False
        job.state = self.end_state
        return True

    def _records(self, _step: str, _nodes: tuple[str, ...]) -> Iterator[tuple[str, str]]:
        """Yield the files that the ranks of a step leave, with their text."""
        yield "0.json", json.dumps({"rank": 0, "local_rank": 0, "value": 1.0})


def play(patch: pytest.MonkeyPatch, cluster: PlayedSlurm) -> None:
    """Put a played Slurm in the place of the real one; time passes when the runner sleeps."""
    for name in ("submit", "find", "poll", "cancel", "nodes_of", "reasons_of"):
        patch.setattr(slurm, name, getattr(cluster, name))
    patch.setattr("lumisite.validate.run.runner.time.sleep", lambda _: cluster.go_on())


# ---- a run with it


def judge(steps: Sequence[Ended], expected: Expected) -> list[Line]:
    value = steps[0].records[0]["value"]
    return [expected.gate(passed("1 record passed")), expected.sample("speed", value, "higher", "1/s")]


def a_group(name: str) -> Group:
    return Group((ProbeStep(name, Srun("", ("true",)), "several", NODES, 1, 10),), judge)


THREE = tuple(map(a_group, ("one", "two", "three")))


def new_run(folder: Path) -> Run:
    return create_run(replace(a_request(), folder=str(folder)))


def runner(run: Run, reports: list[Finding], groups: Sequence[Group] = THREE, jobs: int = 2) -> Runner:
    """Return the driver of jobs with the same steps."""
    names = [f"stamp-{number:02}" for number in range(1, jobs + 1)]
    plans = [JobPlan(name, NODES, tuple(groups), f"{run.folder}/jobs/{name}") for name in names]
    request = replace(a_request(), folder=str(run.folder))
    return Runner(run, LOADED.site, request, plans, reports.append, marks_s=0, slurm_s=0, grace_s=0)


def drive(one: Runner, *, again: bool = False) -> list[Sample | Gate]:
    """Have a driver do all its work, and return the lines of the run."""
    try:
        one.run.lock()
        one.restore(again=again)
        one.work()
    finally:
        one.run.release()
    return lines_of(one.run.folder / SAMPLES)


def work(folder: Path, reports: list[Finding] | None = None, *, again: bool = False) -> list[Sample | Gate]:
    """Begin a run, or go on with it."""
    run = Run(folder) if (folder / RUN).exists() else new_run(folder)
    return drive(runner(run, [] if reports is None else reports), again=again)


def keys(lines: Sequence[Sample | Gate]) -> list[tuple[str, str, tuple[str, ...]]]:
    return sorted((each.metric if isinstance(each, Sample) else each.gate, each.run, each.nodes) for each in lines)


def job_gates(lines: Sequence[Sample | Gate]) -> list[Gate]:
    return [line for line in lines if isinstance(line, Gate) and line.gate == "job"]
