"""What of a site each kind of change touches."""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Callable, Iterator
from typing import TypeAlias

from lumisite.facts.change import Change, Touched, borrows, joined
from lumisite.facts.context import Context, stated_devices, stated_paths, stored_plan
from lumisite.facts.facts import Library
from lumisite.facts.slurm import FILTER, NODE_KEYS, spool_folder
from lumisite.machine.tree import is_under
from lumisite.paths import CLI_FILTER, PROLOG, WRAPPERS
from lumisite.site.images import family_by_path, parse_release, releases_by_name
from lumisite.text import listed
from lumisite.vendors import gpu_of

Touches: TypeAlias = Callable[[Change, Context], Iterator[Touched]]


def nothing(change: Change, context: Context) -> Iterator[Touched]:
    """Yield nothing: no part of a site names it."""
    yield from ()


def _helper(*files: str) -> Touches:
    """Return a function that yields files of the helper."""
    return lambda change, context: (Touched("helper", file, f"depends on {change.subject}") for file in files)


starter, task_prolog = _helper(WRAPPERS), _helper(PROLOG)


def platform(key: str) -> Touches:
    """Return a function that yields a key of the platform before, with what it states."""

    def touches(change: Change, context: Context) -> Iterator[Touched]:
        stated = getattr(context.old, key)
        yield Touched("site", f"platforms.{context.was}.{key}", f"states {stated or 'what changed'}")

    return touches


def settings_holding(between: str) -> Touches:
    """Return a function that yields the settings whose value has the last word of the subject."""
    return lambda change, context: context.settings_holding(change.subject.rpartition(between)[2])


def settings_called(pattern: str) -> Touches:
    """Return a function that yields the settings whose names match a pattern."""
    return lambda change, context: context.settings_called(pattern, change.subject)


def path(change: Change, context: Context) -> Iterator[Touched]:
    """Yield what names the path, and the plans with libraries below it."""
    yield from context.all_naming(change.subject)
    yield from context.plans_with([*context.sonames_under(change.subject), posixpath.basename(change.subject)])


# The system


def system(change: Change, context: Context) -> Iterator[Touched]:
    """Yield what the parts of the operating system touch, which are not reported beside it."""
    yield from platform("os")(change, context)
    parts = [part.partition(" ")[0] for part in change.names("parts")]
    if "kernel" in parts:
        yield from platform("kernel")(change, context)
        yield from kernel_config(change, context)
    if "glibc" in parts:
        yield from glibc(change, context)


def glibc(change: Change, context: Context) -> Iterator[Touched]:
    """Yield every plan: what images need of glibc is compared with what the host's libraries need."""
    for name, family in context.site.families.items():
        if family.libraries:
            yield Touched("plan", name, borrows(family.libraries))
    for stored in context.plans:
        if bound := tuple(line.library for line in stored.plan.lines if line.decision == "bind"):
            yield stored_plan(stored, f"decides about {listed(bound)}")


def kernel_config(change: Change, context: Context) -> Iterator[Touched]:
    """Yield the settings that name a part of the kernel, binds of the file, and what starts containers."""
    for part in re.findall(r"CONFIG_(\w+)", f"{change.before}, {change.after}"):
        yield from context.settings_holding(part.lower())
    yield from context.settings_called("DMABUF", change.subject)
    for key, bind in context.site.host_paths.items():
        if bind.path.startswith("/boot"):
            yield Touched("site", f"{key}.path", f"names {bind.path}")
    yield from starter(change, context)


def limits(change: Change, context: Context) -> Iterator[Touched]:
    """Yield the ranks of all jobs, and for memory that is locked the settings about memory of the network."""
    yield Touched("site", "partitions", f"ranks on the node get {change.subject}")
    if change.subject.lower().endswith("memlock"):
        yield from context.settings_called("MR_CACHE|REGISTER|HUGE|_HP$", change.subject)


def mounts(change: Change, context: Context) -> Iterator[Touched]:
    """Yield the ranks of all jobs, and what names a path on the mount."""
    yield Touched("site", "partitions", f"ranks on the node get {change.subject}")
    if change.subject != "/":
        yield from context.all_naming(change.subject)


def runtime(change: Change, context: Context) -> Iterator[Touched]:
    """Yield the variant that the site states, and the wrapper."""
    site = context.site
    yield Touched("site", f"runtimes.{site.command}.variant", f"states {site.runtime.variant}")
    yield from starter(change, context)


# Devices


def driver(change: Change, context: Context) -> Iterator[Touched]:
    """Yield, for the stack that the driver decides on, the entry of the platform and what the driver drops."""
    stack = context.driven
    if stack is None or change.subject not in gpu_of(str(context.site.gpu_vendor)).drivers:
        return
    key, stated = f"platforms.{context.now or context.was}.stacks.{stack}", context.stated.stacks[stack]
    if change.before != change.after:
        yield Touched("site", f"{key}.driver", f"states {stated.driver}")
    yield Touched("site", f"{key}.runs", f"states {stated.runs}")
    yield from _dropped(stack, context)


def _dropped(stack: str, context: Context) -> Iterator[Touched]:
    """Yield the modules and the images whose release the new driver does not support."""
    title, supported = context.site.stacks[stack].title, str(context.stated.stacks[stack].runs)
    why = f"{title} {{}} is outside {supported}, which the driver supports"
    series = {version.minor: str(version) for version in map(parse_release, context.lost_releases(stack)) if version}
    for release in series.values():
        for name, module in context.site.modules.items():
            for version in context.versions_with(module, stack, release) if stack in module.version else ():
                yield Touched("module", f"{name}/{version}", why.format(release))
    for folder, images in context.after.images.items():
        for name, file in images.items():
            image = f"{folder}/{name}"
            named = releases_by_name(context.site, file.target or image, image).get(stack)
            if context.loses(stack, named):
                yield Touched("image", image, why.format(named))


def gpus(change: Change, context: Context) -> Iterator[Touched]:
    """Yield the node kinds with as many GPUs as this node had, or has, and their masks."""
    for name in context.gpu_kinds:
        yield Touched("site", f"node_kinds.{name}.gpus", f"states {change.before or 'what changed'}")
        yield Touched("mask", name, f"masks are made from {change.subject}")


def gpu_buses(change: Change, context: Context) -> Iterator[Touched]:
    """Yield the bus ids of the platform, by which a live node is recognised."""
    for name in context.gpu_kinds:
        key = f"platforms.{context.was}.gpu_bus_ids.{name}"
        yield Touched("site", key, f"states {change.before or 'what changed'}")
        yield Touched("mask", name, f"masks are made from {key}")


def cpus(change: Change, context: Context) -> Iterator[Touched]:
    """Yield the groups of each node kind, and the masks that are made from them."""
    for name in context.site.node_kinds:
        yield Touched("site", f"node_kinds.{name}.l3", "states what changed")
        if "groups" in change.names("how"):
            yield Touched("mask", name, f"masks are made from {change.subject}")


def interfaces(change: Change, context: Context) -> Iterator[Touched]:
    """Yield the interfaces of the fabric, whichever they are."""
    yield Touched("site", "fabric.interfaces", f"states {joined(map(str, context.site.fabric.interfaces))}")


def device(change: Change, context: Context) -> Iterator[Touched]:
    """Yield the keys and settings that name an interface or adapter; of one elsewhere the places of node kinds too."""
    name = change.subject
    for key, stated in stated_devices(context.site):
        if name == stated:
            yield Touched("site", key, f"names {name}")
    yield from context.settings_holding(name)
    is_elsewhere = change.is_one_sided or any(field.startswith(("numa ", "cpus ")) for field in change.names("fields"))
    for kind, node in context.site.node_kinds.items():
        if change.kind == "nic" and is_elsewhere and node.nics:
            yield Touched("site", f"node_kinds.{kind}.nics", f"names {name}")


# Releases and images


def product(change: Change, context: Context) -> Iterator[Touched]:
    """Yield what names the folder that went, what lacks the one that came, and what binds either."""
    gone, come = change.before, change.after
    if gone is not None:
        yield from context.keys_naming(gone)
        yield from context.settings_holding(gone)
        yield from context.plans_under(gone)
        yield from _families_searching(context, gone)
        yield from context.plans_with(context.sonames_under(gone))
    if come is not None and not any(is_under(stated, come) for _, stated in stated_paths(context.site)):
        yield Touched("site", "platforms", f"does not name {come}")
    yield from context.modules_binding(gone or come or "")


def _families_searching(context: Context, folder: str) -> Iterator[Touched]:
    platforms = context.site.platforms.values()
    libraries = {name for each in platforms for name, at in each.libraries.items() if is_under(at, folder)}
    for name, family in context.site.families.items():
        if used := tuple(sorted(libraries.intersection(family.library_path))):
            yield Touched("family", name, f"LD_LIBRARY_PATH of its images has {listed(used)}")


def stack(change: Change, context: Context) -> Iterator[Touched]:
    """Yield what needs a release that went, and where one that came is not described."""
    if not (name := context.stack_of(change.subject)):
        return
    for release in change.names("gone"):
        gone = _gone_for_modules if context.site.stacks[name].gpu is None else _gone_for_images
        yield from gone(context, name, release)
    for release in change.names("come"):
        if release not in context.site.releases(name):
            yield Touched("site", f"stacks.{name}.releases", f"does not name {release}")


def _gone_for_modules(context: Context, name: str, release: str) -> Iterator[Touched]:
    """Yield what names a release that only the host has."""
    stated = context.old.stacks.get(name)
    if stated is None:
        return
    if release in map(str, stated.installed):
        yield Touched("site", f"platforms.{context.was}.stacks.{name}.supported", f"states {release}")
    title = context.site.stacks[name].title
    for module_name, module in context.site.modules.items():
        if name in module.version:
            yield Touched("module", f"{module_name}/{release}*", f"{title} {release} is gone")


def _gone_for_images(context: Context, name: str, release: str) -> Iterator[Touched]:
    """Yield what takes a release from the host that images bring too."""
    entry, software = context.site.releases(name).get(release), context.software(name)
    if entry is not None and entry.found != "image":
        yield Touched("site", f"stacks.{name}.releases.{release}", f"states {entry.found}")
    for folder in software.tops(release) if software else ():
        yield from context.keys_naming(folder)
        yield from context.plans_with(context.sonames_under(folder))
        yield from context.plans_under(folder)


def default(change: Change, context: Context) -> Iterator[Touched]:
    """Yield the plans with libraries that come from another release now, and what follows the default."""
    name, after = context.stack_of(change.subject), context.after
    kept = {soname: at for soname, at in context.before.loads.items() if at in after.libraries}
    yield from context.plans_with([soname for soname, at in kept.items() if after.loads.get(soname, at) != at])
    stated = context.old.defaults.get(name)
    if stated is None:
        yield from context.all_naming(f"{change.subject}/default")
        return
    yield Touched("site", f"platforms.{context.was}.stacks.{name}.default", f"states {stated}")
    for module_name, module in context.site.modules.items():
        if name in module.version:
            yield Touched("module", module_name, f"its default version follows the default {change.subject}")


def image(change: Change, context: Context) -> Iterator[Touched]:
    """Yield the family that recognises the image, its modules and plans, and where the site names the image."""
    site = context.site
    paths = dict.fromkeys((*change.names("files"), *filter(None, (change.before, change.after)), *change.paths))
    for at in paths:
        family = family_by_path(site, at, *change.paths)
        if family is not None:
            yield Touched("family", family, f"recognises {at}")
            for module in site.families[family].modules:
                yield Touched("module", module, f"images of {family} are run with it")
            if libraries := tuple(map(str, site.families[family].libraries)):
                yield Touched("plan", family, borrows(libraries))
    for stored in context.plans:
        patterns = stored.plan.paths
        if any(fnmatch.fnmatchcase(at, pattern) for at in paths for pattern in patterns):
            yield stored_plan(stored, "was made for another file")
    if site.validation is not None and site.validation.image in (*change.paths, change.before):
        yield Touched("site", "validation.image", f"names {site.validation.image}")


def release(change: Change, context: Context) -> Iterator[Touched]:
    """Yield all modules."""
    for name in context.site.modules:
        yield Touched("module", name, "users load it from the release that `current` leads to")


def deployed_file(change: Change, context: Context) -> Iterator[Touched]:
    """Yield the module that the file is, or what else runs or reads it."""
    folder, _, rest = change.subject.partition("/")
    name = rest.removesuffix(".lua") if folder == "modules" else change.subject
    yield Touched("module" if folder == "modules" else "helper", name, "differs from what was rendered")


# Libraries


def library(change: Change, context: Context) -> Iterator[Touched]:
    """Yield what borrows the libraries of a change or what needs them, and what binds those that came or went."""
    names = change.names("gone") or change.names("libraries")
    facts = context.before if change.after is None else context.after
    needing = [facts.libraries.get(at, Library()).soname or posixpath.basename(at) for at in change.names("needed_by")]
    about = names if change.kind in ("soname", "cache") else (change.subject,)
    yield from context.plans_with((*about, *needing))
    both = context.before.loads.keys() & context.after.loads.keys()
    yield from context.binds_of([name for name in (*about, *names) if name not in both])


# Modules and Slurm


def module_default(change: Change, context: Context) -> Iterator[Touched]:
    """Yield the defaults that the site states: without a version users get another release."""
    for name in context.site.host_stacks:
        if name in context.old.stacks:
            stated = context.old.defaults[name]
            yield Touched("site", f"platforms.{context.was}.stacks.{name}.default", f"states {stated}")


def module_path(change: Change, context: Context) -> Iterator[Touched]:
    """Yield the modules of the site, which users load beside these, and what names a folder."""
    for folder in change.names("gone"):
        yield from context.all_naming(folder)
    yield from module_default(change, context)


def slurm(change: Change, context: Context) -> Iterator[Touched]:
    """Yield the key of the platform, and what Slurm runs of the helper."""
    yield from platform("slurm")(change, context)
    yield from _helper(PROLOG, CLI_FILTER)(change, context)


def slurm_conf(change: Change, context: Context) -> Iterator[Touched]:
    """Yield the task prolog or the cli_filter, and what names the folder of slurmd."""
    yield from _helper(CLI_FILTER if change.subject == FILTER else PROLOG)(change, context)
    if change.subject == "SlurmdSpoolDir":
        yield from context.all_naming(spool_folder(change.before))


def slurm_node(change: Change, context: Context) -> Iterator[Touched]:
    """Yield what node kinds say of the keys that changed, and their masks."""
    yield from task_prolog(change, context)
    changed = {word.partition("=")[0] for word in (*change.names("gone"), *change.names("come"))}
    stated = {NODE_KEYS[key] for key in changed & NODE_KEYS.keys()}
    for name in context.kinds_like_node:
        for key in sorted(stated):
            yield Touched("site", f"node_kinds.{name}.{key}", "states what changed")
        if stated & {"l3", "reserved"}:
            yield Touched("mask", name, f"masks are made from {change.subject}")


def slurm_devices(change: Change, context: Context) -> Iterator[Touched]:
    """Yield the task prolog, the GPUs of node kinds with the masks, and the settings that choose a GPU."""
    yield from task_prolog(change, context)
    for name in context.kinds_like_node:
        if name in context.gpu_kinds:
            yield Touched("site", f"node_kinds.{name}.gpus", "states what changed")
        yield Touched("mask", name, f"masks are made from {change.subject}")
    for setting in context.site.settings:
        if setting.computed == "one-gpu":
            yield Touched("setting", setting.name, f"depends on {change.subject}")
