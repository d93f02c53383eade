"""Devices: GPUs and their drivers, CPUs, network interfaces and adapters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import TypeVar

from lumisite.facts.change import Change, Touched, joined, known_difference, listed, only_in
from lumisite.facts.context import Context
from lumisite.facts.facts import Adapter, Device, Facts, Interface, driver_text
from lumisite.facts.kind import DOUBT, FAULT, INFO, ChangeKind, Differences
from lumisite.facts.kinds.system import comes_with_update
from lumisite.site.cpus import CpusetError, parse_number_list
from lumisite.site.images import parse_release, releases_by_name
from lumisite.vendors import gpu_of

D = TypeVar("D", Interface, Adapter)


# GPU drivers


def compare_drivers(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change for each driver that is another one."""
    for name in sorted(before.drivers.keys() | after.drivers.keys()):
        old, new = before.drivers.get(name), after.drivers.get(name)
        if old != new:
            was, now = (None if one is None else driver_text(name, one) for one in (old, new))
            if was == now:
                message = f"GPU driver {now}, built again"
                yield Change(name, was, now, message, severity=INFO, advice="run lumisite validate")
            else:
                yield Change(name, was, now, f"GPU driver {was} is not loaded any more" if now is None else "")


def driver_touches(change: Change, context: Context) -> Iterator[Touched]:
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
    series = {version.minor: str(version) for version in map(parse_release, context.lost_releases(stack)) if version}
    for release in series.values():
        why = outside_range(title, release, supported)
        for name, module in context.site.modules.items():
            for version in context.versions_with(module, stack, release) if stack in module.version else ():
                yield Touched("module", f"{name}/{version}", why)
    for folder, images in context.after.images.items():
        for image, file in images.items():
            path = f"{folder}/{image}"
            named = releases_by_name(context.site, file.target or path, path).get(stack)
            if context.loses(stack, named):
                yield Touched("image", path, outside_range(title, str(named), supported))


def outside_range(title: str, release: str, supported: str) -> str:
    """Return why a release is of no use with a driver."""
    return f"{title} {release} is outside {supported}, which the driver supports"


# GPUs and CPUs

_SET_SMT = "set SMT as before: nosmt on the kernel's command line, /sys/devices/system/cpu/smt/control, or the firmware"
_SET_NUMA = "set NPS or SNC in the firmware as before, or correct the NUMA domains of the node kind"


def compare_gpu_count(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change where the number of GPUs differs; without CPUs a capture has no GPUs either, and says why."""
    if before.cpus and after.cpus and len(before.gpus) != len(after.gpus):
        yield Change("GPUs", str(len(before.gpus)), str(len(after.gpus)))


def compare_gpu_buses(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change where GPUs have other PCI addresses."""
    old, new = ([gpu.bus or "-" for gpu in facts.gpus] for facts in (before, after))
    if before.cpus and after.cpus and len(old) == len(new) and old != new:
        moved = [f"GPU {at} {was} -> {now}" for at, (was, now) in enumerate(zip(old, new, strict=True)) if was != now]
        users = (
            ("changed", f"The PCI bus ids of GPUs: {', '.join(moved)}."),
            ("scripts", "PCI bus ids of GPUs that are written into scripts are wrong."),
        )
        yield Change("GPU bus ids", joined(old), joined(new), listed(moved), {"moved": tuple(moved)}, users=users)


def compare_gpu_places(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change for each GPU that is near other CPUs, or in another NUMA domain."""
    if before.cpus and after.cpus and len(before.gpus) == len(after.gpus):
        for index, (old, new) in enumerate(zip(before.gpus, after.gpus, strict=True)):
            if (old.numa, old.cpus) != (new.numa, new.cpus):
                same_cpus = old.cpus == new.cpus or None in (old.cpus, new.cpus)
                values = {"same_numa": old.numa == new.numa, "same_cpus": same_cpus}
                masks = "GPUs are nearer to other cores than before: CPU masks that are written into scripts are wrong."
                yield Change(f"GPU {index}", _place(old), _place(new), values=values, users=(("scripts", masks),))


def _place(gpu: Device) -> str:
    numa = "?" if gpu.numa is None else gpu.numa
    return f"NUMA {numa}, CPUs {gpu.cpus or '?'}"


def place_follows(change: Change, differences: Differences) -> bool:
    """Follow from CPUs that are grouped in another way: those near a GPU are a group."""
    cpus = differences.by_kind.get("cpus", [])
    is_numa = any("domains" in one.values for one in cpus)
    return bool(cpus) and bool(change.values["same_numa"] or (is_numa and change.values["same_cpus"]))


def compare_cpus(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change where CPUs are grouped in another way: by hardware threads, by NUMA domain alone, or by L3."""
    if before.cpus == after.cpus:
        return
    old, new = _cpu_sets(before), _cpu_sets(after)
    threads = [facts.threads_per_core for facts in (before, after)]
    domains = [len({group.numa for group in facts.cpus}) for facts in (before, after)]
    groups = [_groups(facts) for facts in (before, after)]
    values: dict[str, object] = {"same_groups": old == new}
    masks = "CPU masks that are written into scripts may be wrong."
    if None not in threads and threads[0] != threads[1]:
        count = f"{threads[0]} -> {threads[1]}"
        users = (("scripts", f"Hardware threads of a core: {count}. {masks}"),)
        message, values = f"hardware threads of a core {count}: {groups[1]}", {**values, "threads": True}
        yield Change("CPUs", str(threads[0]), str(threads[1]), message, values, (), FAULT, _SET_SMT, users)
    elif old and (old == new or (domains[0] != domains[1] and _is_joined(old, new))):
        count = f"{domains[0]} -> {domains[1]}"
        users = (("scripts", f"NUMA domains of a node: {count}. Do not bind memory by their numbers."),)
        message, values = f"NUMA domains {count}: {groups[1]}", {**values, "domains": True}
        yield Change("CPUs", str(domains[0]), str(domains[1]), message, values, (), DOUBT, _SET_NUMA, users)
    else:
        users = (("scripts", f"CPUs are grouped in another way: {masks}"),)
        message = f"L3 groups {known_difference(*groups)}"
        yield Change("CPUs", groups[0], groups[1], message, severity=FAULT, users=users)


def _cpu_sets(facts: Facts) -> list[set[int]]:
    """Return the CPUs of each group; none where one of them is no list of numbers."""
    try:
        return [set(parse_number_list(group.cpus)) for group in facts.cpus]
    except CpusetError:
        return []


def _is_joined(old: list[set[int]], new: list[set[int]]) -> bool:
    """Return whether the groups of one side are whole groups of the other put together: NUMA domains without an L3."""
    few, many = sorted((old, new), key=len)
    return (
        bool(few) and set.union(*few) == set.union(*many) and all(any(part <= whole for whole in few) for part in many)
    )


def _groups(facts: Facts) -> str | None:
    return " ".join(f"{group.cpus}@{'?' if group.numa is None else group.numa}" for group in facts.cpus) or None


def nearness_follows(change: Change, differences: Differences) -> bool:
    """Follow from CPUs that are grouped in another way, where only the nearest of an adapter differ."""
    cpus, fields = differences.by_kind.get("cpus", []), change.names("fields")
    known = ("numa ", "cpus ") if any("domains" in one.values for one in cpus) else ("cpus ",) if cpus else ()
    return bool(fields) and all(text.startswith(known) for text in fields)


def gpu_touches(change: Change, context: Context) -> Iterator[Touched]:
    """Yield the node kinds with as many GPUs as this node had, or has, and their masks."""
    for name in context.gpu_kinds:
        yield Touched("site", f"node_kinds.{name}.gpus", f"states {change.before or 'what changed'}")
        yield Touched("mask", name, f"masks are made from {change.subject}")


def gpu_bus_touches(change: Change, context: Context) -> Iterator[Touched]:
    """Yield the bus ids of the platform, by which a live node is recognised."""
    for name in context.gpu_kinds:
        key = f"platforms.{context.was}.gpu_bus_ids.{name}"
        yield Touched("site", key, f"states {change.before or 'what changed'}")
        yield Touched("mask", name, f"masks are made from {key}")


def cpu_touches(change: Change, context: Context) -> Iterator[Touched]:
    """Yield the groups of each node kind, and the masks that are made from them."""
    for name in context.site.node_kinds:
        yield Touched("site", f"node_kinds.{name}.l3", "states what changed")
        if not change.values.get("same_groups"):
            yield Touched("mask", name, f"masks are made from {change.subject}")


# Interfaces and adapters


def compare_interfaces(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change for each network interface."""
    named = "do not name it (NCCL_SOCKET_IFNAME)."
    for change in _compare_devices("interface", before.interfaces, after.interfaces):
        users = ""
        if change.after is None:
            users = f"The network interface {change.subject} is gone: {named}"
        elif change.after != change.before is not None:
            users = f"The network interface {change.subject} is called {change.after} now: {named}"
        yield replace(change, users=(("scripts", users),) if users else ())


def compare_adapters(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change for each network adapter."""
    yield from _compare_devices("network adapter", before.nics, after.nics)


def _compare_devices(what: str, old: Mapping[str, D], new: Mapping[str, D]) -> Iterator[Change]:
    """Yield what differs by name; a device with another name at the same PCI address is one change."""
    renamed = dict(_renamed(old, new))
    for name, now in renamed.items():
        advice = "correct the name in the site description and render again"
        yield Change(name, name, now, f"{what} has the name {now} now", severity=FAULT, advice=advice)
    for name in sorted((old.keys() | new.keys()) - renamed.keys() - set(renamed.values())):
        if name not in new:
            yield Change(name, name, None, f"{what} is gone")
        elif name not in old:
            yield Change(name, None, name, f"new {what}")
        elif changed := tuple(_changed_fields(old[name], new[name])):
            yield Change(name, name, name, ", ".join(changed), {"fields": changed})


def _renamed(old: Mapping[str, D], new: Mapping[str, D]) -> Iterator[tuple[str, str]]:
    gone, come = only_in(old, new)
    counts = [Counter(devices[name].bus for name in names) for devices, names in ((old, gone), (new, come))]
    by_bus = {new[name].bus: name for name in come}
    for name in gone:
        bus = old[name].bus
        if bus and counts[0][bus] == counts[1][bus] == 1:
            yield name, by_bus[bus]


def _changed_fields(old: D, new: D) -> Iterator[str]:
    """Yield each field that differs; one that is not known in one of two captures does not count."""
    for field in fields(old):
        was, now = getattr(old, field.name), getattr(new, field.name)
        if field.compare and None not in (was, now) and was != now:
            yield f"{field.name} {_value(was)} -> {_value(now)}"


def _value(value: object) -> str:
    return (joined(value) or "none") if isinstance(value, tuple) else str(value)


def interface_touches(change: Change, context: Context) -> Iterator[Touched]:
    """Yield the keys and settings that name the interface."""
    name, fabric = change.subject, context.site.fabric
    for key, names in (("interfaces", fabric.interfaces), ("management", fabric.management)):
        if name in names:
            yield Touched("site", f"fabric.{key}", f"names {name}")
    yield from context.settings_holding(name)
    for kind, node in context.site.node_kinds.items():
        if any(nic.interface == name for nic in node.nics):
            yield Touched("site", f"node_kinds.{kind}.nics", f"names {name}")


def adapter_touches(change: Change, context: Context) -> Iterator[Touched]:
    """Yield the keys that name the adapter, and the places of node kinds where it has another one."""
    site, name = context.site, change.subject
    is_elsewhere = any(field.startswith(("numa ", "cpus ")) for field in change.names("fields"))
    has_place = None in (change.before, change.after) or is_elsewhere
    naming: dict[str, tuple[str | None, ...]] = {"fabric.adapters": site.fabric.adapters}
    for kind, node in site.node_kinds.items():
        key = f"node_kinds.{kind}"
        if node.nics and has_place:
            yield Touched("site", f"{key}.nics", f"names {name}")
        naming |= {f"{key}.adapters": node.adapters or (), f"{key}.gpus": tuple(gpu.adapter for gpu in node.gpus)}
    for key, names in naming.items():
        if name in names:
            yield Touched("site", key, f"names {name}")


_KIND = "correct the node kind and render again"
_FAULT = (FAULT, FAULT, FAULT)
KINDS = (
    ChangeKind(
        "driver",
        compare_drivers,
        driver_touches,
        "write driver and supported releases into the platform, and tell users of images that lose support",
        what="GPU driver",
        follows=comes_with_update,
    ),
    ChangeKind(
        "gpu-count", compare_gpu_count, gpu_touches, "look for a GPU that failed, else correct the node kind", _FAULT
    ),
    ChangeKind("gpu-bus", compare_gpu_buses, gpu_bus_touches, "write the new addresses into the platform", _FAULT),
    ChangeKind("gpu-place", compare_gpu_places, gpu_touches, _KIND, _FAULT, follows=place_follows),
    ChangeKind("cpus", compare_cpus, cpu_touches, _KIND),
    ChangeKind(
        "interface",
        compare_interfaces,
        interface_touches,
        "compare with the other nodes: all need the same interfaces, speed and MTU",
        (DOUBT, FAULT, INFO),
        follows=nearness_follows,
    ),
    ChangeKind(
        "nic",
        compare_adapters,
        adapter_touches,
        "look at its port and its slot, or correct its place in the node kind",
        (DOUBT, FAULT, INFO),
        follows=nearness_follows,
    ),
)
