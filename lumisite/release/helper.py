"""What the srun helper says: every choice that can be made before the job is made here, the scripts only look it up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lumisite.release.helper_masks import KindPlan, plan_kind
from lumisite.release.helper_settings import Variable, prolog_variables, rank_word, step_patterns, wrapper_variables
from lumisite.release.image_plans import ImageCase, PlanCase, case_pattern, image_cases, plan_cases
from lumisite.release.lock import Lock
from lumisite.release.modules import bind_marker
from lumisite.site.entries import FileSystem, HostPath
from lumisite.site.images import has_plugin
from lumisite.site.model import Site
from lumisite.site.plans import LoadedPlan
from lumisite.site.scalars import TASK
from lumisite.site.selection import Selection
from lumisite.site.settings import Decision, default_family


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
class FamilyPlan:
    """How the wrapper knows a family, and what its images need; `markers` are those of the modules that it needs.

    `rocm_after` is what stands before the ROCm release in names of its images, `plugin` whether they hold it.
    """

    name: str
    patterns: tuple[str, ...]
    markers: tuple[str, ...]
    prepend_path: str
    library_path: str
    rocm_after: str
    plugin: str
    mpi: str


@dataclass(frozen=True)
class HelperPlan:
    """Everything that the templates of the helper need; the names are those that templates use."""

    release: str
    root: str
    runtime: str
    executable: str
    prefix: str
    stacks: tuple[str, ...]
    variables: tuple[Variable, ...]
    image_variables: tuple[Variable, ...]
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
    known_images: tuple[ImageCase, ...]
    library_path: str

    @property
    def bind_variable(self) -> str:
        """The variable that the helper appends binds to, which leaves the other one to users."""
        return f"{self.prefix}_BINDPATH"

    @property
    def other_prefix(self) -> str:
        """The prefix of the other product, whose variables the runtime may read too."""
        return "APPTAINER" if self.prefix == "SINGULARITY" else "SINGULARITY"

    @property
    def gpu_kinds(self) -> tuple[str, ...]:
        """The node kinds that have GPUs."""
        return tuple(kind.name for kind in self.kinds if kind.gpus)


def plan_helper(
    site: Site,
    selection: Selection,
    stacks: Mapping[str, Decision],
    release: str,
    plans: Iterable[LoadedPlan] = (),
    lock: Lock | None = None,
) -> HelperPlan:
    """Plan the scripts for a selection, whose first releases are the stack of a job that names none.

    `stacks` says what applies in each of its stacks.
    """
    needs = {stack.name: site.families[default_family(site, stack.rocm)].modules for stack in selection.stacks}
    everywhere = {bind_marker(TASK), *map(bind_marker, set.intersection(*map(set, needs.values())))}
    binding = {bind.where for bind in site.host_paths.values()}
    local = next((system.path for system in site.file_systems if system.kind == "node-local"), "")
    loaded = tuple(plans)
    every = dict.fromkeys(stacks, tuple(site.modules))
    return HelperPlan(
        release=release,
        root=site.root,
        runtime=site.runtime.name,
        executable=site.runtime.executable,
        prefix=site.runtime.prefix,
        stacks=tuple(stacks),
        variables=prolog_variables(stacks),
        image_variables=wrapper_variables(stacks),
        binds=tuple(_bind_steps(site, stacks, needs)),
        family_binds=tuple(step for step in _bind_steps(site, stacks, every) if step.marker not in everywhere),
        markers=tuple(bind_marker(place) for place in (*site.modules, TASK) if place in binding),
        private=f"{local.rstrip('/')}/lumisite" if local else "",
        directories=tuple(_directories(site)),
        host_suffix=site.network.host_suffix or "",
        kinds=tuple(plan_kind(name, kind) for name, kind in site.node_kinds.items()),
        partitions=tuple((name, p.node_kind, p.whole_nodes) for name, p in site.partitions.items()),
        families=tuple(_family_plan(site, selection.platform, name) for name in site.families),
        images=plan_cases(site, selection.platform, loaded),
        known_images=image_cases(site, lock),
        library_path=":".join(
            dict.fromkeys(
                folder
                for name, family in site.families.items()
                if family.activation == "tykky"
                for folder in site.library_path(selection.platform, name)
            )
        ),
    )


def _family_plan(site: Site, platform: str, name: str) -> FamilyPlan:
    family = site.families[name]
    return FamilyPlan(
        name=name,
        patterns=tuple(map(case_pattern, family.paths)),
        markers=tuple(map(bind_marker, family.modules)),
        prepend_path=":".join(family.prepend_path),
        library_path=":".join(site.library_path(platform, name)),
        rocm_after=family.rocm_after or "",
        plugin="yes" if has_plugin(site, name) else "no",
        mpi=family.mpi or "",
    )


def _directories(site: Site) -> Iterable[str]:
    """Give the private directories to make, as words of sh."""
    found: dict[str, None] = {}
    for setting in site.settings:
        if setting.where == TASK and setting.directory:
            below = [f"{setting.directory}/{name}" for name in setting.with_directories]
            found.update(dict.fromkeys(map(rank_word, below or [setting.directory])))
    return found


def _bind_steps(
    site: Site, stacks: Mapping[str, Decision], modules: Mapping[str, tuple[str, ...]]
) -> Iterable[BindStep]:
    """Give what the modules of each stack bind, then what only a task binds, in the site's order."""
    for place in (*site.modules, TASK):
        bound = {key: one.bound_by(place) for key, one in stacks.items() if place in (TASK, *modules[key])}
        for bind in site.host_paths.values():
            when = bind.when
            if keys := [key for key, binds in bound.items() if bind in binds]:
                yield _bind_step(bind, place, step_patterns(keys, stacks, when.nodes, when.gpus, when.partition))


def _bind_step(bind: HostPath, place: str, patterns: tuple[str, ...]) -> BindStep:
    at_the_top = isinstance(bind, FileSystem) and bind.kind == "shared" and bind.path.count("/") == 1
    return BindStep(
        patterns=patterns,
        path=bind.path,
        target=bind.target or bind.path,
        spec=bind.spec,
        marker=bind_marker(place),
        entry=bind.path[1:] if at_the_top else "",
        required=bind.required,
        why=bind.why,
    )
