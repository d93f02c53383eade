"""What a change does: one rule for each kind of change gives the parts of the site that it touches, and why."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from lumisite.release.changes_compare import Change
from lumisite.release.changes_site import (
    Context,
    families_borrowing,
    families_of_image,
    is_under,
    keys_naming,
    leaving,
    modules_binding,
    plans_of_image,
    plans_under,
    plans_with,
    settings_holding,
    version_of,
)
from lumisite.site.plans import LoadedPlan

What = Literal["site", "setting", "module", "family", "plan", "mask", "image", "helper"]


@dataclass(frozen=True)
class Touch:
    """A part that a change touches: a key of the site description, a setting, a module, a family, a plan of binds.

    A `plan` is called by the family that it is for, or, if it is stored, by its file.
    """

    what: What
    name: str
    why: str


def touches(change: Change, context: Context) -> tuple[Touch, ...]:
    """Give what a change touches, each part once."""
    rule = RULES.get(change.kind)
    found: dict[tuple[str, str], Touch] = {}
    for touch in rule(change, context) if rule else ():
        found.setdefault((touch.what, touch.name), touch)
    return tuple(found.values())


def _product(change: Change, context: Context) -> Iterator[Touch]:
    """A directory of a product has gone, has come, or both."""
    site = context.site
    if change.before is not None:
        yield from _gone_path(change.before, context)
        yield from _plans(_sonames_under(context, change.before), context, "{} came from a directory that is gone")
    if change.after is not None and not any(True for _ in keys_naming(site, change.after)):
        yield Touch("site", "platforms", f"no platform or CPE release names {change.after} yet")
    for module, how in modules_binding(site, change.before or change.after or ""):
        yield Touch("module", module, f"{how}; what stands behind it is another release, so render it again")


def _sonames_under(context: Context, path: str) -> list[str]:
    return [soname for soname, at in context.before.loads.items() if is_under(at, path)]


def _gone_path(path: str, context: Context) -> Iterator[Touch]:
    site = context.site
    for key in keys_naming(site, path):
        yield Touch("site", key, f"names {path}, which is gone")
    for name in settings_holding(site, path):
        yield Touch("setting", name, f"its value names {path}, which is gone")
    names = {
        library
        for platform in site.platforms.values()
        for library, at in platform.libraries.items()
        if is_under(at, path)
    }
    for stored, hit in plans_under(context, path):
        yield _stored(stored, f"names {hit}")
    for name, family in site.families.items():
        used = names.intersection(family.library_path)
        if used:
            yield Touch("family", name, f"the wrapper puts lib64 of {', '.join(sorted(used))} on its LD_LIBRARY_PATH")


def _plans(sonames: Iterable[str], context: Context, why: str) -> Iterator[Touch]:
    wanted = tuple(sonames)
    for family, hit in families_borrowing(context, wanted):
        yield Touch("plan", family, why.replace("{}", hit))
    for stored, hit in plans_with(context, wanted):
        yield _stored(stored, f"decides about {hit}")


def _stored(stored: LoadedPlan, why: str) -> Touch:
    return Touch("plan", stored.file, f"is for {', '.join(stored.plan.paths)}, and {why}")


def _library(change: Change, context: Context) -> Iterator[Touch]:
    """A library has another SONAME, is gone, or stands elsewhere."""
    names = [*(change.before or "").split(", "), change.subject] if change.kind == "soname" else [change.subject]
    why = {
        "soname": f"its images borrow {{}} from the host, which is now {change.after}",
        "library-gone": "its images borrow {} from the host, which has none now",
        "library": f"its images borrow {{}} from the host, where it is another file now ({change.after})",
    }[change.kind]
    yield from _plans(names, context, why)
    yield from _bound_files(
        names, context, "is bound by its name; bind what is there now" if change.kind != "library" else ""
    )


def _bound_files(sonames: Iterable[str], context: Context, why: str) -> Iterator[Touch]:
    wanted = set(sonames)
    for index, bind in enumerate(context.site.binds):
        if posixpath.basename(bind.path) in wanted and why:
            yield Touch("site", f"binds[{index}].path", f"{bind.path} {why}")
            if bind.where in context.site.modules:
                yield Touch("module", str(bind.where), f"binds {bind.path}")


def _needs(change: Change, context: Context) -> Iterator[Touch]:
    words = [f"{change.subject} needs {change.after} now"] if change.after else []
    words += [f"{change.subject} needs {change.before} no more"] if change.before else []
    yield from _plans([change.subject], context, f"{'; '.join(words)}: work the binds out again")
    if change.before:
        yield from _bound_files(
            change.before.split(", "), context, f"was needed by {change.subject}, which needs it no more"
        )


def _wants(change: Change, context: Context) -> Iterator[Touch]:
    if change.after:
        why = f"an image that lacks {change.after} cannot load the host's {change.subject}: its plan refuses"
        yield from _plans([change.subject], context, why)


def _missing(change: Change, context: Context) -> Iterator[Touch]:
    if change.after is None:
        return
    by_path = {path: soname for soname, path in context.after.loads.items()}
    requesters = [by_path.get(path, posixpath.basename(path)) for path in change.after.split(", ")]
    yield from _plans(
        [change.subject, *requesters], context, f"{{}}: cannot be loaded, since {change.subject} is nowhere"
    )


def _path(change: Change, context: Context) -> Iterator[Touch]:
    fault = "is not there" if change.after is None else "is not what it was"
    for key in keys_naming(context.site, change.subject):
        yield Touch("site", key, f"names {change.subject}, which {fault}")
    for module, how in modules_binding(context.site, change.subject):
        yield Touch("module", module, how)
    for name in settings_holding(context.site, change.subject):
        yield Touch("setting", name, f"its value names {change.subject}")
    for stored, hit in plans_under(context, change.subject):
        yield _stored(stored, f"names {hit}")


def _dangling(change: Change, context: Context) -> Iterator[Touch]:
    if change.after is None:
        return
    yield from _path(change, context)
    soname = posixpath.basename(change.subject)
    yield from _plans([soname], context, f"its images borrow {{}} from the host, where {change.subject} leads nowhere")


def _driver(change: Change, context: Context) -> Iterator[Touch]:
    here = f"platforms.{context.now or context.was}"
    if change.after != change.before:
        yield Touch("site", f"{here}.driver", f"says {context.site.platforms[context.now or context.was].driver!r}")
    gone, supported = leaving(context)
    if not supported:
        why = f"says {context.old.driver_rocm}; which ROCm releases a driver supports is in no file of the node"
        yield Touch("site", f"{here}.driver_rocm", why)
        return
    yield Touch("site", f"{here}.driver_rocm", f"the driver supports ROCm {supported}")
    yield from _leaving(gone, supported, context)


def _leaving(releases: Iterable[str], supported: str, context: Context) -> Iterator[Touch]:
    """ROCm releases leave the range of the driver: their modules and images lose support."""
    gone = {version.minor: release for release in releases if (version := version_of(release))}
    for minor, release in gone.items():
        for name, module in context.site.modules.items():
            if module.version == "cpe-rocm":
                for cpe in context.old.cpe_supported:
                    why = f"ROCm {release} is outside {supported}, so it is rendered no more"
                    yield Touch("module", f"{name}/{cpe}-rocm{minor}", why)
    for directory, images in context.after.images.items():
        for image in images:
            said = re.search(r"rocm-?([0-9]+\.[0-9]+(?:\.[0-9]+)?)", image)
            if said and said[1] in releases:
                yield Touch("image", f"{directory}/{image}", f"ROCm {said[1]} is outside {supported}")


def _rocm(change: Change, context: Context) -> Iterator[Touch]:
    old, new = set((change.before or "").split(", ")), set((change.after or "").split(", "))
    for release in sorted(old - new - {""}):
        entry = context.site.rocm.get(release)
        if entry is not None and entry.found != "image":
            yield Touch("site", f"rocm.{release}", f"says found: {entry.found}; the host has it no more")
        for key in keys_naming(context.site, f"/opt/rocm-{release}"):
            yield Touch("site", key, f"names /opt/rocm-{release}, which is gone")
        for family, hit in families_borrowing(context, _sonames_under(context, f"/opt/rocm-{release}")):
            yield Touch("plan", family, f"{hit} came from /opt/rocm-{release}")
        for stored, named in plans_under(context, f"/opt/rocm-{release}"):
            yield _stored(stored, f"names {named}")
    for release in sorted(new - old - {""}):
        if release not in context.site.rocm:
            yield Touch("site", "rocm", f"{release} is not described")


def _cpe(change: Change, context: Context) -> Iterator[Touch]:
    old, new = set((change.before or "").split(", ")), set((change.after or "").split(", "))
    for release in sorted(old - new - {""}):
        if release in map(str, (*context.old.cpe_supported, *context.old.cpe_leftover)):
            yield Touch("site", f"platforms.{context.was}.cpe_supported", f"CPE {release} is gone")
        for name, module in context.site.modules.items():
            if module.version != "platform":
                yield Touch("module", f"{name}/{release}*", f"CPE {release} is gone")
    for release in sorted(new - old - {""}):
        if release not in context.site.cpe:
            yield Touch("site", "cpe", f"{release} is not described")


def _default(change: Change, context: Context) -> Iterator[Touch]:
    if change.subject in ("CPE", "ROCm"):
        key = change.subject.lower()
        yield Touch("site", f"platforms.{context.was}.{key}", f"says {getattr(context.old, key)}")
        for name, module in context.site.modules.items():
            if module.version == "cpe-rocm" or (module.version == "cpe" and key == "cpe"):
                yield Touch("module", name, f"its default version follows the default {change.subject}")


def _gpus(change: Change, context: Context) -> Iterator[Touch]:
    counts = [len(context.before.gpus), len(context.after.gpus)]
    kinds = [name for name, kind in context.site.node_kinds.items() if len(kind.gpus) in counts and kind.gpus]
    for kind in kinds:
        if change.kind == "gpu-bus":
            yield Touch("site", f"platforms.{context.was}.gpu_bus_ids.{kind}", f"is {change.before} by whole address")
            why = "a live node is recognised by its bus ids; until they are right, reserved cores are not left out"
            yield Touch("mask", kind, why)
        else:
            yield Touch("site", f"node_kinds.{kind}.gpus", f"{change.subject}: {change.before} -> {change.after}")
            yield Touch("mask", kind, "each task's mask follows the place of its GPU")


def _cpus(change: Change, context: Context) -> Iterator[Touch]:
    for name in context.site.node_kinds:
        yield Touch(
            "site", f"node_kinds.{name}.l3", "if this node is of that kind: its CPUs are grouped in another way"
        )
        yield Touch("mask", name, "masks are made of these groups")


def _interface(change: Change, context: Context) -> Iterator[Touch]:
    site, name = context.site, change.subject
    how = "is gone" if change.after is None else "is there now" if change.before is None else "is not what it was"
    for key in ("interfaces", "management"):
        if name in getattr(site.network, key):
            yield Touch("site", f"network.{key}", f"names {name}, which {how}")
    for variable in settings_holding(site, name):
        yield Touch("setting", variable, f"its value names {name}")
    for kind, node in site.node_kinds.items():
        if any(nic.interface == name for nic in node.nics):
            yield Touch("site", f"node_kinds.{kind}.nics", f"places {name}")


def _nic(change: Change, context: Context) -> Iterator[Touch]:
    for kind, node in context.site.node_kinds.items():
        if node.nics:
            yield Touch("site", f"node_kinds.{kind}.nics", f"{change.subject} is not where it was")


def _kernel_config(change: Change, context: Context) -> Iterator[Touch]:
    for name in dict.fromkeys(setting.name for setting in context.site.settings if "DMABUF" in setting.name):
        yield Touch("setting", name, "RCCL reads /boot/config-RELEASE of the running kernel before it uses DMA-BUF")
    for index, bind in enumerate(context.site.binds):
        if bind.path.startswith("/boot"):
            yield Touch("site", f"binds[{index}].path", f"names {bind.path}; the file is called after the kernel")


def _image(change: Change, context: Context) -> Iterator[Touch]:
    led = "nowhere" if change.after is None else f"to {change.after}"
    for path in dict.fromkeys(path for path in (change.subject, change.before, change.after) if path):
        for family in families_of_image(context.site, path):
            yield Touch("family", family, f"recognises {path}")
            for module in context.site.families[family].modules:
                yield Touch("module", module, f"images of {family} are run with it")
            if context.site.families[family].libraries:
                yield Touch("plan", family, "another image may bring other libraries")
        for stored in plans_of_image(context, path):
            yield _stored(stored, f"{'no' if change.after is None else 'another'} file is behind {path} now")
    if context.site.validation is not None and context.site.validation.image in (change.subject, change.before):
        yield Touch("site", "validation.image", f"the probes run in {change.subject}, which leads {led} now")


def _release(change: Change, context: Context) -> Iterator[Touch]:
    for name in context.site.modules:
        yield Touch("module", name, "users load it from the release that `current` names")


def _edited(change: Change, context: Context) -> Iterator[Touch]:
    parts = change.subject.split("/")
    if parts[0] == "modules" and len(parts) == 3:
        yield Touch(
            "module", f"{parts[1]}/{parts[2].removesuffix('.lua')}", "is not what was rendered; see `lumisite diff`"
        )
    else:
        yield Touch("helper", change.subject, "is not what was rendered; see `lumisite diff`")


def _runtime(change: Change, context: Context) -> Iterator[Touch]:
    yield Touch("site", "runtime.variant", f"says {context.site.runtime.variant!r}")
    yield Touch("helper", "spank/bin", "the wrapper hands over to it: try one image of each family")


def _slurm(change: Change, context: Context) -> Iterator[Touch]:
    yield Touch("site", f"platforms.{context.was}.slurm", f"says {context.old.slurm}")
    yield Touch("helper", "spank/task_prolog", "Slurm runs it: run one job step with LUMISITE_VERBOSE=1")
    yield Touch("helper", "spank/cli_filter.lua", "Slurm loads it: render it again, which checks it")


def _glibc(change: Change, context: Context) -> Iterator[Touch]:
    for name, family in context.site.families.items():
        if family.libraries:
            yield Touch("plan", name, "what images need of glibc is compared with the host's libraries")
    for stored in context.plans:
        if any(line.decision == "bind" for line in stored.plan.lines):
            yield _stored(stored, "binds libraries that were built with another glibc, or may be now")


def _stated(key: str) -> Callable[[Change, Context], Iterator[Touch]]:
    def rule(change: Change, context: Context) -> Iterator[Touch]:
        yield Touch("site", f"platforms.{context.was}.{key}", f"says {getattr(context.old, key) or 'nothing'}")

    return rule


RULES: Mapping[str, Callable[[Change, Context], Iterator[Touch]]] = {
    "product": _product,
    "soname": _library,
    "library-gone": _library,
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
    "gpu-bus": _gpus,
    "gpu-place": _gpus,
    "cpus": _cpus,
    "interface": _interface,
    "nic": _nic,
    "kernel-config": _kernel_config,
    "image": _image,
    "release": _release,
    "edited": _edited,
    "runtime": _runtime,
    "slurm": _slurm,
    "glibc": _glibc,
    "os": _stated("os"),
    "kernel": _stated("kernel"),
}
"""`library-new` has none: what nobody asks for touches nothing."""
