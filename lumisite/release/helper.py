"""What the srun helper says: every choice that can be made before the job is made here, the scripts only look it up.

A script finds its case by the key `stack/nodes/partition`, the wrapper by `stack/family/nodes/partition`: `nodes` is
`one`, `several` or `unknown`, and a partition that the site does not describe is `other`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from lumisite.node.masks import TABLE_TASKS, MaskError, Request, TaskMask, cpu_masks
from lumisite.node.topology import topology_of
from lumisite.release.image_plans import PlanCase, case_pattern, plan_cases
from lumisite.release.modules import bind_marker, stack_name
from lumisite.site.model import Bind, FileSystem, NodeKind, Setting, Site, When
from lumisite.site.plans import LoadedPlan
from lumisite.site.rules import TASK
from lumisite.site.selection import Selection
from lumisite.site.settings import Situation, default_family, judge_conditions, judge_settings

Action = Literal["set", "unset", "leave", "directory", "master-address", "master-port", "one-gpu"]

_FUNCTIONS: Mapping[Action, str] = {
    "set": "offer",
    "unset": "withdraw",
    "leave": "leave",
    "directory": "want_directory",
    "master-address": "master_address",
    "master-port": "master_port",
    "one-gpu": "one_gpu",
}

#: Said where the ledger knows a variable but no entry holds.
NOTHING_APPLIES = "no entry of the ledger applies here"


@dataclass(frozen=True)
class Rule:
    """One case of a variable: `patterns` are matched against the script's key, the first rule that fits counts."""

    patterns: tuple[str, ...]
    action: Action
    value: str
    why: str

    @property
    def always(self) -> bool:
        """Whether it fits every key."""
        return all(not pattern.strip("*/") for pattern in self.patterns)

    @property
    def function(self) -> str:
        """The function of the prolog that does it."""
        return _FUNCTIONS[self.action]


@dataclass(frozen=True)
class Variable:
    """A variable of the ledger with its rules, in order; the last one fits everything."""

    name: str
    rules: tuple[Rule, ...]

    @property
    def only_left(self) -> bool:
        """Whether the helper never touches it, and only says so."""
        return all(rule.action == "leave" for rule in self.rules)


@dataclass(frozen=True)
class BindStep:
    """A bind that a task may need; `marker` remembers who added it.

    `entry` is the path's name in `/`, for a shared file system that stands there: listing `/` tells that it exists
    without touching its servers. It is empty where the path itself is to be looked at.
    """

    patterns: tuple[str, ...]
    path: str
    target: str
    spec: str
    marker: str
    entry: str
    required: bool
    why: str

    @property
    def always(self) -> bool:
        """Whether it fits every key."""
        return all(not pattern.strip("*/") for pattern in self.patterns)


@dataclass(frozen=True)
class MaskRow:
    """Masks of a whole node for one number of tasks and threads, by `SLURM_LOCALID`; each holds `cpus` CPUs or more."""

    key: str
    cpus: int
    masks: tuple[str, ...]


@dataclass(frozen=True)
class NearCpus:
    """CPUs (kernel numbers) near one GPU; `key` is `kind/threads/gpu`."""

    key: str
    cpus: tuple[int, ...]


@dataclass(frozen=True)
class KindPlan:
    """A node kind as the prolog needs it; `usable` are the CPUs that tasks may have, by threads of each core (1, 2)."""

    name: str
    gpus: int
    usable: tuple[tuple[int, ...], tuple[int, ...]]
    rows: tuple[MaskRow, ...]
    near: tuple[NearCpus, ...]


@dataclass(frozen=True)
class FamilyPlan:
    """How the wrapper knows a family, and what its images need; `markers` are those of the modules that it needs."""

    name: str
    patterns: tuple[str, ...]
    markers: tuple[str, ...]
    prepend_path: str
    library_path: str


@dataclass(frozen=True)
class HelperPlan:
    """Everything that the templates of the helper need; the names are those that templates use."""

    release: str
    root: str
    runtime: str
    executable: str
    prefix: str
    stacks: tuple[str, ...]
    default_families: tuple[tuple[str, tuple[str, ...]], ...]
    variables: tuple[Variable, ...]
    family_variables: tuple[Variable, ...]
    binds: tuple[BindStep, ...]
    family_binds: tuple[BindStep, ...]
    markers: tuple[str, ...]
    private: str
    directories: tuple[str, ...]
    host_suffix: str
    kinds: tuple[KindPlan, ...]
    partitions: tuple[tuple[str, str, bool], ...]
    families: tuple[FamilyPlan, ...]
    images: tuple[PlanCase, ...]
    library_path: str

    @property
    def bind_variable(self) -> str:
        """The variable that the helper appends binds to, which leaves the other one to users."""
        return f"{self.prefix}_BINDPATH"

    @property
    def other_prefix(self) -> str:
        """The prefix of the other product, whose variables the runtime may read too."""
        return "APPTAINER" if self.prefix == "SINGULARITY" else "SINGULARITY"


@dataclass(frozen=True)
class _Case:
    """A rule without its key: what the compute node must find for it to hold."""

    nodes: str | None
    partitions: tuple[str, ...] | None
    action: Action
    value: str
    why: str


def plan_helper(site: Site, selection: Selection, release: str, plans: Iterable[LoadedPlan] = ()) -> HelperPlan:
    """Plan the scripts for a selection; its first releases are the stack of a job that names none."""
    stacks = _stacks(site, selection)
    families = {
        f"{stack}/{family}": Situation(told.platform, told.cpe, told.rocm, family)
        for stack, told in stacks.items()
        for family in site.families
        if family != told.family
    }
    cases = {key: _cases(site, situation) for key, situation in stacks.items()}
    family_cases = {key: _cases(site, situation) for key, situation in families.items()}
    defaults = [set(site.families[told.family or ""].modules) for told in stacks.values()]
    everywhere = {bind_marker(TASK), *map(bind_marker, set.intersection(*defaults))}
    binding = {system.where for system in site.file_systems} | {bind.where for bind in site.binds}
    local = next((system.path for system in site.file_systems if system.kind == "node-local"), "")
    libraries = site.platforms[selection.platform].libraries
    return HelperPlan(
        release=release,
        root=site.root,
        runtime=site.runtime.name,
        executable=site.runtime.executable,
        prefix=site.runtime.prefix,
        stacks=tuple(stacks),
        default_families=tuple(
            (family, tuple(stack for stack, told in stacks.items() if told.family == family))
            for family in dict.fromkeys(told.family or "" for told in stacks.values())
        ),
        variables=_variables(cases),
        family_variables=_variables(_differing(cases, family_cases)),
        binds=tuple(_bind_steps(site, stacks)),
        family_binds=tuple(step for step in _bind_steps(site, families) if step.marker not in everywhere),
        markers=tuple(bind_marker(place) for place in (*site.modules, TASK) if place in binding),
        private=f"{local.rstrip('/')}/lumisite" if local else "",
        directories=tuple(dict.fromkeys(s.directory for s in site.settings if s.where == TASK and s.directory)),
        host_suffix=site.network.host_suffix or "",
        kinds=tuple(_kind_plan(name, kind) for name, kind in site.node_kinds.items()),
        partitions=tuple((name, p.node_kind, p.whole_nodes) for name, p in site.partitions.items()),
        families=tuple(
            FamilyPlan(
                name,
                tuple(map(case_pattern, family.paths)),
                tuple(map(bind_marker, family.modules)),
                ":".join(family.prepend_path),
                ":".join(f"{libraries[library]}/lib64" for library in family.library_path),
            )
            for name, family in site.families.items()
        ),
        images=plan_cases(site, selection.platform, plans),
        library_path=":".join(
            dict.fromkeys(
                f"{libraries[library]}/lib64"
                for family in site.families.values()
                if family.activation == "tykky"
                for library in family.library_path
            )
        ),
    )


def _stacks(site: Site, selection: Selection) -> dict[str, Situation]:
    return {
        stack_name(cpe, rocm): Situation(selection.platform, cpe, rocm, default_family(site, rocm))
        for cpe in selection.cpe
        for rocm in selection.rocm
    }


def _cases(site: Site, situation: Situation) -> dict[str, tuple[_Case, ...]]:
    """Give the cases of each variable that the task sets, in ledger order; the last always holds."""
    names = list(dict.fromkeys(setting.name for setting in site.settings if setting.where == TASK))
    cases: dict[str, list[_Case]] = {name: [] for name in names}
    for verdict in judge_settings(site, situation, names):
        if verdict.outcome in ("wins", "may win"):
            when, setting = verdict.setting.when, verdict.setting
            cases[setting.name].append(_Case(when.nodes, when.partition, *_action(setting), setting.why))
    nothing = _Case(None, None, "leave", "", NOTHING_APPLIES)
    return {
        name: tuple(found) if found and found[-1].nodes is None and found[-1].partitions is None else (*found, nothing)
        for name, found in cases.items()
    }


def _action(setting: Setting) -> tuple[Action, str]:
    if setting.where != TASK:
        return "leave", ""
    if setting.value is not None:
        return "set", setting.value
    if setting.directory is not None:
        return "directory", setting.directory
    if setting.computed is not None:
        return setting.computed, ""
    return ("unset" if setting.unset else "leave"), ""


def _differing(
    cases: Mapping[str, dict[str, tuple[_Case, ...]]], family_cases: Mapping[str, dict[str, tuple[_Case, ...]]]
) -> dict[str, dict[str, tuple[_Case, ...]]]:
    """Keep the variables that some family sees otherwise than the default family of its stack."""
    names = [
        name
        for name in next(iter(cases.values()), {})
        if any(found[name] != cases[key.partition("/")[0]][name] for key, found in family_cases.items())
    ]
    return {key: {name: found[name] for name in names} for key, found in family_cases.items()}


def _variables(cases: Mapping[str, dict[str, tuple[_Case, ...]]]) -> tuple[Variable, ...]:
    names = next(iter(cases.values()), {})
    return tuple(Variable(name, tuple(_rules({key: found[name] for key, found in cases.items()}))) for name in names)


def _rules(by_key: Mapping[str, tuple[_Case, ...]]) -> Iterable[Rule]:
    """Write the same cases of several keys once; keys that all agree become `*`."""
    groups: dict[tuple[_Case, ...], list[str]] = {}
    for key, cases in by_key.items():
        groups.setdefault(cases, []).append(key)
    for cases, keys in groups.items():
        for case in cases:
            patterns = _patterns(keys, by_key, case.nodes, case.partitions)
            yield Rule(patterns, case.action, case.value, case.why)


def _patterns(
    keys: Sequence[str], all_keys: Iterable[str], nodes: str | None, partitions: Sequence[str] | None
) -> tuple[str, ...]:
    return tuple(
        f"{key}/{nodes or '*'}/{partition}"
        for key in _shortest(set(keys), list(all_keys))
        for partition in partitions or ("*",)
    )


def _shortest(keys: set[str], all_keys: Sequence[str]) -> list[str]:
    """Write keys with `*` for what does not matter: the whole key, or the stack in `stack/family`."""
    if keys == set(all_keys):
        return ["/".join("*" for _ in all_keys[0].split("/"))]
    shown = []
    for key in all_keys:
        _, _, family = key.partition("/")
        every = {other for other in all_keys if family and other.endswith(f"/{family}")}
        shown += [f"*/{family}" if every and every <= keys else key] if key in keys else []
    return list(dict.fromkeys(shown))


def _bind_steps(site: Site, situations: Mapping[str, Situation]) -> Iterable[BindStep]:
    """Give what the modules of each situation's family bind, then what only a task binds, in the site's order."""
    places = [*site.modules, TASK]
    listed: list[FileSystem | Bind] = [*site.file_systems, *site.binds]
    for item in sorted((i for i in listed if i.where), key=lambda i: places.index(i.where or TASK)):
        when = item.when if isinstance(item, Bind) else When()
        keys = [
            key
            for key, situation in situations.items()
            if item.where in (TASK, *site.families[situation.family or ""].modules)
            and judge_conditions(when, situation)[0] is not False
        ]
        if keys:
            yield _bind_step(item, _patterns(keys, situations, when.nodes, when.partition))


def _bind_step(item: FileSystem | Bind, patterns: tuple[str, ...]) -> BindStep:
    shared = isinstance(item, FileSystem) and item.kind == "shared" and item.path.count("/") == 1
    return BindStep(
        patterns=patterns,
        path=item.path,
        target=(item.target or item.path) if isinstance(item, Bind) else item.path,
        spec=item.spec if isinstance(item, Bind) else item.path,
        marker=bind_marker(item.where or TASK),
        entry=item.path[1:] if shared else "",
        required=item.required if isinstance(item, Bind) else True,
        why=item.why,
    )


def _kind_plan(name: str, kind: NodeKind) -> KindPlan:
    topology = topology_of(name, kind)
    answers: dict[tuple[int, int], tuple[TaskMask, ...]] = {}
    for tasks in sorted({*TABLE_TASKS, len(kind.gpus)} - {0}):
        for threads in (1, 2):
            try:
                found = cpu_masks(topology, Request(tasks, threads))
            except MaskError:
                continue
            if all(answer.pu_os for answer in found):
                answers[tasks, threads] = found
    return KindPlan(
        name=name,
        gpus=len(kind.gpus),
        usable=(_usable(answers, 1), _usable(answers, 2)),
        rows=tuple(
            MaskRow(
                f"{name}/{tasks}/{threads}",
                min(len(answer.pu_os) for answer in found),
                tuple(answer.mask or "" for answer in found),
            )
            for (tasks, threads), found in answers.items()
        ),
        near=tuple(
            NearCpus(f"{name}/{threads}/{answer.gpus[0]}", answer.pu_os)
            for threads in (1, 2)
            for answer in answers.get((len(kind.gpus), threads), ())
            if answer.gpus
        ),
    )


def _usable(answers: Mapping[tuple[int, int], tuple[TaskMask, ...]], threads: int) -> tuple[int, ...]:
    return answers[1, threads][0].pu_os if (1, threads) in answers else ()
