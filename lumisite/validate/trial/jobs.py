"""The jobs of a trial: one for each allocation, with the steps of its runs one after the other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from lumisite.errors import ResolveError
from lumisite.findings.catalogue import make_finding
from lumisite.site.load import LoadedSite
from lumisite.site.model import Site
from lumisite.validate.probes.definition import options_of
from lumisite.validate.probes.outcome import judge_together
from lumisite.validate.probes.probe import Group, ProbeStep, Shape, Srun, Target
from lumisite.validate.probes.suite import LIMITS_S, NODE, choose_probes, groups
from lumisite.validate.run.plan import plan_jobs, target_of
from lumisite.validate.run.request import RunRequest
from lumisite.validate.run.script import JobPlan, validation_of
from lumisite.validate.trial.design import DECIDING, REFERENCE, Arm, Design, PlannedRun, Thresholds, TrialSetting

#: What is measured by default: whether ranks meet, what the network carries, and a workload.
PROBES = ("communicators", "collectives", "ddp")
#: The names of a step after one that went wrong, and of one that shows whether what an arm sets takes effect.
CHECK, SIGN = "check", "sign"


def controls(site: Site) -> tuple[TrialSetting, ...]:
    """Return a setting that is known to cost speed: the slow network, or a cap on channels; none if there is none."""
    if validation_of(site).backend == "nccl":
        return (TrialSetting("NCCL_MAX_NCHANNELS", "4"),)
    return tuple(TrialSetting("GLOO_SOCKET_IFNAME", name) for name in site.fabric.management[:1])


def deciding(site: Site, probes: Sequence[str]) -> tuple[tuple[str, ...], Thresholds]:
    """Return patterns of the metrics that decide, and the thresholds.

    They are those of the site's rules, if it has some for these probes: by what it takes for noise in a drop,
    references and placebos may differ.
    """
    rules = [rule for rule in validation_of(site).metrics if rule.decides and rule.metric.partition("/")[0] in probes]
    usual = Thresholds()
    noise = max([usual.sham, *(rule.threshold for rule in rules)])
    limits = replace(usual, sham=noise, drift=noise, control=max(usual.control, noise))
    return tuple(rule.metric for rule in rules) or DECIDING, limits


def slot_seconds(site: Site, probes: Sequence[str], limit_s: int | None) -> int:
    """Return the longest time that a run can take."""
    return len(probes) * (limit_s or LIMITS_S[validation_of(site).backend])


def with_time(request: RunRequest, design: Design) -> RunRequest:
    """Request jobs that are as long as an allocation may take, unless a time was requested."""
    if any(re.match(r"--time\b(?!-)|-t", option) for option in request.sbatch):
        return request
    return replace(request, sbatch=(*request.sbatch, f"--time={design.job_s // 60 + 1}"))


def check_probes(target: Target, names: Sequence[str]) -> None:
    """Refuse probes that runs cannot compare, and a rank that is alone; raises `ResolveError`."""
    if target.plan.nodes * target.plan.tasks_per_node == 1:
        raise ResolveError(make_finding("rank-alone", "--nodes"))
    for probe in choose_probes(target, names):
        if probe.name in names and not (probe.together and "several" in probe.shapes and len(probe.sruns) == 1):
            raise ResolveError(make_finding("probe-not-compared", "--probe", probe=probe.name, probes=PROBES))


def trial_plans(design: Design, request: RunRequest, loaded: LoadedSite) -> list[JobPlan]:
    """Return all jobs of a trial: job N is allocation N."""
    target = target_of(request, loaded)
    plans: list[JobPlan] = []
    for batch in request.batches:
        # Signs are measured once in each batch, as its first job may be all that comes of one.
        numbers = iter([(len(plans) + 1 + index, index == 0) for index in range(batch.jobs)])
        contents = partial(_contents, design, target, request.limit, numbers)
        plans += plan_jobs(batch.stamp, request.folder, batch.node_sets, batch.jobs, contents)
    return plans


def slot_name(run: PlannedRun) -> str:
    """Return the name of a run in its job."""
    return f"s{run.position:02}"


def sign_name(arm: Arm, design: Design) -> str:
    """Return the name of the short step that shows whether what an arm sets takes effect."""
    return f"v{design.arms.index(arm):02}"


def _contents(
    design: Design, target: Target, limit: int | None, numbers: Iterator[tuple[int, bool]], nodes: tuple[str, ...]
) -> list[Group]:
    """Return what the next allocation runs on some nodes."""
    number, first = next(numbers)
    shape: Shape = "several" if len(nodes) > 1 else "one-node"
    every = choose_probes(target, design.probes)
    found = groups([probe for probe in every if probe.name == NODE], target.plan, limit, nodes)
    probes = [replace(probe, shapes=(shape,)) for probe in every if probe.name in design.probes]
    measured = groups(probes, target.plan, limit, nodes)
    arms = design.by_name
    for arm in design.arms:
        if first and arm.role in ("reference", "variant"):
            name = sign_name(arm, design)
            found.append(_short_step(design, target, shape, nodes, name, SIGN, arm))
            found.append(_short_step(design, target, shape, nodes, name, CHECK, arms[REFERENCE]))
    for run in design.runs_of(number):
        for group in measured:
            steps = [
                replace(step, srun=_with_arm(design, _ending(step.srun), arms[run.arm]), slot=slot_name(run))
                for step in group.steps
            ]
            found.append(replace(group, steps=tuple(steps)))
        found.append(_short_step(design, target, shape, nodes, slot_name(run), CHECK, arms[REFERENCE]))
    return found


def _ending(srun: Srun) -> Srun:
    """Let ranks end as a user's program does: what a setting breaks there would not be seen otherwise."""
    return replace(srun, arguments=(*srun.arguments, "--exit", "program"))


def _with_arm(design: Design, srun: Srun, arm: Arm) -> Srun:
    """Set what an arm sets, as a user does before `srun`; what it unsets, the ranks do without."""
    return replace(
        srun,
        arguments=(*srun.arguments, *_option("--tell", design)),
        environment=(
            *srun.environment,
            *((setting.name, setting.value) for setting in arm.settings if setting.value is not None),
        ),
        without=tuple(setting.name for setting in arm.settings if setting.value is None),
    )


def _option(option: str, design: Design) -> tuple[str, ...]:
    """Return an option once for each variable that any arm changes."""
    names = dict.fromkeys(setting.name for arm in design.arms for setting in arm.settings)
    return tuple(word for name in names for word in (option, name))


def _short_step(
    design: Design, target: Target, shape: Shape, nodes: tuple[str, ...], slot: str, name: str, arm: Arm
) -> Group:
    """Return a short step of an arm with the log on, which measures nothing; it has all the time of a probe.

    What judges others must not be late itself, however short the limit is at which a run counts as hung.
    """
    backend = target.plan.backend
    names = _option("--sign", design) if name == SIGN else ()
    srun = _with_arm(design, target.together("transport.py", *options_of("transport", backend), *names), arm)
    tasks = target.plan.tasks_per_node
    step = ProbeStep(name, srun, shape, nodes, tasks, LIMITS_S[backend], slot=slot, check=name == CHECK)
    passed = judge_together(lambda done, expected: [expected.gate(make_finding("checks-passed", records=len(done)))])
    return Group((step,), passed)
