"""What a rank finds in its environment: the rendered scripts are run, in a step and on a node that are made up.

The scripts are the very texts that `render` writes, but for one line of their data: it says which GPUs the node has.
With it they take every path for there and all CPUs for granted, and touch nothing. What they decide they report as
lines of a key and a value (`LUMISITE_VERBOSE=report`).
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lumisite.errors import ToolError, refused
from lumisite.findings.finding import Finding, Severity
from lumisite.machine.masks import mask_of
from lumisite.render.helper import ASSUMES
from lumisite.render.manifest import MANIFEST, RenderedFile
from lumisite.render.modules import ModulePlan
from lumisite.site.cpus import parse_number_list
from lumisite.site.images import Holds
from lumisite.site.kinds import NO_GPUS, fingerprint_of
from lumisite.site.ledger import Situation, decide, decided_by_image
from lumisite.site.model import Site
from lumisite.site.read import read_file
from lumisite.site.scalars import JOB_VARIABLE, TASK
from lumisite.site.versions import parse_version
from lumisite.text import printable

#: How long a script may take; it takes milliseconds.
LIMIT_S = 30
_MOST_BYTES = 1 << 23  # the kernel gives a program no larger environment, execve(2)
#: What the folder of the made-up job is called, where the site's variable says more than the job's number.
MADE_UP_FOLDER = "job1"
#: Stands for the real runtime: writes down the environment that it is given.
_RUNTIME = "#!/bin/sh\nexec env -0 >'{out}'\n"


@dataclass(frozen=True)
class _Stage:
    """Who acts, the environment before and after it, and the keys and values that it reports."""

    by: str
    before: Mapping[str, str]
    after: Mapping[str, str]
    reports: Sequence[tuple[str, str]] = ()

    def report(self, key: str) -> str | None:
        """Return the value of a key that is reported once."""
        return next((value for name, value in self.reports if name == key), None)


@dataclass(frozen=True)
class Step:
    """The step that is made up: its partition, nodes, tasks on each, and of which of the partition's kinds they are."""

    partition: str
    nodes: int
    tasks_per_node: int
    kind: str | None = None


@dataclass(frozen=True)
class Variable:
    """A variable as a rank finds it; `value` is `None` where the ledger knows it and nothing sets it.

    `entry` is the key of the site description, and empty for what has none. `open` is whether that entry depends on
    what is not known of the image.
    """

    value: str | None
    by: str
    entry: str
    open: bool = False


@dataclass(frozen=True)
class StepBind:
    """A bind of the container."""

    source: str
    target: str
    by: str
    entry: str
    why: str


@dataclass(frozen=True)
class Cpus:
    """The mask of one task of the first node; else `why` Slurm's binding stays."""

    task: int
    mask: str | None
    gpu: int | None
    why: str


@dataclass(frozen=True)
class AssumedImage:
    """What the wrapper takes the image for; `None` is not known.

    `known_from` is `content` where somebody read the image, for a plan or a lock, `site` where its name is one of the
    site's own image folders, `name` where it is guessed from another name.
    """

    family: str | None
    release: str | None
    plugin: bool | None
    known_from: str


@dataclass(frozen=True)
class Environment:
    """All that a rank finds; `image` is `None` where no wrapper sees one."""

    variables: Mapping[str, Variable]
    binds: tuple[StepBind, ...]
    cpus: tuple[Cpus, ...]
    image: AssumedImage | None = None


@dataclass(frozen=True)
class Question:
    """The rendered tree, the modules that are loaded, the step, the image that is started, and what the tree has of it.

    Without modules the helper is on all the same, as the site's cli_filter attaches it.
    """

    site: Site
    files: Mapping[str, RenderedFile]
    modules: Sequence[ModulePlan]
    step: Step
    image: str | None
    holds: Holds = field(default_factory=Holds)

    @property
    def kind(self) -> str:
        """The node kind: by default the first of the partition's."""
        return self.step.kind or next(iter(self.site.kinds_of(self.step.partition)))


def release_of(files: Mapping[str, RenderedFile]) -> str:
    """Return the id of a rendered tree."""
    return str(json.loads(files[MANIFEST].text)["release"])


def environment_of(question: Question) -> Environment:
    """Run the scripts for the first rank, and the prolog for each task of its node. Raises `ToolError`."""
    loaded = _after_modules(question)
    stages = [_Stage("module", {}, loaded)]
    tasks: list[_Stage] = []
    if not question.modules or "SLURM_TASK_PROLOG" in loaded:
        with tempfile.TemporaryDirectory(prefix="lumisite-env-") as folder:
            tasks += _run_prologs(question, Path(folder), loaded)
            stages.append(tasks[0])
            if question.image is not None:
                stages.append(_run_wrapper(question, Path(folder), tasks[0].after))
    image = _image(stages[-1])
    variables = {**(_not_set(question, image) if tasks else {}), **_variables(question, stages, image)}
    return Environment(
        variables=dict(sorted(variables.items())),
        binds=tuple(_binds(question, stages)),
        cpus=tuple(_cpus(task, stage) for task, stage in enumerate(tasks)),
        image=image,
    )


def _image(stage: _Stage) -> AssumedImage | None:
    reported = stage.report("image")
    if reported is None:
        return None
    known_from, family, release, plugin = reported.split("/")
    return AssumedImage(family or None, release or None, {"yes": True, "no": False}.get(plugin), known_from)


def _after_modules(question: Question) -> dict[str, str]:
    """Return the environment after `module load`, as the modulefiles' own plans have it."""
    environment = {"PATH": "/usr/bin:/bin"}
    for plan in question.modules:
        if binds := ",".join(plan.summary.binds):
            before = environment.get(plan.bind_variable)
            environment[plan.bind_variable] = f"{before},{binds}" if before else binds
            environment[plan.marker] = binds
        if plan.helper:
            top = f"{plan.root}/releases/{plan.release}"
            environment |= {
                **plan.summary.environment,
                "SLURM_TASK_PROLOG": f"{top}/spank/task_prolog",
                "LUMISITE_STACK": plan.stack,
                "LUMISITE_RELEASE": top,
                "PATH": f"{top}/spank/bin:{environment['PATH']}",
            }
    return environment


def _slurm(question: Question, task: int) -> dict[str, str]:
    """Return what Slurm sets for a task of the first node."""
    step = question.step
    groups = question.site.node_kinds[question.kind].l3
    names = f"node[1-{step.nodes}]" if step.nodes > 1 else "node1"
    return {
        "SLURM_JOB_ID": "1",
        "SLURM_JOB_UID": str(os.getuid()),
        "SLURM_STEP_ID": "0",
        **dict.fromkeys(("SLURM_PROCID", "SLURM_LOCALID"), str(task)),
        "SLURM_NODEID": "0",
        "SLURM_TASK_PID": "1",
        **dict.fromkeys(("SLURM_NNODES", "SLURM_STEP_NUM_NODES"), str(step.nodes)),
        "SLURM_STEP_NUM_TASKS": str(step.nodes * step.tasks_per_node),
        "SLURM_STEP_NODELIST": names,
        "SLURM_GTIDS": ",".join(map(str, range(step.tasks_per_node))),
        "SLURM_JOB_PARTITION": step.partition,
        "SLURM_CPUS_ON_NODE": str(sum(len(group.cores) + len(group.siblings or ()) for group in groups)),
        "SLURMD_NODENAME": "node1",
    }


def _job_folders(site: Site) -> dict[str, str]:
    """Return values for the variables that name the folder of a job: below the file system that it is in."""
    found: dict[str, str] = {}
    for private_place in site.private_places:
        for variable in JOB_VARIABLE.finditer(private_place.job_folder or ""):
            value = MADE_UP_FOLDER if variable.start() else f"{private_place.path.rstrip('/')}/{MADE_UP_FOLDER}"
            found.setdefault(variable[1] or variable[2], value)
    return found


def _run_prologs(question: Question, folder: Path, loaded: Mapping[str, str]) -> Iterator[_Stage]:
    """Run the prolog for each task of the first node; its lines make the environment, as Slurm reads them."""
    gpus = fingerprint_of(question.site, question.kind).gpus or NO_GPUS
    script = _on_assumed_node(question, folder, "spank/task_prolog", gpus)
    # Sourced under its deployed name, since it puts its own folder on PATH.
    name = f"{question.site.root}/releases/{release_of(question.files)}/spank/task_prolog"
    for task in range(question.step.tasks_per_node):
        before = {**loaded, **_job_folders(question.site), **_slurm(question, task)}
        environment = dict(before)
        lines = _run(["-c", '. "$1"', name, str(script)], before).split("\n")
        for line in lines:
            verb, _, rest = line.partition(" ")
            variable, _, value = rest.partition("=")
            if verb == "export":
                environment[variable] = value
            elif verb == "unset":
                environment.pop(variable, None)
        yield _Stage("prolog", loaded, environment, _reports(line.removeprefix("print ") for line in lines))


def _run_wrapper(question: Question, folder: Path, before: Mapping[str, str]) -> _Stage:
    """Run the wrapper, and take the environment that the real runtime gets."""
    out, runtime = folder / "environment", folder / "runtime"
    runtime.write_text(_RUNTIME.format(out=out))
    runtime.chmod(0o700)
    script = _on_assumed_node(question, folder, "spank/bin/singularity", str(runtime))
    image = str(question.image)
    path = image if "://" in image else os.path.abspath(image)  # noqa: PTH100 - as a shell's PWD has it
    output = _run([str(script), "exec", path, "true"], {**before, "PWD": str(folder)})
    pairs = (pair.partition("=") for pair in os.fsdecode(read_file(out, _MOST_BYTES)).split("\0") if pair)
    extra = {"LUMISITE_WRAPPER", "LUMISITE_VERBOSE", "PWD", "OLDPWD", "SHLVL", "_"} - set(before)
    after = {name: value for name, _, value in pairs if name not in extra}
    return _Stage("wrapper", before, after, _reports(output.split("\n")))


def _reports(lines: Iterable[str]) -> list[tuple[str, str]]:
    """Parse `report KEY VALUE`."""
    words = (line.split(" ", 2) for line in lines if line.startswith("report "))
    return [(key, value) for _, key, value in words]


def _on_assumed_node(question: Question, folder: Path, path: str, assumed: str) -> Path:
    """Write a script that assumes a node: with these GPUs, or with this program in the place of the real runtime."""
    text, line = question.files[path].text, ASSUMES[path]
    if f"\n{text}".count(f"\n{line}\n") != 1:
        message = f"does not have `{line}` exactly once"
        raise ToolError(Finding("out-changed", Severity.FAULT, message, "render again with this lumisite", path))
    # The wrapper goes by the name under which it is called.
    script = folder / (question.site.command if path.startswith("spank/bin/") else Path(path).name)
    text = text.replace(f"\n{line}\n", f"\n{line.partition('=')[0]}={shlex.quote(assumed)}\n")
    script.write_text(text, encoding="utf-8", errors="surrogateescape")
    return script


def _run(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """Run a script with the shell that it names, and give what it says on both streams."""
    shell, script = shutil.which("sh") or "/bin/sh", Path(command[0]).name
    try:
        done = subprocess.run(
            [shell, *command],
            env={**environment, "LUMISITE_VERBOSE": "report"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _failed(script, f"did not end within {LIMIT_S} s") from None
    except OSError as error:
        raise refused(f"run {shell}", error) from None
    text = os.fsdecode(done.stdout)
    if done.returncode:
        raise _failed(script, f"ended with status {done.returncode}: {printable(text[-500:])}")
    return text


def _failed(script: str, message: str) -> ToolError:
    advice = "render again, and report it if it stays"
    return ToolError(Finding("script-failed", Severity.FAULT, message, advice, script))


def _variables(question: Question, stages: Sequence[_Stage], image: AssumedImage | None) -> dict[str, Variable]:
    """Return each variable that some stage changed, or reports to take away."""
    found: dict[str, Variable] = {}
    numbered = reversed([*enumerate(question.site.settings)])
    of_module = {str(setting.name): f"settings[{index}]" for index, setting in numbered}
    for stage in stages:
        deciding = _entries_of(question, image if stage.by == "wrapper" else None)
        entries = {value: deciding.get(value, "") for key, value in stage.reports if key == "setting"}
        changed = {name for name in {*stage.before, *stage.after} if stage.before.get(name) != stage.after.get(name)}
        for name in changed | entries.keys():
            if not name.startswith("SLURM") or name == "SLURM_TASK_PROLOG":
                entry = (of_module if stage.by == "module" else entries).get(name, "")
                found[name] = Variable(stage.after.get(name), stage.by, entry)
    return found


def _entries_of(question: Question, image: AssumedImage | None) -> dict[str, str]:
    """Return by variable the entry by which a script sets or unsets it: the first that applies and does something."""
    site, found = question.site, dict[str, str]()
    for verdict in decide(site, situation_of(question, image)).settings:
        of_image = image is None and decided_by_image(site, verdict.entry)
        if verdict.applies and not of_image and not verdict.entry.leave:
            found.setdefault(str(verdict.entry.name), verdict.key)
    return found


def _not_set(question: Question, image: AssumedImage | None) -> dict[str, Variable]:
    """Return the variables of tasks that the ledger leaves alone here, with the entry that decides it."""
    site = question.site
    found: dict[str, Variable] = {}
    verdicts = decide(site, situation_of(question, image)).settings
    for name in dict.fromkeys(setting.name for setting in site.settings if setting.where == TASK):
        decided = next((verdict for verdict in verdicts if verdict.entry.name == name and verdict.applies), None)
        if decided is not None and decided.entry.computed:
            continue
        by_image = any(decided_by_image(site, setting) for setting in site.settings if setting.name == name)
        by = "wrapper" if by_image and question.image is not None else "prolog"
        is_open = decided is not None and decided.outcome == "may win" and decided_by_image(site, decided.entry)
        found[name] = Variable(None, by, "" if decided is None else decided.key, is_open)
    return found


def situation_of(question: Question, image: AssumedImage | None) -> Situation:
    """Return what is known of the step, and what the wrapper takes the image for."""
    site, manifest = question.site, json.loads(question.files[MANIFEST].text)
    stacks = {
        stack: parse_version(manifest["stacks"][stack][0]) for stack in site.host_stacks if stack in manifest["stacks"]
    }
    if image is not None and image.release is not None and site.gpu_stack is not None:
        stacks[site.gpu_stack] = parse_version(image.release)
    gpus = site.have_gpus(question.step.partition)
    return Situation(
        manifest["platform"],
        stacks,
        None if image is None else image.family,
        None if image is None else image.plugin,
        "one" if question.step.nodes == 1 else "several",
        bool(site.node_kinds[question.kind].gpus) if gpus is None else gpus,
        question.step.partition,
        question.kind,
        libfabric=question.holds.libfabric,
        sets=question.holds.sets,
        guessed=image is not None and image.known_from == "name",
    )


def _binds(question: Question, stages: Sequence[_Stage]) -> Iterator[StepBind]:
    """Yield the binds at the end, in their order, with who brought each."""
    variable = f"{question.site.runtime.prefix}_BINDPATH"
    # Of equals the first counts, so that a file system is called one.
    described = {bind.spec: (key, bind.why) for key, bind in reversed(question.site.host_paths.items())}
    for index, file_system in enumerate(question.site.file_systems):
        job_folder = file_system.job_folder or ""
        folder = JOB_VARIABLE.sub(lambda name: stages[-1].after.get(name[1] or name[2], ""), job_folder)
        described[folder] = f"file_systems[{index}].job_folder", file_system.why
    listed = [(stage.by, stage.after.get(variable, "").split(",")) for stage in stages]
    for spec in filter(None, listed[-1][1]):
        source, _, rest = spec.partition(":")
        by = next(by for by, specs in listed if spec in specs)
        yield StepBind(source, rest.partition(":")[0] or source, by, *described.get(spec, ("", "")))


def _cpus(task: int, stage: _Stage) -> Cpus:
    reported = stage.report("cpus")
    if reported is None:
        return Cpus(task, None, None, stage.report("no-cpus") or "")
    cpus, _, gpu = reported.partition(" ")
    return Cpus(task, mask_of(parse_number_list(cpus)), int(gpu) if gpu else None, "")
