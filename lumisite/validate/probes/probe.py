"""What a probe is: what a job starts, in which shapes, and a pure function that judges what was left.

A probe is a folder: `job*` is what runs in the job (it runs in any Python of an image and imports nothing of this
package), `judge.py` has what is expected of this site and how records are judged, and the function that suite.py lists.
What several scripts share lies in `job/`. Every part of a probe gets a folder OUT of its own, on a shared file system,
and finds all scripts beside each other in a folder PROBES:

    srun --ntasks-per-node=T START PROBES/SCRIPT OUT ARGUMENTS

T is 1 or the site's tasks on a node. A record is OUT/RANK.json. A container binds both folders itself, since one that
lacks the site's own binds could not leave a record otherwise.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias

from lumisite.site.images import family_by_path, has_plugin, holds_by_name
from lumisite.site.ledger import Situation, default_family, of_modules
from lumisite.site.model import Family, Site, Validation
from lumisite.site.selection import Selection
from lumisite.validate.lines import Better, Gate, GateOutcome, Sample
from lumisite.vendors import fabrics_of, gpu_of
from lumisite.vendors.model import Fabric, Gpu

Shape: TypeAlias = Literal["one-gpu", "one-node", "several"]
Backend: TypeAlias = Literal["nccl", "gloo"]
#: What is asked by itself: a node, or each rank, which has a GPU of its own where there are any.
Each: TypeAlias = Literal["node", "gpu"]
#: What one rank wrote: a JSON object that anything may be missing from.
Record: TypeAlias = Mapping[str, object]


@dataclass(frozen=True)
class Vector:
    """Numbers of one rank, for plots and tables."""

    series: str
    run: str
    nodes: tuple[str, ...]
    rank: int
    values: tuple[float, ...]
    unit: str


Line: TypeAlias = Sample | Gate | Vector

#: Exit codes of timeout(1): it ended the step, or had to kill it.
TIMED_OUT = (124, 137)
#: What stands in a step's words for the folder of scripts, and for the one of its records.
PROBES, OUT = "{probes}", "{out}"
#: What stands there for the text of a part's script, which the job reads where the folder of scripts is.
TEXT = "{text}"
#: What the scripts import from beside them: those that ask each rank by itself, and those whose ranks work together.
RECORD, RANK = "lumisite_record.py", "rank.py"
#: What a container must see of the job.
BINDS = ("--bind", f"{PROBES},{OUT}")


@dataclass(frozen=True)
class Part:
    """One `srun` of a probe: `start` are the words before its script, `beside` the modules that the script imports.

    `name` tells it from the probe's other parts: a place, or a control that must fail.
    """

    script: str
    start: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    each: Each = "gpu"
    name: str = ""
    environment: tuple[tuple[str, str], ...] = ()
    bare: bool = False
    """Whether it runs before any module is loaded."""
    without: tuple[str, ...] = ()
    """Variables that its ranks do not have in the container, whatever sets them."""

    @property
    def files(self) -> tuple[str, ...]:
        """The scripts that it needs."""
        return (self.script, *self.beside)

    @property
    def words(self) -> tuple[str, ...]:
        """What follows `srun` and its options."""
        *before, program = self.start
        without = ("env", *(f"--unset={name}" for name in self.without)) if self.without else ()
        return (*before, *without, program, f"{PROBES}/{self.script}", OUT, *self.arguments)


@dataclass(frozen=True)
class Target:
    """What all else follows from; `wrapper` is the directory of an environment of the container wrapper."""

    site: Site
    selection: Selection
    plan: Validation
    image: str
    jax_image: str | None = None
    wrapper: str | None = None

    @property
    def family_name(self) -> str:
        """The image's family by name."""
        return family_by_path(self.site, self.image) or default_family(self.site, self.selection.default.releases)

    @property
    def family(self) -> Family:
        """The image's family."""
        return self.site.families[self.family_name]

    @property
    def kind(self) -> str:
        """The node kind of the nodes that are probed."""
        return self.site.validated_kind(self.plan.partition)

    @property
    def has_gpus(self) -> bool:
        """Whether they have GPUs."""
        return bool(self.site.node_kinds[self.kind].gpus)

    @property
    def gpu(self) -> Gpu | None:
        """What is known of the GPUs of the nodes that are probed; none where they have none."""
        return gpu_of_plan(self.site, self.plan)

    @property
    def fabrics(self) -> tuple[Fabric, ...]:
        """What is known of the adapters that the site's traffic goes through."""
        return fabrics_of(self.site.fabric.carrier)

    @property
    def carriers(self) -> tuple[str, ...]:
        """The vendors' libraries that may carry traffic, by the beginnings of their files' names."""
        own = [self.gpu.collectives.library] if self.gpu else []
        return (*own, *(name.partition(".so")[0] for one in self.fabrics for name in one.libraries))

    @property
    def situation(self) -> Situation:
        """The situation in which settings and binds are decided; the step's nodes are left open."""
        here = of_modules(self.site, self.selection.default)
        holds = holds_by_name(self.site, self.image)
        return replace(
            here,
            stacks={**here.stacks, **holds.stacks},
            family=self.family_name,
            plugin=has_plugin(self.site, self.family_name),
            guessed=holds.guessed,
            gpus=self.has_gpus,
            partition=self.plan.partition,
            kind=self.kind,
        )

    def alone(self, script: str, *arguments: str, each: Each = "gpu", name: str = "") -> Part:
        """Give a part that asks each node or rank by itself, in the container as users start it."""
        action = "run" if self.family.activation == "runscript" else "exec"
        start = (self.site.command, action, *BINDS, self.image, "python3")
        return Part(script, start, arguments, (RECORD,), each, name)

    def together(
        self, script: str, *arguments: str, name: str = "", environment: tuple[tuple[str, str], ...] = ()
    ) -> Part:
        """Give a part whose ranks work together, in the container."""
        start = (self.site.command, "--quiet", "exec", *BINDS, self.image, "python3")
        asked = [*each("carrier", self.carriers), *arguments]
        backend: str = self.plan.backend
        if backend == "nccl" and (gpu := self.gpu):
            backend = gpu.collectives.backend
            asked = ["--device", gpu.torch, *each("settings", (gpu.collectives.prefix, *gpu.prefixes)), *asked]
        return Part(script, start, ("--backend", backend, *asked), (RANK, RECORD), name=name, environment=environment)


def gpu_of_plan(site: Site, plan: Validation) -> Gpu | None:
    """Give what is known of the GPUs of the nodes that are probed: nccl says that there are some."""
    stacks = [site.stacks[name].gpu for name in site.gpu_stacks if plan.backend == "nccl"]
    name = next(filter(None, [site.vendor_of(site.validated_kind(plan.partition)), *stacks]), None)
    return gpu_of(name) if name else None


def each(option: str, values: Iterable[str]) -> tuple[str, ...]:
    """Give an option once for each value.

    >>> each("path", ["/a", "/b"])
    ('--path', '/a', '--path', '/b')
    """
    return tuple(word for value in values for word in (f"--{option}", value))


@dataclass(frozen=True)
class Step:
    """A part of a probe in a job: `nodes` are those that it runs on, `tasks` how many it has on each."""

    probe: str
    part: Part
    shape: Shape
    nodes: tuple[str, ...]
    tasks: int
    limit_s: int
    together: bool = True
    """Whether a rank that fails ends the others, which would wait for it."""
    slot: str = ""
    """Which of a job's slots it belongs to, where the job does the same several times."""
    check: bool = False
    """Whether it only runs where its slot went wrong, and ends the job if it does so itself."""

    @property
    def label(self) -> str:
        """The shape as metrics name it: `1g`, `1n`, `2n`."""
        return "1g" if self.shape == "one-gpu" else f"{len(self.nodes)}n"

    @property
    def folder(self) -> str:
        """Where the step's records lie below its job's folder."""
        return "-".join(part for part in (self.slot, self.probe, self.label, self.part.name) if part)

    @property
    def ranks(self) -> int:
        """How many ranks it should have."""
        return len(self.nodes) * self.tasks

    def node_of(self, rank: int) -> str:
        """Give the node of a rank; Slurm deals ranks out to nodes by name, in whatever order they were asked for."""
        return sorted(self.nodes)[rank // self.tasks]


@dataclass(frozen=True)
class Ended:
    """A step that has ended: what its ranks wrote, how its `srun` ended, the last words of its stderr, and its time."""

    step: Step
    records: tuple[Record, ...]
    exit_code: int = 0
    words: str = ""
    seconds: float = math.inf

    @property
    def late(self) -> bool:
        """Whether its time was over. The code alone does not tell: srun gives 137 too where it killed a rank."""
        return self.exit_code in TIMED_OUT and self.seconds >= self.step.limit_s


@dataclass(frozen=True, kw_only=True)
class Expected(Step):
    """What a judge knows of a group's first step and its job; `time` is the last step's end."""

    run: str
    time: float
    image: str = ""
    spec: str = ""
    words: str = ""
    """The last words of the steps that did not end well."""

    def gate(
        self, verdict: GateOutcome, cause: str, advice: str = "", rank: int | None = None, nodes: Sequence[str] = ()
    ) -> Gate:
        """Make a gate line of this probe, about some nodes or all."""
        asked = tuple(sorted(self.nodes))
        told = tuple(sorted(nodes)) or asked
        return Gate(self.probe, verdict, cause, advice, self.run, told, self.time, rank, asked if told != asked else ())

    def sample(self, quantity: str, value: float, better: Better, unit: str, nodes: tuple[str, ...] = ()) -> Sample:
        """Make a sample; `quantity` stands between the probe's name and the shape, which `nodes` change."""
        label = f"{len(nodes)}n" if nodes else self.label
        where = tuple(sorted(nodes or self.nodes))
        name = f"{self.probe}/{quantity}/{label}"
        return Sample(name, rounded(value), better, self.run, where, self.time, unit, self.image, self.spec)

    def series(self, quantity: str, values: Sequence[float], unit: str, rank: int = 0) -> Vector:
        """Make a vector for plots."""
        name = f"{self.probe}/{quantity}/{self.label}"
        numbers = tuple(rounded(value) for value in values)
        return Vector(name, self.run, tuple(sorted(self.nodes)), rank, numbers, unit)


Judge: TypeAlias = Callable[[Sequence[Ended], Expected], Sequence[Line]]
#: The parts of a probe, and how they are judged.
Plan: TypeAlias = tuple[tuple[Part, ...], Judge]


@dataclass(frozen=True)
class Probe:
    """A probe of a site. `judge` takes all parts of one shape together.

    Ranks that work `together` end together. Otherwise each node or rank is asked by itself: then only the largest shape
    is needed, where all of them are. `asks` says in a sentence what must hold.
    """

    name: str
    asks: str
    parts: tuple[Part, ...]
    judge: Judge
    shapes: tuple[Shape, ...]
    together: bool


def probe(
    asks: str, *shapes: Shape, together: bool = False
) -> Callable[[Callable[[Target], Plan]], Callable[[Target], Probe]]:
    """Make of a function that gives the parts and the judge one that gives the probe, which has the function's name."""

    def named(plan: Callable[[Target], Plan]) -> Callable[[Target], Probe]:
        return lambda target: Probe(plan.__name__, asks, *plan(target), shapes or ("several",), together)

    return named


@dataclass(frozen=True)
class Group:
    """The steps of one probe in one shape: they are judged together, when the last has ended."""

    steps: tuple[Step, ...]
    judge: Judge
    asks: str = ""

    @property
    def folder(self) -> str:
        """A name of its own in its job."""
        return self.steps[0].folder

    @property
    def measures(self) -> str:
        """The name of what it measures, which slots have in common."""
        return replace(self.steps[0], slot="").folder


def rounded(value: float, digits: int = 9) -> float:
    """Round to so many digits, for the same text on every machine; nine are more than any clock has."""
    return float(f"{value:.{digits}g}")


@cache
def scripts() -> Mapping[str, Path]:
    """Give every script by its name in a job: `binds.py` is `binds/job.py`, `binds_host.sh` is `binds/job_host.sh`."""
    here = Path(__file__).parent
    own = {path.parent.name + path.name.removeprefix("job"): path for path in here.glob("*/job*.*")}
    return own | {path.name: path for path in here.glob("job/*.py") if path.stem != "__init__"}


def spec_hash(contents: Sequence[bytes], group: Group) -> str:
    """Give a short hash of what a group measures: its scripts and what they are asked, whatever the image.

    What slots have beside that in their environment is what they compare.
    """
    seen = hashlib.sha256()
    for content in contents:
        seen.update(hashlib.sha256(content).digest())
    asked = [
        [one.probe, one.shape, one.part.name, one.tasks, one.part.arguments, () if one.slot else one.part.environment]
        for one in group.steps
    ]
    seen.update(json.dumps(asked).encode())
    return seen.hexdigest()[:12]
