"""A change in plain words, and what was and is there as text."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping
from typing import Any

from lumisite.binds.copies import stem
from lumisite.facts.compare import BootConfig, Change, DeployedFile, Kind, LoadedFile
from lumisite.facts.facts import CpuGroup, Device, Driver, ImageFile, Interface, Named, Program

#: Of these a node has one, even where no file tells which.
_ALWAYS_THERE = ("os", "kernel", "glibc", "slurm", "release", "cpus")


def words(change: Change[Any]) -> str:
    """Say what changed, in one line that may hold any character of the facts."""
    said = _SAID[change.kind]
    if isinstance(said, tuple):
        said = said[0 if change.before is None else 1 if change.after is None else 2]
    if not isinstance(said, str):
        return said(change)
    nothing = "not known" if change.kind in _ALWAYS_THERE else "none"
    was, now = (text or nothing for text in texts(change))
    name = posixpath.basename(change.subject)
    return said.format(**vars(change), name=name, stem=stem(name).removesuffix(".so."), was=was, now=now)


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
        case Device() if kind == "gpu-place":
            return f"NUMA domain {_known(value.numa)}, CPUs {_known(value.cpus)}"
        case Interface() | Device():
            return "there"
        case tuple() if kind == "cpus":
            return " ".join(map(_group, value)) or None
        case tuple():
            return ", ".join(value)
    return str(value)


def driver_words(name: str, driver: Driver) -> str:
    """Say which driver it is: its version, and the sources in /usr/src, which name AMD's release.

    >>> driver_words("amdgpu", Driver("6.10.5", sources=("amdgpu-6.10.5-2084815",)))
    'amdgpu 6.10.5 (amdgpu-6.10.5-2084815)'
    """
    said = f"{name} {driver.version}" if driver.version else name
    return f"{said} ({', '.join(driver.sources)})" if driver.sources else said


def _group(group: CpuGroup) -> str:
    return f"{group.cpus}@{'?' if group.numa is None else group.numa}"


def _known(value: object) -> object:
    return "not known" if value is None else value


def moved_buses(change: Change[tuple[str, ...]]) -> str:
    """Say which GPUs have another PCI bus id."""
    pairs = enumerate(zip(change.before or (), change.after or (), strict=True))
    return ", ".join(f"GPU {index} {was} -> {now}" for index, (was, now) in pairs if was != now)


def _needs(change: Change[tuple[str, ...]]) -> str:
    parts = [*(f"+ {one}" for one in change.after or ()), *(f"- {one}" for one in change.before or ())]
    return f"{change.subject} needs {', '.join(parts)}"


def _path(change: Change[Named]) -> str:
    was, now = (_stands(one) for one in (change.before, change.after) if one is not None)
    return f"{change.subject}: was {was}, is {now}"


def _stands(one: Named) -> str:
    if one.kind == "none":
        return "not there"
    if one.kind == "dangling":
        return f"a link that {one.real}"
    what = "something else" if one.kind == "other" else f"a {one.kind}"
    return f"{what} at {one.real}" if one.real else what


def _fields(change: Change[Any]) -> str:
    """Say which fields of a value differ, by their names in the facts."""
    was, now = vars(change.before), vars(change.after)
    changed = (f"{name} {_known(was[name])} -> {_known(now[name])}" for name in was if was[name] != now[name])
    return f"{change.subject}: {', '.join(changed)}"


def _kernel_config(change: Change[BootConfig]) -> str:
    was, now = change.before or BootConfig(), change.after or BootConfig()
    if now.options is None:
        wanted = now.path or "a file for an unknown kernel"
        there = ", ".join(now.there) or "none is"
        return f"kernel configuration: {was.path} -> {wanted}, which is not there ({there})"
    if change.subject != now.path:
        return f"kernel configuration moved: {was.path} -> {now.path}"
    old, new = (
        ", ".join(f"{name}={value}" for name, value in sorted((one.options or {}).items())) or "none"
        for one in (was, now)
    )
    return f"kernel options for DMA-BUF in {now.path}: {old} -> {new}"


def _image(change: Change[ImageFile]) -> str:
    path, (was, now) = change.subject, texts(change)
    if was is None or now is None:
        said = f"image gone: {path}" if now is None else f"new image: {path}"
        return said if path in (was, now) else f"{said} (-> {was or now})"
    return (
        f"image alias {path} leads elsewhere: {was} -> {now}"
        if was != now
        else f"image replaced under its name: {path}"
    )


def _library(change: Change[LoadedFile]) -> str:
    was, now = change.before or LoadedFile("", 0), change.after or LoadedFile("", 0)
    if was.path != now.path:
        return f"{change.subject}: {was.path} -> {now.path}"
    sizes = f"{was.size_bytes} -> {now.size_bytes} bytes"
    return f"{change.subject}: another file under the same name, {was.path} ({sizes})"


def _default(change: Change[str]) -> str:
    link = f"{change.subject}/default" if change.subject.startswith("/") else f"default {change.subject}"
    return f"{link}: {change.before or 'none'} -> {change.after or 'none'}"


def _driver(change: Change[Driver]) -> str:
    was, now = texts(change)
    return f"GPU driver: {was or 'none'} -> {now or 'none'}{'; built anew' if was == now else ''}"


Said = str | Callable[[Change[Any]], str]
#: What is said of a change; of three, where nothing was, where nothing is, and where something else is. `was` and `now`
#: are texts, `before` and `after` the values.
_SAID: Mapping[Kind, Said | tuple[Said, ...]] = {
    "product": (
        "{name}: new directory, {now}",
        "{name}: directory gone, {was}",
        "{name}: directory renamed, {was} -> {now}",
    ),
    "default": _default,
    "soname": "{stem}: SONAME changed, {was} -> {now}",
    "library-gone": "library gone: {subject} (was {before.path})",
    "library-new": "new library: {subject} ({after.path})",
    "library": _library,
    "needs": _needs,
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
    "path": _path,
    "driver": _driver,
    "rocm": "ROCm on the host: {was} -> {now}",
    "cpe": "CPE on the host: {was} -> {now}",
    "gpu-count": "GPUs: {was} -> {now}",
    "gpu-bus": lambda change: f"GPU bus ids: {moved_buses(change)}",
    "gpu-place": "{subject}: {was} -> {now}",
    "interface": ("interface {subject} is new", "interface {subject} is gone", lambda one: f"interface {_fields(one)}"),
    "nic": (
        "network adapter {subject} is new",
        "network adapter {subject} is gone",
        lambda change: f"network adapter {_fields(change)}",
    ),
    "kernel-config": _kernel_config,
    "image": _image,
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
