"""Rules between keys of a site description; each yields (key path, message) for every fault."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import Field, fields, is_dataclass
from typing import Any

from lumisite.site.decode import Faults, Rule, UnfitError, suggestion, unknown
from lumisite.site.document import joined
from lumisite.site.entries import Bind, Setting
from lumisite.site.evidence import HERE, policy_faults, source_ids
from lumisite.site.ledger import IMAGE_CONDITIONS, depends_on_image, given_conditions
from lumisite.site.model import Site
from lumisite.site.scalars import TASK, is_file_name
from lumisite.site.versions import Version, parse_version

#: What an entry of the ledger can do to its variable.
_FORMS = ("value", "directory", "computed", "unset", "leave")
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


def names_are_described(site: Site, value: object = None) -> Faults:
    """Whatever names a module, family, partition, node kind, platform or release names one that is described."""
    for path, item, below in _keys(value or site, ""):
        if (table := item.metadata["names"]) and below is not None:
            names = below if isinstance(below, tuple | Mapping) else (below,)
            known = [TASK, *site.modules] if table == "places" else getattr(site, table)
            yield from unknown(path, map(str, names), known)


def _keys(value: object, path: str) -> Iterator[tuple[str, Field[Any], Any]]:
    """Give the path, the declaration and the value of each key of a description."""
    if isinstance(value, tuple):
        for index, one in enumerate(value):
            yield from _keys(one, f"{path}[{index}]")
    elif isinstance(value, Mapping):
        for name, one in value.items():
            yield from _keys(one, joined(path, name))
    elif is_dataclass(value):
        for item in (item for item in fields(value) if item.metadata):
            here, below = joined(path, item.name), getattr(value, item.name)
            yield here, item, below
            yield from _keys(below, here)


def platforms_fit_their_releases(site: Site) -> Faults:
    """A platform's default releases are among those that it supports, and it has a bus id for each GPU."""
    for name, platform in site.platforms.items():
        here = f"platforms.{name}"
        if platform.cpe not in platform.cpe_supported:
            yield f"{here}.cpe", f"{platform.cpe} is the default but not among cpe_supported"
        for version in platform.cpe_leftover:
            if version in platform.cpe_supported:
                yield f"{here}.cpe_leftover", f"{version} is also among cpe_supported"
        if platform.rocm not in platform.driver_rocm and platform.rocm not in platform.rocm_in_use:
            yield f"{here}.rocm", f"{platform.rocm} is outside what the driver supports ({platform.driver_rocm})"
        for kind, bus_ids in platform.gpu_bus_ids.items():
            gpus = len(site.node_kinds[kind].gpus) if kind in site.node_kinds else len(bus_ids)
            if len(bus_ids) != gpus:
                yield f"{here}.gpu_bus_ids.{kind}", f"{len(bus_ids)} bus ids for {gpus} GPUs"


def node_kinds_add_up(site: Site) -> Faults:
    """Cores belong to one L3 group, siblings pair up, and GPUs stand where the node has something."""
    for name, kind in site.node_kinds.items():
        here = f"node_kinds.{name}"
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
        for key in ("gpus", "nics"):
            for index, one in enumerate(getattr(kind, key)):
                if one.numa not in domains:
                    yield f"{here}.{key}[{index}].numa", f"there is no NUMA domain {one.numa}"
        for index, gpu in enumerate(kind.gpus):
            if gpu.l3 is not None and gpu.l3 >= len(kind.l3):
                yield f"{here}.gpus[{index}].l3", f"there is no L3 group {gpu.l3} (have 0 to {len(kind.l3) - 1})"
            elif gpu.l3 is not None and kind.l3[gpu.l3].numa != gpu.numa:
                yield f"{here}.gpus[{index}].numa", f"L3 group {gpu.l3} is in NUMA domain {kind.l3[gpu.l3].numa}"


def families_cover_every_rocm(site: Site) -> Faults:
    """Each ROCm release has exactly one default family; families name libraries that every platform has."""
    for name, family in site.families.items():
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
    """Modules load others in versions that they can know, and never themselves."""
    width = {"platform": 0, "cpe": 1, "cpe-rocm": 2}
    for name, module in site.modules.items():
        here = f"modules.{name}"
        if name.startswith((".", "-")):
            yield here, "a module's name cannot start with . or -"
        for other, theirs in ((one, site.modules[one]) for one in module.loads if one in site.modules):
            if width[theirs.version] > width[module.version]:
                yield f"{here}.loads", f"{other} has a version by {theirs.version}, which {name} lacks"
            for system in (one for one in module.systems if one not in theirs.systems):
                yield f"{here}.systems", f"{other}, which {name} loads, is not written for {system}"
        if not module.systems:
            yield f"{here}.systems", "no module system could load it (one of lmod, tcl, or both)"
        for foreign in module.conflicts:
            if foreign in site.modules:
                yield f"{here}.conflicts", f"{foreign} is a module of this site (its versions replace each other)"
        for old in module.old_versions:
            if not is_file_name(old):
                yield f"{here}.old_versions", f"{old!r} is not a version name"
        if name in site.loaded_with(module.loads):
            yield f"{here}.loads", "the module loads itself in the end"


def runtimes_say_what_is_written(site: Site) -> Faults:
    """A runtime says nothing to another kind of consumer than its own."""
    for emit, runtime in site.emitters.items():
        for name, said, owner in (
            ("annotations", runtime.annotations, "edf"),
            ("arguments", runtime.arguments, "podman-hpc"),
            ("shared_run", runtime.shared_run, "podman-hpc"),
        ):
            if said and emit != owner:
                yield f"runtime.{name}", f"nothing reads it in what is written for `emit: {emit}` (only for {owner})"
        for one in runtime.annotations:
            for other in runtime.annotations:
                if other.startswith(f"{one}."):
                    yield f"runtime.annotations.{one}", f"{other} makes it a table, which has no value of its own"


def validation_fits(site: Site) -> Faults:
    """What is validated runs on several nodes, no more than its partition has, and is judged by values that can be."""
    plan = site.validation
    if plan is None:
        return
    partition = site.partitions.get(plan.partition)
    most = None if partition is None else partition.max_nodes
    days, few = plan.baseline_days, plan.baseline_days < 3 and plan.baseline_why is None
    always: dict[str, int] = {}
    wrong = [
        ("nodes", most and plan.nodes > most, f"{plan.nodes} nodes, but {plan.partition} gives a job at most {most}"),
        ("nodes", plan.nodes < 2, f"{plan.nodes} is not several (2 would be right)"),
        ("tasks_per_node", plan.tasks_per_node < 1, "no task measures nothing (one for each GPU would be right)"),
        ("baseline_days", days < 1, f"{days} days have no jobs (3 would be right)"),
        ("baseline_days", days >= 1 and few, f"{days} is few (3 would be right, or say `baseline_why`)"),
    ]
    for index, rule in enumerate(plan.metrics):
        here, first, part = f"metrics[{index}]", always.setdefault(rule.metric, index), f"{rule.threshold:g}"
        wrong += [
            (f"{here}.floor", rule.floor > 1, f"{rule.floor:g} is more than all of the spec (0.6 would be right)"),
            (f"{here}.threshold", rule.threshold >= 1, f"{part} is all that there is (0.05 would be right)"),
            (f"{here}.metric", first != index, f"never counts: metrics[{first}] is for {rule.metric} already"),
        ]
    yield from ((f"validation.{key}", message) for key, is_wrong, message in wrong if is_wrong)


def conditions_can_be_known(site: Site) -> Faults:
    """What takes effect before the step, or before the image, asks for nothing that only those tell."""
    lists: dict[str, tuple[Bind | Setting, ...]] = {"binds": site.binds, "settings": site.settings}
    for here, one in ((f"{name}[{index}]", one) for name, many in lists.items() for index, one in enumerate(many)):
        if one.where == TASK and isinstance(one, Bind) and depends_on_image(one.when):
            right = "the family's `modules`, or a plan of the image, say what an image gets"
            yield f"{here}.when", f"the task prolog binds before any image is known ({right})"
        for condition in given_conditions(one.when) if one.where != TASK else ():
            path, module = f"{here}.when.{condition}", site.modules.get(one.where)
            if condition in ("nodes", "gpus", "partition"):
                yield path, f"the module {one.where} cannot know this before the step exists (where: task)"
            elif condition in IMAGE_CONDITIONS:
                right = "where: task, which the image decides"
                yield path, f"the module {one.where} is loaded before any image is known ({right})"
            elif condition == "cpe" and module is not None and module.version == "platform":
                yield path, f"versions of {one.where} do not tell (they are made of: {module.version})"


def modules_keep_their_binds(site: Site) -> Faults:
    """A path is bound in one place: a module that leaves could otherwise take away another's bind.

    Lmod (8.6 and 8.7, `path_regularize`) writes some binds in another way into a list of paths.
    """
    owners: dict[str, str] = {}
    for here, bind in site.host_paths.items():
        if bind.where is not None and owners.setdefault(bind.path, bind.where) != bind.where:
            yield f"{here}.path", f"{bind.path} is bound by {owners[bind.path]} already (one place for each path)"
        for part in bind.spec.split(",") if bind.where in site.modules else ():
            if not part or part != part.strip() or part.endswith("/") or "//" in part:
                right = "no space and no / at the end, and no empty option, would be right; where: task keeps it"
                yield here, f"Lmod does not keep {part!r} as it is in {site.runtime.prefix}_BINDPATH ({right})"
                break


def settings_say_one_thing(site: Site) -> Faults:
    """Each entry sets, unsets or leaves its variable, and can win somewhere."""
    always: dict[str, int] = {}
    for index, setting in enumerate(site.settings):
        here = f"settings[{index}]"
        forms = [one for one in _FORMS if getattr(setting, one) not in (None, False)]
        if len(forms) != 1:
            said = " and ".join(forms) if forms else "nothing"
            yield here, f"{setting.name} says {said} (one of {', '.join(_FORMS)} would be right)"
        if setting.with_directories and setting.directory is None:
            yield f"{here}.with_directories", f"{setting.name} names no directory that these could be in"
        if not all(map(is_file_name, (setting.directory or "x").replace("{rank}", "0").split("/"))):
            yield f"{here}.directory", f"{setting.directory!r} is not a relative path of plain names"
        for number, name in enumerate(setting.with_directories if setting.directory is not None else ()):
            if not is_file_name(name):
                yield f"{here}.with_directories[{number}]", f"{name!r} is not a plain name"
        if not setting.evidence and setting.source is None:
            yield here, f"{setting.name} has no evidence (`evidence:`, or `source:` alone where no effect is known)"
        for key, message in policy_faults(setting):
            yield f"{here}.{key}", message
        if setting.where == TASK and ";" in (setting.value or ""):
            yield f"{here}.value", "contains ';', which separates what the helper remembers of its own settings"
        if setting.computed and depends_on_image(setting.when):
            yield f"{here}.computed", "is worked out before any image is known (no rocm, family or plugin in `when`)"
        if setting.where != TASK and (setting.directory or setting.computed or setting.unset):
            yield here, "a module can only set a value or leave it (where: task)"
        if setting.name in OWN_VARIABLES or setting.name.startswith("LUMISITE") or "_BIND" in setting.name:
            yield f"{here}.name", f"{setting.name} is not for the ledger: lumisite manages it itself, or it is unsafe"
        if setting.name in always:
            yield here, f"never wins: settings[{always[setting.name]}] sets {setting.name} without conditions before it"
        elif not given_conditions(setting.when):
            always[setting.name] = index


def sources_are_described(site: Site) -> Faults:
    """Where the site has a table of sources, each `source` is made of its names."""
    if not site.sources:
        for index, setting in enumerate(site.settings):
            if setting.evidence:
                yield f"settings[{index}].evidence", "has sources, which a table `sources` would describe"
        return
    for path, item, text in _keys(site, ""):
        for name in source_ids(text) if item.name == "source" and text is not None else ():
            if name != HERE and name not in site.sources:
                yield path, f"{name} is not in `sources` ({suggestion(name, [*site.sources, HERE])})"


#: In stages: the rules of the second may rely on versions being versions.
STAGES: tuple[tuple[Rule, ...], ...] = (
    (versions_are_versions,),
    (
        names_are_described,
        platforms_fit_their_releases,
        node_kinds_add_up,
        families_cover_every_rocm,
        modules_fit_together,
        runtimes_say_what_is_written,
        conditions_can_be_known,
        modules_keep_their_binds,
        settings_say_one_thing,
        sources_are_described,
        validation_fits,
    ),
)
