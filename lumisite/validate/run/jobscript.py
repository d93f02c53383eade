"""Write a job's script: all steps of one node set, each an `srun` through the deployed module, as a user types it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from lumisite.errors import ResolveError
from lumisite.paths import MODULES, current
from lumisite.site.model import Site
from lumisite.site.read import read_file
from lumisite.site.validation import Validation
from lumisite.validate.probes.probe import CHECK, NODE, OUT, PROBES, TEXT, ProbeStep
from lumisite.validate.run.plan import JobPlan, validation_of
from lumisite.validate.run.request import RunRequest
from lumisite.validate.run.sbatch_options import sbatch_options
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


def job_script(
    site: Site, request: RunRequest, plan: JobPlan, python: Sequence[str] = (), *, captures: bool = True
) -> str:
    """Return the text of the script.

    `python` is a Python that runs lumisite, and its PYTHONPATH: where it is given it checks each node, and with
    `captures` captures the first one.
    """
    lines = ["#!/bin/bash", *(f"#SBATCH {word}" for word in sbatch_options(site, request, plan))]
    values = {"job": plan.folder, "lost": LOST_STEP, "away": AWAY, "gpu_prefixes": "|".join(_gpu_prefixes())}
    lines += ["", *(f"{name}={shlex.quote(value)}" for name, value in values.items())]
    lines.append(read_file(Path(__file__).with_name("jobscript.sh"), HEAD_BYTES).decode().rstrip("\n"))
    if site.helper_module is None:
        raise ResolveError(f"{site.name}: no module that jobs can load (add `helper: yes` to one of its modules)")
    steps = {step: _step_line(site, request, plan, step, python) for step in plan.steps}
    # What this node itself is comes before anything that may hang on it.
    lines += [line for step, line in steps.items() if step.srun.bare]
    lines += [f"{JUDGED} {group.folder}" for group in plan.groups[:-1] if group.steps[0].probe == NODE]
    if left := [step.folder for step in steps if not step.srun.bare]:
        lines.append(f"end_if_skipped {' '.join(left)}")
    if python and captures:
        lines.append(f"capture {shlex.join([*python, '-m', 'lumisite', 'facts', '--site', request.site_file])}")
    lines.append(f"module use {shlex.quote(current(site.root, MODULES))}")
    lines.append(f'module load {shlex.quote(site.helper_module)} 2>"$job/module.stderr" || finish "module:$?"')
    lines += ["left_out", ""]
    for group in plan.groups:
        lines += [steps[step] for step in group.steps if not step.srun.bare]
        if group is not plan.groups[-1] and group.steps[0].probe != NODE:
            # Others may be unable to work because of what it finds.
            lines.append(f"judged_if_failed {group.folder}")
    return "\n".join([*lines, "", "finish 0", ""])


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


def _gpu_prefixes() -> list[str]:
    """Return how the names of variables begin that libraries of GPUs read, of all vendors."""
    found: dict[str, None] = {}
    for gpu in all_gpus():
        visible = (f"{name.partition('_')[0]}_" for name in gpu.visible)
        found |= dict.fromkeys((gpu.collectives.prefix, *gpu.prefixes, *visible))
    return list(found)
