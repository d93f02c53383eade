"""The gate probes of a site: what is started where, what is expected, and who judges it. Nothing here knows LUMI.

A probe is one step or several. For each step the job gives it a folder OUT of its own, on a shared file system, and
puts the step's `files` beside each other into a folder PROBES. Then, with the site's modules loaded as a user does:

    host:       srun --ntasks-per-node=T LAUNCHER PROBES/SCRIPT OUT ARGUMENTS
    container:  srun --ntasks-per-node=T singularity ACTION --bind PROBES,OUT IMAGE python3 PROBES/SCRIPT OUT ARGUMENTS
    wrapper:    srun --ntasks-per-node=T ENVIRONMENT/bin/python PROBES/SCRIPT OUT ARGUMENTS

T is 1 for `node` and the site's tasks on a node for `gpu`. A record is OUT/RANK.json. Without the extra `--bind` a
container that lacks the site's own binds could not leave one. `judge` takes the records of all steps together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from lumisite.site.model import Site
from lumisite.site.selection import Selection
from lumisite.validate.probes import gate_expectations as expect
from lumisite.validate.probes.findings import Found, JobShape, Record
from lumisite.validate.probes.gate_affinity import judge_affinity
from lumisite.validate.probes.gate_binds import ExpectedBinds, judge_binds
from lumisite.validate.probes.gate_caches import judge_caches
from lumisite.validate.probes.gate_modules import ExpectedModules, judge_modules
from lumisite.validate.probes.gate_python import judge_conda, judge_usersite
from lumisite.validate.probes.gate_training import ExpectedWrapper, judge_jax, judge_wrapper

if TYPE_CHECKING:
    from typing import TypeAlias

Shape: TypeAlias = Literal["one-gpu", "one-node", "several"]
Judge: TypeAlias = Callable[[Sequence[Record], JobShape], Sequence[Found]]

RECORD = "lumisite_record.py"
#: A user's own bind, which every module must leave alone: a file that each node has, at a place of no meaning.
USERS_BIND = "/etc/hostname:/lumisite-probe"
#: Steps of an epoch of `wrapper`, by back-end: about a second on GPUs, less on cores.
EPOCH_STEPS = {"nccl": "200", "gloo": "2"}
LADDER: tuple[Shape, ...] = ("one-gpu", "one-node", "several")


@dataclass(frozen=True)
class GateStep:
    """One `srun` of a probe; `launcher` is what starts a script outside of containers."""

    name: str
    place: Literal["host", "container", "wrapper"]
    tasks: Literal["node", "gpu"]
    script: str
    arguments: tuple[str, ...] = ()
    launcher: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        """What it needs of lumisite/validate/probes/jobside."""
        return (self.script, RECORD) if self.script.endswith(".py") else (self.script,)


@dataclass(frozen=True)
class GateProbe:
    """A probe as data. `image` and `action` are for its steps in the container, `environment` for those in a wrapper's.

    A probe that asks each node or rank by itself needs only its largest shape, where all of them are.
    """

    name: str
    steps: tuple[GateStep, ...]
    judge: Judge
    image: str
    action: Literal["exec", "run"]
    shapes: tuple[Shape, ...] = ("several",)
    environment: str = ""


def gate_probes(
    site: Site,
    selection: Selection,
    *,
    image: str | None = None,
    jax_image: str | None = None,
    wrapper: str | None = None,
) -> tuple[GateProbe, ...]:
    """Give the gate probes of a site, in the order in which a job runs them.

    `image` stands for the one that the site validates. `jax` is among them where an image with JAX is named, and
    `wrapper` where the directory of an environment of the container wrapper is. Raises `ResolveError` for a site that
    does not say what is validated.
    """
    asked = expect.question(site, selection, image)
    modules, binds = expect.expected_modules(asked), expect.expected_binds(asked)
    caches, python = expect.expected_caches(asked), expect.expected_python(asked)
    frameworks = _each("import", python.frameworks)
    rank_python = GateStep("container", "container", "gpu", "python_setup.py", frameworks)
    rank_caches = GateStep("container", "container", "gpu", "miopen.py", _each("variable", caches.variables))
    rank_cpus = GateStep("container", "container", "gpu", "affinity.py")
    affinity, user_site = expect.expected_affinity(asked), expect.expected_user_site(asked)
    image, action = asked.image, _action(asked)

    def probe(name: str, steps: tuple[GateStep, ...], judge: Judge) -> GateProbe:
        return GateProbe(name, steps, judge, image, action)

    probes = [
        probe("modules", (_modules_step(site, modules),), lambda records, job: judge_modules(records, modules, job)),
        probe("binds", _binds_steps(binds), lambda records, job: judge_binds(records, binds, job)),
        probe("affinity", (rank_cpus,), lambda records, job: judge_affinity(records, affinity, job)),
        probe("miopen", (rank_caches,), lambda records, job: judge_caches(records, caches, job)),
        probe("usersite", (rank_python,), lambda records, job: judge_usersite(records, user_site, job)),
        probe("conda", (rank_python,), lambda records, job: judge_conda(records, python, job)),
    ]
    if jax_image is not None:
        probes.append(_jax_probe(expect.question(site, selection, jax_image)))
    if wrapper is not None:
        probes.append(_wrapper_probe(asked, wrapper))
    return tuple(probes)


def step_command(probe: GateProbe, step: GateStep, *, runtime: str, probes: str, out: str) -> tuple[str, ...]:
    """Give the words that follow `srun` and its options; `probes` and `out` are folders as the nodes see them."""
    script = (f"{probes}/{step.script}", out, *step.arguments)
    if step.place == "host":
        return (*step.launcher, *script)
    if step.place == "wrapper":
        return (f"{probe.environment}/bin/python", *script)
    return (runtime, probe.action, "--bind", f"{probes},{out}", probe.image, "python3", *script)


def _modules_step(site: Site, expected: ExpectedModules) -> GateStep:
    arguments = (f"{site.root}/current/modules", f"{expected.bind_variable}={USERS_BIND}", "--")
    names = tuple(module.name for module in expected.modules)
    return GateStep("host", "host", "node", "modules.sh", (*arguments, *names), ("bash",))


def _binds_steps(expected: ExpectedBinds) -> tuple[GateStep, ...]:
    inside = (
        *_each("path", dict.fromkeys(bind.target for bind in expected.binds)),
        *_each("import", expected.imports),
        *_each("plugin", expected.plugins),
        *_each("library", expected.library_from),
    )
    paths = tuple(dict.fromkeys(bind.path for bind in expected.binds))
    return (
        GateStep("host", "host", "node", "binds_host.sh", paths, ("sh",)),
        GateStep("container", "container", "node", "binds.py", inside),
    )


def _jax_probe(asked: expect.Question) -> GateProbe:
    wanted = expect.expected_jax(asked)
    arguments = ("--one-gpu", "yes") if wanted.platform == "gpu" else ()
    step = GateStep("container", "container", "gpu", "jax_devices.py", arguments)
    return GateProbe(
        "jax", (step,), lambda records, job: judge_jax(records, wanted, job), asked.image, _action(asked), LADDER
    )


def _wrapper_probe(asked: expect.Question, environment: str) -> GateProbe:
    backend, wanted = asked.plan.backend, ExpectedWrapper()
    arguments = ("--backend", backend, "--steps", EPOCH_STEPS[backend])
    steps = (
        GateStep("container", "container", "gpu", "wrapper.py", ("--part", wanted.container, *arguments)),
        GateStep("wrapper", "wrapper", "gpu", "wrapper.py", ("--part", wanted.wrapper, *arguments)),
    )
    return GateProbe(
        "wrapper",
        steps,
        lambda records, job: judge_wrapper(records, wanted, job),
        asked.image,
        _action(asked),
        environment=environment,
    )


def _action(asked: expect.Question) -> Literal["exec", "run"]:
    return "run" if asked.family.activation == "runscript" else "exec"


def _each(option: str, values: Iterable[str]) -> tuple[str, ...]:
    return tuple(word for value in values for word in (f"--{option}", value))
