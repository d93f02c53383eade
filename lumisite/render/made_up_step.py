"""What a rank finds in its environment: the rendered scripts are run, in a step and on a node that are made up.

The scripts are the very texts that `render` writes. Only the functions that ask or touch a node, or tell what was
decided, are defined anew at their end (`PROLOG` and `WRAPPER` below), since this machine is none: the made-up node has
every path, and all of its CPUs are granted.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from lumisite.errors import ToolError
from lumisite.render.helper import START
from lumisite.render.helper_settings import NOTHING_APPLIES
from lumisite.render.manifest import MANIFEST, RenderedFile
from lumisite.render.modules import ModulePlan
from lumisite.site.entries import Setting
from lumisite.site.model import Site
from lumisite.site.read import read_file
from lumisite.site.scalars import JOB_VARIABLE

#: How long a script may take, in seconds; it takes milliseconds.
LIMIT_S = 30
#: The kernel gives a program no larger environment, execve(2).
_MOST_BYTES = 1 << 23
#: Between the parts of a report: what it is about, its name, why.
_PARTS = "\x1f"
#: The node is of the kind that is meant, whatever this machine is.
_NODE = """
ls_know_node() {{ :; }}
ls_is_kind() {{ case $1 in {kind}) ;; *) return 1 ;; esac }}
"""
PROLOG = """
there() { :; }
in_root() { :; }
own_cpuset() { place=; }
run_taskset() { :; }
report() { out="${out}print $1\x1f$2\x1f$3$ls_nl"; }
own_folder() { :; }
make_private() {
    case $1 in *[!A-Za-z0-9/._+@=-]*) return 1 ;; esac
    user_id; private=$1-$answer
}
tidy() { :; }
"""
WRAPPER = """
ls_there() { :; }
ls_report() { printf '%s\\n' "print $1\x1f$2\x1f$3" >&2; }
"""
#: What the folder of the made-up job is called, where the site's variable says more than the job's number.
MADE_UP_FOLDER = "job1"
#: Stands for the real runtime: writes down the environment that it is given.
_RUNTIME = "#!/bin/sh\nexec env -0 >'{out}'\n"


#: What was decided: setting or cpus, the name or the mask, and why.
_Report: TypeAlias = tuple[str, str, str]
#: Who acts, the environment before and after it, and what it said.
_Stage: TypeAlias = tuple[str, Mapping[str, str], Mapping[str, str], Sequence[_Report]]


@dataclass(frozen=True)
class Step:
    """The step that is made up: its partition, nodes, tasks on each, and of which of the partition's kinds they are."""

    partition: str
    nodes: int
    tasks_per_node: int
    kind: str | None = None


@dataclass(frozen=True)
class Found:
    """A variable as a rank finds it; `value` is `None` where the ledger knows it and leaves it alone.

    `by` is module, prolog or wrapper; `entry` is the key of the site description, and empty for what has none.
    """

    value: str | None
    by: str
    entry: str
    why: str


@dataclass(frozen=True)
class FoundBind:
    """A bind of the container."""

    source: str
    target: str
    by: str
    entry: str
    why: str


@dataclass(frozen=True)
class FoundCpus:
    """The CPUs of one task of the first node: `mask` or a list in `cpus`, else neither, and why."""

    task: int
    mask: str | None
    cpus: str | None
    why: str


@dataclass(frozen=True)
class FoundImage:
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

    variables: Mapping[str, Found]
    binds: tuple[FoundBind, ...]
    cpus: tuple[FoundCpus, ...]
    image: FoundImage | None = None


@dataclass(frozen=True)
class Question:
    """What is asked: the rendered tree, the modules that are loaded, the step, and the image that is started.

    Without modules the helper is on all the same, as the site's cli_filter attaches it.
    """

    site: Site
    files: Mapping[str, RenderedFile]
    modules: Sequence[ModulePlan]
    step: Step
    image: str | None


def release_of(files: Mapping[str, RenderedFile]) -> str:
    """Give the id of a rendered tree."""
    return str(json.loads(files[MANIFEST].text)["release"])


def environment_of(asked: Question) -> Environment:
    """Run the scripts for the first rank, and the prolog for each task of its node. Raises `ToolError`."""
    loaded = _after_modules(asked)
    stages: list[_Stage] = [("module", {}, loaded, ())]
    tasks: list[_Stage] = []
    if not asked.modules or "SLURM_TASK_PROLOG" in loaded:
        with tempfile.TemporaryDirectory(prefix="lumisite-env-") as folder:
            tasks += _run_prologs(asked, Path(folder), loaded)
            stages.append(tasks[0])
            if asked.image is not None:
                stages.append(_run_wrapper(asked, Path(folder), tasks[0][2]))
    return Environment(
        variables=dict(sorted(_variables(asked, stages).items())),
        binds=tuple(_binds(asked, stages)),
        cpus=tuple(_cpus(task, said) for task, (*_, said) in enumerate(tasks)),
        image=_image(stages[-1]),
    )


def _image(stage: _Stage) -> FoundImage | None:
    *_, reports = stage
    for kind, family, facts in reports:
        if kind == "image":
            known_from, release, plugin = facts.split("/")
            return FoundImage(family or None, release or None, {"yes": True, "no": False}.get(plugin), known_from)
    return None


def _after_modules(asked: Question) -> dict[str, str]:
    """Give the environment after `module load`, as the modulefiles' own plans have it."""
    environment = {"PATH": "/usr/bin:/bin"}
    for plan in asked.modules:
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
            }
            environment |= {"LUMISITE_RELEASE": top, "PATH": f"{top}/spank/bin:{environment['PATH']}"}
    return environment


def _kind(asked: Question) -> str:
    """Give the node kind that is meant: without another word, the first of the partition's."""
    return asked.step.kind or next(iter(asked.site.kinds_of(asked.step.partition)))


def _slurm(asked: Question, task: int) -> dict[str, str]:
    """Give what Slurm sets for a task of the first node."""
    step = asked.step
    groups = asked.site.node_kinds[_kind(asked)].l3
    names = f"node[1-{step.nodes}]" if step.nodes > 1 else "node1"
    return {
        "SLURM_JOB_ID": "1",
        "SLURM_STEP_ID": "0",
        "SLURM_PROCID": str(task),
        "SLURM_LOCALID": str(task),
        "SLURM_NODEID": "0",
        "SLURM_TASK_PID": "1",
        "SLURM_NNODES": str(step.nodes),
        "SLURM_STEP_NUM_NODES": str(step.nodes),
        "SLURM_STEP_NUM_TASKS": str(step.nodes * step.tasks_per_node),
        "SLURM_STEP_NODELIST": names,
        "SLURM_STEP_TASKS_PER_NODE": f"{step.tasks_per_node}" + (f"(x{step.nodes})" if step.nodes > 1 else ""),
        "SLURM_JOB_PARTITION": step.partition,
        "SLURM_CPUS_ON_NODE": str(sum(len(one.cores) + len(one.siblings or ()) for one in groups)),
        "SLURMD_NODENAME": "node1",
    }


def _job_folders(site: Site) -> dict[str, str]:
    """Give the variables that name the folder of a job values that fit: below the file system that it is in."""
    found: dict[str, str] = {}
    for one in site.private_places:
        for variable in JOB_VARIABLE.finditer(one.job_folder or ""):
            value = MADE_UP_FOLDER if variable.start() else f"{one.path.rstrip('/')}/{MADE_UP_FOLDER}"
            found.setdefault(variable[1] or variable[2], value)
    return found


def _run_prologs(asked: Question, folder: Path, loaded: Mapping[str, str]) -> Iterator[_Stage]:
    """Run the prolog for each task of the first node; its lines make the environment, as Slurm reads them."""
    script = _with_own(asked, folder, "spank/task_prolog", PROLOG)
    # Sourced under the name that it has where it is deployed, since it puts its own folder on PATH.
    own = f"{asked.site.root}/releases/{release_of(asked.files)}/spank/task_prolog"
    for task in range(asked.step.tasks_per_node):
        before = {**loaded, **_job_folders(asked.site), **_slurm(asked, task)}
        environment = dict(before)
        said = _run(["-c", '. "$1"', own, str(script)], before)
        for line in said.split("\n"):
            verb, _, rest = line.partition(" ")
            name, _, value = rest.partition("=")
            if verb == "export":
                environment[name] = value
            elif verb == "unset":
                environment.pop(name, None)
        yield "prolog", loaded, environment, _reports(said)


def _run_wrapper(asked: Question, folder: Path, before: Mapping[str, str]) -> _Stage:
    """Run the wrapper, and take the environment that the real runtime gets."""
    out, runtime = folder / "environment", folder / "runtime"
    runtime.write_text(_RUNTIME.format(out=out))
    runtime.chmod(0o700)
    own = f"{WRAPPER}ls_site_runtime={shlex.quote(str(runtime))}\n"
    script = _with_own(asked, folder, f"spank/bin/{asked.site.command}", own)
    image = str(asked.image)
    path = image if "://" in image else os.path.abspath(image)  # noqa: PTH100 - as a shell's PWD has it
    said = _run([str(script), "exec", path, "true"], {**before, "PWD": str(folder)})
    pairs = (pair.partition("=") for pair in os.fsdecode(read_file(out, _MOST_BYTES)).split("\0") if pair)
    extra = {"LUMISITE_WRAPPER", "LUMISITE_VERBOSE", "PWD", "OLDPWD", "SHLVL", "_"} - set(before)
    after = {name: value for name, _, value in pairs if name not in extra}
    return "wrapper", before, after, _reports(said)


def _reports(said: str) -> list[_Report]:
    lines = (line.removeprefix("print ").split(_PARTS) for line in said.split("\n") if _PARTS in line)
    return [(kind, name, why) for kind, name, why in lines]


def _with_own(asked: Question, folder: Path, path: str, own: str) -> Path:
    """Write a script with functions of our own behind those that they stand for, before its last line starts it."""
    text, own = asked.files[path].text, own + _NODE.format(kind=shlex.quote(_kind(asked)))
    for name in (START, *re.findall(r"^\w+\(\) \{", own, re.MULTILINE)):
        if f"\n{text}".count(f"\n{name}") != 1:
            raise ToolError(f"{path} has not one line {name.strip()!r}: its script is not the one of this lumisite")
    script = folder / Path(path).name
    script.write_text(text.removesuffix(START) + own + START, encoding="utf-8", errors="surrogateescape")
    return script


def _run(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """Run a script with the shell that it names, and give what it says on both streams."""
    shell = shutil.which("sh") or "/bin/sh"
    try:
        done = subprocess.run(
            [shell, *command],
            env={**environment, "LUMISITE_VERBOSE": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ToolError(f"{command[0]} was not done after {LIMIT_S} s") from None
    except OSError as error:
        raise ToolError(f"cannot run {shell}: {error.strerror}") from None
    text = os.fsdecode(done.stdout)
    if done.returncode:
        raise ToolError(f"{Path(command[0]).name} ended with {done.returncode}: {text[-500:]}")
    return text


def _variables(asked: Question, stages: Sequence[_Stage]) -> dict[str, Found]:
    """Give each variable that some stage changed, and each of the ledger that is left alone."""
    found: dict[str, Found] = {}
    reasons: dict[str, dict[str, str]] = {}
    for by, _, _, said in stages:
        reasons[by] = {name: why for kind, name, why in said if kind == "setting"}
        found |= {name: Found(None, by, *_entry(asked, name, why)) for name, why in reasons[by].items()}
    for by, before, after, _ in stages:
        for name in {*before, *after}:
            if before.get(name) == after.get(name) or (name.startswith("SLURM") and name != "SLURM_TASK_PROLOG"):
                continue
            told = reasons[by].get(name)
            entry, why = _own_reason(asked, name, by) if told is None else _entry(asked, name, told)
            found[name] = Found(after.get(name), by, entry, why)
    return found


def _entry(asked: Question, name: str, why: str) -> tuple[str, str]:
    """Find the ledger's entry by its reason, which the scripts carry; what a script says beyond that stays."""
    own = _entries(asked, name)
    directories = [(key, setting) for key, setting in own if setting.directory]
    for key, setting in own:
        if setting.why in why:
            return key, why
    if len(directories) == 1 and why != NOTHING_APPLIES:
        key, setting = directories[0]
        return key, f"{setting.why} ({why})"
    return "", why


def _entries(asked: Question, name: str) -> list[tuple[str, Setting]]:
    return [(f"settings[{index}]", one) for index, one in enumerate(asked.site.settings) if one.name == name]


def _own_reason(asked: Question, name: str, by: str) -> tuple[str, str]:
    for key, setting in _entries(asked, name) if by == "module" else ():
        return key, setting.why
    reasons = {
        "PATH": "the wrapper around the container runtime comes first",
        "SLURM_TASK_PROLOG": "switches the srun helper on",
        f"{asked.site.runtime.prefix}_BINDPATH": "the list of binds",
        f"{asked.site.runtime.prefix}ENV_PREPEND_PATH": "what activates the image's Python",
        f"{asked.site.runtime.prefix}ENV_LD_LIBRARY_PATH": "where the image's loader looks for host libraries",
    }
    return "", reasons.get(name, "what the helper remembers" if name.startswith("LUMISITE_") else "")


def _binds(asked: Question, stages: Sequence[_Stage]) -> Iterator[FoundBind]:
    """Give the binds at the end, in their order, with who brought each."""
    variable = f"{asked.site.runtime.prefix}_BINDPATH"
    # Of equals the first counts, so that a file system is called one.
    described = {one.spec: (key, one.why) for key, one in reversed(asked.site.host_paths.items())}
    for index, one in enumerate(asked.site.file_systems):
        folder = JOB_VARIABLE.sub(lambda name: stages[-1][2].get(name[1] or name[2], ""), one.job_folder or "")
        described[folder] = f"file_systems[{index}].job_folder", one.why
    listed = [(by, after.get(variable, "").split(",")) for by, _, after, _ in stages]
    for spec in filter(None, listed[-1][1]):
        source, _, rest = spec.partition(":")
        by = next(by for by, specs in listed if spec in specs)
        yield FoundBind(source, rest.partition(":")[0] or source, by, *described.get(spec, ("", "")))


def _cpus(task: int, said: Sequence[_Report]) -> FoundCpus:
    word, why = next(((word, why) for kind, word, why in said if kind == "cpus"), ("", ""))
    is_mask = word.startswith("0x")
    return FoundCpus(task, word if is_mask else None, None if is_mask else word or None, why)
