"""The probes, and the steps that they make of a job."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from lumisite.errors import ResolveError
from lumisite.site.decode import suggestion
from lumisite.site.model import Validation
from lumisite.validate.probes.affinity.judge import affinity
from lumisite.validate.probes.binds.judge import binds
from lumisite.validate.probes.collectives.judge import collectives
from lumisite.validate.probes.communicators.judge import communicators
from lumisite.validate.probes.ddp.judge import ddp
from lumisite.validate.probes.jax.judge import jax
from lumisite.validate.probes.miopen.judge import miopen
from lumisite.validate.probes.modules.judge import modules
from lumisite.validate.probes.node.judge import node
from lumisite.validate.probes.pairs.judge import pairs
from lumisite.validate.probes.probe import Backend, Group, Part, Probe, Shape, Step, Target
from lumisite.validate.probes.python.judge import conda, usersite
from lumisite.validate.probes.transport.judge import transport
from lumisite.validate.probes.wrapper.judge import wrapper

#: In the order in which a job runs them: what each node is, what asks each rank by itself, then what measures.
PROBES: tuple[Callable[[Target], Probe], ...] = (
    *(node, modules, binds, affinity, miopen, usersite, conda, jax, wrapper),
    *(transport, communicators, collectives, ddp, pairs),
)
#: What each node is comes first where ranks work together.
NODE = "node"
#: Probes that are there only where the target has what they need, which the option of that name gives.
NEEDS = {"jax": "jax_image", "wrapper": "wrapper"}
#: How long one step may take, in seconds.
LIMITS_S: Mapping[Backend, int] = {"nccl": 240, "gloo": 60}


def choose_probes(target: Target, names: Sequence[str] = ()) -> list[Probe]:
    """Give the probes of these names, or all; where ranks work together, what each node is comes first.

    Raises `ResolveError` for one that does not exist.
    """
    every = (make(target) for make in PROBES)
    probes = [probe for probe in every if probe.name not in NEEDS or getattr(target, NEEDS[probe.name])]
    known = [probe.name for probe in probes]
    for name in names:
        if name not in known:
            hint = f"it needs --{NEEDS[name].replace('_', '-')}" if name in NEEDS else suggestion(name, known)
            raise ResolveError(f"--probe: there is no probe {name!r} ({hint})")
    chosen = [probe for probe in probes if not names or probe.name in names]
    wanted = NODE if any(probe.together for probe in chosen) else ""
    return [probe for probe in probes if probe in chosen or probe.name == wanted]


def groups(probes: Sequence[Probe], plan: Validation, limit_s: int | None, nodes: tuple[str, ...]) -> list[Group]:
    """Give what a job on `nodes` runs; `limit_s` bounds each step, or what is usual for the back-end."""
    limit = limit_s or LIMITS_S[plan.backend]

    def step(probe: Probe, part: Part, shape: Shape) -> Step:
        own = nodes if shape == "several" else nodes[:1]
        tasks = 1 if shape == "one-gpu" or part.each == "node" else plan.tasks_per_node
        return Step(probe.name, part, shape, own, tasks, limit, probe.together)

    return [
        Group(tuple(step(probe, part, shape) for part in probe.parts), probe.judge, probe.asks)
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
