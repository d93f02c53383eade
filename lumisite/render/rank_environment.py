"""What a rank finds in its environment: the variables, binds and CPUs that the task prolog and the wrapper give it.

All is decided by the ledger and the site's tables. That the rendered scripts do the same is what
tests/unit/render/test_rank.py compares, for each site, shape of a step and kind of image.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from lumisite.machine.masks import mask_tables
from lumisite.machine.topology import topology_of
from lumisite.paths import PROLOG, WRAPPERS, current
from lumisite.render.wrapper_image import WrapperImage
from lumisite.site.entries import Setting
from lumisite.site.ledger import (
    COMPUTED,
    Decision,
    Situation,
    choose,
    decide,
    default_family,
    depends_on_image,
    of_modules,
)
from lumisite.site.library_path import library_path
from lumisite.site.model import Site
from lumisite.site.scalars import TASK
from lumisite.site.selection import Combination

#: The PATH of a made-up user, and what stands for a node's name.
USERS_PATH = "/usr/bin:/bin"
THIS_NODE = "<name of the node>"


@dataclass(frozen=True)
class Step:
    """A job step: its partition, nodes, and tasks on each."""

    partition: str
    nodes: int
    tasks_per_node: int


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
    why: str


@dataclass(frozen=True)
class Environment:
    """All that the first rank finds, and the CPUs of each task of its node."""

    variables: Mapping[str, Variable]
    binds: tuple[StepBind, ...]
    cpus: tuple[Cpus, ...]


@dataclass(frozen=True)
class FirstRank:
    """The first rank of a step, with the modules that are loaded and the image that it starts.

    Modules are in the order of loading; without any the helper is on all the same, as the site's cli_filter attaches
    it. Without an image no wrapper sees one. `user` is the user's number.
    """

    site: Site
    combination: Combination
    modules: Sequence[str]
    step: Step
    image: WrapperImage | None
    user: int

    @cached_property
    def situation(self) -> Situation:
        """What is known of the step, and what the wrapper takes the image for."""
        site, partition = self.site, self.step.partition
        situation = replace(
            of_modules(site, self.combination),
            nodes="one" if self.step.nodes == 1 else "several",
            gpus=bool(site.kind_of(partition).gpus),
            partition=partition,
            kind=site.partitions[partition].node_kind,
        )
        return situation if self.image is None else situation.with_image(self.image.holds)

    @cached_property
    def decision(self) -> Decision:
        """What the ledger decides for it."""
        return decide(self.site, self.situation)

    @property
    def has_helper(self) -> bool:
        """Whether the task prolog runs."""
        return not self.modules or any(self.site.modules[name].helper for name in self.modules)

    def environment(self) -> Environment:
        """Return all that the rank finds."""
        binds = _binds(self)
        variables = _of_modules(self)
        if binds.binds:
            name = f"{self.site.runtime.prefix}_BINDPATH"
            variables[name] = Variable(",".join(binds.binds), binds.by, "")
        if self.has_helper:
            variables |= _of_task(self, variables)
            variables |= {} if self.image is None else _of_container(self, self.image)
        cpus = _cpus(self) if self.has_helper else ()
        return Environment(dict(sorted(variables.items())), tuple(binds.binds.values()), tuple(cpus))


def _of_modules(rank: FirstRank) -> dict[str, Variable]:
    """Return what the module with the helper sets, and the PATH with the wrapper in front."""
    found: dict[str, Variable] = {}
    by = "prolog"
    for name in (name for name in rank.modules if rank.site.modules[name].helper):
        by = "module"
        found["SLURM_TASK_PROLOG"] = Variable(current(rank.site.root, PROLOG), by, "")
        # A module is loaded before the step is known.
        for verdict in decide(rank.site, of_modules(rank.site, rank.combination)).settings:
            if verdict.outcome == "wins" and verdict.entry.where == name and verdict.entry.value is not None:
                found[verdict.entry.name] = Variable(verdict.entry.value, by, verdict.key)
    if rank.has_helper:
        found["PATH"] = Variable(f"{current(rank.site.root, WRAPPERS)}:{USERS_PATH}", by, "")
    return found


# ---------------------------------------------------------------- settings of tasks


def _of_task(rank: FirstRank, given: Mapping[str, Variable]) -> dict[str, Variable]:
    """Return each variable of tasks, set or not, `given` what the modules set, which stays."""
    site, sees_image = rank.site, rank.image is not None
    of_tasks = [setting for setting in site.settings if setting.where == TASK]
    names = dict.fromkeys(setting.name for setting in of_tasks)
    by_image = {setting.name for setting in of_tasks if depends_on_image(site, setting.when)}
    # The prolog makes private directories, and before the image is known: for its own variables.
    of_prolog = [choose(site, rank.decision, name, sees_image=False) for name in names if name not in given]
    has_directories = any(one and not one.is_open and one.verdict.entry.directory for one in of_prolog)
    folder = private_folder(site, rank.user) if has_directories else None
    found = dict[str, Variable]()
    for name in names:
        choice = choose(site, rank.decision, name, sees_image=sees_image)
        by = "wrapper" if name in by_image and sees_image else "prolog"
        if choice is None:
            found[name] = Variable(None, by, "")
        else:
            value = None if choice.is_open else _value(site, choice.verdict.entry, folder)
            found[name] = Variable(value, by, choice.verdict.key, choice.is_open)
        if name in given and not (choice is not None and choice.verdict.entry.unset):
            found[name] = given[name]
    address, suffix = found.get("MASTER_ADDR"), site.fabric.host_suffix
    if address is not None and address.value and address.by == "prolog" and suffix:
        found["PET_LOCAL_ADDR"] = Variable(f"{THIS_NODE}{suffix}", "prolog", "")
        found["PET_RDZV_CONF"] = Variable("is_host=1", "prolog", "")
    return found


def _value(site: Site, setting: Setting, private: str | None) -> str | None:
    """Return what an entry sets its variable to; what is worked out on the node stands between `<` and `>`."""
    if setting.where != TASK:
        return None
    if setting.directory is not None:
        return private and f"{private}/{setting.directory.replace('{rank}', '0')}"
    if setting.computed is not None:
        suffix = site.fabric.host_suffix if setting.computed == "master-address" else ""
        return f"<{COMPUTED[setting.computed]}>{suffix or ''}"
    return setting.value


def private_places(site: Site) -> list[str]:
    """Return the folders that may have private directories; scripts keep them in a list with blanks between."""
    paths = (system.path for system in site.private_places)
    return [path.rstrip("/") for path in paths if re.fullmatch(r"[A-Za-z0-9/._+@=-]+", path)]


def private_folder(site: Site, user: int) -> str | None:
    """Return where the private directories of a user are: in the first of the site's places that will do."""
    places = private_places(site)
    return f"{places[0]}/lumisite-{user}" if places else None


# ---------------------------------------------------------------- binds


@dataclass
class _List:
    """The list of binds by their texts, in order, and who last changed it."""

    binds: dict[str, StepBind]
    by: str = ""

    def add(self, bind: StepBind, spec: str) -> None:
        """Add a bind, where its place in the container is free."""
        if bind.target not in {one.target for one in self.binds.values()}:
            self.binds[spec] = bind
            self.by = bind.by

    def remove(self, spec: str) -> None:
        """Take out a bind, as the wrapper does."""
        if self.binds.pop(spec, None) is not None:
            self.by = "wrapper"


def _binds(rank: FirstRank) -> _List:
    """Return the binds: those of modules first, then what the prolog and the wrapper make of them."""
    found = _List({})
    _add(rank, found, rank.modules, "module")
    if rank.has_helper:
        needed = rank.site.families[default_family(rank.site, rank.combination.releases)].modules
        attached = () if rank.modules else tuple(name for name in rank.site.modules if name in needed)
        _add(rank, found, (*attached, TASK), "prolog")
        if rank.image is not None and rank.image.holds.family is not None:
            _correct(rank, found, rank.image.holds.family, rank.image)
    return found


def _add(rank: FirstRank, found: _List, modules: Sequence[str], by: str) -> None:
    """Add what modules, or tasks, bind."""
    for module in modules:
        for verdict in rank.decision.binds:
            bind = verdict.entry
            if bind.where == module and verdict.applies:
                found.add(StepBind(bind.path, bind.target or bind.path, by, verdict.key, bind.why), bind.spec)


def _correct(rank: FirstRank, found: _List, family: str, image: WrapperImage) -> None:
    """Take out what the image does not need, and add what it lacks, by its family and its plan."""
    site, needed = rank.site, rank.site.families[family].modules
    for bind in site.host_paths.values():
        if bind.where in site.modules and bind.where not in needed:
            found.remove(bind.spec)
    _add(rank, found, () if rank.modules else [name for name in site.modules if name in needed], "wrapper")
    lines = () if image.plan is None else image.plan.lines
    for line in lines:
        for bind in site.binds:
            if bind.path == line.without and bind.where in site.modules:
                found.remove(bind.spec)
    for line in lines:
        if line.spec is not None and line.by is None:
            found.add(StepBind(str(line.source), str(line.target), "wrapper", "", ""), line.spec)


def _of_container(rank: FirstRank, image: WrapperImage) -> dict[str, Variable]:
    """Return the directories that the wrapper puts on the paths of the container."""
    site, family = rank.site, image.holds.family
    if family is None:
        return {}
    folders = image.plan.library_path if image.plan else library_path(site, rank.situation.platform, family)
    paths = {"PREPEND_PATH": site.families[family].prepend_path, "LD_LIBRARY_PATH": folders}
    prefix = site.runtime.prefix
    return {f"{prefix}ENV_{name}": Variable(":".join(path), "wrapper", "") for name, path in paths.items() if path}


# ---------------------------------------------------------------- CPUs


def _cpus(rank: FirstRank) -> Iterator[Cpus]:
    """Yield the CPUs of each task of a node that the step has to itself."""
    tasks = rank.step.tasks_per_node
    kind = rank.site.partitions[rank.step.partition].node_kind
    tables = mask_tables(topology_of(kind, rank.site.node_kinds[kind]))
    masks: Sequence[str | None] = [answer.mask for answer in tables.get((tasks, 1), ())]
    why = f"the site has no masks for {tasks} tasks on a {kind} node"
    if (1, 1) not in tables:
        masks = ()
        why = f"the site has no masks for a {kind} node"
    for task in range(tasks):
        yield Cpus(task, masks[task], "") if masks else Cpus(task, None, why)
