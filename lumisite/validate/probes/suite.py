"""The probes, and the steps that they make of a job."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from lumisite.errors import ResolveError
from lumisite.findings.finding import Finding, Severity
from lumisite.site.validation import Validation
from lumisite.text import suggestion
from lumisite.validate.probes.collectives.judge import collectives
from lumisite.validate.probes.communicators.judge import communicators
from lumisite.validate.probes.ddp.judge import ddp
from lumisite.validate.probes.environment.judge import ENVIRONMENT, GATES, environment
from lumisite.validate.probes.node.judge import node
from lumisite.validate.probes.pairs.judge import pairs
from lumisite.validate.probes.probe import NODE, Backend, Group, Probe, ProbeStep, Shape, Srun, Target
from lumisite.validate.probes.transport.judge import transport

#: In the order in which a job runs them: what each node and rank has, then what measures.
PROBES: Mapping[str, Callable[[Target], Probe]] = {
    NODE: node,
    ENVIRONMENT: environment,
    "transport": transport,
    "communicators": communicators,
    "collectives": collectives,
    "ddp": ddp,
    "pairs": pairs,
}
#: How long one step may take, in seconds: far longer than on a busy machine, as what is late is a failure.
LIMITS_S: Mapping[Backend, int] = {"nccl": 240, "gloo": 180}


def choose_probes(target: Target, names: Sequence[str] = ()) -> list[Probe]:
    """Return the probes of these names, or all; where ranks work together, what each node is comes first.

    Raises `ResolveError` for one that does not exist.
    """
    for name in names:
        if name not in PROBES:
            message, advice = f"no probe has the name {name}", suggestion(name, PROBES)
            raise ResolveError(Finding("name-unknown", Severity.FAULT, message, advice, "--probe"))
    probes = [make(target) for make in PROBES.values()]
    chosen = [probe for probe in probes if not names or probe.name in names]
    if any(probe.together for probe in chosen):
        chosen = [probe for probe in probes if probe in chosen or probe.name == NODE]
    return chosen


def probes_of(gates: Iterable[str]) -> set[str]:
    """Return the probes that gates of these names come from."""
    return {ENVIRONMENT if gate in GATES else gate for gate in gates}


def groups(probes: Sequence[Probe], plan: Validation, limit_s: int | None, nodes: tuple[str, ...]) -> list[Group]:
    """Return what a job on `nodes` runs; `limit_s` bounds each step, or what is usual for the back-end."""
    limit = limit_s or LIMITS_S[plan.backend]

    def step(probe: Probe, srun: Srun, shape: Shape) -> ProbeStep:
        step_nodes = nodes if shape == "several" else nodes[:1]
        tasks = 1 if shape == "one-gpu" or srun.each == "node" else plan.tasks_per_node
        return ProbeStep(probe.name, srun, shape, step_nodes, tasks, limit, probe.together)

    return [
        Group(tuple(step(probe, srun, shape) for srun in probe.sruns), probe.judge, probe.version)
        for probe in probes
        for shape in dict.fromkeys(_shapes(probe, len(nodes), plan.tasks_per_node))
    ]


def _shapes(probe: Probe, nodes: int, tasks_per_node: int) -> Iterator[Shape]:
    """Leave out a shape that is the same as another on these nodes."""
    for shape in probe.shapes:
        if shape == "several" and nodes == 1:
            # What asks each rank by itself takes what there is.
            if not probe.together:
                yield "one-node"
        elif shape == "one-gpu" and tasks_per_node == 1 and "one-node" in probe.shapes:
            continue
        elif shape != "one-node" or tasks_per_node > 1 or "one-gpu" in probe.shapes:
            # What never has one rank alone measures what is between ranks.
            yield shape
