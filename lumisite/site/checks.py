"""Rules between keys of a site description; each yields a finding for every fault."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import Field, fields, is_dataclass
from functools import cache, lru_cache
from typing import Any, cast

from lumisite.findings.catalogue import make_finding
from lumisite.site.decode import Faults, Rule, UnfitError, alternatives, unknown, wrong_type
from lumisite.site.document import joined
from lumisite.site.evidence import HERE, source_ids
from lumisite.site.host_checks import HOST_RULES, partitions_tell_kinds_apart
from lumisite.site.ledger_checks import LEDGER_RULES
from lumisite.site.model import Module, Platform, Site
from lumisite.site.scalars import TASK, is_file_name
from lumisite.site.selection import PLATFORM
from lumisite.site.software import PlatformStack
from lumisite.site.versions import Version, parse_version

#: No stack can be called so: conditions, and what `resolve` tells, have these names already.
_NO_STACKS = ("platform", "nodes", "gpus", "partition", "kind", "variable", "family", "plugin", "stacks", "candidates")


def versions_are_versions(site: Site) -> Faults:
    """The keys of a stack's releases are versions, and no two of them are the same one; no stack has another's name."""
    for stack, described in site.stacks.items():
        if stack in _NO_STACKS:
            yield make_finding("name-reserved", f"stacks.{stack}", name=stack)
        seen: dict[Version, str] = {}
        for text in described.releases:
            path = f"stacks.{stack}.releases.{text}"
            try:
                version = parse_version(text)
            except UnfitError as error:
                yield error.finding(path)
                continue
            if version in seen:
                yield make_finding("named-twice", path, name=text, first=seen[version])
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
        for stack, has in platform.stacks.items() if platform.stacks.keys() <= site.stacks.keys() else ():
            path = f"platforms.{name}.stacks.{stack}"
            yield from _of_driver(site, path, has) if site.stacks[stack].gpu else _of_installed(path, has)
        yield from _one_vendor(site, f"platforms.{name}", platform)
        for kind, bus_ids in platform.gpu_bus_ids.items():
            gpus = len(site.node_kinds[kind].gpus) if kind in site.node_kinds else len(bus_ids)
            if len(bus_ids) != gpus:
                path = f"platforms.{name}.gpu_bus_ids.{kind}"
                yield make_finding("wrong-count", path, actual=len(bus_ids), expected=gpus)


def _of_installed(path: str, has: PlatformStack) -> Faults:
    """Yield the faults of what a platform has of a stack that is installed on the host."""
    if not has.supported:
        yield make_finding("key-missing", f"{path}.supported")
    elif has.default not in has.supported:
        yield make_finding("default-not-supported", f"{path}.default", version=str(has.default))
    for version in has.leftover:
        if version in has.supported:
            yield make_finding("named-twice", f"{path}.leftover", name=str(version), first="supported")
    for key in ("driver", "runs", "compat", "in_use", "kinds"):
        if getattr(has, key):
            yield make_finding("key-without-effect", f"{path}.{key}", needs="`gpu` of the stack")


def _of_driver(site: Site, path: str, has: PlatformStack) -> Faults:
    """Yield the faults of what a platform has of a stack that images bring."""
    for key in ("supported", "leftover"):
        if getattr(has, key):
            yield make_finding("key-without-effect", f"{path}.{key}", excluded_by="`gpu` of the stack")
    if not has.supported and not has.has(has.default):
        yield make_finding("default-not-supported", f"{path}.default", version=str(has.default), range=str(has.runs))
    for index, kind in enumerate(has.kinds or ()):
        if kind in site.node_kinds and not site.node_kinds[kind].gpus:
            yield make_finding("kind-without-gpus", f"{path}.kinds[{index}]", kind=kind)
    for key in ("driver", "runs"):
        if getattr(has, key) is None and any(kind.gpus for kind in site.node_kinds.values()):
            yield make_finding("key-missing", f"{path}.{key}")


def _one_vendor(site: Site, path: str, platform: Platform) -> Faults:
    """Yield the stacks by which the nodes of a kind would have GPUs of several vendors."""
    seen: dict[str, str] = {}
    with_gpus = [name for name, kind in site.node_kinds.items() if kind.gpus]
    for stack, has in platform.stacks.items():
        vendor = site.stacks[stack].gpu if stack in site.stacks else None
        for kind in has.kinds or with_gpus if vendor else ():
            other = seen.setdefault(kind, stack)
            other_vendor = site.stacks[other].gpu
            if other_vendor != vendor:
                yield make_finding(
                    "several-gpu-vendors",
                    f"{path}.stacks.{stack}.kinds",
                    vendor=vendor,
                    other=other,
                    other_vendor=other_vendor,
                    kind=kind,
                )
                break


def families_cover_every_release(site: Site) -> Faults:
    """Each release that images bring has exactly one default family."""
    if not site.families:
        yield make_finding("list-empty", "families", example="the family of the site's images")
    for stack in site.gpu_stacks:
        ranges = {n: f.default_for[stack] for n, f in site.families.items() if f.default_for and stack in f.default_for}
        for version in map(parse_version, site.releases(stack)):
            release = f"{site.stacks[stack].title} {version}"
            names = [name for name, covered in ranges.items() if version in covered]
            if not names:
                yield make_finding("default-family-missing", "families", release=release)
            elif len(names) > 1:
                path = f"families.{names[1]}.default_for.{stack}"
                yield make_finding("default-family-repeated", path, release=release, family=names[0])


def releases_say_where(site: Site) -> Faults:
    """What images may bring says where it is found, there is a runtime, and no sign of the site fits any machine."""
    for index, sign in enumerate(site.known_by):
        if not sign.strip("*?/"):
            yield make_finding("pattern-too-wide", f"known_by[{index}]", pattern=sign)
    if not site.runtimes:
        yield make_finding("list-empty", "runtimes", example="singularity")
    for stack in site.gpu_stacks:
        for version, release in site.releases(stack).items():
            if release.found is None:
                yield make_finding("key-missing", f"stacks.{stack}.releases.{version}.found")


def modules_fit_together(site: Site) -> Faults:
    """Modules load others in versions that they can know, and never themselves."""
    for name, module in site.modules.items():
        path = f"modules.{name}"
        yield from _version_faults(site, f"{path}.version", module)
        if name.startswith((".", "-")):
            yield wrong_type(name, "name of a module", "a letter or a digit first").finding(path)
        for other in module.loads:
            if other in site.modules:
                yield from _load_faults(site, path, module, other)
        if not module.systems:
            yield make_finding("list-empty", f"{path}.systems", example="lmod")
        for foreign in module.conflicts:
            if foreign in site.modules:
                yield make_finding("conflict-with-own-module", f"{path}.conflicts", module=foreign)
        for old in module.old_versions:
            if not is_file_name(old):
                yield wrong_type(old, "version of a module", "25.03").finding(f"{path}.old_versions")
        if name in site.loaded_with(module.loads):
            yield make_finding("module-loads-itself", f"{path}.loads")


def _load_faults(site: Site, path: str, module: Module, other: str) -> Faults:
    loaded = site.modules[other]
    if missing := tuple(part for part in loaded.version if part not in (PLATFORM, *module.version)):
        yield make_finding("module-version-unknown", f"{path}.loads", module=other, missing=missing)
    for system in module.systems:
        if system not in loaded.systems:
            yield make_finding("module-system-missing", f"{path}.systems", module=other, system=system)


def _version_faults(site: Site, path: str, module: Module) -> Faults:
    if not module.version:
        yield make_finding("list-empty", path, example=f"[{PLATFORM}], or stacks")
    if module.version == (PLATFORM,):
        return
    for index, stack in enumerate(module.version):
        if stack not in site.stacks:
            yield make_finding("unknown-name", path, name=stack, **alternatives(stack, [PLATFORM, *site.stacks]))
        elif stack in module.version[:index]:
            yield make_finding("named-twice", path, name=stack)
        for name, platform in site.platforms.items() if stack in site.stacks else ():
            if stack not in platform.stacks:
                yield make_finding("module-version-unknown", path, platform=name, stack=stack)


def validation_fits(site: Site) -> Faults:
    """What is validated runs on several nodes, no more than its partition has, and is judged by values that can be."""
    plan = site.validation
    if plan is None:
        return
    most = site.partitions[plan.partition].max_nodes if plan.partition in site.partitions else None
    yield from _in_range("validation.nodes", plan.nodes, 2, most)
    yield from _in_range("validation.tasks_per_node", plan.tasks_per_node, 1)
    least_days = 3 if plan.baseline_why is None else 1
    yield from _in_range("validation.baseline_days", plan.baseline_days, least_days, or_key="`baseline_why`")
    if plan.backend == "nccl" and not site.gpu_stacks:
        yield make_finding("key-without-effect", "validation.backend", needs="a stack with `gpu`")
    first_of: dict[str, int] = {}
    for index, rule in enumerate(plan.metrics):
        path, first = f"validation.metrics[{index}]", first_of.setdefault(rule.metric, index)
        yield from _in_range(f"{path}.floor", rule.floor, 0, 1)
        if rule.threshold >= 1:
            yield from _in_range(f"{path}.threshold", rule.threshold, 0, 0.99)
        if first != index:
            yield make_finding("entry-never-used", f"{path}.metric", first=f"metrics[{first}]")


def _in_range(path: str, value: float, least: float, most: float | None = None, or_key: str = "") -> Faults:
    if value < least:
        yield make_finding("value-out-of-range", path, value=value, least=least, or_key=or_key)
    elif most is not None and value > most:
        yield make_finding("value-out-of-range", path, value=value, most=most)


def sources_are_described(site: Site) -> Faults:
    """Where the site has a table of sources, each `source` is made of its names."""
    if not site.sources:
        for index, setting in enumerate(site.settings):
            if any(source_ids(evidence.source) != (HERE,) for evidence in setting.evidence):
                yield make_finding("sources-undescribed", f"settings[{index}].evidence")
        return
    known = [*site.sources, HERE]
    for path, item, text in _keys_of(site):
        if item.name == "source" and text is not None:
            yield from unknown(path, source_ids(text), known)


#: In stages: the rules of the second may rely on versions being versions.
STAGES: tuple[tuple[Rule, ...], ...] = (
    (versions_are_versions,),
    (
        names_are_described,
        platforms_fit_their_releases,
        families_cover_every_release,
        releases_say_where,
        modules_fit_together,
        *HOST_RULES,
        *LEDGER_RULES,
        sources_are_described,
        validation_fits,
    ),
    (partitions_tell_kinds_apart,),
)
