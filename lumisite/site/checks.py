"""Rules between keys of a site description; each yields (key path, message) for every fault."""

from __future__ import annotations

from collections.abc import Mapping

from lumisite.site.checks_ledger import (
    binds_have_one_owner,
    lmod_keeps_binds,
    places_and_conditions_exist,
    settings_say_one_thing,
    sources_are_described,
)
from lumisite.site.decode import Rule, UnfitError
from lumisite.site.faults import Faults, is_file_name, unknown
from lumisite.site.model import Module, NodeKind, Site
from lumisite.site.versions import Version, parse_version


def versions_are_versions(site: Site) -> Faults:
    """The keys of `cpe` and `rocm` are versions, and no two of them are the same one."""
    for table in ("cpe", "rocm"):
        seen: dict[Version, str] = {}
        for text in getattr(site, table):
            try:
                version = parse_version(text)
            except UnfitError as error:
                yield f"{table}.{text}", str(error)
                continue
            if version in seen:
                yield f"{table}.{text}", f"is the same version as {seen[version]}"
            seen[version] = text


def platforms_name_what_exists(site: Site) -> Faults:
    """A platform's CPE and ROCm releases, and its node kinds, are described."""
    yield from unknown("platform", [site.platform], site.platforms)
    for name, platform in site.platforms.items():
        here = f"platforms.{name}"
        yield from unknown(f"{here}.cpe", [str(platform.cpe)], site.cpe)
        yield from unknown(f"{here}.cpe_supported", map(str, platform.cpe_supported), site.cpe)
        yield from unknown(f"{here}.cpe_leftover", map(str, platform.cpe_leftover), site.cpe)
        yield from unknown(f"{here}.rocm", [str(platform.rocm)], site.rocm)
        if platform.cpe not in platform.cpe_supported:
            yield f"{here}.cpe", f"{platform.cpe} is the default but not among cpe_supported"
        for version in platform.cpe_leftover:
            if version in platform.cpe_supported:
                yield f"{here}.cpe_leftover", f"{version} is also among cpe_supported"
        yield from unknown(f"{here}.rocm_in_use", map(str, platform.rocm_in_use), site.rocm)
        if platform.rocm not in platform.driver_rocm and platform.rocm not in platform.rocm_in_use:
            yield f"{here}.rocm", f"{platform.rocm} is outside what the driver supports ({platform.driver_rocm})"
        yield from unknown(f"{here}.gpu_bus_ids", platform.gpu_bus_ids, site.node_kinds)
        for kind, bus_ids in platform.gpu_bus_ids.items():
            gpus = len(site.node_kinds[kind].gpus) if kind in site.node_kinds else len(bus_ids)
            if len(bus_ids) != gpus:
                yield f"{here}.gpu_bus_ids.{kind}", f"{len(bus_ids)} bus ids for {gpus} GPUs"


def node_kinds_add_up(site: Site) -> Faults:
    """Cores belong to one L3 group, siblings pair up, and GPUs stand where the node has something."""
    for name, kind in site.node_kinds.items():
        yield from _node_kind_faults(f"node_kinds.{name}", kind)
    for name, partition in site.partitions.items():
        yield from unknown(f"partitions.{name}.node_kind", [partition.node_kind], site.node_kinds)


def _node_kind_faults(here: str, kind: NodeKind) -> Faults:
    seen: set[int] = set()
    for index, group in enumerate(kind.l3):
        cores, siblings = group.cores, group.siblings or ()
        if siblings and len(siblings) != len(cores):
            yield f"{here}.l3[{index}].siblings", f"{len(siblings)} siblings for {len(cores)} cores"
        twice = sorted(seen.intersection(cores + siblings))
        if twice or set(cores).intersection(siblings):
            yield f"{here}.l3[{index}].cores", f"a CPU is named twice{': ' + str(twice[0]) if twice else ''}"
        seen.update(cores + siblings)
    for cpu in kind.reserved or ():
        if cpu not in seen:
            yield f"{here}.reserved", f"CPU {cpu} is in no L3 group"
    domains = {group.numa for group in kind.l3}
    for index, gpu in enumerate(kind.gpus):
        if gpu.l3 is not None and gpu.l3 >= len(kind.l3):
            yield f"{here}.gpus[{index}].l3", f"there is no L3 group {gpu.l3} (have 0 to {len(kind.l3) - 1})"
        elif gpu.l3 is not None and kind.l3[gpu.l3].numa != gpu.numa:
            yield f"{here}.gpus[{index}].numa", f"L3 group {gpu.l3} is in NUMA domain {kind.l3[gpu.l3].numa}"
        if gpu.numa not in domains:
            yield f"{here}.gpus[{index}].numa", f"there is no NUMA domain {gpu.numa}"
    for index, nic in enumerate(kind.nics):
        if nic.numa not in domains:
            yield f"{here}.nics[{index}].numa", f"there is no NUMA domain {nic.numa}"


def families_cover_every_rocm(site: Site) -> Faults:
    """Each ROCm release has exactly one default family; families name modules that exist."""
    for name, family in site.families.items():
        yield from unknown(f"families.{name}.modules", family.modules, site.modules)
        for platform in site.platforms.values():
            yield from unknown(f"families.{name}.library_path", family.library_path, platform.libraries)
    for text in site.rocm:
        version = parse_version(text)
        names = [n for n, f in site.families.items() if f.default_for is not None and version in f.default_for]
        if not names:
            yield "families", f"no family is the default for ROCm {text} (give one `default_for`)"
        elif len(names) > 1:
            yield f"families.{names[1]}.default_for", f"ROCm {text} has {names[0]} as its default family already"


def modules_fit_together(site: Site) -> Faults:
    """Modules load what exists, in versions that they can know, and never themselves."""
    width = {"platform": 0, "cpe": 1, "cpe-rocm": 2}
    for name, module in site.modules.items():
        here = f"modules.{name}"
        if name.startswith((".", "-")):
            yield here, "a module's name cannot start with . or -"
        yield from unknown(f"{here}.loads", module.loads, site.modules)
        for other in module.loads:
            if other in site.modules and width[site.modules[other].version] > width[module.version]:
                yield f"{here}.loads", f"{other} has a version by {site.modules[other].version}, which {name} lacks"
        for foreign in module.conflicts:
            if foreign in site.modules:
                yield f"{here}.conflicts", f"{foreign} is a module of this site (its versions replace each other)"
        for old in module.old_versions:
            if not is_file_name(old):
                yield f"{here}.old_versions", f"{old!r} is not a version name"
        if _reaches(name, name, site.modules, set()):
            yield f"{here}.loads", "the module loads itself in the end"


def _reaches(start: str, goal: str, modules: Mapping[str, Module], seen: set[str]) -> bool:
    for other in modules[start].loads:
        if other == goal:
            return True
        if other in modules and other not in seen:
            seen.add(other)
            if _reaches(other, goal, modules, seen):
                return True
    return False


def validation_fits(site: Site) -> Faults:
    """What is validated runs in a partition that is described, on no more tasks and nodes than it has."""
    plan = site.validation
    if plan is None:
        return
    yield from unknown("validation.partition", [plan.partition], site.partitions)
    partition = site.partitions.get(plan.partition)
    if partition is not None and partition.max_nodes is not None and plan.nodes > partition.max_nodes:
        yield "validation.nodes", f"{plan.nodes} nodes, but {plan.partition} gives a job at most {partition.max_nodes}"
    if plan.nodes < 2:
        yield "validation.nodes", f"{plan.nodes} is not several (2 would be right)"
    if plan.tasks_per_node < 1:
        yield "validation.tasks_per_node", "no task measures nothing (one for each GPU would be right)"
    if plan.baseline_days < 1:
        yield "validation.baseline_days", f"{plan.baseline_days} days have no jobs (3 would be right)"
    elif plan.baseline_days < 3 and plan.baseline_why is None:
        yield "validation.baseline_days", f"{plan.baseline_days} is few (3 would be right, or say `baseline_why`)"
    always: dict[str, int] = {}
    for index, rule in enumerate(plan.metrics):
        here = f"validation.metrics[{index}]"
        if rule.floor > 1:
            yield f"{here}.floor", f"{rule.floor:g} is more than all of the spec (0.6 would be right)"
        if rule.threshold >= 1:
            yield f"{here}.threshold", f"{rule.threshold:g} is all that there is (0.05 would be right)"
        if rule.metric in always:
            yield f"{here}.metric", f"never counts: metrics[{always[rule.metric]}] is for {rule.metric} already"
        always.setdefault(rule.metric, index)


#: In stages: the rules of the second may rely on versions being versions.
STAGES: tuple[tuple[Rule, ...], ...] = (
    (versions_are_versions,),
    (
        platforms_name_what_exists,
        node_kinds_add_up,
        families_cover_every_rocm,
        modules_fit_together,
        places_and_conditions_exist,
        binds_have_one_owner,
        lmod_keeps_binds,
        settings_say_one_thing,
        sources_are_described,
        validation_fits,
    ),
)
