"""The jobs of a trial: one for each allocation, with the steps of its slots one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from lumisite.errors import ResolveError
from lumisite.site.load import LoadedSite
from lumisite.site.model import Site
from lumisite.validate.probes.probe import Group, Part, Shape, Step, Target
from lumisite.validate.probes.ranks import judge_together
from lumisite.validate.probes.suite import LIMITS_S, NODE, choose_probes, groups
from lumisite.validate.probes.transport.judge import ARGUMENTS
from lumisite.validate.run.asked import Asked
from lumisite.validate.run.plan import plan_jobs, target_of
from lumisite.validate.run.script import JobPlan, validation_of
from lumisite.validate.trial.design import DECIDING, REFERENCE, Arm, Design, Setting, Slot, Thresholds

#: What is measured where nothing is asked: whether ranks meet, what the network carries, and a workload.
PROBES = ("communicators", "collectives", "ddp")
#: What a step after one that went wrong is called, and one that asks whether what an arm sets takes effect.
CHECK, SIGN = "check", "sign"


def controls(site: Site) -> tuple[Setting, ...]:
    """Give a setting that is known to cost speed: the slow network, or a cap on channels; none where there is none."""
    if validation_of(site).backend == "nccl":
        return (Setting("NCCL_MAX_NCHANNELS", "4"),)
    return tuple(Setting("GLOO_SOCKET_IFNAME", name) for name in site.fabric.management[:1])


def deciding(site: Site, probes: Sequence[str]) -> tuple[tuple[str, ...], Thresholds]:
    """Give patterns of the metrics that decide, and the thresholds.

    They are those of the site's rules, if it has some for these probes: what it takes for noise in a drop, references
    and shams may differ by.
    """
    rules = [rule for rule in validation_of(site).metrics if rule.decides and rule.metric.partition("/")[0] in probes]
    usual = Thresholds()
    noise = max([usual.sham, *(rule.threshold for rule in rules)])
    limits = replace(usual, sham=noise, drift=noise, control=max(usual.control, noise))
    return tuple(rule.metric for rule in rules) or DECIDING, limits


def slot_seconds(site: Site, probes: Sequence[str], limit_s: int | None) -> int:
    """Give the longest time that a slot can take."""
    return len(probes) * (limit_s or LIMITS_S[validation_of(site).backend])


def check_probes(target: Target, names: Sequence[str]) -> None:
    """Refuse probes that cannot run in slots, and ranks that have nobody to meet; raises `ResolveError`."""
    if target.plan.nodes * target.plan.tasks_per_node == 1:
        raise ResolveError(
            "--nodes: one rank on one node measures nothing that slots compare (--nodes 2 would be right)"
        )
    for probe in choose_probes(target, names):
        if probe.name in names and not (probe.together and "several" in probe.shapes and len(probe.parts) == 1):
            raise ResolveError(f"--probe: {probe.name} measures nothing that slots compare ({', '.join(PROBES)} do)")


def trial_plans(design: Design, asked: Asked, loaded: LoadedSite) -> list[JobPlan]:
    """Give all jobs of a trial: job N is allocation N."""
    target = target_of(asked, loaded)
    plans: list[JobPlan] = []
    for batch in asked.batches:
        # Whether arms take effect is asked once in each batch, as its first job may be all that comes of one.
        numbers = iter([(len(plans) + 1 + at, at == 0) for at in range(batch.jobs)])
        contents = partial(_contents, design, target, asked.limit, numbers)
        plans += plan_jobs(batch.stamp, asked.folder, batch.node_sets, batch.jobs, contents)
    return plans


def planner(design: Design) -> Callable[[Asked, LoadedSite], list[JobPlan]]:
    """Give what plans the jobs of a trial, where a run's own are asked for."""
    return partial(trial_plans, design)


def slot_name(slot: Slot) -> str:
    """Give the name of a slot in its job."""
    return f"s{slot.position:02}"


def sign_name(arm: Arm, design: Design) -> str:
    """Give the name of the short step that asks whether what an arm sets takes effect."""
    return f"v{design.arms.index(arm):02}"


def told_names(design: Design) -> tuple[str, ...]:
    """Give the variables that any arm changes."""
    return tuple(dict.fromkeys(one.name for arm in design.arms for one in arm.settings))


def _contents(
    design: Design, target: Target, limit: int | None, numbers: Iterator[tuple[int, bool]], nodes: tuple[str, ...]
) -> list[Group]:
    """Give what the next allocation runs on some nodes."""
    number, first = next(numbers)
    plan = target.plan
    shape: Shape = "several" if len(nodes) > 1 else "one-node"
    every = choose_probes(target, design.probes)
    found = groups([probe for probe in every if probe.name == NODE], plan, limit, nodes)
    probes = [replace(probe, shapes=(shape,)) for probe in every if probe.name in design.probes]
    arms = design.by_name
    plain = partial(_plain, design, target, shape, nodes)
    if first:
        for arm in design.arms:
            if arm.role in ("reference", "variant"):
                name = sign_name(arm, design)
                found += [plain(name, SIGN, arm), plain(name, CHECK, arms[REFERENCE])]
    for slot in design.slots_of(number):
        own = [_in_slot(design, one, slot_name(slot), arms[slot.arm]) for one in groups(probes, plan, limit, nodes)]
        found += [*own, plain(slot_name(slot), CHECK, arms[REFERENCE])]
    return found


def _in_slot(design: Design, group: Group, slot: str, arm: Arm) -> Group:
    steps = (replace(step, part=_with_arm(design, step.part, arm), slot=slot) for step in group.steps)
    return replace(group, steps=tuple(steps))


def _with_arm(design: Design, part: Part, arm: Arm) -> Part:
    """Set what an arm sets, as a user does before `srun`; what it unsets, the ranks do without."""
    names = tuple(word for name in told_names(design) for word in ("--tell", name))
    return replace(
        part,
        arguments=(*part.arguments, *names),
        environment=(*part.environment, *((one.name, one.value) for one in arm.settings if one.value is not None)),
        without=tuple(one.name for one in arm.settings if one.value is None),
    )


def _plain(
    design: Design, target: Target, shape: Shape, nodes: tuple[str, ...], slot: str, what: str, arm: Arm
) -> Group:
    """Give a short step of an arm with the log on, which measures nothing; it has all the time of a probe.

    What judges others must not be late itself, however short the limit is at which a slot counts as hung.
    """
    backend = target.plan.backend
    names = (word for name in told_names(design) for word in ("--sign", name)) if what == SIGN else ()
    part = _with_arm(design, target.together("transport.py", *ARGUMENTS[backend], *names), arm)
    tasks = target.plan.tasks_per_node
    step = Step(what, part, shape, nodes, tasks, LIMITS_S[backend], slot=slot, check=what == CHECK)
    passed = judge_together(lambda done, expected: [expected.gate("pass", f"{len(done)} ranks met")])
    return Group((step,), passed)
