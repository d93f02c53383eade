"""What a probe is: a script that runs in the container, where it runs, and a judge of what it wrote."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from lumisite.site.model import Network
from lumisite.validate.lines import Better, Gate, GateState, Sample

Shape: TypeAlias = Literal["one-gpu", "one-node", "several"]
Backend: TypeAlias = Literal["nccl", "gloo"]
#: What one rank wrote: a JSON object.
Record: TypeAlias = Mapping[str, object]


@dataclass(frozen=True)
class Vector:
    """Numbers for a plot; `x` says where each stands, if not at its own place in the list."""

    series: str
    run: str
    nodes: tuple[str, ...]
    rank: int
    values: tuple[float, ...]
    unit: str
    x: tuple[float, ...] = ()


Line: TypeAlias = Sample | Gate | Vector


@dataclass(frozen=True)
class Variant:
    """A step of a probe beside its plain one: other options or variables, such as a control that must fail."""

    name: str
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] | None = None


PLAIN = Variant("")


@dataclass(frozen=True)
class Step:
    """One `srun` of a probe in a job: `nodes` are those that it runs on, `tasks` how many it has on each."""

    probe: str
    script: str
    shape: Shape
    nodes: tuple[str, ...]
    tasks: int
    arguments: tuple[str, ...]
    limit_s: int
    variant: str = ""
    environment: tuple[tuple[str, str], ...] = ()

    @property
    def label(self) -> str:
        """The shape as metrics name it: `1g`, `1n`, `2n`."""
        return "1g" if self.shape == "one-gpu" else f"{len(self.nodes)}n"

    @property
    def folder(self) -> str:
        """Where the step's records lie below its job's folder."""
        return "-".join(part for part in (self.probe, self.label, self.variant) if part)

    @property
    def ranks(self) -> int:
        """How many ranks it should have."""
        return len(self.nodes) * self.tasks


@dataclass(frozen=True)
class Expected:
    """What a judge knows beside the records: the step, how its `srun` ended, and the site's network."""

    step: Step
    backend: Backend
    network: Network
    run: str
    time: float
    exit_code: int = 0
    words: str = ""
    """The last words of the step's stderr."""
    image: str = ""
    spec: str = ""

    def gate(self, verdict: GateState, cause: str, advice: str = "", rank: int | None = None) -> Gate:
        """Make a gate line of this step's probe."""
        return Gate(self.step.probe, verdict, cause, advice, self.run, self.step.nodes, self.time, rank)

    def sample(self, quantity: str, value: float, better: Better, unit: str, nodes: tuple[str, ...] = ()) -> Sample:
        """Make a sample of this step's probe; `quantity` stands between the probe's name and the shape."""
        label = self.step.label if not nodes else f"{len(nodes)}n"
        where = nodes or self.step.nodes
        name = f"{self.step.probe}/{quantity}/{label}"
        return Sample(name, rounded(value), better, self.run, where, self.time, unit, self.image, self.spec)

    def series(
        self, quantity: str, values: Sequence[float], unit: str, rank: int = 0, x: Sequence[float] = ()
    ) -> Vector:
        """Make a vector for plots."""
        name = f"{self.step.probe}/{quantity}/{self.step.label}"
        numbers = tuple(rounded(value) for value in values)
        return Vector(name, self.run, self.step.nodes, rank, numbers, unit, tuple(x))


Judge: TypeAlias = Callable[[Sequence[Record], Expected], Sequence[Line]]


@dataclass(frozen=True)
class Probe:
    """A probe, as data. `arguments` gives its script's options; `limit_s` bounds one step, by back-end."""

    name: str
    script: str
    shapes: tuple[Shape, ...]
    tasks: Literal["node", "gpu"]
    judge: Judge
    arguments: Callable[[Backend], tuple[str, ...]] = lambda _: ()
    limit_s: Mapping[Backend, int] | None = None
    variants: Callable[[Backend, Network], tuple[Variant, ...]] = lambda _backend, _network: (PLAIN,)

    def steps(self, nodes: tuple[str, ...], tasks_per_node: int, backend: Backend, network: Network) -> list[Step]:
        """Give the steps of this probe on a node set; a shape that is the same as another there is left out."""
        found = []
        for shape in self.shapes:
            if shape == "one-gpu" and tasks_per_node == 1 and "one-node" in self.shapes:
                continue
            if shape == "several" and len(nodes) == 1:
                continue
            own = nodes if shape == "several" else nodes[:1]
            tasks = 1 if shape == "one-gpu" or self.tasks == "node" else tasks_per_node
            limit = (self.limit_s or LIMITS_S)[backend]
            plain = Step(self.name, self.script, shape, own, tasks, self.arguments(backend), limit)
            for variant in self.variants(backend, network):
                environment = tuple((variant.environment or {}).items())
                arguments = (*plain.arguments, *variant.arguments)
                found.append(replace(plain, variant=variant.name, environment=environment, arguments=arguments))
        return found


#: How long one step may take where a probe says nothing else, in seconds.
LIMITS_S: Mapping[Backend, int] = {"nccl": 240, "gloo": 60}


def rounded(value: float) -> float:
    """Round to nine digits: more than any clock has, and the same text on every machine."""
    return float(f"{value:.9g}")


def spec_hash(script: bytes, step: Step) -> str:
    """Give a short hash of what a step measures: its script and its options."""
    what = json.dumps([step.probe, step.shape, step.variant, step.arguments, step.environment]).encode()
    return hashlib.sha256(script + b"\0" + what).hexdigest()[:12]
