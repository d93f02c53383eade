"""Write the script of a job array, each task of which runs the script of one job of a run on the nodes of that job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from lumisite.site.cpus import format_cpu_list
from lumisite.site.model import Site
from lumisite.validate.run.job import LiveJob
from lumisite.validate.run.request import RunRequest
from lumisite.validate.run.script import JobPlan, slurm_words, validation_of

#: Options that an array has otherwise than a job.
_OF_JOB = ("--job-name=", "--nodelist=", "--output=")


def alike(jobs: Sequence[LiveJob]) -> Iterator[list[LiveJob]]:
    """Yield the jobs that one array can have: those of one batch, which were submitted equally often."""

    def key(job: LiveJob) -> tuple[int, str]:
        return job.attempt, batch_of(job.plan)

    for _, group in groupby(sorted(jobs, key=key), key):
        yield list(group)


def batch_of(plan: JobPlan) -> str:
    """Return the stamp of the batch that a job is of."""
    return plan.run.rpartition("-")[0]


def number_of(plan: JobPlan) -> int:
    """Return the number of a job in its batch, which is that of its task."""
    return int(plan.run.rpartition("-")[2])


def array_name(plan: JobPlan, attempt: int) -> str:
    """Return the name that Slurm has for the array of a job."""
    return f"lumisite-{batch_of(plan)}.{attempt}"


def array_script(site: Site, request: RunRequest, plans: Sequence[JobPlan], attempt: int, after: Sequence[str]) -> str:
    """Return the script of an array, which begins when the jobs have ended that it comes `after`."""
    at_once = max(1, (request.busy or 0) // max(len(plan.nodes) for plan in plans))
    usual = replace(plans[0], nodes=request.node_sets[0])
    name, folder = array_name(usual, attempt), f"{request.folder}/jobs/{batch_of(usual)}"
    words = [word for word in slurm_words(site, request, usual) if not word.startswith(_OF_JOB)]
    words += [f"--job-name={name}", f"--output={folder}-%2a/slurm-%A_%a.out"]
    # Each task gets its nodes before any is released.
    words += [f"--array={format_cpu_list(map(number_of, plans))}%{at_once}", "--hold"]
    words += [f"--dependency=afterany:{':'.join(after)}"] if after else []
    job = f'. "{folder}-$(printf %02d "$SLURM_ARRAY_TASK_ID")/job.{attempt}.sh"'
    return "\n".join(["#!/bin/bash -l", *(f"#SBATCH {word}" for word in words), job, ""])


def task_update(site: Site, request: RunRequest, plan: JobPlan) -> Sequence[str]:
    """Return what Slurm is told of the task of a job: its nodes, and how many where that is not usual."""
    count, usual = len(plan.nodes), len(request.node_sets[0])
    tasks = count * validation_of(site).tasks_per_node
    odd = [] if count == usual else [f"NumNodes={count}", f"NumTasks={tasks}"]
    return [*odd, f"ReqNodeList={','.join(plan.nodes)}"]
