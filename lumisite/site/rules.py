"""Rules between keys of a site description; each yields (key path, message) for every fault."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from lumisite.site.cpus import expand_cpu_list
from lumisite.site.decode import Rule, UnfitError, suggestion
from lumisite.site.model import Module, NodeKind, Place, Setting, Site, When
from lumisite.site.settings import given_conditions
from lumisite.site.versions import Version, parse_version

Faults = Iterator[tuple[str, str]]

TASK = Place("task")

#: Variables that lumisite itself manages; a ledger entry for one would fight with it.
OWN_VARIABLES = ("PATH", "SLURM_TASK_PROLOG", "BASH_ENV", "ENV", "IFS", "LD_PRELOAD", "MODULEPATH")


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
    yield from _unknown("platform", [site.platform], site.platforms)
    for name, platform in site.platforms.items():
        here = f"platforms.{name}"
        yield from _unknown_versions(f"{here}.cpe", [platform.cpe], site.cpe)
        yield from _unknown_versions(f"{here}.cpe_supported", platform.cpe_supported, site.cpe)
        yield from _unknown_versions(f"{here}.cpe_leftover", platform.cpe_leftover, site.cpe)
        yield from _unknown_versions(f"{here}.rocm", [platform.rocm], site.rocm)
        if platform.cpe not in platform.cpe_supported:
            yield f"{here}.cpe", f"{platform.cpe} is the default but not among cpe_supported"
        for version in platform.cpe_leftover:
            if version in platform.cpe_supported:
                yield f"{here}.cpe_leftover", f"{version} is also among cpe_supported"
        if platform.rocm not in platform.driver_rocm:
            yield f"{here}.rocm", f"{platform.rocm} is outside what the driver supports ({platform.driver_rocm})"
        yield from _unknown(f"{here}.gpu_bus_ids", platform.gpu_bus_ids, site.node_kinds)
        for kind, bus_ids in platform.gpu_bus_ids.items():
            gpus = len(site.node_kinds[kind].gpus) if kind in site.node_kinds else len(bus_ids)
            if len(bus_ids) != gpus:
                yield f"{here}.gpu_bus_ids.{kind}", f"{len(bus_ids)} bus ids for {gpus} GPUs"


def node_kinds_add_up(site: Site) -> Faults:
    """Cores belong to one L3 group, siblings pair up, and GPUs stand where the node has something."""
    for name, kind in site.node_kinds.items():
        yield from _node_kind_faults(f"node_kinds.{name}", kind)
    for name, partition in site.partitions.items():
        yield from _unknown(f"partitions.{name}.node_kind", [partition.node_kind], site.node_kinds)


def _node_kind_faults(here: str, kind: NodeKind) -> Faults:
    seen: set[int] = set()
    for index, group in enumerate(kind.l3):
        cores = expand_cpu_list(group.cores)
        siblings = expand_cpu_list(group.siblings) if group.siblings else ()
        if siblings and len(siblings) != len(cores):
            yield f"{here}.l3[{index}].siblings", f"{len(siblings)} siblings for {len(cores)} cores"
        twice = sorted(seen.intersection(cores + siblings))
        if twice or len({*cores, *siblings}) < len(cores) + len(siblings):
            yield f"{here}.l3[{index}].cores", f"a CPU is named twice{': ' + str(twice[0]) if twice else ''}"
        seen.update(cores + siblings)
    for cpu in expand_cpu_list(kind.reserved) if kind.reserved else ():
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
        yield from _unknown(f"families.{name}.modules", family.modules, site.modules)
        for platform in site.platforms.values():
            yield from _unknown(f"families.{name}.library_path", family.library_path, platform.libraries)
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
        yield from _unknown(f"{here}.loads", module.loads, site.modules)
        for other in module.loads:
            if other in site.modules and width[site.modules[other].version] > width[module.version]:
                yield f"{here}.loads", f"{other} has a version by {site.modules[other].version}, which {name} lacks"
        for foreign in module.conflicts:
            if foreign in site.modules:
                yield f"{here}.conflicts", f"{foreign} is a module of this site (its versions replace each other)"
        for old in module.old_versions:
            if not _is_file_name(old):
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


def places_and_conditions_exist(site: Site) -> Faults:
    """Whatever names a module, family, partition or platform names one that is described."""
    for index, system in enumerate(site.file_systems):
        if system.where is not None:
            yield from _unknown(f"file_systems[{index}].where", [system.where], site.modules)
    for index, bind in enumerate(site.binds):
        yield from _condition_faults(site, f"binds[{index}]", bind.where, bind.when)
    for index, setting in enumerate(site.settings):
        yield from _condition_faults(site, f"settings[{index}]", setting.where, setting.when)
        if setting.checked is not None:
            yield from _unknown(f"settings[{index}].checked.platform", [setting.checked.platform], site.platforms)


def binds_have_one_owner(site: Site) -> Faults:
    """A path is bound in one place: a module that leaves could otherwise take away another's bind."""
    owners: dict[str, str] = {}
    listed = [(f"file_systems[{i}].path", system.path, system.where) for i, system in enumerate(site.file_systems)]
    listed += [(f"binds[{i}].path", bind.path, bind.where) for i, bind in enumerate(site.binds)]
    for here, path, where in listed:
        if where is not None and owners.setdefault(path, where) != where:
            yield here, f"{path} is bound by {owners[path]} already (one place for each path)"


def lmod_keeps_binds(site: Site) -> Faults:
    """Lmod (8.6 and 8.7, `path_regularize`) writes some binds in another way into a list of paths."""
    listed = [(f"file_systems[{i}]", str(s.path), s.where) for i, s in enumerate(site.file_systems)]
    listed += [(f"binds[{i}]", bind.spec, bind.where) for i, bind in enumerate(site.binds)]
    for here, spec, where in listed:
        untidy = next((part for part in spec.split(",") if not _is_tidy(part)), None)
        if where in site.modules and untidy is not None:
            right = "no space and no / at the end, and no empty option, would be right; where: task keeps it"
            yield here, f"Lmod does not keep {untidy!r} as it is in {site.runtime.prefix}_BINDPATH ({right})"


def _is_tidy(entry: str) -> bool:
    return bool(entry) and entry == entry.strip() and not entry.endswith("/") and "//" not in entry


def _condition_faults(site: Site, here: str, where: Place, when: When) -> Faults:
    yield from _unknown(f"{here}.where", [where], [TASK, *site.modules])
    yield from _unknown(f"{here}.when.platform", when.platform or (), site.platforms)
    yield from _unknown(f"{here}.when.family", when.family or (), site.families)
    yield from _unknown(f"{here}.when.partition", when.partition or (), site.partitions)
    if where == TASK:
        return
    for condition in ("nodes", "partition"):
        if getattr(when, condition) is not None:
            yield (
                f"{here}.when.{condition}",
                f"the module {where} cannot know this before the step exists (where: task)",
            )
    module = site.modules.get(where)
    for condition, widths in (("rocm", ("cpe-rocm",)), ("family", ("cpe-rocm",)), ("cpe", ("cpe", "cpe-rocm"))):
        if module is not None and getattr(when, condition) is not None and module.version not in widths:
            yield f"{here}.when.{condition}", f"versions of {where} do not tell (they are made of: {module.version})"


def settings_say_one_thing(site: Site) -> Faults:
    """Each entry sets, unsets or leaves its variable, and can win somewhere."""
    always: dict[str, int] = {}
    for index, setting in enumerate(site.settings):
        here = f"settings[{index}]"
        forms = _forms(setting)
        if len(forms) != 1:
            said = " and ".join(forms) if forms else "nothing"
            yield here, f"{setting.name} says {said} (one of value, directory, computed, unset, leave would be right)"
        if setting.directory is not None and not all(map(_is_file_name, setting.directory.split("/"))):
            yield f"{here}.directory", f"{setting.directory!r} is not a relative path of plain names"
        if setting.where == TASK and ";" in (setting.value or ""):
            yield f"{here}.value", "contains ';', which separates what the helper remembers of its own settings"
        if setting.where != TASK and (setting.directory or setting.computed or setting.unset):
            yield here, "a module can only set a value or leave it (where: task)"
        if setting.name in OWN_VARIABLES or setting.name.startswith("LUMISITE") or "_BIND" in setting.name:
            yield f"{here}.name", f"{setting.name} is not for the ledger: lumisite manages it itself, or it is unsafe"
        if setting.name in always:
            yield here, f"never wins: settings[{always[setting.name]}] sets {setting.name} without conditions before it"
        elif not given_conditions(setting.when):
            always[setting.name] = index


def _forms(setting: Setting) -> list[str]:
    given = {
        "value": setting.value is not None,
        "directory": setting.directory is not None,
        "computed": setting.computed is not None,
        "unset": setting.unset,
        "leave": setting.leave,
    }
    return [form for form, present in given.items() if present]


def _is_file_name(text: str) -> bool:
    return text not in ("", ".", "..") and not text.startswith((".", "-")) and not set(text) & set("/\\ \t'\"")


def _unknown(path: str, names: Iterable[str], known: Iterable[str]) -> Faults:
    known = list(known)
    for name in names:
        if name not in known:
            yield path, f"{name} is not described ({suggestion(name, known)})"


def _unknown_versions(path: str, versions: Iterable[Version], table: Iterable[str]) -> Faults:
    table = list(table)
    for version in versions:
        if str(version) not in table:
            yield path, f"{version} is not described ({suggestion(str(version), table)})"


def validation_fits(site: Site) -> Faults:
    """What is validated runs in a partition that is described, on no more tasks and nodes than it has."""
    plan = site.validation
    if plan is None:
        return
    yield from _unknown("validation.partition", [plan.partition], site.partitions)
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
        validation_fits,
    ),
)
