"""What the rendered scripts do for a rank: they are run in a made-up step, on a made-up node that has everything.

The scripts are the very texts that `render` writes, but for functions that look at the node: with these put before the
last line, every path is there, the node has the GPUs of its kind, and nothing is touched.
"""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lumisite.images.lock import LoadedLock
from lumisite.machine.masks import mask_of
from lumisite.render.manifest import MANIFEST, RenderedFile
from lumisite.render.modules import ModulePlan, Rendering, plan_modules
from lumisite.render.rank_environment import THIS_NODE, Cpus, Environment, FirstRank, Step
from lumisite.render.render import render_tree
from lumisite.render.templates import load_templates
from lumisite.render.wrapper_image import WrapperImage, wrapper_image
from lumisite.site.cpu_list import parse_number_list
from lumisite.site.ledger import COMPUTED
from lumisite.site.load import LoadedSite
from lumisite.site.model import Site
from lumisite.site.plans import LoadedPlan
from lumisite.site.selection import Selection
from tests.support.prologs import shell_command

_PROLOG = """\
exists() { :; }
is_private() { :; }
check_devices() { :; }
know_granted_cpus() { granted_cpus=''; }
ls_read_policy() { ls_mode=on; }
make_private() { private=${places%% *}; }
bind_task() { :; }
"""
#: Instead of the real runtime, the environment is written down that it is given.
_WRAPPER = """\
ls_is_there() {{ :; }}
ls_read_policy() {{ ls_mode=on; }}
ls_find_runtime() {{ ls_site_runtime_of "${{0##*/}}"; }}
ls_become() {{ exec env -0 >'{out}'; }}
"""


@dataclass(frozen=True, eq=False)
class Tree:
    """A rendered tree, and the plans of its modules."""

    site: Site
    selection: Selection
    files: Mapping[str, RenderedFile]
    plans: Sequence[ModulePlan]
    release: str

    def loaded(self, name: str) -> tuple[ModulePlan, ...]:
        """Return the modules that loading one of them loads, in the order of loading; none for an empty name."""
        found: dict[str, ModulePlan] = {}

        def load(full: str) -> None:
            plan = next(plan for plan in self.plans if full in (plan.full_name, plan.name))
            for other in plan.summary.loads:
                load(other)
            found.setdefault(plan.full_name, plan)

        if name:
            load(name)
        return tuple(found.values())


def tree_of(
    loaded: LoadedSite, selection: Selection, plans: Sequence[LoadedPlan] = (), lock: LoadedLock | None = None
) -> Tree:
    templates = load_templates()
    files = render_tree(loaded, selection, templates, plans, lock)
    release = str(json.loads(files[MANIFEST].text)["release"])
    modules = plan_modules(Rendering(loaded, selection, release, templates, plans, lock))
    return Tree(loaded.site, selection, files, modules, release)


@dataclass(frozen=True)
class Stage:
    """Who acted, the environment after it, and what it said of it under LUMISITE_VERBOSE."""

    by: str
    after: Mapping[str, str]
    notes: Sequence[str] = ()

    def find(self, pattern: str) -> re.Match[str] | None:
        """Return the first of the notes that a pattern fits as a whole."""
        return next(filter(None, (re.fullmatch(pattern, note) for note in self.notes)), None)


def after_modules(tree: Tree, modules: Sequence[ModulePlan]) -> Stage:
    """Return the environment after `module load`, as the modulefiles' own plans have it."""
    environment = {"PATH": "/usr/bin:/bin"}
    for plan in modules:
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
    return Stage("module", environment)


def run_prolog(tree: Tree, folder: Path, step: Step, task: int, before: Stage, shell: str) -> Stage:
    """Run the prolog for a task of the first node; its lines make the environment, as Slurm reads them."""
    kind = tree.site.partitions[step.partition].node_kind
    script = _script(tree, folder, "task_prolog", "spank/task_prolog", _PROLOG)
    given = {**before.after, **_slurm(tree.site, step, kind, task)}
    environment = dict(given)
    # Sourced under its deployed name, since it puts its own folder on PATH.
    name = f"{tree.site.root}/releases/{tree.release}/spank/task_prolog"
    command = [*shell_command(shell, folder), "-c", '. "$1"', name, str(script)]
    lines = _run(command, given).split("\n")
    for line in lines:
        verb, _, rest = line.partition(" ")
        variable, _, value = rest.partition("=")
        if verb == "export":
            environment[variable] = value
        elif verb == "unset":
            environment.pop(variable, None)
    return Stage("prolog", environment, _notes(line.removeprefix("print ") for line in lines))


def run_wrapper(tree: Tree, folder: Path, image: str, before: Stage, shell: str) -> Stage:
    """Run the wrapper, and take the environment that the real runtime gets."""
    out = folder / "environment"
    script = _script(tree, folder, tree.site.command, "spank/bin/singularity", _WRAPPER.format(out=out))
    path = image if "://" in image else os.path.abspath(image)  # noqa: PTH100 - as a shell's PWD has it
    command = [*shell_command(shell, folder), str(script), "exec", path, "true"]
    said = _run(command, {**before.after, "PWD": str(folder)})
    pairs = (pair.partition("=") for pair in os.fsdecode(out.read_bytes()).split("\0") if pair)
    extra = {"LUMISITE_VERBOSE", "PWD", "OLDPWD", "SHLVL", "_"} - set(before.after)
    return Stage("wrapper", {name: value for name, _, value in pairs if name not in extra}, _notes(said.split("\n")))


def _slurm(site: Site, step: Step, kind: str, task: int) -> dict[str, str]:
    """Return what Slurm sets for a task of the first node."""
    groups = site.node_kinds[kind].l3
    return {
        "SLURM_JOB_ID": "1",
        "SLURM_JOB_UID": "1000",
        "SLURM_STEP_ID": "0",
        **dict.fromkeys(("SLURM_PROCID", "SLURM_LOCALID"), str(task)),
        "SLURM_TASK_PID": "1",
        **dict.fromkeys(("SLURM_NNODES", "SLURM_STEP_NUM_NODES"), str(step.nodes)),
        "SLURM_STEP_NODELIST": f"node[1-{step.nodes}]" if step.nodes > 1 else "node1",
        "SLURM_GTIDS": ",".join(map(str, range(step.tasks_per_node))),
        "SLURM_JOB_PARTITION": step.partition,
        "SLURM_CPUS_ON_NODE": str(sum(len(group.cores) + len(group.siblings or ()) for group in groups)),
        "SLURMD_NODENAME": "node1",
    }


def _script(tree: Tree, folder: Path, name: str, path: str, functions: str) -> Path:
    """Write a script with functions before the line that starts it; the wrapper goes by the name it is called by."""
    script = folder / name
    lines = tree.files[path].text.rstrip("\n").split("\n")
    script.write_text("\n".join([*lines[:-1], functions + lines[-1], ""]))
    return script


def _run(command: Sequence[str], environment: Mapping[str, str]) -> str:
    done = subprocess.run(
        command,
        env={**environment, "LUMISITE_VERBOSE": "all"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=30,
        check=True,
    )
    return os.fsdecode(done.stdout)


def _notes(lines: Iterable[str]) -> list[str]:
    """Parse `lumisite: NODE rank N: NOTE`."""
    found = (re.fullmatch(r"lumisite: \S+ rank \d+: (.*)", line) for line in lines)
    return [match[1] for match in found if match]


@functools.cache
def _prolog(tree: Tree, module: str, step: Step, task: int, shell: str) -> Stage:
    with tempfile.TemporaryDirectory() as folder:
        return run_prolog(tree, Path(folder), step, task, after_modules(tree, tree.loaded(module)), shell)


def stages_of(tree: Tree, module: str, step: Step, image: str | None, shell: str) -> list[Stage]:
    """Run the scripts for the first rank, with a module and what it loads, or with none."""
    loaded = tree.loaded(module)
    stages = [after_modules(tree, loaded)]
    if not loaded or "SLURM_TASK_PROLOG" in stages[0].after:
        stages.append(_prolog(tree, module, step, 0, shell))
        if image is not None:
            with tempfile.TemporaryDirectory() as folder:
                stages.append(run_wrapper(tree, Path(folder), image, stages[1], shell))
    return stages


def compared(
    tree: Tree,
    module: str,
    step: Step,
    image: str | None,
    plans: Sequence[LoadedPlan] = (),
    lock: LoadedLock | None = None,
    *,
    shell: str = "dash",
) -> Environment:
    """Return what is decided for the first rank, having asserted that the scripts do it."""
    loaded = tree.loaded(module)
    combination = next(one for one in tree.selection.combinations if not loaded or one.name == loaded[-1].stack)
    known = None if image is None else wrapper_image(tree.site, combination.platform, image, plans, lock)
    rank = FirstRank(tree.site, combination, [plan.name for plan in loaded], step, known, 1000)
    decided, stages = rank.environment(), stages_of(tree, module, step, image, shell)
    where = f"{tree.site.name} {module or 'no module'}, {step}, {image}"
    ours, theirs = _decided_variables(tree, decided), _variables(tree.site, stages)
    differing = {name: (ours.get(name), theirs.get(name)) for name in sorted({*ours, *theirs})}
    assert not {name: pair for name, pair in differing.items() if pair[0] != pair[1]}, where
    assert _decided_binds(tree, decided) == _binds(tree.site, stages), where
    if len(stages) > 1:
        assert list(decided.cpus) == [_cpus(tree, module, step, task, shell) for task in range(step.tasks_per_node)], (
            where
        )
    if known is not None and (said := stages[-1].find(r".*: family (\S+?)(?:, .* ([0-9.]+))?")):
        assert _image_words(tree.site, known) == said.groups(), where
    return decided


def _in_the_step(tree: Tree, text: str) -> str:
    """Return a decided value with what the made-up step has for what is known on the node alone."""
    known = {f"<{COMPUTED['master-address']}>": "node1", f"<{COMPUTED['master-port']}>": "20101", THIS_NODE: "node1"}
    known[f"{tree.site.root}/current/"] = f"{tree.site.root}/releases/{tree.release}/"
    for name, value in known.items():
        text = text.replace(name, value)
    return text


def _decided_variables(tree: Tree, decided: Environment) -> dict[str, tuple[str, str]]:
    return {
        name: (_in_the_step(tree, one.value), one.by)
        for name, one in decided.variables.items()
        if one.value is not None
    }


def _variables(site: Site, stages: Sequence[Stage]) -> dict[str, tuple[str, str]]:
    """Return what is set at the end, by whom last; without bookkeeping, and what the made-up job has."""
    by: dict[str, str] = {"PATH": ""}
    before: Mapping[str, str] = {"PATH": "/usr/bin:/bin"}
    for stage in stages:
        set_by_it = (re.fullmatch(r"(\w+)(?:=.*| unset)(?<! ran)", note) for note in stage.notes)
        names = {match[1] for match in set_by_it if match}
        names |= {name for name, value in stage.after.items() if before.get(name) != value}
        by |= dict.fromkeys(names, stage.by)
        before = stage.after
    ignored = set() if by["PATH"] else {"PATH"}
    return {
        name: (value, by[name])
        for name, value in stages[-1].after.items()
        if name not in ignored and (not name.startswith(("SLURM", "LUMISITE_")) or name == "SLURM_TASK_PROLOG")
    }


def _decided_binds(tree: Tree, decided: Environment) -> list[tuple[str, str, str]]:
    return [(_in_the_step(tree, one.source), _in_the_step(tree, one.target), one.by) for one in decided.binds]


def _binds(site: Site, stages: Sequence[Stage]) -> list[tuple[str, str, str]]:
    listed = [(one.by, one.after.get(f"{site.runtime.prefix}_BINDPATH", "").split(",")) for one in stages]
    found = []
    for spec in filter(None, listed[-1][1]):
        source, _, rest = spec.partition(":")
        by = next(by for by, specs in listed if spec in specs)
        found.append((source, rest.partition(":")[0] or source, by))
    return found


def _cpus(tree: Tree, module: str, step: Step, task: int, shell: str) -> Cpus:
    stage = _prolog(tree, module, step, task, shell)
    if why := stage.find("no CPU binding: (.*)"):
        return Cpus(task, None, why[1])
    cpus = stage.find(r"CPUs (\S+) .*")
    assert cpus is not None
    return Cpus(task, mask_of(parse_number_list(cpus[1])), "")


def _image_words(site: Site, known: WrapperImage) -> tuple[str, str | None]:
    holds = known.holds
    release = None if site.gpu_stack is None else holds.stacks.get(site.gpu_stack)
    number = [] if release is None else [int(part) for part in (*release.order.release, 0, 0)[:3]]
    return holds.family or "unknown", ".".join(map(str, number)).removesuffix(".0") or None
