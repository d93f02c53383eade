"""What a change does: one rule for each kind of change gives the parts of the site that it touches, and why."""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any, TypeAlias

from lumisite.facts.capture import stated_paths
from lumisite.facts.change import BootConfig, Change, DeployedFile, SymbolVersion, parted
from lumisite.facts.facts import Driver, ImageFile, Interface
from lumisite.facts.named import (
    Touches,
    borrowed,
    bound_files,
    keys_naming,
    modules_binding,
    named,
    plans_under,
    plans_with,
    settings_holding,
    sonames_under,
    stored_plan,
)
from lumisite.facts.site import Context, Touch, families_borrowing
from lumisite.machine.tree import is_under
from lumisite.site.images import family_by_path, told_release, told_releases
from lumisite.vendors import all_vendors, gpu_of

Names = tuple[str, ...]
Rule: TypeAlias = Callable[[Any, Context], Touches]


def touches(change: Change[Any], context: Context) -> tuple[Touch, ...]:
    """Give what a change touches, each part once."""
    found: dict[tuple[str, str], Touch] = {}
    rule: Rule = RULES.get(change.kind, _same)
    for touch in rule(change, context):
        found.setdefault((touch.what, touch.name), touch)
    return tuple(found.values())


def _product(change: Change[str], context: Context) -> Touches:
    """A directory of a product has gone, has come, or both."""
    site, gone = context.site, change.before
    if gone is not None:
        yield from keys_naming(context, gone, "is gone")
        yield from settings_holding(context, gone, ", which is gone")
        yield from plans_under(context, gone)
        libraries = {
            name for one in site.platforms.values() for name, at in one.libraries.items() if is_under(at, gone)
        }
        for name, family in site.families.items():
            used = ", ".join(sorted(libraries.intersection(family.library_path)))
            if used:
                yield Touch("family", name, f"the wrapper puts lib64 of {used} on its LD_LIBRARY_PATH")
        yield from plans_with(context, sonames_under(gone, context.before), " came from a directory that is gone")
    if change.after is not None and not any(is_under(path, change.after) for _, path in stated_paths(site)):
        known = " or ".join(["platform", *(f"{site.stacks[stack].title} release" for stack in site.host_stacks)])
        yield Touch("site", "platforms", f"no {known} names {change.after} yet")
    another = "; what stands behind it is another release, so render it again"
    yield from modules_binding(context, change.before or change.after or "", another)


def _library(change: Change[Any], context: Context) -> Touches:
    """A library has another SONAME, has gone, has come, is damaged, or is another file under its name."""
    kind, now = change.kind, change.now
    names = (change.before or ()) if kind == "soname" else (change.subject,)
    how = {
        "soname": f"which is now {now}",
        "library-gone": "which has none now",
        "library": f"where it is another file now ({now})",
        "damaged": f"where it cannot be loaded ({now})" if now else "where it can be loaded again",
    }
    lacking = getattr(change.before, "needed_by", ())
    if lacking:
        yield from _missing(Change("missing", change.subject, None, lacking), context)
    else:
        yield from borrowed(context, names, how.get(kind, "which is there now"))
    if kind != "library":
        yield from bound_files(context, names, "is bound by its name; bind what is there now")


def _needs(change: Change[Names], context: Context) -> Touches:
    """A library needs others than before, or has other symbol versions for those who need it."""
    name, lost, got, gives = change.subject, change.was, change.now, change.kind == "gives"
    said = [f"{name} {'has' if gives else 'needs'} {got} now"] if got else []
    no_more = "has no {} now, so what needs it cannot be loaded" if gives else "needs {} no more"
    said += [f"{name} {no_more.format(lost)}"] if lost else []
    yield from plans_with(context, [name], f": {'; '.join(said)}: work the binds out again")
    if not gives:
        yield from bound_files(context, change.before or (), f"was needed by {name}, which needs it no more")


def _wants(change: Change[SymbolVersion], context: Context) -> Touches:
    lacks = f"an image that lacks {change.after} cannot load the host's " if change.after else ""
    behind = ": its plan refuses" if change.after else f" wants no {change.before} now: work the binds out again"
    yield from plans_with(context, [change.subject], behind, before=lacks)


def _missing(change: Change[Names], context: Context) -> Touches:
    """What needs a library lacks it, or lacks it no more."""
    name, facts, why = change.subject, context.after, "cannot be loaded, since {} is nowhere"
    if change.after is None:
        facts, why = context.before, "can be loaded again, with {}"
    by_path = {path: soname for soname, path in facts.loads.items()}
    requesters = (by_path.get(path, posixpath.basename(path)) for path in change.after or change.before or ())
    return plans_with(context, [name, *requesters], f": {why.format(name)}")


def _place(change: Change[Any], context: Context) -> Touches:
    """Something else stands at a path, a link dangles, or users may not read it; or that is mended."""
    path, mended = change.subject, change.after is None
    match change.kind:
        case "path":
            yield from named(context, path, "is not there" if change.now is None else "is not what it was")
            yield from plans_with(context, sonames_under(path, context.before), f" came from {path}")
        case "dangling":
            leads = "leads somewhere again" if mended else "leads nowhere"
            yield from named(context, path, "is not what it was")
            yield from borrowed(context, [posixpath.basename(path)], f"where {path} {leads}")
        case "unreadable":
            sonames = sonames_under(path, context.before, context.after)
            yield from named(context, path, "users can read again" if mended else "users cannot read")
            yield from borrowed(context, sonames, f"where users {'can' if mended else 'cannot'} read it")
        case "links":
            yield from named(context, path, "leads elsewhere")


def _driver(change: Change[Driver], context: Context) -> Touches:
    of = (one for one in context.driven if change.subject in gpu_of(str(context.site.stacks[one].gpu)).drivers)
    yield from chain.from_iterable(_driven(stack, change, context) for stack in of)


def _driven(stack: str, change: Change[Driver], context: Context) -> Touches:
    """Another driver decides which releases of a stack run."""
    here, stated = f"platforms.{context.now or context.was}.stacks.{stack}", context.stated.stacks[stack]
    title, supported = context.site.stacks[stack].title, stated.runs
    if change.was != change.now:
        yield Touch("site", f"{here}.driver", f"says {stated.driver!r}")
    if context.updated is None:
        why = f"says {supported}; which {title} releases a driver supports is in no file of the node"
        yield Touch("site", f"{here}.runs", why)
        return
    yield Touch("site", f"{here}.runs", f"the driver supports {title} {supported}")
    series = {version.minor: str(version) for version in map(told_release, context.leaving(stack)) if version}
    for release in series.values():
        why = f"{title} {release} is outside {supported}, so it is rendered no more"
        for name, module in context.site.modules.items():
            versions = context.versions_with(module, stack, release) if stack in module.version else ()
            yield from (Touch("module", f"{name}/{version}", why) for version in versions)
    for directory, images in context.after.images.items():
        for image, file in images.items():
            path = f"{directory}/{image}"
            held = told_releases(context.site, file.target or path, path).get(stack)
            if context.leaves(stack, held):
                yield Touch("image", path, f"{title} {held} is outside {supported}")


def _stack(change: Change[Names], context: Context) -> Touches:
    """The host has other releases of a stack: one that images bring, too, or one that it has installed."""
    gone, come = parted(change.before, change.after)
    if not (stack := context.stack_of(change.subject)):
        return
    mine, old = context.site.stacks[stack], context.old.stacks.get(stack)
    yield from chain.from_iterable(_gone_from_host(context, stack, one) for one in gone if mine.gpu is not None)
    for release in gone if mine.gpu is None and old is not None else ():
        why = f"{mine.title} {release} is gone"
        if old is not None and release in map(str, old.installed):
            yield Touch("site", f"platforms.{context.was}.stacks.{stack}.supported", why)
        versioned = (name for name, module in context.site.modules.items() if stack in module.version)
        yield from (Touch("module", f"{name}/{release}*", why) for name in versioned)
    new = (one for one in come if one not in context.site.releases(stack))
    yield from (Touch("site", f"stacks.{stack}.releases", f"{one} is not described") for one in new)


def _gone_from_host(context: Context, stack: str, release: str) -> Touches:
    entry, software = context.site.releases(stack).get(release), context.software(stack)
    if entry is not None and entry.found != "image":
        why = f"says found: {entry.found}; the host has it no more"
        yield Touch("site", f"stacks.{stack}.releases.{release}", why)
    for folder in software.tops(release) if software else ():
        yield from keys_naming(context, folder, "is gone")
        for family, hit in families_borrowing(context, sonames_under(folder, context.before)):
            yield Touch("plan", family, f"{hit} came from {folder}")
        yield from plans_under(context, folder)


def _default(change: Change[str], context: Context) -> Touches:
    stack = context.stack_of(change.subject)
    stated = context.old.defaults.get(stack)
    kept = {soname: path for soname, path in context.before.loads.items() if path in context.after.libraries}
    moved = [soname for soname, path in kept.items() if context.after.loads.get(soname, path) != path]
    yield from plans_with(context, moved, f" from the host comes from another release of {change.subject} now")
    if stated is None:
        yield from named(context, f"{change.subject}/default", "leads elsewhere")
        return
    yield Touch("site", f"platforms.{context.was}.stacks.{stack}.default", f"says {stated}")
    for name, module in context.site.modules.items():
        if stack in module.version:
            yield Touch("module", name, f"its default version follows the default {change.subject}")


def _became(change: Change[Any]) -> str:
    if isinstance(change.after, str):
        return f"is called {change.now} now"
    return "is gone" if change.after is None else "is there now" if change.before is None else "is not what it was"


def _interface(change: Change[Interface | str], context: Context) -> Touches:
    fabric, name, how = context.site.fabric, change.subject, _became(change)
    if isinstance(change.before, Interface) and isinstance(change.after, Interface):
        how = "has another MTU, which all nodes must share" if change.before.mtu != change.after.mtu else how
    for key, names in (("interfaces", fabric.interfaces), ("management", fabric.management)):
        if name in names:
            yield Touch("site", f"fabric.{key}", f"names {name}, which {how}")
    yield from settings_holding(context, name)
    for kind, node in context.site.node_kinds.items():
        if any(nic.interface == name for nic in node.nics):
            yield Touch("site", f"node_kinds.{kind}.nics", f"places {name}")


def _adapter(change: Change[Any], context: Context) -> Touches:
    """An adapter has gone, has come, has another name or place, or its port is not what it was."""
    site, name, how = context.site, change.subject, _became(change)
    places = {one and (one.numa, one.cpus) for one in (change.before, change.after) if not isinstance(one, str)}
    named_by: dict[str, tuple[str | None, ...]] = {"fabric.adapters": site.fabric.adapters}
    for kind, node in site.node_kinds.items():
        here = f"node_kinds.{kind}"
        if node.nics and len(places) > 1:
            yield Touch("site", f"{here}.nics", f"{name} {how}")
        named_by |= {f"{here}.adapters": node.adapters or (), f"{here}.gpus": tuple(gpu.adapter for gpu in node.gpus)}
    yield from (Touch("site", key, f"names {name}, which {how}") for key, names in named_by.items() if name in names)


def _kernel_config(change: Change[BootConfig], context: Context) -> Touches:
    for setting in context.site.settings:
        if "DMABUF" in setting.name:
            who = dict.fromkeys(name for one in all_vendors() for name in one.kernel_options.values())
            why = f"{' and '.join(who)} reads /boot/config-RELEASE of the running kernel before it uses DMA-BUF"
            yield Touch("setting", setting.name, why)
    for key, bind in context.site.host_paths.items():
        if bind.path.startswith("/boot"):
            yield Touch("site", f"{key}.path", f"names {bind.path}; the file is called after the kernel")


def _image(change: Change[ImageFile], context: Context) -> Touches:
    site, was, now = context.site, change.was, change.now
    files = [path for path in (was, now) if path is not None]
    for path in dict.fromkeys(files):
        family = family_by_path(site, path, change.subject)
        if family is not None:
            where = f", which leads to {path}" if path != change.subject else ""
            yield Touch("family", family, f"recognises {change.subject}{where}")
            for module in site.families[family].modules:
                yield Touch("module", module, f"images of {family} are run with it")
            if site.families[family].libraries:
                yield Touch("plan", family, "another image may bring other libraries")
    for path in dict.fromkeys((change.subject, *files)):
        for stored in context.plans:
            if any(fnmatch.fnmatchcase(path, pattern) for pattern in stored.plan.paths):
                yield stored_plan(stored, f"{'no' if now is None else 'another'} file is behind {path} now")
    if site.validation is not None and site.validation.image in (change.subject, was):
        led = "nowhere" if now is None else f"to {now}"
        yield Touch("site", "validation.image", f"the probes run in {change.subject}, which leads {led} now")


def _edited(change: Change[DeployedFile], context: Context) -> Touches:
    why = "is not what was rendered; see `lumisite diff`"
    top, _, rest = change.subject.partition("/")
    if top in ("modules", "modules-tcl", "edf", "podman-hpc"):
        yield Touch("module", rest.removesuffix(".lua"), why)
    else:
        yield Touch("helper", change.subject, why)


def _glibc(change: Change[str], context: Context) -> Touches:
    for name, family in context.site.families.items():
        if family.libraries:
            yield Touch("plan", name, "what images need of glibc is compared with the host's libraries")
    for stored in context.plans:
        if any(line.decision == "bind" for line in stored.plan.lines):
            yield stored_plan(stored, "binds libraries that were built with another glibc, or may be now")


def _same(change: Change[Any], context: Context) -> Touches:
    """A change that touches the same parts, whatever has changed."""
    site, old, here = context.site, context.old, f"platforms.{context.was}"
    counts = {len(context.before.gpus), len(context.after.gpus)} - {0}  # as many GPUs as this node had, or has
    with_gpus = [name for name, kind in site.node_kinds.items() if len(kind.gpus) in counts]
    match change.kind:
        case "gpu-count" | "gpu-place":
            for name in with_gpus:
                yield Touch("site", f"node_kinds.{name}.gpus", f"{change.subject}: {change.was} -> {change.now}")
                yield Touch("mask", name, "each task's mask follows the place of its GPU")
        case "gpu-bus":
            unseen = "a live node is recognised by its bus ids; until they are right, reserved cores are not left out"
            for name in with_gpus:
                yield Touch("site", f"{here}.gpu_bus_ids.{name}", f"is {change.was} by whole address")
                yield Touch("mask", name, unseen)
        case "cpus":
            for name in site.node_kinds:
                why = "if this node is of that kind: its CPUs are grouped in another way"
                yield Touch("site", f"node_kinds.{name}.l3", why)
                yield Touch("mask", name, "masks are made of these groups")
        case "release":
            for name in site.modules:
                yield Touch("module", name, "users load it from the release that `current` names")
        case "runtime" | "runtime-file" as kind:
            if kind == "runtime":
                yield Touch("site", f"runtimes.{site.command}.variant", f"says {site.runtime.variant!r}")
            yield Touch("helper", "spank/bin", "the wrapper hands over to it: try one image of each family")
        case "os" | "kernel" | "slurm" as kind:
            yield Touch("site", f"{here}.{kind}", f"says {getattr(old, kind) or 'nothing'}")
            if kind == "slurm":
                yield Touch("helper", "spank/task_prolog", "Slurm runs it: run one job step with LUMISITE_VERBOSE=1")
                yield Touch("helper", "spank/cli_filter.lua", "Slurm loads it: render it again, which checks it")
        case "kernel-parameter":
            yield Touch("site", f"{here}.kernel", f"says {old.kernel or 'nothing'}, and its start is another now")
        case "slurm-conf":
            yield Touch("helper", "spank/task_prolog", "works on the same tasks: run a step with LUMISITE_VERBOSE=1")
        case "kernel-module":
            why = f"{change.subject} carries their traffic: run `lumisite validate`"
            yield Touch("site", "fabric.interfaces", why)
        case "hugepages":
            for setting in (one for one in site.settings if re.search("HUGE|_HP$", one.name)):
                yield Touch("setting", setting.name, "is about huge pages")
        case "module-default":
            for stack in (stack for stack in site.host_stacks if stack in old.stacks):
                why = f"says {old.defaults[stack]}; without a version users get {change.now}"
                yield Touch("site", f"{here}.stacks.{stack}.default", why)


#: All other kinds have the rule `_same`.
RULES: Mapping[str, Rule] = {
    "product": _product,
    **dict.fromkeys(("soname", "library-gone", "library-new", "damaged", "library"), _library),
    **dict.fromkeys(("needs", "gives"), _needs),
    "wants": _wants,
    "missing": _missing,
    **dict.fromkeys(("path", "dangling", "unreadable", "links"), _place),
    "driver": _driver,
    "stack": _stack,
    "default": _default,
    "interface": _interface,
    "nic": _adapter,
    "kernel-config": _kernel_config,
    "sysctl": lambda change, context: settings_holding(context, change.subject.rpartition("_")[2]),
    "image": _image,
    "edited": _edited,
    "glibc": _glibc,
}
