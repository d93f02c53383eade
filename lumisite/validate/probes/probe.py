"""What a probe is: what a job starts, in which shapes, and a pure function that judges what was left.

A probe is a folder: `job*` is what runs in the job (it runs in any Python of an image and imports nothing of this
package), `judge.py` has the options of its script, how records are judged and what numbers are made of them, and the
function that `PROBES` of suite.py names. What several scripts share lies in `job/`. Every `srun` of a probe gets its
own folder OUT, on a shared file system, and finds all scripts beside each other in a folder PROBES:

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
from typing import Any, Literal, TypeAlias

from lumisite.findings.finding import Finding
from lumisite.site.cpu_list import format_cpu_list
from lumisite.site.images import family_by_path, holds_by_name, plugin_by_name
from lumisite.site.ledger import Situation, default_family, of_modules
from lumisite.site.model import Family, Site
from lumisite.site.selection import Selection
from lumisite.site.validation import Validation
from lumisite.text import some
from lumisite.validate.lines import Better, Gate, Sample, gate_of
from lumisite.vendors import fabrics_of, gpu_of
from lumisite.vendors.model import AdapterKind, GpuVendor

Shape: TypeAlias = Literal["one-gpu", "one-node", "several"]
Backend: TypeAlias = Literal["nccl", "gloo"]
#: What has a task of its own: a node, or each rank, which has a GPU where there are any.
Each: TypeAlias = Literal["node", "gpu"]
#: What one rank wrote: a JSON object that anything may be missing from.
Record: TypeAlias = Mapping[str, Any]
Line: TypeAlias = Sample | Gate

#: The probe and gate of what each node is, from which all else on a bad node follows.
NODE = "node"
#: Exit codes of timeout(1): it ended the step, or had to kill it.
TIMED_OUT = (124, 137)
#: In a step's words, the folder of scripts, the one of its records, and the text of the srun's script.
PROBES, OUT, TEXT = "{probes}", "{out}", "{text}"
#: The words of a command that checks a node: a Python, its PYTHONPATH and its arguments (`check --host`).
CHECK = "{check}"
#: What the scripts import from beside them: all, and those whose ranks work together.
RECORD, RANK = "lumisite_record.py", "rank.py"
#: What stands before the text of a script of a node.
COMMON = "node_common.sh"
#: What a container must see of the job.
BINDS = ("--bind", f"{PROBES},{OUT}")
#: What the folder of a step is called where its path is not known.
STEP_FOLDER = "the step's folder"
#: How much of a step's stderr is quoted, in letters.
MOST_QUOTED = 400
#: Nodes, and files, that a cause names; more are counted.
NAMED_NODES = 4
NAMED_FILES = 8


@dataclass(frozen=True)
class Srun:
    """One `srun` of a probe: `start` are the words before its script, `beside` the modules that the script imports.

    `name` distinguishes it from the probe's other ones. `bare` runs before any module is loaded.
    """

    script: str
    start: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    each: Each = "gpu"
    name: str = ""
    environment: tuple[tuple[str, str], ...] = ()
    bare: bool = False

    @property
    def files(self) -> tuple[str, ...]:
        """The scripts that it needs."""
        return (self.script, *self.beside)

    @property
    def words(self) -> tuple[str, ...]:
        """What follows `srun` and its options."""
        *before, program = self.start
        return (*before, program, f"{PROBES}/{self.script}", OUT, *self.arguments)


@dataclass(frozen=True)
class Target:
    """What all else follows from."""

    site: Site
    selection: Selection
    plan: Validation
    image: str

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
        return self.site.partitions[self.plan.partition].node_kind

    @property
    def gpu(self) -> GpuVendor | None:
        """What is known of the GPUs of the nodes that are probed; with nccl there are some."""
        name = self.site.gpu_vendor if self.plan.backend == "nccl" else self.site.vendor_of(self.kind)
        return gpu_of(name) if name else None

    @property
    def fabrics(self) -> tuple[AdapterKind, ...]:
        """What is known of the adapters that the site's traffic goes through."""
        return fabrics_of(self.site.fabric.carrier)

    @property
    def carriers(self) -> tuple[str, ...]:
        """The vendors' libraries that may carry traffic, by the beginnings of their files' names."""
        collectives = [self.gpu.collectives.library] if self.gpu else []
        fabrics = [name.partition(".so")[0] for fabric in self.fabrics for name in fabric.libraries]
        return (*collectives, *fabrics)

    @property
    def situation(self) -> Situation:
        """The situation in which settings and binds are decided; the step's nodes are left open."""
        image = holds_by_name(self.site, self.image)
        image = replace(image, family=self.family_name, plugin=plugin_by_name(self.site, self.family_name))
        return replace(
            of_modules(self.site, self.selection.default).with_image(image),
            gpus=bool(self.site.node_kinds[self.kind].gpus),
            partition=self.plan.partition,
            kind=self.kind,
        )

    def alone(self, script: str, *arguments: str, name: str = "") -> Srun:
        """Return the srun that looks at each rank alone, in the container as users start it."""
        action = "run" if self.family.activation == "runscript" else "exec"
        start = (self.site.command, action, *BINDS, self.image, "python3")
        return Srun(script, start, arguments, (RECORD,), name=name)

    def together(
        self, script: str, *arguments: str, name: str = "", environment: tuple[tuple[str, str], ...] = ()
    ) -> Srun:
        """Return the srun whose ranks work together, in the container."""
        start = (self.site.command, "--quiet", "exec", *BINDS, self.image, "python3")
        options: tuple[str, ...] = ("--backend", self.plan.backend)
        if self.plan.backend == "nccl" and (gpu := self.gpu):
            options += ("--device", gpu.torch, *each("settings", (gpu.collectives.prefix, *gpu.prefixes)))
        return Srun(script, start, (*options, *arguments), (RANK, RECORD), name=name, environment=environment)


def each(option: str, values: Iterable[str]) -> tuple[str, ...]:
    """Return an option once for each value.

    >>> each("path", ["/a", "/b"])
    ('--path', '/a', '--path', '/b')
    """
    return tuple(word for value in values for word in (f"--{option}", value))


@dataclass(frozen=True)
class ProbeStep:
    """An srun of a probe in a job: `nodes` are those that it runs on, `tasks` how many it has on each.

    With `together`, a rank that fails ends the others, which would wait for it.
    """

    probe: str
    srun: Srun
    shape: Shape
    nodes: tuple[str, ...]
    tasks: int
    limit_s: int
    together: bool = True

    @property
    def label(self) -> str:
        """The shape as metrics name it: `1g`, `1n`, `2n`."""
        return "1g" if self.shape == "one-gpu" else f"{len(self.nodes)}n"

    @property
    def folder(self) -> str:
        """Where the step's records lie below its job's folder."""
        return "-".join(filter(None, (self.probe, self.label, self.srun.name)))

    @property
    def ranks(self) -> int:
        """How many ranks it should have."""
        return len(self.nodes) * self.tasks

    def node_of(self, rank: int) -> str:
        """Return the node of a rank; Slurm deals ranks out to nodes by name, in whatever order they were asked for."""
        return sorted(self.nodes)[rank // self.tasks]


@dataclass(frozen=True)
class Ended:
    """A step that has ended: what its ranks wrote, how its `srun` ended, and its time.

    `stderr` has the lines at its end that name what went wrong, `path` is the step's folder.
    """

    step: ProbeStep
    records: tuple[Record, ...]
    exit_code: int = 0
    stderr: tuple[str, ...] = ()
    seconds: float = math.inf
    path: str = STEP_FOLDER

    @property
    def read_stderr(self) -> str:
        """Where to read on."""
        return f"read {self.path}/stderr"

    @property
    def words(self) -> str:
        """What a finding quotes of its stderr."""
        return quote(self.stderr)

    @property
    def late(self) -> bool:
        """Whether its time was over. The code alone does not tell: srun gives 137 too where it killed a rank."""
        return self.exit_code in TIMED_OUT and self.seconds >= self.step.limit_s


@dataclass(frozen=True, kw_only=True)
class Expected(ProbeStep):
    """What a judge knows of a group's first step, in the folder `path`, and its job; `time` is the last step's end."""

    run: str
    time: float
    image: str = ""
    spec: str = ""
    path: str = STEP_FOLDER

    def gate(self, finding: Finding, ranks: Sequence[int] = ()) -> Gate:
        """Return the gate line of this probe for a finding about its nodes, or about all."""
        every = tuple(sorted(self.nodes))
        nodes = tuple(sorted(finding.nodes)) or every
        location = describe_ranks(ranks, finding.nodes) if finding.nodes else ""
        requested = every if nodes != every else ()
        return gate_of(finding, self.probe, self.run, nodes, self.time, ranks=ranks, location=location, asked=requested)

    def sample(self, quantity: str, value: float, better: Better, unit: str, nodes: tuple[str, ...] = ()) -> Sample:
        """Return a sample; `quantity` stands between the probe's name and the shape, which `nodes` change."""
        label = f"{len(nodes)}n" if nodes else self.label
        name = f"{self.probe}/{quantity}/{label}"
        where = tuple(sorted(nodes or self.nodes))
        # Nine digits: the same text on every machine, and more than any clock has.
        return Sample(name, float(f"{value:.9g}"), better, self.run, where, self.time, unit, self.image, self.spec)


def describe_ranks(ranks: Sequence[int], nodes: Sequence[str]) -> str:
    """Return ranks and their nodes, or nodes alone, as text.

    >>> describe_ranks([0, 1, 2], ["a", "b"]), describe_ranks([], ["a"])
    ('ranks 0-2 on a, b', 'a')
    """
    where = some(nodes, NAMED_NODES, ", ")
    return f"rank{'s' * (len(ranks) > 1)} {format_cpu_list(ranks)} on {where}" if ranks else where


def quote(lines: Sequence[str]) -> str:
    """Return what a finding quotes of some lines: a runtime writes the cause first, srun what followed from it last."""
    words = " | ".join(lines)
    half = MOST_QUOTED // 2
    return words if len(words) <= MOST_QUOTED else f"{words[:half]} … {words[-half:]}"


Judge: TypeAlias = Callable[[Sequence[Ended], Expected], Sequence[Line]]


@dataclass(frozen=True)
class Probe:
    """A probe of a site. `judge` judges all records of one shape together.

    Ranks that work `together` end together. Otherwise each node or rank is asked by itself: then only the largest shape
    is needed, where all of them are. Numbers of one `version` compare. Raise it when a script measures something else,
    or in another way: sizes, ranks and other options are told apart without it, and words and checks of a script need
    no new baseline.
    """

    name: str
    sruns: tuple[Srun, ...]
    judge: Judge
    shapes: tuple[Shape, ...] = ("several",)
    together: bool = False
    version: int = 1


@dataclass(frozen=True)
class Group:
    """The steps of one probe in one shape: they are judged together, when the last has ended."""

    steps: tuple[ProbeStep, ...]
    judge: Judge
    version: int = 1

    @property
    def folder(self) -> str:
        """A name of its own in its job."""
        return self.steps[0].folder


@cache
def scripts() -> Mapping[str, Path]:
    """Return every script by its name in a job: `ddp.py` for `ddp/job.py`, `ddp_x.py` for `ddp/job_x.py`."""
    folder = Path(__file__).parent
    jobs = {path.parent.name + path.name.removeprefix("job"): path for path in folder.glob("*/job*.*")}
    return jobs | {path.name: path for path in folder.glob("common/*.py") if path.stem != "__init__"}


def spec_hash(group: Group) -> str:
    """Return a short hash of what a group measures: the version of its probe and its steps, whatever the image."""
    steps = [
        [step.probe, step.shape, srun.name, step.tasks, srun.arguments, srun.environment]
        for step in group.steps
        for srun in [step.srun]
    ]
    return hashlib.sha256(json.dumps([group.version, steps]).encode()).hexdigest()[:12]
