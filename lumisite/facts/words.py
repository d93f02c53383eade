"""A change in plain words, and what was and is there as text."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping
from typing import Any

from lumisite.facts.capture_libraries import stem_of
from lumisite.facts.compare import BootConfig, Change, DeployedFile, Kind, LoadedFile
from lumisite.facts.facts import CpuGroup, Device, Driver, ImageFile, Interface, Named, Program

#: Of these a node has one, even where no file tells which.
_ALWAYS_THERE = ("os", "kernel", "glibc", "slurm", "release", "cpus")


def words(change: Change[Any]) -> str:
    """Say what changed, in one line that may hold any character of the facts."""
    nothing = "not known" if change.kind in _ALWAYS_THERE else "none"
    was, now = (text or nothing for text in texts(change))
    said = _SAID[change.kind]
    if not isinstance(said, str):
        said = said[0 if change.before is None else 1 if change.after is None else 2]
    detail = _DETAILS[change.kind](change) if change.kind in _DETAILS else ""
    name, stem = posixpath.basename(change.subject), stem_of(change.subject)
    known = {"subject": change.subject, "name": name, "stem": stem, "before": change.before, "after": change.after}
    return said.format(**known, was=was, now=now, detail=detail)


def texts(change: Change[Any]) -> tuple[str | None, str | None]:
    """Give what was and what is there as text, `None` where that is nothing."""
    return _text(change.kind, change.subject, change.before), _text(change.kind, change.subject, change.after)


def _text(kind: Kind, subject: str, value: object) -> str | None:
    match value:
        case None:
            return None
        case Driver():
            return driver_words(subject, value)
        case Program():
            return value.package or (value.real and f"{value.real}, {value.size_bytes} bytes")
        case Named():
            return None if value.kind == "none" else value.real or value.kind
        case LoadedFile():
            return value.path if kind == "library" else subject
        case BootConfig():
            return None if value.options is None else value.path
        case ImageFile():
            return value.target or subject
        case DeployedFile():
            return value.sha256
        case Interface() | Device():
            return _place(value) if isinstance(value, Device) and kind == "gpu-place" else "there"
        case tuple():
            return " ".join(map(_group, value)) or None if kind == "cpus" else ", ".join(value)
    return str(value)


def driver_words(name: str, driver: Driver) -> str:
    """Say which driver it is: its version, and the sources in /usr/src, which name AMD's release.

    >>> driver_words("amdgpu", Driver("6.10.5", sources=("amdgpu-6.10.5-2084815",)))
    'amdgpu 6.10.5 (amdgpu-6.10.5-2084815)'
    """
    said = f"{name} {driver.version}" if driver.version else name
    return f"{said} ({', '.join(driver.sources)})" if driver.sources else said


def _place(gpu: Device) -> str:
    return f"NUMA domain {_known(gpu.numa)}, CPUs {_known(gpu.cpus)}"


def _group(group: CpuGroup) -> str:
    return f"{group.cpus}@{'?' if group.numa is None else group.numa}"


def _known(value: object) -> object:
    return "not known" if value is None else value


def moved_buses(change: Change[tuple[str, ...]]) -> str:
    """Say which GPUs have another PCI bus id."""
    pairs = enumerate(zip(change.before or (), change.after or (), strict=True))
    return ", ".join(f"GPU {index} {was} -> {now}" for index, (was, now) in pairs if was != now)


def _needs(change: Change[tuple[str, ...]]) -> str:
    return ", ".join([*(f"+ {one}" for one in change.after or ()), *(f"- {one}" for one in change.before or ())])


def _path(change: Change[Named]) -> str:
    was, now = (_stands(one) for one in (change.before, change.after) if one is not None)
    return f"was {was}, is {now}"


def _stands(one: Named) -> str:
    if one.kind == "none":
        return "not there"
    if one.kind == "dangling":
        return f"a link that {one.real}"
    what = "something else" if one.kind == "other" else f"a {one.kind}"
    return f"{what} at {one.real}" if one.real else what


def _library(change: Change[LoadedFile]) -> str:
    was, now = change.before or LoadedFile("", 0), change.after or LoadedFile("", 0)
    if was.path != now.path:
        return f"{was.path} -> {now.path}"
    return f"another file under the same name, {was.path} ({was.size_bytes} -> {now.size_bytes} bytes)"


def _device(change: Change[Interface] | Change[Device]) -> str:
    if change.before is None or change.after is None:
        return ""
    old, new = vars(change.before), vars(change.after)
    return ", ".join(f"{name} {_known(old[name])} -> {_known(new[name])}" for name in old if old[name] != new[name])


def _kernel_config(change: Change[BootConfig]) -> str:
    was, now = change.before or BootConfig(), change.after or BootConfig()
    if now.options is None:
        wanted = now.path or "a file for an unknown kernel"
        return f"configuration: {was.path} -> {wanted}, which is not there ({', '.join(now.there) or 'none is'})"
    if change.subject != now.path:
        return f"configuration moved: {was.path} -> {now.path}"
    return f"options for DMA-BUF in {now.path}: {_options(was)} -> {_options(now)}"


def _options(config: BootConfig) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted((config.options or {}).items())) or "none"


def _image(change: Change[ImageFile]) -> str:
    path, (was, now) = change.subject, texts(change)
    if was is None or now is None:
        return "" if path in (was, now) else f" (-> {was or now})"
    return f"alias {path} leads elsewhere: {was} -> {now}" if was != now else f"replaced under its name: {path}"


def _default(change: Change[str]) -> str:
    return f"{change.subject}/default" if change.subject.startswith("/") else f"default {change.subject}"


def _driver(change: Change[Driver]) -> str:
    was, now = texts(change)
    return "; built anew" if was == now else ""


_DETAILS: Mapping[Kind, Callable[[Any], str]] = {
    "default": _default,
    "library": _library,
    "needs": _needs,
    "path": _path,
    "driver": _driver,
    "gpu-bus": moved_buses,
    "interface": _device,
    "nic": _device,
    "kernel-config": _kernel_config,
    "image": _image,
}
#: What is said of a change; of three, where nothing was, where nothing is, and where something else is. `was` and `now`
#: are texts, `before` and `after` the values, and `detail` is what the function above tells.
_SAID: Mapping[Kind, str | tuple[str, ...]] = {
    "product": (
        "{name}: new directory, {now}",
        "{name}: directory gone, {was}",
        "{name}: directory renamed, {was} -> {now}",
    ),
    "default": "{detail}: {was} -> {now}",
    "soname": "{stem}: SONAME changed, {was} -> {now}",
    "library-gone": "library gone: {subject} (was {before.path})",
    "library-new": "new library: {subject} ({after.path})",
    "library": "{subject}: {detail}",
    "needs": "{subject} needs {detail}",
    "wants": (
        "{subject} wants {after} (before: none)",
        "{subject} wants no {before.group} now",
        "{subject} wants {after} (before: {before.version})",
    ),
    "missing": (
        "{subject} is needed by {now}, and the node has none",
        "{subject} was needed by {was} and not there; nothing lacks it now",
    ),
    "dangling": (
        "dangling link: {subject} {now}",
        "link mended: {subject} {was} no more",
        "dangling link: {subject} {now}",
    ),
    "path": "{subject}: {detail}",
    "driver": "GPU driver: {was} -> {now}{detail}",
    "rocm": "ROCm on the host: {was} -> {now}",
    "cpe": "CPE on the host: {was} -> {now}",
    "gpu-count": "GPUs: {was} -> {now}",
    "gpu-bus": "GPU bus ids: {detail}",
    "gpu-place": "{subject}: {was} -> {now}",
    "interface": ("interface {subject} is new", "interface {subject} is gone", "interface {subject}: {detail}"),
    "nic": (
        "network adapter {subject} is new",
        "network adapter {subject} is gone",
        "network adapter {subject}: {detail}",
    ),
    "kernel-config": "kernel {detail}",
    "image": ("new image: {subject}{detail}", "image gone: {subject}{detail}", "image {detail}"),
    "release": "deployed release: {was} -> {now}",
    "edited": (
        "{subject} was added to the deployed release {after.release}",
        "{subject} was removed from the deployed release {before.release}",
        "{subject} was edited by hand in the deployed release {after.release}",
    ),
    "runtime": "container runtime: {was} -> {now}",
    "os": "operating system: {was} -> {now}",
    "kernel": "kernel: {was} -> {now}",
    "glibc": "glibc: {was} -> {now}",
    "slurm": "Slurm: {was} -> {now}",
    "cpus": "CPUs by L3@NUMA: {was} -> {now}",
}
