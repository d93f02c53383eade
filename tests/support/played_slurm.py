"""A Slurm that the test plays, and the runner at work with it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from lumisite.findings.finding import Finding
from lumisite.validate.lines import Gate, Sample
from lumisite.validate.probes.outcome import passed
from lumisite.validate.probes.probe import Ended, Expected, Group, Line, ProbeStep, Srun
from lumisite.validate.run import slurm
from lumisite.validate.run.folder import SAMPLES, Run, create_run, lines_of
from lumisite.validate.run.jobscript import DONE, EXIT, RECORDS, SKIP, SKIPPED
from lumisite.validate.run.plan import JobPlan
from lumisite.validate.run.runner import Runner
from tests.support.requests import LOADED, a_request

NODES = ("nid000001", "nid000002")


class KilledError(BaseException):
    """The runner is gone, as after kill -9: nothing that it holds in memory is left."""


class PlayedSlurm:
    """Slurm, played: a job's steps end one after the other each time somebody asks."""

    def __init__(self) -> None:
        self.jobs: dict[str, str] = {}
        self.states: dict[str, str] = {}
        self.refuse = ""
        self.stop_after: int | None = None
        self.end_state = "COMPLETED"
        self.cancelled: list[str] = []
        self.nodes = dict.fromkeys(NODES, "idle")
        self.reasons: dict[str, str] = {}

    def submit(self, script: str) -> str:
        if self.refuse:
            raise slurm.RefusedError(f"sbatch refused: {self.refuse}")
        identity = str(len(self.jobs) + 1)
        self.jobs[identity] = script
        self.states[identity] = "RUNNING"
        return identity

    def find(self, name: str) -> str | None:
        live = [(job, script) for job, script in self.jobs.items() if self.states[job] in ("PENDING", "RUNNING")]
        found = [job for job, script in live if f"--job-name={name}\n" in Path(script).read_text()]
        return found[-1] if found else None

    def poll(self, jobs: Sequence[str]) -> Mapping[str, slurm.JobState]:
        return {job: slurm.JobState(self.states.get(job, "")) for job in jobs}

    def cancel(self, jobs: Sequence[str]) -> None:
        self.cancelled += jobs
        self.states.update(dict.fromkeys(jobs, "CANCELLED"))

    def nodes_of(self, _partition: str) -> dict[str, str]:
        return self.nodes

    def reasons_of(self, _nodes: object) -> dict[str, str]:
        return self.reasons

    def go_on(self) -> None:
        """Let one more step of each running job end, as its script would."""
        for job, script in self.jobs.items():
            if self.states[job] != "RUNNING":
                continue
            folder = Path(script).parent
            steps = [line.split()[1] for line in Path(script).read_text().splitlines() if line.startswith("step ")]
            ended = [step for step in steps if (folder / step / EXIT).exists()]
            if self.stop_after is not None and len(ended) == self.stop_after:
                (folder / steps[len(ended)]).mkdir(exist_ok=True)
                (folder / steps[len(ended)] / "began").write_text("100.0\n")
                self.states[job] = self.end_state
            elif len(ended) == len(steps):
                (folder / DONE).write_text(f"{job} 0 1000\n")
                self.states[job] = "COMPLETED"
            else:
                step = folder / steps[len(ended)]
                if (step / SKIP).exists():
                    (step / EXIT).write_text(f"{SKIPPED} {200 + len(ended)}.5\n")
                    continue
                (step / RECORDS).mkdir(parents=True, exist_ok=True)
                (step / "began").write_text("100.0\n")
                (step / RECORDS / "0.json").write_text(
                    json.dumps({"rank": 0, "local_rank": 0, "value": len(ended) + 1})
                )
                (step / EXIT).write_text(f"0 {200 + len(ended)}.5\n")


def judge(steps: Sequence[Ended], expected: Expected) -> list[Line]:
    value = steps[0].records[0]["value"]
    assert isinstance(value, int)
    return [
        expected.gate(passed("1 records passed")),
        expected.sample("speed", float(value), "higher", "1/s"),
    ]


def a_group(name: str, nodes: tuple[str, ...]) -> Group:
    step = ProbeStep(name, Srun("", ("true",)), "several", nodes, 1, 10)
    return Group((step,), judge)


def plans(folder: Path, jobs: int = 2) -> list[JobPlan]:
    names = ("one", "two", "three")
    return plan_jobs(folder, [a_group(name, NODES) for name in names], jobs)


def plan_jobs(folder: Path, groups: Sequence[Group], jobs: int = 1) -> list[JobPlan]:
    """Return jobs with the same steps."""
    runs = [f"stamp-{number:02}" for number in range(1, jobs + 1)]
    return [JobPlan(run, NODES, tuple(groups), f"{folder}/jobs/{run}") for run in runs]


def play(monkeypatch: pytest.MonkeyPatch) -> PlayedSlurm:
    """Put a played Slurm in the place of the real one; time passes when the runner sleeps."""
    cluster = PlayedSlurm()
    for name in ("submit", "find", "poll", "cancel", "nodes_of", "reasons_of"):
        monkeypatch.setattr(slurm, name, getattr(cluster, name))
    monkeypatch.setattr("lumisite.validate.run.runner.time.sleep", lambda _: cluster.go_on())
    return cluster


def runner(run: Run, reports: list[Finding] | None = None, jobs: int = 2) -> Runner:
    request = replace(a_request(), folder=str(run.folder))
    report = (reports if reports is not None else []).append
    return Runner(run, LOADED.site, request, plans(run.folder, jobs), report, marks_s=0, slurm_s=0, grace_s=0)


def new_run(folder: Path) -> Run:
    return create_run(replace(a_request(), folder=str(folder)))


def work(folder: Path, reports: list[Finding] | None = None) -> list[Sample | Gate]:
    run = Run(folder) if (folder / "run.json").exists() else new_run(folder)
    one = runner(run, reports)
    try:
        run.lock()
        one.restore()
        one.work()
    finally:
        run.release()
    return lines_of(folder / SAMPLES)


def keys(lines: Sequence[Sample | Gate]) -> list[tuple[str, str, tuple[str, ...]]]:
    return sorted((each.metric if isinstance(each, Sample) else each.gate, each.run, each.nodes) for each in lines)


def job_gates(lines: Sequence[Sample | Gate]) -> list[Gate]:
    return [line for line in lines if isinstance(line, Gate) and line.gate == "job"]
