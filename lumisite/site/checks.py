"""Rules between keys of a site description; each yields a finding for every fault."""

from __future__ import annotations

import re

from lumisite.findings.catalogue import make_finding
from lumisite.site.decode import Faults, Rule, unknown, wrong_type
from lumisite.site.document import Document
from lumisite.site.evidence import HERE
from lumisite.site.host_checks import HOST_RULES
from lumisite.site.ledger_checks import LEDGER_RULES
from lumisite.site.model import LEAST_DAYS, Module, Site
from lumisite.site.scalars import TASK
from lumisite.site.selection import PLATFORM
from lumisite.site.software import PlatformStack
from lumisite.site.versions import Version, parse_version

#: No stack can be called so: conditions, and what `resolve` tells, have these names already.
_NO_STACKS = ("platform", "nodes", "gpus", "partition", "kind", "variable", "family", "plugin", "stacks", "candidates")


def stacks_are_distinct(site: Site) -> Faults:
    """No stack has the name of something else, no two releases of it are the same version, and one has `gpu`."""
    for stack, described in site.stacks.items():
        if described.gpu is not None and stack != site.gpu_stack:
            yield make_finding("several-gpu-stacks", f"stacks.{stack}.gpu", first=site.gpu_stack)
        if stack in _NO_STACKS:
            yield make_finding("name-reserved", f"stacks.{stack}", name=stack)
        seen: dict[Version, str] = {}
        for text in described.releases:
            version = parse_version(text)
            if version in seen:
                yield make_finding("named-twice", f"stacks.{stack}.releases.{text}", name=text, first=seen[version])
            seen[version] = text


def releases_of_platforms_are_described(site: Site) -> Faults:
    """A platform has releases that the site describes."""
    for name, platform in site.platforms.items():
        for stack, available in platform.stacks.items():
            path = f"platforms.{name}.stacks.{stack}"
            known = site.stacks[stack].releases
            yield from unknown(f"{path}.default", [str(available.default)], known)
            for key in ("supported", "leftover", "in_use"):
                yield from unknown(f"{path}.{key}", map(str, getattr(available, key)), known)


def platforms_fit_their_releases(site: Site) -> Faults:
    """A platform's default releases are among those that it has, and it has a bus id for each GPU."""
    for name, platform in site.platforms.items():
        for stack, available in platform.stacks.items():
            path = f"platforms.{name}.stacks.{stack}"
            if site.stacks[stack].gpu:
                yield from _of_driver(site, path, available)
            else:
                yield from _of_installed(path, available)
        for kind, bus_ids in platform.gpu_bus_ids.items():
            gpus = len(site.node_kinds[kind].gpus)
            if len(bus_ids) != gpus:
                path = f"platforms.{name}.gpu_bus_ids.{kind}"
                yield make_finding("wrong-count", path, actual=len(bus_ids), expected=gpus)


def _of_installed(path: str, available: PlatformStack) -> Faults:
    """Yield the faults of what a platform has of a stack that is installed on the host."""
    if not available.supported:
        yield make_finding("key-missing", f"{path}.supported")
    elif available.default not in available.supported:
        yield make_finding("default-not-supported", f"{path}.default", version=str(available.default))
    for version in available.leftover:
        if version in available.supported:
            yield make_finding("named-twice", f"{path}.leftover", name=str(version), first="supported")
    for key in ("driver", "runs", "compat", "in_use"):
        if getattr(available, key):
            yield make_finding("key-without-effect", f"{path}.{key}", needs="`gpu` of the stack")


def _of_driver(site: Site, path: str, available: PlatformStack) -> Faults:
    """Yield the faults of what a platform has of a stack that images bring."""
    for key in ("supported", "leftover"):
        if getattr(available, key):
            yield make_finding("key-without-effect", f"{path}.{key}", excluded_by="`gpu` of the stack")
    default = available.default
    if not available.supported and not available.has(default):
        runs = str(available.runs)
        yield make_finding("default-not-supported", f"{path}.default", version=str(default), range=runs)
    for key in ("driver", "runs"):
        if getattr(available, key) is None and any(kind.gpus for kind in site.node_kinds.values()):
            yield make_finding("key-missing", f"{path}.{key}")


def families_cover_every_release(site: Site) -> Faults:
    """Each release that images bring has exactly one default family."""
    stack = site.gpu_stack
    if stack is None:
        return
    ranges = {n: f.default_for[stack] for n, f in site.families.items() if f.default_for and stack in f.default_for}
    for version in map(parse_version, site.releases(stack)):
        release = f"{site.stacks[stack].title} {version}"
        names = [name for name, covered in ranges.items() if version in covered]
        if not names:
            yield make_finding("default-family-missing", "families", release=release)
        elif len(names) > 1:
            path = f"families.{names[1]}.default_for.{stack}"
            yield make_finding("default-family-repeated", path, release=release, family=names[0])


def releases_have_a_location(site: Site) -> Faults:
    """Each release that images may bring has `found`."""
    for version, release in site.releases(site.gpu_stack or "").items():
        if release.found is None:
            yield make_finding("key-missing", f"stacks.{site.gpu_stack}.releases.{version}.found")


def modules_fit_together(site: Site) -> Faults:
    """Modules load others in versions that they can know, and never themselves."""
    for name, module in site.modules.items():
        path = f"modules.{name}"
        yield from _version_faults(site, f"{path}.version", module)
        if name.startswith((".", "-")):
            yield wrong_type(name, "module name", "AI-bindings").finding(path)
        for other in module.loads:
            yield from _load_faults(site, path, module, other)
        for foreign in module.conflicts:
            if foreign in site.modules:
                yield make_finding("conflict-with-own-module", f"{path}.conflicts", module=foreign)
        if name in site.loaded_with(module.loads):
            yield make_finding("module-loads-itself", f"{path}.loads")


def _load_faults(site: Site, path: str, module: Module, other: str) -> Faults:
    loaded = site.modules[other]
    if missing := tuple(part for part in loaded.version if part not in (PLATFORM, *module.version)):
        yield make_finding("module-version-unknown", f"{path}.loads", module=other, missing=missing)


def _version_faults(site: Site, path: str, module: Module) -> Faults:
    if module.version == (PLATFORM,):
        return
    yield from unknown(path, module.version, site.stacks)
    for index, stack in enumerate(module.version):
        if stack in module.version[:index]:
            yield make_finding("named-twice", path, name=stack)
        for name, platform in site.platforms.items() if stack in site.stacks else ():
            if stack not in platform.stacks:
                yield make_finding("module-version-unknown", path, platform=name, stack=stack)


def validation_fits(site: Site) -> Faults:
    """What is validated runs on several nodes, no more than its partition has, and is judged by values that can be."""
    plan = site.validation
    if plan is None:
        return
    most = site.partitions[plan.partition].max_nodes
    if most is not None and plan.nodes > most:
        yield make_finding("value-out-of-range", "validation.nodes", value=plan.nodes, most=most)
    days = plan.baseline_days
    if days < LEAST_DAYS and plan.baseline_why is None:
        path, reason = "validation.baseline_days", "`baseline_why`"
        yield make_finding("value-out-of-range", path, value=days, least=LEAST_DAYS, or_key=reason)
    if plan.backend == "nccl" and site.gpu_stack is None:
        yield make_finding("key-without-effect", "validation.backend", needs="a stack with `gpu`")
    first_of: dict[str, int] = {}
    for index, rule in enumerate(plan.metrics):
        path, first = f"validation.metrics[{index}]", first_of.setdefault(rule.metric, index)
        if first != index:
            yield make_finding("entry-never-used", f"{path}.metric", first=f"metrics[{first}]")


def with_tables(document: Document) -> None:
    """Add the tables of names that keys of a site description may refer to."""
    tables = {name: value for name, value in document.value.items() if isinstance(value, dict)}
    if not tables.get("sources"):  # an empty table is one that nobody wrote: sources may have any name
        tables.pop("sources", None)
    stacks = tables.get("stacks", {}).values()
    document.tables = {
        **tables,
        "places": dict.fromkeys([TASK, *tables.get("modules", ())]),
        "version_parts": dict.fromkeys([PLATFORM, *tables.get("stacks", ())]),
        "gpus": [vendor for stack in stacks if isinstance(stack, dict) and isinstance(vendor := stack.get("gpu"), str)],
    }
    if "sources" in tables:
        document.tables["sources"] = dict.fromkeys([*tables["sources"], HERE])


#: What works only with a partner: `NAME=VALUE` of a variable, or an option of srun.
_PAIRED = re.compile(r"[A-Za-z_]\w*=.+|--[a-z][\w-]*(=.+)?")


def pairs_have_a_partner(site: Site) -> Faults:
    """What works only with an option of srun, or without one, says which."""
    for index, pair in enumerate(site.needs):
        path = f"needs[{index}]"
        if not _PAIRED.fullmatch(pair.this):
            yield wrong_type(pair.this, "variable with a value, or srun option", "NCCL_NET=Socket").finding(
                f"{path}.this"
            )
        if bool(pair.needs) == bool(pair.excludes):
            yield make_finding("key-missing", f"{path}.needs")
        for option in (pair.needs or pair.excludes or "--").split(" or "):
            if not option.startswith("--"):
                yield wrong_type(option, "srun option", "--network=no_vni").finding(path)


RULES: tuple[Rule, ...] = (
    stacks_are_distinct,
    releases_of_platforms_are_described,
    platforms_fit_their_releases,
    families_cover_every_release,
    releases_have_a_location,
    modules_fit_together,
    *HOST_RULES,
    *LEDGER_RULES,
    validation_fits,
    pairs_have_a_partner,
)
