"""What a rank finds in its environment: the rendered scripts are run, in a step and on a node that are made up.

The scripts are the very texts that `render` writes. Only the lines that ask or touch a node are replaced (`_PROLOG` and
`_WRAPPER` below), since this machine is none: the made-up node has every path, and all of its CPUs are granted.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from lumisite.errors import ToolError
from lumisite.release.helper_settings import NOTHING_APPLIES
from lumisite.release.manifest import MANIFEST, RenderedFile
from lumisite.release.modules import ModulePlan
from lumisite.site.model import Partition, Site

#: How long a script may take, in seconds; it takes milliseconds.
LIMIT_S = 30
_PROLOG = {
    'there() { [ -e "$1" ]; }': "there() { :; }",
    'in_root() { case $roots in */"$1"/*) ;; *) return 1 ;; esac; }': "in_root() { :; }",
    "own_cpuset() { read -r place </proc/self/cpuset; }": "own_cpuset() { place=; }",
    "own_private() { make_private && tidy; }": "own_private() { {private}; }",
    'run_taskset() { LD_PRELOAD= LD_LIBRARY_PATH= LD_AUDIT= taskset "$@" >/dev/null; }': "run_taskset() { :; }",
}
_WRAPPER = {'ls_there() { [ -e "$1" ]; }': "ls_there() { :; }"}
#: Stands for the real runtime: writes down the environment that it is given.
_RUNTIME = "#!/bin/sh\nexec env -0 >'{out}'\n"
_SAID = re.compile(r"(\w+)(?:=(.*)| is left alone:? ?| stays .*?| is taken away(?: again)?) ?\((.*)\)", re.DOTALL)
_NO_PLACE = " has no place for private directories, so caches go where programs put them:"
_BOUND = re.compile(r"bind (\S+) \((.*)\)")


#: Who acts, and the environment before and after it.
_Stage: TypeAlias = tuple[str, Mapping[str, str], Mapping[str, str]]


@dataclass(frozen=True)
class Step:
    """The step that is made up: its partition, nodes, and tasks on each node."""

    partition: str
    nodes: int
    tasks_per_node: int


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
class Environment:
    """All that a rank finds; `said` is what the scripts say of themselves."""

    variables: Mapping[str, Found]
    binds: tuple[FoundBind, ...]
    cpus: tuple[FoundCpus, ...]
    said: tuple[str, ...]


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
    with tempfile.TemporaryDirectory(prefix="lumisite-env-") as name:
        folder = Path(name)
        loaded = _after_modules(asked)
        helper = not asked.modules or "SLURM_TASK_PROLOG" in loaded
        prolog = _prolog_command(asked, folder) if helper else []
        tasks = [
            _run_prolog(prolog, {**loaded, **_slurm(asked, task)})
            for task in range(asked.step.tasks_per_node if helper else 0)
        ]
        after, said = (tasks[0][0], list(tasks[0][1])) if tasks else ({**loaded, **_slurm(asked, 0)}, [])
        final, more = after, list[str]()
        if asked.image is not None and helper:
            final, more = _run_wrapper(asked, folder, after)
    stages = (("module", _slurm(asked, 0), loaded), ("prolog", loaded, after), ("wrapper", after, final))
    return Environment(
        variables=dict(sorted(_variables(asked, stages, said, more).items())),
        binds=tuple(_binds(asked, stages, said)),
        cpus=tuple(_cpus(task, lines) for task, (_, lines) in enumerate(tasks)),
        said=(*said, *more),
    )


def _after_modules(asked: Question) -> dict[str, str]:
    """Give the environment after `module load`, as the modulefiles' own plans have it."""
    environment = {"PATH": "/usr/bin:/bin"}
    for plan in asked.modules:
        if plan.binds:
            before = environment.get(plan.bind_variable)
            environment[plan.bind_variable] = ",".join([*([before] if before else []), *plan.binds])
            environment[plan.marker] = ",".join(plan.binds)
        if plan.helper:
            top = f"{plan.root}/releases/{plan.release}"
            environment |= {str(one.name): str(one.value) for one in plan.settings}
            environment |= {"SLURM_TASK_PROLOG": f"{top}/spank/task_prolog", "LUMISITE_STACK": plan.stack}
            environment |= {"LUMISITE_RELEASE": top, "PATH": f"{top}/spank/bin:{environment['PATH']}"}
    return environment


def _slurm(asked: Question, task: int) -> dict[str, str]:
    """Give what Slurm sets for a task of the first node."""
    step = asked.step
    partition = asked.site.partitions[step.partition]
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
        "SLURM_CPUS_ON_NODE": str(_cpus_of_node(asked.site, partition)),
        "SLURMD_NODENAME": "node1",
    }


def _cpus_of_node(site: Site, partition: Partition) -> int:
    groups = site.node_kinds[partition.node_kind].l3
    return sum(len(one.cores) + len(one.siblings or ()) for one in groups)


def _prolog_command(asked: Question, folder: Path) -> list[str]:
    """Write the prolog for the made-up node, and give what runs it."""
    changes = {line: text.replace("{private}", _private(asked.site)) for line, text in _PROLOG.items()}
    script = _put(folder / "task_prolog", _replaced(asked, "spank/task_prolog", changes))
    # Sourced under the name that it has where it is deployed, since it puts its own folder on PATH.
    own = f"{asked.site.root}/releases/{release_of(asked.files)}/spank/task_prolog"
    return ["-c", '. "$1"', own, str(script)]


def _run_prolog(command: Sequence[str], before: Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Give the environment after the prolog, as Slurm makes it of the prolog's lines, and what it prints."""
    environment = dict(before)
    done = _run(command, {**before, "LUMISITE_VERBOSE": "1"})
    said = []
    for line in done.split("\n"):
        verb, _, rest = line.partition(" ")
        name, _, value = rest.partition("=")
        if verb == "export":
            environment[name] = value
        elif verb == "unset":
            environment.pop(name, None)
        elif verb == "print":
            said.append(rest.removeprefix("lumisite: "))
    return environment, tuple(said)


def _private(site: Site) -> str:
    """Give the command that stands for making the private directory; it fails where the prolog has no place for one."""
    local = next((system.path for system in site.file_systems if system.kind == "node-local"), "")
    # As in choose_private of the prolog.
    if not re.fullmatch("[A-Za-z0-9/._-]+", local):
        return "return 1"
    return f"user_id; private={local.rstrip('/')}/lumisite-$answer"


def _run_wrapper(asked: Question, folder: Path, before: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Give the environment that the real runtime gets, and what the wrapper says."""
    name = asked.site.runtime.name
    out, runtime = folder / "environment", folder / "runtime"
    _put(runtime, _RUNTIME.format(out=out))
    wrapper = f"spank/bin/{name}"
    real = next(line for line in asked.files[wrapper].text.split("\n") if line.startswith("ls_real="))
    changes = {**_WRAPPER, f"\n{real}\n": f"\nls_real='{runtime}'\n"}
    script = _put(folder / name, _replaced(asked, wrapper, changes))
    image = str(asked.image)
    path = image if "://" in image else os.path.abspath(image)  # noqa: PTH100 - as a shell's PWD has it
    command = [str(script), "exec", path, "true"]
    said = _run(command, {**before, "LUMISITE_VERBOSE": "1", "PWD": str(folder)})
    pairs = (pair.partition("=") for pair in os.fsdecode(out.read_bytes()).split("\0") if pair)
    after = {name: value for name, _, value in pairs}
    own = {"LUMISITE_WRAPPER", "LUMISITE_VERBOSE", "PWD", "OLDPWD", "SHLVL", "_"} - set(before)
    lines = [line.removeprefix("lumisite: ") for line in said.split("\n") if line.startswith("lumisite: ")]
    return {name: value for name, value in after.items() if name not in own}, lines


def _replaced(asked: Question, path: str, changes: Mapping[str, str]) -> str:
    text = asked.files[path].text
    for line, other in changes.items():
        if text.count(line) != 1:
            raise ToolError(f"{path} has not one line {line.strip()!r}: its template is not the one of this lumisite")
        text = text.replace(line, other)
    return text


def _put(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
    path.chmod(0o700)
    return path


def _run(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """Run a script with the shell that it names, and give what it says on both streams."""
    shell = shutil.which("sh") or "/bin/sh"
    try:
        done = subprocess.run(
            [shell, *command],
            env=dict(environment),
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


def _variables(asked: Question, stages: Sequence[_Stage], *said: Sequence[str]) -> dict[str, Found]:
    """Give each variable that some stage changed, and each of the ledger that is left alone."""
    reasons = {"prolog": _reasons(said[0]), "wrapper": _reasons(said[1])}
    found = {
        name: Found(None, by, *_entry(asked, name, why)) for by, told in reasons.items() for name, why in told.items()
    }
    for by, before, after in stages:
        for name in {*before, *after}:
            if before.get(name) == after.get(name) or (name.startswith("SLURM") and name != "SLURM_TASK_PROLOG"):
                continue
            why = reasons.get(by, {}).get(name)
            entry, why = _own_reason(asked, name, by) if why is None else _entry(asked, name, why)
            found[name] = Found(after.get(name), by, entry, why)
    return found


def _reasons(said: Sequence[str]) -> dict[str, str]:
    """Give what the scripts say of each variable."""
    reasons = {match[1]: match[3] for match in map(_SAID.fullmatch, said) if match}
    for line in said:
        what, placeless, words = line.partition(_NO_PLACE)
        reasons.update(dict.fromkeys(words.split()[::2], f"{what}{placeless[:-1]}") if placeless else {})
    return reasons


def _entry(asked: Question, name: str, why: str) -> tuple[str, str]:
    """Find the ledger's entry by its reason, which the scripts carry; what a script says beyond that stays."""
    own = [(index, setting) for index, setting in enumerate(asked.site.settings) if setting.name == name]
    for index, setting in own:
        if setting.why in why:
            return f"settings[{index}]", why
    directories = [(index, setting) for index, setting in own if setting.directory]
    if len(directories) == 1 and why != NOTHING_APPLIES:
        index, setting = directories[0]
        return f"settings[{index}]", f"{setting.why} ({why})"
    return "", why


def _own_reason(asked: Question, name: str, by: str) -> tuple[str, str]:
    for index, setting in enumerate(asked.site.settings):
        if setting.name == name and by == "module":
            return f"settings[{index}]", setting.why
    reasons = {
        "PATH": "the wrapper around the container runtime comes first",
        "SLURM_TASK_PROLOG": "switches the srun helper on",
        f"{asked.site.runtime.prefix}_BINDPATH": "the list of binds",
        f"{asked.site.runtime.prefix}ENV_PREPEND_PATH": "what activates the image's Python",
        f"{asked.site.runtime.prefix}ENV_LD_LIBRARY_PATH": "where the image's loader looks for host libraries",
    }
    return "", reasons.get(name, "what the helper remembers" if name.startswith("LUMISITE_") else "")


def _binds(asked: Question, stages: Sequence[_Stage], said: Sequence[str]) -> Iterator[FoundBind]:
    """Give the binds at the end, in their order, with who brought each."""
    variable = f"{asked.site.runtime.prefix}_BINDPATH"
    reasons = {match[1]: match[2] for match in map(_BOUND.fullmatch, said) if match}
    described = _described_binds(asked.site)
    listed = [(by, set(after.get(variable, "").split(","))) for by, _, after in stages]
    for spec in filter(None, stages[-1][2].get(variable, "").split(",")):
        source, _, rest = spec.partition(":")
        by = next(by for by, specs in listed if spec in specs)
        entry, why = described.get(spec, ("", reasons.get(spec, "")))
        yield FoundBind(source, rest.partition(":")[0] or source, by, entry, why)


def _described_binds(site: Site) -> dict[str, tuple[str, str]]:
    """Give the key and the reason of each bind that the site describes."""
    # The first of equals counts, so that a file system is called one.
    return {one.spec: (key, one.why) for key, one in reversed(site.host_paths.items())}


def _cpus(task: int, said: Sequence[str]) -> FoundCpus:
    for line in said:
        if line.startswith("CPU mask "):
            word, _, why = line.removeprefix("CPU mask ").partition(" ")
            is_mask = word.startswith("0x")
            return FoundCpus(task, word if is_mask else None, None if is_mask else word, why.strip("()"))
        if line.startswith("no CPU mask: "):
            return FoundCpus(task, None, None, line.removeprefix("no CPU mask: "))
    return FoundCpus(task, None, None, "")
