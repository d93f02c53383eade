"""Write a job's script: all steps of one node set, each an `srun` through the deployed module, as a user types it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lumisite.errors import ResolveError
from lumisite.paths import MODULES, current
from lumisite.site.model import Site, Validation
from lumisite.site.read import read_file
from lumisite.validate.probes.probe import CHECK, NODE, OUT, PROBES, TEXT, Group, ProbeStep
from lumisite.validate.run.request import RunRequest
from lumisite.validate.run.slurm import AWAY, LOST_STEP
from lumisite.vendors import all_gpus

#: Names of what a job (jobscript.sh) writes below its folder, and below each step's.
DONE, EXIT, STEP_ERR, RECORDS = "done", "exit", "stderr", "records"
FACTS, LEFT_OUT = "facts.json", "left-out"
#: The exit code of a step that did not run.
SKIPPED = "skipped"
#: Marks for a job: that a group of steps is judged, and that a step is not to run.
JUDGED, SKIP = "judged", "skip"
#: No more of it is read.
HEAD_BYTES = 1 << 16


@dataclass(frozen=True)
class JobPlan:
    """One job: its run name, its nodes, what it runs, and where its folder is (seen by all nodes)."""

    run: str
    nodes: tuple[str, ...]
    groups: tuple[Group, ...]
    folder: str
    named: bool = True
    """Whether the job requests these very nodes; what is only printed may leave them to Slurm."""

    @property
    def steps(self) -> tuple[ProbeStep, ...]:
        """All steps, in their order."""
        return tuple(step for group in self.groups for step in group.steps)


def job_name(plan: JobPlan) -> str:
    """Return the name that Slurm has for a job."""
    return f"lumisite-{plan.run}"


def gpu_prefixes() -> list[str]:
    """Return how the names of variables begin that libraries of GPUs read, of all vendors."""
    found: dict[str, None] = {}
    for gpu in all_gpus():
        named = (f"{name.partition('_')[0]}_" for name in gpu.visible)
        found |= dict.fromkeys((gpu.collectives.prefix, *gpu.prefixes, *named))
    return list(found)


def job_script(
    site: Site, request: RunRequest, plan: JobPlan, python: Sequence[str] = (), *, captures: bool = True
) -> str:
    """Return the text of the script.

    `python` is a Python that runs lumisite, and its PYTHONPATH: where it is given it checks each node, and with
    `captures` captures the first one.
    """
    lines = ["#!/bin/bash", *(f"#SBATCH {word}" for word in slurm_words(site, request, plan))]
    values = {"job": plan.folder, "lost": LOST_STEP, "away": AWAY, "gpu_prefixes": "|".join(gpu_prefixes())}
    lines += ["", *(f"{name}={shlex.quote(value)}" for name, value in values.items())]
    lines.append(read_file(Path(__file__).with_name("jobscript.sh"), HEAD_BYTES).decode().rstrip("\n"))
    module = _module(site)
    steps = [(step.srun.bare, _step_line(site, request, plan, step, python)) for step in plan.steps]
    # What this node itself is comes before anything that may hang on it.
    lines += [line for bare, line in steps if bare]
    lines += [f"{JUDGED} {group.folder}" for group in plan.groups[:-1] if group.steps[0].probe == NODE]
    if left := [step.folder for step in plan.steps if not step.srun.bare]:
        lines += [f"end_if_skipped {' '.join(left)}"]
    if python and captures:
        lines.append(f"capture {shlex.join([*python, '-m', 'lumisite', 'facts', '--site', request.site_file])}")
    lines += [f"module use {shlex.quote(current(site.root, MODULES))}"]
    lines += [f'module load {module} 2>"$job/module.stderr" || finish "module:$?"', "left_out", ""]
    lines += _steps(plan, [line for _, line in steps])
    lines += ["", "finish 0"]
    return "\n".join(lines) + "\n"


def _steps(plan: JobPlan, lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines of the steps that are not bare, and waits for findings because of which others cannot work."""
    named = dict(zip(plan.steps, lines, strict=True))
    for group in plan.groups:
        yield from (named[step] for step in group.steps if not step.srun.bare)
        if group is not plan.groups[-1] and group.steps[0].probe != NODE:
            yield f"judged_if_failed {group.folder}"


def validation_of(site: Site) -> Validation:
    """Return what the site has validated; raises `ResolveError` where it has no `validation`."""
    if site.validation is None:
        raise ResolveError(f"{site.name}: the site has no `validation` (add it; docs/reference/site.md has its keys)")
    return site.validation


def slurm_words(site: Site, request: RunRequest, plan: JobPlan) -> Sequence[str]:
    """Return the options of sbatch."""
    validation = validation_of(site)
    partition = site.partitions.get(request.partition)
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
    if partition is None or not partition.whole_nodes:
        # Another job on the node would be measured with it.
        words.append("--exclusive")
    if validation.backend == "nccl":
        words.append(f"--gpus-per-node={validation.tasks_per_node}")
        words.append("--mem=0")
    features = (
        () if partition is None else (("constraint", partition.constraint), ("qos", next(iter(partition.qos), None)))
    )
    for name, value in (*features, ("account", request.account), ("reservation", request.reservation)):
        if value is not None:
            words.append(f"--{name}={value}")
    return [*words, *request.sbatch]


def _module(site: Site) -> str:
    if site.helper_module is None:
        raise ResolveError(f"{site.name}: no module that jobs can load (add `helper: yes` to one of its modules)")
    return shlex.quote(site.helper_module)


def _step_line(site: Site, request: RunRequest, plan: JobPlan, step: ProbeStep, python: Sequence[str]) -> str:
    """Return the line of one step."""
    validation, probes = validation_of(site), f"{request.folder}/probes"
    environment = (*request.env.items(), *step.srun.environment)
    words = ["env", *(f"{name}={value}" for name, value in environment)] if environment else []
    words += ["srun", f"--nodes={len(step.nodes)}", f"--ntasks={step.ranks}", f"--ntasks-per-node={step.tasks}"]
    words += [f"--kill-on-bad-exit={1 if step.together else 0}"]
    if len(step.nodes) < len(plan.nodes):
        # A smaller step has the first nodes.
        words.append(f"--nodelist={','.join(step.nodes)}" if plan.named else "--relative=0")
    if validation.backend == "nccl":
        words.append(f"--gpus-per-node={1 if step.shape == 'one-gpu' else validation.tasks_per_node}")
        words.append(f"--cpus-per-task={_cpus_per_task(site, validation)}")
    out = f"{plan.folder}/{step.folder}/{RECORDS}"
    check = [*python, "-m", "lumisite", "check", request.site_file, "--host", "--json"] if python else []
    for word in step.srun.words:
        words += check if word == CHECK else [word.replace(PROBES, probes).replace(OUT, out)]
    texts = (*step.srun.beside, step.srun.script)
    script = f'"$(cat {shlex.join(f"{probes}/{name}" for name in texts)})"'
    quoted = " ".join(script if word == TEXT else shlex.quote(word) for word in words)
    return f"step {step.folder} {step.limit_s} {quoted}"


def _cpus_per_task(site: Site, validation: Validation) -> int:
    """Return the share of a rank in the cores that jobs get; a step has no more CPUs than it requests."""
    kind = site.kind_of(validation.partition)
    cores = {core for group in kind.l3 for core in group.cores}
    return max(1, len(cores.difference(kind.reserved or ())) // validation.tasks_per_node)
