"""What a change does: one rule for each kind of change gives the parts of the site that it touches, and why."""

from __future__ import annotations

import fnmatch
import posixpath
from collections.abc import Callable, Collection, Mapping
from typing import Any

from lumisite.facts.capture import stated_paths
from lumisite.facts.compare import BootConfig, Change, DeployedFile, Kind, LoadedFile, SymbolVersion
from lumisite.facts.facts import CpuGroup, Device, Driver, ImageFile, Interface, Named, Program
from lumisite.facts.site import (
    Context,
    Touch,
    Touches,
    bound_files,
    families_borrowing,
    is_under,
    keys_naming,
    modules_binding,
    plans_under,
    plans_with,
    settings_holding,
    stored_plan,
)
from lumisite.facts.words import texts
from lumisite.site.images import family_by_path, told_release, told_rocm

Names = tuple[str, ...]
_BOUND = "is bound by its name; bind what is there now"


def touches(change: Change[Any], context: Context) -> tuple[Touch, ...]:
    """Give what a change touches, each part once."""
    rule = RULES.get(change.kind)
    found: dict[tuple[str, str], Touch] = {}
    for touch in rule(change, context) if rule else ():
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
        yield from plans_with(context, _sonames_under(context, gone), " came from a directory that is gone")
    if change.after is not None and not any(is_under(path, change.after) for _, path in stated_paths(site)):
        yield Touch("site", "platforms", f"no platform or CPE release names {change.after} yet")
    for module, how in modules_binding(site, change.before or change.after or ""):
        yield Touch("module", module, f"{how}; what stands behind it is another release, so render it again")


def _sonames_under(context: Context, path: str) -> list[str]:
    return [soname for soname, at in context.before.loads.items() if is_under(at, path)]


def _borrowed(sonames: Collection[str], now: str, context: Context) -> Touches:
    yield from plans_with(context, sonames, f" from the host, {now}", before="its images borrow ")


def _soname(change: Change[Names], context: Context) -> Touches:
    yield from _borrowed(change.before or (), f"which is now {', '.join(change.after or ())}", context)
    yield from bound_files(context, change.before or (), _BOUND)


def _library_gone(change: Change[LoadedFile], context: Context) -> Touches:
    yield from _borrowed([change.subject], "which has none now", context)
    yield from bound_files(context, [change.subject], _BOUND)


def _library(change: Change[LoadedFile], context: Context) -> Touches:
    _, now = texts(change)
    yield from _borrowed([change.subject], f"where it is another file now ({now})", context)


def _needs(change: Change[Names], context: Context) -> Touches:
    name, (lost, got) = change.subject, texts(change)
    words = [f" needs {got} now"] if got else []
    words += [f" needs {lost} no more"] if lost else []
    yield from plans_with(context, [name], f"{f'; {name}'.join(words)}: work the binds out again")
    yield from bound_files(context, change.before or (), f"was needed by {name}, which needs it no more")


def _wants(change: Change[SymbolVersion], context: Context) -> Touches:
    if change.after is not None:
        lacks = f"an image that lacks {change.after} cannot load the host's "
        yield from plans_with(context, [change.subject], ": its plan refuses", before=lacks)


def _missing(change: Change[Names], context: Context) -> Touches:
    if change.after is not None:
        by_path = {path: soname for soname, path in context.after.loads.items()}
        requesters = (by_path.get(path, posixpath.basename(path)) for path in change.after)
        why = f": cannot be loaded, since {change.subject} is nowhere"
        yield from plans_with(context, [change.subject, *requesters], why)


def _path(change: Change[Named], context: Context) -> Touches:
    _, now = texts(change)
    yield from _named(change.subject, "is not there" if now is None else "is not what it was", context)


def _named(path: str, fault: str, context: Context) -> Touches:
    yield from keys_naming(context, path, fault)
    for module, how in modules_binding(context.site, path):
        yield Touch("module", module, how)
    yield from settings_holding(context, path)
    yield from plans_under(context, path)


def _dangling(change: Change[str], context: Context) -> Touches:
    if change.after is not None:
        yield from _named(change.subject, "is not what it was", context)
        yield from _borrowed([posixpath.basename(change.subject)], f"where {change.subject} leads nowhere", context)


def _driver(change: Change[Driver], context: Context) -> Touches:
    here = context.now or context.was
    was, now = texts(change)
    if was != now:
        yield Touch("site", f"platforms.{here}.driver", f"says {context.stated.driver!r}")
    if context.updated is None:
        why = f"says {context.old.driver_rocm}; which ROCm releases a driver supports is in no file of the node"
        yield Touch("site", f"platforms.{here}.driver_rocm", why)
        return
    supported = context.updated.driver_rocm
    yield Touch("site", f"platforms.{here}.driver_rocm", f"the driver supports ROCm {supported}")
    series = {version.minor: str(version) for version in map(told_release, context.leaving) if version}
    for minor, release in series.items():
        for name, module in context.site.modules.items():
            if module.version == "cpe-rocm":
                for cpe in context.old.cpe_supported:
                    why = f"ROCm {release} is outside {supported}, so it is rendered no more"
                    yield Touch("module", f"{name}/{cpe}-rocm{minor}", why)
    for directory, images in context.after.images.items():
        for image, file in images.items():
            path = f"{directory}/{image}"
            rocm = told_rocm(context.site, file.target or path, path)
            if context.leaves(rocm):
                yield Touch("image", path, f"ROCm {rocm} is outside {supported}")


def _come_and_gone(change: Change[Names]) -> tuple[list[str], list[str]]:
    old, new = set(change.before or ()), set(change.after or ())
    return sorted(new - old), sorted(old - new)


def _rocm(change: Change[Names], context: Context) -> Touches:
    come, gone = _come_and_gone(change)
    for release in gone:
        entry, folder = context.site.rocm.get(release), f"/opt/rocm-{release}"
        if entry is not None and entry.found != "image":
            yield Touch("site", f"rocm.{release}", f"says found: {entry.found}; the host has it no more")
        yield from keys_naming(context, folder, "is gone")
        for family, hit in families_borrowing(context, _sonames_under(context, folder)):
            yield Touch("plan", family, f"{hit} came from {folder}")
        yield from plans_under(context, folder)
    for release in come:
        if release not in context.site.rocm:
            yield Touch("site", "rocm", f"{release} is not described")


def _cpe(change: Change[Names], context: Context) -> Touches:
    come, gone = _come_and_gone(change)
    for release in gone:
        if release in map(str, (*context.old.cpe_supported, *context.old.cpe_leftover)):
            yield Touch("site", f"platforms.{context.was}.cpe_supported", f"CPE {release} is gone")
        for name, module in context.site.modules.items():
            if module.version != "platform":
                yield Touch("module", f"{name}/{release}*", f"CPE {release} is gone")
    for release in come:
        if release not in context.site.cpe:
            yield Touch("site", "cpe", f"{release} is not described")


def _default(change: Change[str], context: Context) -> Touches:
    stated = {"CPE": context.old.cpe, "ROCm": context.old.rocm}.get(change.subject)
    if stated is None:  # of a product, whose default link nothing here follows
        return
    yield Touch("site", f"platforms.{context.was}.{change.subject.lower()}", f"says {stated}")
    for name, module in context.site.modules.items():
        if module.version == "cpe-rocm" or (module.version == "cpe" and change.subject == "CPE"):
            yield Touch("module", name, f"its default version follows the default {change.subject}")


def _kinds(context: Context) -> list[str]:
    """Give the node kinds that have as many GPUs as this node had, or has."""
    counts = {len(context.before.gpus), len(context.after.gpus)} - {0}
    return [name for name, kind in context.site.node_kinds.items() if len(kind.gpus) in counts]


def _gpu_buses(change: Change[Names], context: Context) -> Touches:
    was, _ = texts(change)
    for kind in _kinds(context):
        yield Touch("site", f"platforms.{context.was}.gpu_bus_ids.{kind}", f"is {was} by whole address")
        why = "a live node is recognised by its bus ids; until they are right, reserved cores are not left out"
        yield Touch("mask", kind, why)


def _gpus(change: Change[int] | Change[Device], context: Context) -> Touches:
    was, now = texts(change)
    for kind in _kinds(context):
        yield Touch("site", f"node_kinds.{kind}.gpus", f"{change.subject}: {was} -> {now}")
        yield Touch("mask", kind, "each task's mask follows the place of its GPU")


def _cpus(change: Change[tuple[CpuGroup, ...]], context: Context) -> Touches:
    for name in context.site.node_kinds:
        why = "if this node is of that kind: its CPUs are grouped in another way"
        yield Touch("site", f"node_kinds.{name}.l3", why)
        yield Touch("mask", name, "masks are made of these groups")


def _interface(change: Change[Interface], context: Context) -> Touches:
    network, name = context.site.network, change.subject
    how = "is gone" if change.after is None else "is there now" if change.before is None else "is not what it was"
    for key, names in (("interfaces", network.interfaces), ("management", network.management)):
        if name in names:
            yield Touch("site", f"network.{key}", f"names {name}, which {how}")
    yield from settings_holding(context, name)
    for kind, node in context.site.node_kinds.items():
        if any(nic.interface == name for nic in node.nics):
            yield Touch("site", f"node_kinds.{kind}.nics", f"places {name}")


def _nic(change: Change[Device], context: Context) -> Touches:
    for kind, node in context.site.node_kinds.items():
        if node.nics:
            yield Touch("site", f"node_kinds.{kind}.nics", f"{change.subject} is not where it was")


def _kernel_config(change: Change[BootConfig], context: Context) -> Touches:
    for setting in context.site.settings:
        if "DMABUF" in setting.name:
            why = "RCCL reads /boot/config-RELEASE of the running kernel before it uses DMA-BUF"
            yield Touch("setting", setting.name, why)
    for index, bind in enumerate(context.site.binds):
        if bind.path.startswith("/boot"):
            yield Touch("site", f"binds[{index}].path", f"names {bind.path}; the file is called after the kernel")


def _image(change: Change[ImageFile], context: Context) -> Touches:
    site, (was, now) = context.site, texts(change)
    for path in dict.fromkeys(path for path in (change.subject, was, now) if path is not None):
        family = family_by_path(site, path)
        if family is not None:
            yield Touch("family", family, f"recognises {path}")
            for module in site.families[family].modules:
                yield Touch("module", module, f"images of {family} are run with it")
            if site.families[family].libraries:
                yield Touch("plan", family, "another image may bring other libraries")
        for stored in context.plans:
            if any(fnmatch.fnmatchcase(path, pattern) for pattern in stored.plan.paths):
                yield stored_plan(stored, f"{'no' if now is None else 'another'} file is behind {path} now")
    if site.validation is not None and site.validation.image in (change.subject, was):
        led = "nowhere" if now is None else f"to {now}"
        yield Touch("site", "validation.image", f"the probes run in {change.subject}, which leads {led} now")


def _release(change: Change[str], context: Context) -> Touches:
    for name in context.site.modules:
        yield Touch("module", name, "users load it from the release that `current` names")


def _edited(change: Change[DeployedFile], context: Context) -> Touches:
    why = "is not what was rendered; see `lumisite diff`"
    parts = change.subject.split("/")
    if parts[0] == "modules" and len(parts) == 3:
        yield Touch("module", f"{parts[1]}/{parts[2].removesuffix('.lua')}", why)
    else:
        yield Touch("helper", change.subject, why)


def _runtime(change: Change[Program], context: Context) -> Touches:
    yield Touch("site", "runtime.variant", f"says {context.site.runtime.variant!r}")
    yield Touch("helper", "spank/bin", "the wrapper hands over to it: try one image of each family")


def _system(change: Change[str], context: Context) -> Touches:
    old = context.old
    stated = {"os": old.os, "kernel": old.kernel, "slurm": old.slurm}[change.kind]
    yield Touch("site", f"platforms.{context.was}.{change.kind}", f"says {stated or 'nothing'}")
    if change.kind == "slurm":
        yield Touch("helper", "spank/task_prolog", "Slurm runs it: run one job step with LUMISITE_VERBOSE=1")
        yield Touch("helper", "spank/cli_filter.lua", "Slurm loads it: render it again, which checks it")


def _glibc(change: Change[str], context: Context) -> Touches:
    for name, family in context.site.families.items():
        if family.libraries:
            yield Touch("plan", name, "what images need of glibc is compared with the host's libraries")
    for stored in context.plans:
        if any(line.decision == "bind" for line in stored.plan.lines):
            yield stored_plan(stored, "binds libraries that were built with another glibc, or may be now")


RULES: Mapping[Kind, Callable[[Any, Context], Touches]] = {
    "product": _product,
    "soname": _soname,
    "library-gone": _library_gone,
    "library": _library,
    "needs": _needs,
    "wants": _wants,
    "missing": _missing,
    "dangling": _dangling,
    "path": _path,
    "driver": _driver,
    "rocm": _rocm,
    "cpe": _cpe,
    "default": _default,
    "gpu-count": _gpus,
    "gpu-bus": _gpu_buses,
    "gpu-place": _gpus,
    "cpus": _cpus,
    "interface": _interface,
    "nic": _nic,
    "kernel-config": _kernel_config,
    "image": _image,
    "release": _release,
    "edited": _edited,
    "runtime": _runtime,
    "slurm": _system,
    "glibc": _glibc,
    "os": _system,
    "kernel": _system,
}
"""`library-new` has none: what nobody asks for touches nothing."""
