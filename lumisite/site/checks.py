"""Rules between keys of a site description; each yields (key path, message) for every fault."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import Field, fields, is_dataclass
from functools import cache, lru_cache
from typing import Any, cast

from lumisite.site.decode import Faults, Rule, UnfitError, suggestion, unknown
from lumisite.site.document import joined
from lumisite.site.evidence import HERE, source_ids
from lumisite.site.kinds import partitions_tell_kinds_apart
from lumisite.site.ledger_checks import conditions_can_be_known, settings_do_no_harm, settings_say_one_thing
from lumisite.site.library_path import library_faults
from lumisite.site.model import Module, Platform, Site
from lumisite.site.nodes import kind_faults
from lumisite.site.places import place_faults
from lumisite.site.references import PATTERN_SIGNS, shell_sign
from lumisite.site.runtimes import runtime_faults
from lumisite.site.scalars import TASK, is_file_name
from lumisite.site.selection import PLATFORM
from lumisite.site.software import PlatformStack
from lumisite.site.versions import Version, parse_version

#: No stack can be called so: conditions, and what `resolve` tells, have these names already.
_NO_STACKS = ("platform", "nodes", "gpus", "partition", "kind", "variable", "family", "plugin", "stacks", "candidates")


def versions_are_versions(site: Site) -> Faults:
    """The keys of a stack's releases are versions, and no two of them are the same one; no stack has another's name."""
    for stack, described in site.stacks.items():
        here = f"stacks.{stack}"
        if stack in _NO_STACKS:
            yield here, f"{stack} is a word of its own here (another name for the stack would be right)"
        seen: dict[Version, str] = {}
        for text in described.releases:
            try:
                version = parse_version(text)
            except UnfitError as error:
                yield f"{here}.releases.{text}", str(error)
                continue
            if version in seen:
                yield f"{here}.releases.{text}", f"is the same version as {seen[version]}"
            seen[version] = text


def names_are_described(site: Site, value: object = None) -> Faults:
    """Whatever names a module, family, partition, node kind, platform or release names one that is described."""
    for path, item, below in _keys(value) if value else _keys_of(site):
        if (table := item.metadata["names"]) and below is not None:
            names = below if isinstance(below, tuple | Mapping) else (below,)
            known = [TASK, *site.modules] if table == "places" else getattr(site, table)
            yield from unknown(path, map(str, names), known)
    for name, platform in site.platforms.items() if value is None else ():
        for stack, here in platform.stacks.items():
            for key in ("default", "supported", "leftover", "in_use"):
                one = getattr(here, key)
                versions = map(str, one if isinstance(one, tuple) else (one,))
                yield from unknown(f"platforms.{name}.stacks.{stack}.{key}", versions, site.releases(stack))


@lru_cache(maxsize=1)  # a walk is a tenth of a short command, and several checks need it
def _keys_of(site: Site) -> tuple[tuple[str, Field[Any], Any], ...]:
    return tuple(_keys(site))


def _keys(value: object) -> list[tuple[str, Field[Any], Any]]:
    """Give the path, the declaration and the value of each key of a description."""
    found: list[tuple[str, Field[Any], Any]] = []

    def add(value: Any, path: str) -> None:
        for item in _declared(cast(Hashable, type(value))):
            below = getattr(value, item.name)
            here = path if item.metadata["among"] else joined(path, item.name)
            found.append((here, item, below))
            if not isinstance(below, str):  # most values are words
                add(below, here)
        if isinstance(value, tuple):
            for index, one in enumerate(value):
                add(one, f"{path}[{index}]")
        elif isinstance(value, Mapping):
            for name, one in value.items():
                add(one, joined(path, name))

    add(value, "")
    return found


@cache
def _declared(kind: Hashable) -> tuple[Field[Any], ...]:
    """Give the keys that a dataclass of the description declares; other types have none."""
    return tuple(item for item in fields(kind) if item.metadata) if is_dataclass(kind) else ()


def platforms_fit_their_releases(site: Site) -> Faults:
    """A platform's default releases are among those that it has, and it has a bus id for each GPU."""
    for name, platform in site.platforms.items():
        here = f"platforms.{name}"
        for stack, one in platform.stacks.items() if platform.stacks.keys() <= site.stacks.keys() else ():
            faults = _of_driver if site.stacks[stack].gpu else _of_installed
            yield from ((f"{here}.stacks.{stack}.{key}", message) for key, message in faults(site, one))
        yield from _one_vendor(site, here, platform)
        for kind, bus_ids in platform.gpu_bus_ids.items():
            gpus = len(site.node_kinds[kind].gpus) if kind in site.node_kinds else len(bus_ids)
            if len(bus_ids) != gpus:
                yield f"{here}.gpu_bus_ids.{kind}", f"{len(bus_ids)} bus ids for {gpus} GPUs"


def _of_installed(_site: Site, here: PlatformStack) -> Faults:
    """Give the faults of what a platform says of a stack that the host has."""
    if not here.supported:
        yield "supported", "is missing (Installed releases that are supported, the default among them)"
    elif here.default not in here.supported:
        yield "default", f"{here.default} is the default but not among `supported`"
    for version in here.leftover:
        if version in here.supported:
            yield "leftover", f"{version} is also among `supported`"
    for key in ("driver", "runs", "compat", "in_use", "kinds"):
        if getattr(here, key):
            yield key, "is for a stack with `gpu`, of which a driver decides what runs"


def _of_driver(site: Site, here: PlatformStack) -> Faults:
    """Give the faults of what a platform says of a stack that images bring."""
    for key in ("supported", "leftover"):
        if getattr(here, key):
            yield key, "is for a stack without `gpu`, which the host has (`runs` would be right)"
    if not here.supported and not here.has(here.default):
        yield "default", f"{here.default} is outside what the driver supports ({here.runs})"
    for index, kind in enumerate(here.kinds or ()):
        if kind in site.node_kinds and not site.node_kinds[kind].gpus:
            yield f"kinds[{index}]", f"nodes of the kind {kind} have no GPUs"
    for key in ("driver", "runs"):
        if getattr(here, key) is None and any(kind.gpus for kind in site.node_kinds.values()):
            yield key, "is missing: the site has GPUs, and what runs on them depends on their driver"


def _one_vendor(site: Site, path: str, platform: Platform) -> Faults:
    """Say which node kinds would have GPUs of several vendors at once."""
    seen: dict[str, str] = {}
    for stack, here in platform.stacks.items():
        vendor = site.stacks[stack].gpu if stack in site.stacks else None
        for kind in here.kinds or [name for name, one in site.node_kinds.items() if one.gpus] if vendor else ():
            other = seen.setdefault(kind, stack)
            if site.stacks[other].gpu != vendor:
                what = f"is for GPUs of {vendor}, and {other} for those of {site.stacks[other].gpu} of the same nodes"
                yield f"{path}.stacks.{stack}.kinds", f"{what}, {kind} (`kinds` for each of them would be right)"
                break


def node_kinds_add_up(site: Site) -> Faults:
    """Cores belong to one L3 group, siblings pair up, and GPUs stand where the node has something."""
    for name, kind in site.node_kinds.items():
        adapters = site.fabric_of(name).adapters
        yield from ((f"node_kinds.{name}.{key}", message) for key, message in kind_faults(kind, adapters))


def families_cover_every_release(site: Site) -> Faults:
    """Each release that images bring has exactly one default family."""
    if not site.families:
        yield "families", "names none (one would be right: what an image needs is said there)"
    for stack in site.gpu_stacks:
        title = site.stacks[stack].title
        ranges = {n: f.default_for[stack] for n, f in site.families.items() if f.default_for and stack in f.default_for}
        for version in map(parse_version, site.releases(stack)):
            names = [name for name, one in ranges.items() if version in one]
            if not names:
                yield "families", f"no family is the default for {title} {version} (give one `default_for`)"
            elif len(names) > 1:
                also = f"{title} {version} has {names[0]} as its default family already"
                yield f"families.{names[1]}.default_for.{stack}", also


def releases_say_where(site: Site) -> Faults:
    """What images may bring says where it is found, there is a runtime, and no sign of the site fits any machine."""
    for index, sign in enumerate(site.known_by):
        if not sign.strip("*?/"):
            yield f"known_by[{index}]", f"{sign} fits every machine (a path or a host name of this one would be right)"
    if not site.runtimes:
        yield "runtimes", "names none (the command that users type would be right)"
    for stack in site.gpu_stacks:
        for version, release in site.releases(stack).items():
            if release.found is None:
                here = f"stacks.{stack}.releases.{version}.found"
                yield here, "is missing (Where the release is found: `image`, `host` or `both`)"


def modules_fit_together(site: Site) -> Faults:
    """Modules load others in versions that they can know, and never themselves."""
    for name, module in site.modules.items():
        here = f"modules.{name}"
        yield from ((f"{here}.version", message) for message in _version_faults(site, module))
        if name.startswith((".", "-")):
            yield here, "a module's name cannot start with . or -"
        for other, theirs in ((one, site.modules[one]) for one in module.loads if one in site.modules):
            if lacking := [one for one in theirs.version if one not in (PLATFORM, *module.version)]:
                yield f"{here}.loads", f"{other} has a version by {', '.join(lacking)}, which {name} lacks"
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


def _version_faults(site: Site, module: Module) -> Iterator[str]:
    if not module.version:
        yield f"names nothing (stacks, or [{PLATFORM}], would be right)"
    if module.version == (PLATFORM,):
        return
    for index, stack in enumerate(module.version):
        if stack not in site.stacks:
            yield f"{stack} is not described ({suggestion(stack, [PLATFORM, *site.stacks])})"
        elif stack in module.version[:index]:
            yield f"{stack} stands there twice"
        for name, platform in site.platforms.items() if stack in site.stacks else ():
            if stack not in platform.stacks:
                yield f"platform {name} has no {stack} (describe it under platforms.{name}.stacks)"


def validation_fits(site: Site) -> Faults:
    """What is validated runs on several nodes, no more than its partition has, and is judged by values that can be."""
    plan = site.validation
    if plan is None:
        return
    most = site.partitions[plan.partition].max_nodes if plan.partition in site.partitions else None
    days, few = plan.baseline_days, plan.baseline_days < 3 and plan.baseline_why is None
    always: dict[str, int] = {}
    wrong = [
        ("nodes", most and plan.nodes > most, f"{plan.nodes} nodes, but {plan.partition} gives a job at most {most}"),
        ("nodes", plan.nodes < 2, f"{plan.nodes} is not several (2 would be right)"),
        ("backend", plan.backend == "nccl" and not site.gpu_stacks, "nccl is for GPUs (gloo, or a stack with `gpu`)"),
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


def nothing_is_left_for_a_shell(site: Site) -> Faults:
    """Paths and values are meant as they stand: nothing fills in `$NAME`, and no bind is a pattern."""
    meant = "`exact: yes` where it stands for itself, would be right"
    path = f"one path, or {meant}"
    for here, bind in site.host_paths.items():
        for key in ("path", "target"):
            if (sign := shell_sign(getattr(bind, key) or "", PATTERN_SIGNS)) and not bind.exact:
                yield f"{here}.{key}", f"contains {sign!r}, which nothing fills in ({path})"
    for index, setting in enumerate(site.settings):
        if (sign := shell_sign(setting.value or "")) and not setting.exact:
            right = f"`={{...}}` with a key of this file, or {meant}"
            yield f"settings[{index}].value", f"{setting.name} contains {sign!r}, which nothing fills in ({right})"


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


def sources_are_described(site: Site) -> Faults:
    """Where the site has a table of sources, each `source` is made of its names."""
    if not site.sources:
        for index, setting in enumerate(site.settings):
            if any(source_ids(one.source) != (HERE,) for one in setting.evidence):
                yield f"settings[{index}].evidence", "has sources, which a table `sources` would describe"
        return
    for path, item, text in _keys_of(site):
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
        families_cover_every_release,
        library_faults,
        place_faults,
        releases_say_where,
        modules_fit_together,
        runtime_faults,
        conditions_can_be_known,
        nothing_is_left_for_a_shell,
        modules_keep_their_binds,
        settings_say_one_thing,
        settings_do_no_harm,
        sources_are_described,
        validation_fits,
    ),
    (partitions_tell_kinds_apart,),
)
