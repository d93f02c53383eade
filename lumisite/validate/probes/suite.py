"""The probes, and the steps that they make of a job."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lumisite.errors import ResolveError
from lumisite.site.decode import suggestion
from lumisite.site.model import Network, Validation
from lumisite.validate.probes.gate_groups import gate_group
from lumisite.validate.probes.gates import GateProbe
from lumisite.validate.probes.judge_collectives import COLLECTIVE
from lumisite.validate.probes.judge_communicators import COMMUNICATORS
from lumisite.validate.probes.judge_ddp import DDP
from lumisite.validate.probes.judge_pairs import PAIRS
from lumisite.validate.probes.judge_transport import TRANSPORT
from lumisite.validate.probes.probe import LIMITS_S, OUT, PROBES, Group, Probe, Shape, Step

#: In the order in which a job runs them.
MEASURING: tuple[Probe, ...] = (TRANSPORT, COMMUNICATORS, COLLECTIVE, DDP, PAIRS)
#: What every script of these imports from beside it.
RANK = "rank.py"


@dataclass(frozen=True)
class Wanted:
    """What is to be run: the probes of these names or all, where, and in what; `limit_s` bounds each step."""

    names: tuple[str, ...]
    validation: Validation
    network: Network
    runtime: str
    image: str
    gates: tuple[GateProbe, ...] = ()
    limit_s: int | None = None

    @property
    def limit(self) -> int:
        """The longest time of one step, in seconds."""
        return self.limit_s or LIMITS_S[self.validation.backend]

    def has(self, name: str) -> bool:
        """Whether a probe is wanted."""
        return not self.names or name in self.names


def require_known(wanted: Wanted) -> None:
    """Raise `ResolveError` for a probe that does not exist."""
    known = [*(probe.name for probe in wanted.gates), *(probe.name for probe in MEASURING)]
    needs = {"jax": "--jax-image", "wrapper": "--wrapper"}
    for name in wanted.names:
        if name not in known:
            hint = f"it needs {needs[name]}" if name in needs else suggestion(name, known)
            raise ResolveError(f"--probe: there is no probe {name!r} ({hint})")


def groups(wanted: Wanted, nodes: tuple[str, ...]) -> list[Group]:
    """Give what a job on `nodes` runs: first the gates, then what measures."""
    found = []
    tasks_per_node = wanted.validation.tasks_per_node
    for gate in (gate for gate in wanted.gates if wanted.has(gate.name)):
        for shape in _gate_shapes(gate, nodes, tasks_per_node):
            own = nodes if shape == "several" else nodes[:1]
            found.append(gate_group(gate, shape, own, tasks_per_node, wanted.runtime, wanted.limit))
    for probe in (probe for probe in MEASURING if wanted.has(probe.name)):
        for shape in _shapes(probe, nodes, tasks_per_node):
            found.append(Group(tuple(_steps(probe, shape, nodes, wanted)), probe.judge))
    return found


def _gate_shapes(gate: GateProbe, nodes: tuple[str, ...], tasks_per_node: int) -> Iterator[Shape]:
    """On a single node, what wants several gets that one."""
    shapes: list[Shape] = ["one-node" if shape == "several" and len(nodes) == 1 else shape for shape in gate.shapes]
    for shape in dict.fromkeys(shapes):
        if shape == "one-gpu" and tasks_per_node == 1 and len(shapes) > 1:
            continue
        yield shape


def _shapes(probe: Probe, nodes: tuple[str, ...], tasks_per_node: int) -> Iterator[Shape]:
    """Leave out a shape that is the same as another on these nodes."""
    for shape in probe.shapes:
        if shape == "one-gpu" and tasks_per_node == 1 and "one-node" in probe.shapes:
            continue
        if shape == "several" and len(nodes) == 1:
            continue
        if shape == "one-node" and tasks_per_node < probe.least_ranks:
            continue
        yield shape


def _steps(probe: Probe, shape: Shape, nodes: tuple[str, ...], wanted: Wanted) -> Iterator[Step]:
    backend = wanted.validation.backend
    for variant in probe.variants(backend, wanted.network):
        arguments = ("--backend", backend, *probe.arguments(backend), *variant.arguments)
        inside = ("python3", f"{PROBES}/{probe.script}", OUT, *arguments)
        yield Step(
            probe=probe.name,
            shape=shape,
            nodes=nodes if shape == "several" else nodes[:1],
            tasks=1 if shape == "one-gpu" else wanted.validation.tasks_per_node,
            words=(wanted.runtime, "--quiet", "exec", "--bind", f"{PROBES},{OUT}", wanted.image, *inside),
            files=(probe.script, RANK),
            arguments=arguments,
            limit_s=wanted.limit,
            variant=variant.name,
            environment=variant.environment,
        )
