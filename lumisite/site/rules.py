"""Rules between keys of a site description; each yields a finding for every fault, on a file whose values are sound."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection

from lumisite.errors import UnfitError, wrong_type
from lumisite.findings.finding import Finding
from lumisite.site.decode import Faults, Rule, contradiction, missing_key, unknown
from lumisite.site.entries import Bind, Setting
from lumisite.site.harmful_values import covers, harms, sets
from lumisite.site.ledger import (
    STEP_CONDITIONS,
    conditions_of,
    depends_on_image,
    describe_conditions,
    exclude,
    image_conditions,
)
from lumisite.site.library_path import folders_inside
from lumisite.site.model import Module, Site
from lumisite.site.nodes import DescribedGpu, NodeKind
from lumisite.site.scalars import TASK, is_file_name
from lumisite.site.selection import PLATFORM
from lumisite.site.software import PlatformStack
from lumisite.site.validation import LEAST_DAYS


def one_stack_has_gpus(site: Site) -> Faults:
    """The GPUs of a site are of one vendor: one stack has `gpu`."""
    for stack, described in site.stacks.items():
        if described.gpu is not None and stack != site.gpu_stack:
            yield contradiction(f"stacks.{stack}.gpu", f"has `gpu` as {site.gpu_stack} has it", "describe one of them")


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
                yield _count(path, len(bus_ids), gpus)


def _of_installed(path: str, available: PlatformStack) -> Faults:
    """Yield the faults of what a platform has of a stack that is installed on the host."""
    if not available.supported:
        yield missing_key(f"{path}.supported")
    elif available.default not in available.supported:
        yield contradiction(f"{path}.default", f"{available.default} is not in `supported`", "change one of the two")


def _of_driver(site: Site, path: str, available: PlatformStack) -> Faults:
    """Yield the faults of what a platform has of a stack that images bring."""
    default = available.default
    if not available.has(default):
        message = f"{default} is outside the range {available.runs} of the driver"
        yield contradiction(f"{path}.default", message, "change the default, or what the driver runs")
    for key in ("driver", "runs"):
        if getattr(available, key) is None and any(kind.gpus for kind in site.node_kinds.values()):
            yield missing_key(f"{path}.{key}")


def releases_have_a_location(site: Site) -> Faults:
    """Each release that images may bring has `found`."""
    for version, release in site.releases(site.gpu_stack or "").items():
        if release.found is None:
            yield missing_key(f"stacks.{site.gpu_stack}.releases.{version}.found")


def modules_fit_together(site: Site) -> Faults:
    """Modules load others in versions that they can know, and never themselves."""
    for name, module in site.modules.items():
        path = f"modules.{name}"
        yield from _version_faults(site, f"{path}.version", module)
        for other in module.loads:
            yield from _load_faults(site, path, module, other)
        if name in site.loaded_with(module.loads):
            message = "loads itself, through other modules"
            yield contradiction(f"{path}.loads", message, "remove one of the loads")


def _load_faults(site: Site, path: str, module: Module, other: str) -> Faults:
    loaded = site.modules[other]
    if missing := tuple(part for part in loaded.version if part not in (PLATFORM, *module.version)):
        message = f"{other} has a version by {', '.join(missing)}, which this module does not have"
        yield contradiction(f"{path}.loads", message, "add the stack to `version` of the module")


def _version_faults(site: Site, path: str, module: Module) -> Faults:
    if module.version == (PLATFORM,):
        return
    yield from unknown(path, module.version, site.stacks)
    for stack in module.version:
        for name, platform in site.platforms.items() if stack in site.stacks else ():
            if stack not in platform.stacks:
                yield contradiction(path, f"platform {name} has no {stack}", "add the stack to the platform")


def validation_fits(site: Site) -> Faults:
    """What is validated runs on several nodes, no more than its partition has, and is judged by values that can be."""
    plan = site.validation
    if plan is None:
        return
    most = site.partitions[plan.partition].max_nodes
    if most is not None and plan.nodes > most:
        yield _too_many("validation.nodes", plan.nodes, most)
    days = plan.baseline_days
    if days < LEAST_DAYS and plan.baseline_why is None:
        message = f"{days} is less than {LEAST_DAYS}"
        yield contradiction("validation.baseline_days", message, "or give a reason in `baseline_why`")
    if plan.backend == "nccl" and site.gpu_stack is None:
        message = "has no effect without a stack with `gpu`"
        yield contradiction("validation.backend", message, "remove the key")


def node_kinds_add_up(site: Site) -> Faults:
    """Cores belong to one L3 group, siblings pair up, and GPUs are near something that the node has."""
    for name, kind in site.node_kinds.items():
        path = f"node_kinds.{name}"
        yield from _cpu_faults(path, kind)
        domains = {group.numa for group in kind.l3}
        domains_of = {"gpus": [gpu.numa for gpu in kind.gpus], "nics": [nic.numa for nic in kind.nics]}
        for key, numbers in domains_of.items():
            for index, numa in enumerate(numbers):
                yield from unknown(f"{path}.{key}[{index}].numa", [str(numa)], map(str, sorted(domains)))
        for index, gpu in enumerate(kind.gpus):
            yield from _gpu_faults(f"{path}.gpus[{index}]", kind, gpu, site.fabric_of(name).adapters)


def _cpu_faults(path: str, kind: NodeKind) -> Faults:
    seen: set[int] = set()
    for index, group in enumerate(kind.l3):
        cores, siblings = group.cores, group.siblings or ()
        if siblings and len(siblings) != len(cores):
            yield _count(f"{path}.l3[{index}].siblings", len(siblings), len(cores))
        repeated = seen.intersection(cores + siblings) | set(cores).intersection(siblings)
        if repeated:
            yield _twice(f"{path}.l3[{index}].cores", min(repeated))
        seen.update(cores + siblings)
    unknown_cpus = [str(cpu) for cpu in kind.reserved or () if cpu not in seen]
    yield from unknown(f"{path}.reserved", unknown_cpus, map(str, sorted(seen)))


def _gpu_faults(path: str, kind: NodeKind, gpu: DescribedGpu, adapters: Collection[str]) -> Faults:
    if gpu.adapter is not None:
        yield from unknown(f"{path}.adapter", [gpu.adapter], adapters)
    if gpu.l3 is None:
        return
    if gpu.l3 >= len(kind.l3):
        yield _too_many(f"{path}.l3", gpu.l3, len(kind.l3) - 1)
    elif kind.l3[gpu.l3].cache is not None:
        message = f"L3 group {gpu.l3} is a part of a cache that serves several NUMA domains"
        yield contradiction(f"{path}.l3", message, "give `numa` alone")
    elif kind.l3[gpu.l3].numa != gpu.numa:
        message = f"L3 group {gpu.l3} is in NUMA domain {kind.l3[gpu.l3].numa}"
        yield contradiction(f"{path}.numa", message, "correct `l3` or `numa`")


def libraries_are_bound(site: Site) -> Faults:
    """Families name libraries that platforms have, below a path that one of their modules binds.

    The container wrapper (Tykky) binds all of the host by itself.
    """
    for name, family in site.families.items():
        path = f"families.{name}.library_path"
        for platform in site.platforms.values():
            yield from unknown(path, family.library_path, platform.libraries)
        if family.activation != "tykky":
            for index, library in enumerate(family.library_path):
                yield from _unbound(site, name, f"{path}[{index}]", library)


def _unbound(site: Site, family: str, path: str, library: str) -> Faults:
    for name, platform in site.platforms.items():
        if library not in platform.libraries:
            continue
        folder = platform.libraries[library]
        if not folders_inside(site, name, family, f"{folder}/lib64"):
            modules = ", ".join(site.families[family].modules)
            bound = f"below a bind of {modules}" if modules else "bound"
            message = f"{folder}/lib64 of platform {name} is not {bound}"
            yield contradiction(path, message, f"bind {posixpath.dirname(folder)}")


def private_folders_have_a_place(site: Site) -> Faults:
    """Settings that name a directory have a place for it, which is of one node alone."""
    for index, system in enumerate(site.file_systems):
        if system.writable and system.kind != "node-local":
            message = "has no effect without `kind: node-local`"
            yield contradiction(f"file_systems[{index}].writable", message, "remove the key")
    local = tuple(system.path for system in site.file_systems if system.kind == "node-local") or ("a node-local one",)
    for index, setting in enumerate(() if site.private_places else site.settings):
        if setting.directory is not None and setting.where == TASK:
            path = f"settings[{index}].directory"
            message = f"{setting.name} needs a private directory, and users can make one in no file system"
            yield contradiction(path, message, f"set `writable` of {', '.join(local)}")


#: What works only with a partner: `NAME=VALUE` of a variable, or an option of srun.
_PAIRED = re.compile(r"[A-Za-z_]\w*=.+|--[a-z][\w-]*(=.+)?")

#: What an entry of the ledger can do to its variable.
_FORMS = ("value", "directory", "computed", "unset", "leave")
#: Variables that lumisite itself manages; a ledger entry for one would fight with it.
RESERVED_VARIABLES = ("PATH", "SLURM_TASK_PROLOG", "BASH_ENV", "ENV", "IFS", "LD_PRELOAD", "MODULEPATH")


def nothing_is_left_for_a_shell(site: Site) -> Faults:
    """Paths and values are meant as they are: nothing expands `$NAME`, and no bind is a pattern."""
    for path, bind in site.host_paths.items():
        for key in ("path", "target"):
            if (sign := _shell_sign(getattr(bind, key) or "", "*?;")) and not bind.exact:
                yield _not_expanded(f"{path}.{key}", sign)
    for index, setting in enumerate(site.settings):
        if (sign := _shell_sign(setting.value or "")) and not setting.exact:
            yield _not_expanded(f"settings[{index}].value", sign)


def modules_keep_their_binds(site: Site) -> Faults:
    """A path is bound in one place: a module that leaves could otherwise take away another's bind."""
    owners: dict[str, str] = {}
    for path, bind in site.host_paths.items():
        if bind.where is not None and owners.setdefault(bind.path, bind.where) != bind.where:
            message = f"{bind.path} is bound by {owners[bind.path]} already"
            yield contradiction(f"{path}.path", message, "bind each path in one place")


def conditions_can_be_known(site: Site) -> Faults:
    """What takes effect before the step, or before the image is known, has no conditions about those."""
    lists: dict[str, tuple[Bind | Setting, ...]] = {"binds": site.binds, "settings": site.settings}
    for name, entries in lists.items():
        for index, entry in enumerate(entries):
            yield from _condition_faults(site, f"{name}[{index}].when", entry)


def _condition_faults(site: Site, path: str, entry: Bind | Setting) -> Faults:
    if entry.where == TASK:
        if isinstance(entry, Bind) and depends_on_image(site, entry.when):
            advice = "use `modules` of the family, or a plan of the image"
            yield contradiction(path, "the task prolog binds before any image is known", advice)
        return
    module = site.modules[entry.where]
    for condition in conditions_of(entry.when):
        key, name = f"{path}.{'stacks.' if condition in site.stacks else ''}{condition}", str(entry.where)
        if condition in (*STEP_CONDITIONS, *image_conditions(site)):
            advice = f"use `where: task`, where {name} cannot know it"
            yield contradiction(key, f"{name} is loaded before {condition} is known", advice)
        elif condition in site.stacks and condition not in module.version:
            advice = f"use `where: task`, where {name} cannot know it"
            yield contradiction(key, f"versions of {name} do not tell {condition}", advice)


def settings_are_unambiguous(site: Site) -> Faults:
    """Each entry sets, unsets or leaves its variable, and can win somewhere."""
    unconditional: dict[str, int] = {}
    for index, setting in enumerate(site.settings):
        path = f"settings[{index}]"
        yield from _form_faults(path, setting)
        if setting.where == TASK and ";" in (setting.value or ""):
            # It parts what the helper remembers of its own settings.
            message = f"{setting.value!r} contains ';'"
            yield UnfitError(message, "use a text without it").finding(f"{path}.value")
        if setting.computed and depends_on_image(site, setting.when):
            conditions = ", ".join(image_conditions(site))
            message = f"is computed before any image is known, so `when` cannot have {conditions}"
            yield contradiction(f"{path}.computed", message, "use `modules` of the family, or a plan of the image")
        yield from _libfabric_faults(site, index, setting)
        if setting.where != TASK and (setting.directory or setting.computed or setting.unset):
            yield contradiction(path, "a module can only set a value, or leave it", "use `where: task`")
        if setting.name in RESERVED_VARIABLES or setting.name.startswith("LUMISITE") or "_BIND" in setting.name:
            yield _reserved(f"{path}.name", setting.name)
        if setting.name in unconditional:
            yield _never_used(path, f"settings[{unconditional[setting.name]}]")
        elif not conditions_of(setting.when):
            unconditional[setting.name] = index


def _libfabric_faults(site: Site, index: int, setting: Setting) -> Faults:
    """Yield what is wrong with a condition about the image's libfabric.

    The wrapper has a list of variables for each image, which it leaves alone in every step and before any other entry.
    """
    path = f"settings[{index}].when.libfabric"
    if setting.when.libfabric is None:
        return
    if not setting.leave:
        message = "no helper knows the image's libfabric, so `when` cannot have it"
        yield contradiction(path, message, "use it where the variable is left alone")
    others = [name for name in conditions_of(setting.when) if name not in (*image_conditions(site), "platform")]
    if others:
        message = f"counts for an image in every step, so `when` cannot have {', '.join(others)} too"
        yield contradiction(path, message, "remove the other conditions")
    first = next((one for one in site.settings[:index] if one.name == setting.name and not one.leave), None)
    if first is not None:
        message = f"counts before settings[{site.settings.index(first)}], which sets the variable"
        yield contradiction(path, message, "move this entry before it")


def _form_faults(path: str, setting: Setting) -> Faults:
    """Yield what is wrong with what an entry does."""
    forms = tuple(form for form in _FORMS if getattr(setting, form) not in (None, False))
    if len(forms) != 1:
        has = f"has {', '.join(forms)}, and must have one of" if forms else "must have one of"
        yield contradiction(path, f"{setting.name} {has} {', '.join(_FORMS)}", "use one of them")
    if not all(map(is_file_name, (setting.directory or "x").replace("{rank}", "0").split("/"))):
        yield wrong_type(str(setting.directory), "plain relative path", "caches/db").finding(f"{path}.directory")
    for number, name in enumerate(setting.with_directories):
        if not is_file_name(name):
            yield wrong_type(name, "plain name", "db").finding(f"{path}.with_directories[{number}]")


def settings_do_no_harm(site: Site) -> Faults:
    """No entry sets a value where it does harm; its `when` leaves that out, by what only an image that was read has.

    A family is a guess by a name that anybody may give to an image.
    """
    read = {*image_conditions(site)} - {"family"}
    for index, setting in enumerate(site.settings):
        for harm in harms(site, setting.name) if sets(setting) else ():
            if not covers(harm.patterns, setting):
                continue
            if depends_on_image(site, harm.harmful.when) and read.isdisjoint(conditions_of(setting.when)):
                message = f"{setting.name} does harm in some images, and no condition is of what was read in an image"
                advice = f"add one of {', '.join(sorted(read))} to `when`, or use `leave: yes`"
                yield contradiction(f"settings[{index}]", message, advice)
            elif not exclude(setting.when, harm.harmful.when):
                where = describe_conditions(harm.harmful.when)
                message = f"{setting.name} is harmful where {where}"
                advice = "exclude that by `when`, or use `leave: yes`"
                yield contradiction(f"settings[{index}]", message, advice)


def pairs_have_a_partner(site: Site) -> Faults:
    """What works only with an option of srun, or without one, says which."""
    for index, pair in enumerate(site.needs):
        path = f"needs[{index}]"
        if not _PAIRED.fullmatch(pair.this):
            kind = "variable with a value, or srun option"
            yield wrong_type(pair.this, kind, "NCCL_NET=Socket").finding(f"{path}.this")
        if bool(pair.needs) == bool(pair.excludes):
            yield missing_key(f"{path}.needs", "add it, or `excludes`, and not both")
        for option in pair.partners:
            if option and not option.startswith("--"):
                yield wrong_type(option, "srun option", "--network=no_vni").finding(path)


def _twice(path: str, name: object, first: str = "") -> Finding:
    where = f" (first: {first})" if first else ""
    return contradiction(path, f"{name} is listed twice{where}", "remove one of the two")


def _count(path: str, actual: int, expected: int) -> Finding:
    return contradiction(path, f"has {actual} entries, expected {expected}", "add or remove entries")


def _too_many(path: str, value: int, most: int) -> Finding:
    return contradiction(path, f"{value} is more than {most}", "use another value")


def _reserved(path: str, name: str) -> Finding:
    return contradiction(path, f"{name} is reserved", "use another name")


def _never_used(path: str, first: str) -> Finding:
    return contradiction(path, f"never counts, because {first} comes first", "remove it, or move it before the other")


def _shell_sign(text: str, more: str = "") -> str:
    """Return the first sign of a text by which a shell would fill something in, or one of `more`; empty where none is.

    >>> _shell_sign("/users/${USER}"), _shell_sign("US$ 5"), _shell_sign("/lib/libcuda*", "*?")
    ('${USER', '', '*')
    """
    found = re.search(r"\$(?:[A-Za-z_{(]\w*)|`", text)
    return found[0] if found else next((sign for sign in text if sign in more), "")


def _not_expanded(path: str, sign: str) -> Finding:
    return contradiction(
        path,
        f"contains {sign!r}, which nothing expands",
        "write what it stands for, or `exact: yes` to keep it as it is",
    )


RULES: tuple[Rule, ...] = (
    one_stack_has_gpus,
    releases_of_platforms_are_described,
    platforms_fit_their_releases,
    releases_have_a_location,
    modules_fit_together,
    node_kinds_add_up,
    libraries_are_bound,
    private_folders_have_a_place,
    conditions_can_be_known,
    nothing_is_left_for_a_shell,
    modules_keep_their_binds,
    settings_are_unambiguous,
    settings_do_no_harm,
    validation_fits,
    pairs_have_a_partner,
)
