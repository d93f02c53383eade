"""The options of sbatch for jobs: what follows from the site, and those of `validate` that sbatch has too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace

from lumisite.site.model import Site
from lumisite.validate.run.plan import JobPlan, job_name, validation_of
from lumisite.validate.run.request import RunRequest

#: Options of `validate` that go to sbatch under the same name, each with its value's name and its help.
PASSED_ON: Mapping[str, tuple[str, str]] = {
    "account": ("A", "Account for sbatch."),
    "reservation": ("R", "Reservation for sbatch; its nodes are used."),
}


def passed_on(arguments: SimpleNamespace) -> tuple[str, ...]:
    """Return what the command line gives to sbatch."""
    given = {name: getattr(arguments, name) for name in PASSED_ON}
    return (*(f"--{name}={value}" for name, value in given.items() if value), *arguments.sbatch)


def as_typed(words: Sequence[str]) -> list[str]:
    """Return the options of `validate` that give these words to sbatch."""
    return [word if word[2:].partition("=")[0] in PASSED_ON else f"--sbatch={word}" for word in words]


def sbatch_options(site: Site, request: RunRequest, plan: JobPlan) -> list[str]:
    """Return all options of sbatch for a job."""
    validation = validation_of(site)
    words = [
        f"--job-name={job_name(plan)}",
        f"--partition={request.partition}",
        f"--nodes={len(plan.nodes)}",
        *([f"--nodelist={','.join(plan.nodes)}"] if plan.named else []),
        f"--ntasks-per-node={validation.tasks_per_node}",
        f"--time={validation.time_limit}",
        f"--output={plan.folder}/slurm-%j.out",
        # A node whose home directories do not answer starts the job, and is found by it.
        f"--chdir={plan.folder}",
        "--no-requeue",
    ]
    partition = site.partitions.get(request.partition)
    if partition is None or not partition.whole_nodes:
        # Another job on the node would be measured with it.
        words.append("--exclusive")
    if validation.backend == "nccl":
        words += [f"--gpus-per-node={validation.tasks_per_node}", "--mem=0"]
    if partition and partition.constraint is not None:
        words.append(f"--constraint={partition.constraint}")
    if partition and partition.qos:
        words.append(f"--qos={next(iter(partition.qos))}")
    return [*words, *request.sbatch]
