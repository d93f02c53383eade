"""Compare GPUs and their drivers, CPUs, network interfaces and adapters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import TypeVar

from lumisite.facts.change import DOUBT, FAULT, INFO, Change, joined, known_difference, only_in
from lumisite.facts.facts import Adapter, Device, Facts, Interface, driver_text
from lumisite.site.cpu_list import CpusetError, parse_number_list
from lumisite.text import listed

D = TypeVar("D", Interface, Adapter)
_SET_SMT = "set SMT as before: nosmt on the kernel's command line, /sys/devices/system/cpu/smt/control, or the firmware"
_SET_NUMA = "set NPS or SNC in the firmware as before, or correct the NUMA domains of the node kind"


def compare_drivers(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change for each GPU driver that is another one."""
    for name in sorted(before.drivers.keys() | after.drivers.keys()):
        old, new = before.drivers.get(name), after.drivers.get(name)
        was, now = (None if driver is None else driver_text(name, driver) for driver in (old, new))
        if was != now:
            yield Change(name, was, now, f"GPU driver {was} is no longer loaded" if now is None else "")
        elif old != new:
            yield Change(
                name, was, now, f"GPU driver {now}, built again", severity=INFO, advice="run lumisite validate"
            )


# GPUs and CPUs


def compare_gpu_count(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change where the number of GPUs differs; without CPUs a capture has no GPUs either, and says why."""
    if before.cpus and after.cpus and len(before.gpus) != len(after.gpus):
        yield Change("GPUs", str(len(before.gpus)), str(len(after.gpus)))


def compare_gpu_buses(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change where GPUs have other PCI addresses."""
    old, new = ([gpu.bus or "-" for gpu in facts.gpus] for facts in (before, after))
    if len(old) == len(new) and old != new:
        moved = tuple(
            f"GPU {at} {was} -> {now}" for at, (was, now) in enumerate(zip(old, new, strict=True)) if was != now
        )
        users = (f"The PCI bus ids of GPUs changed: correct them where scripts have them ({', '.join(moved)}).",)
        yield Change("GPU bus ids", joined(old), joined(new), listed(moved), {"moved": moved}, users=users)


def compare_gpu_places(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change for each GPU that is near other CPUs, or in another NUMA domain."""
    if len(before.gpus) == len(after.gpus):
        for index, (old, new) in enumerate(zip(before.gpus, after.gpus, strict=True)):
            numa = ("numa",) if old.numa != new.numa else ()
            cpus = ("cpus",) if old.cpus != new.cpus and None not in (old.cpus, new.cpus) else ()
            if numa or cpus:
                values = {"fields": (*numa, *cpus)}
                users = ("GPUs are nearer to other cores than before: correct CPU masks in scripts.",)
                yield Change(f"GPU {index}", _place(old), _place(new), values=values, users=users)


def _place(gpu: Device) -> str:
    return f"NUMA {'?' if gpu.numa is None else gpu.numa}, CPUs {gpu.cpus or '?'}"


def compare_cpus(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change where CPUs are grouped in another way: by hardware threads, by NUMA domain alone, or by L3.

    Its `how` is what differs; `groups` is there where the CPUs of each group do.
    """
    if before.cpus == after.cpus:
        return
    old, new = _cpu_sets(before), _cpu_sets(after)
    threads = [facts.threads_per_core for facts in (before, after)]
    domains = [len({group.numa for group in facts.cpus}) for facts in (before, after)]
    texts = [_groups(facts) for facts in (before, after)]
    groups = () if old == new else ("groups",)
    masks = "correct CPU masks in scripts."
    if None not in threads and threads[0] != threads[1]:
        count, values = f"{threads[0]} -> {threads[1]}", {"how": ("threads", *groups)}
        users = (f"Hardware threads of a core: {count}: {masks}",)
        message = f"hardware threads of a core {count}: {texts[1]}"
        yield Change("CPUs", str(threads[0]), str(threads[1]), message, values, (), FAULT, _SET_SMT, users)
    elif old and (old == new or (domains[0] != domains[1] and _is_joined(old, new))):
        count, values = f"{domains[0]} -> {domains[1]}", {"how": ("domains", *groups)}
        users = (f"NUMA domains of a node: {count}: do not bind memory by their numbers.",)
        message = f"NUMA domains {count}: {texts[1]}"
        yield Change("CPUs", str(domains[0]), str(domains[1]), message, values, (), DOUBT, _SET_NUMA, users)
    else:
        users = (f"CPUs are grouped in another way: {masks}",)
        message = f"L3 groups {known_difference(*texts)}"
        yield Change("CPUs", texts[0], texts[1], message, {"how": groups}, severity=FAULT, users=users)


def _cpu_sets(facts: Facts) -> list[set[int]]:
    """Return the CPUs of each group; none where one of them is no list of numbers."""
    try:
        return [set(parse_number_list(group.cpus)) for group in facts.cpus]
    except CpusetError:
        return []


def _is_joined(old: list[set[int]], new: list[set[int]]) -> bool:
    """Return whether the groups of one side are whole groups of the other put together: NUMA domains without an L3."""
    few, many = sorted((old, new), key=len)
    if not few or set.union(*few) != set.union(*many):
        return False
    return all(any(part <= whole for whole in few) for part in many)


def _groups(facts: Facts) -> str | None:
    return " ".join(f"{group.cpus}@{'?' if group.numa is None else group.numa}" for group in facts.cpus) or None


# Interfaces and adapters


def compare_interfaces(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change for each network interface."""
    for change in _compare_devices("interface", before.interfaces, after.interfaces):
        users = ""
        if change.after is None:
            users = f"The network interface {change.subject} is gone: do not name it in NCCL_SOCKET_IFNAME."
        elif change.after != change.before is not None:
            users = f"The network interface {change.subject} is called {change.after} now."
        yield replace(change, users=(users,) if users else ())


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
    gone, come = only_in([*old], [*new])
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
