"""A change in plain words for admins, and all changes as a text for users, who read what they must do."""

from __future__ import annotations

import posixpath
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from lumisite.binds.copies import stem
from lumisite.facts.change import BootConfig, Change, Kind, LoadedFile, known, parted
from lumisite.facts.facts import ImageFile, Named
from lumisite.facts.site import Context, families_borrowing
from lumisite.site.images import family_by_path

#: Of these a node has one, even where no file tells which.
_ALWAYS_THERE = ("os", "kernel", "glibc", "slurm", "release", "cpus")


def words(change: Change[Any]) -> str:
    """Say what changed, in one line that may hold any character of the facts."""
    said = _SAID.get(change.kind, f"{change.kind.replace('-', ' ')} {_ANOTHER}")
    if isinstance(said, tuple):
        said = said[0 if change.before is None else 1 if change.after is None else 2]
    if not isinstance(said, str):
        return said(change)
    was, now = _states(change)
    name = posixpath.basename(change.subject)
    return said.format(**vars(change), name=name, stem=stem(name).removesuffix(".so."), was=was, now=now)


def _states(change: Change[Any]) -> tuple[str, str]:
    nothing = "not known" if change.kind in _ALWAYS_THERE else "none"
    return change.was or nothing, change.now or nothing


def moved_buses(change: Change[tuple[str, ...]]) -> str:
    """Say which GPUs have another PCI bus id."""
    pairs = enumerate(zip(change.before or (), change.after or (), strict=True))
    return ", ".join(f"GPU {index} {was} -> {now}" for index, (was, now) in pairs if was != now)


def _gives(change: Change[tuple[str, ...]]) -> str:
    said = [f"has no {change.was} now"] * bool(change.was) + [f"has {change.now} now"] * bool(change.now)
    return f"{change.subject} {' and '.join(said)}"


def _needs(change: Change[tuple[str, ...]]) -> str:
    parts = [*(f"+ {one}" for one in change.after or ()), *(f"- {one}" for one in change.before or ())]
    return f"{change.subject} needs {', '.join(parts)}"


def _links(change: Change[str]) -> str:
    lost, got = parted((change.before or "none").split(", "), (change.after or "none").split(", "))
    return f"{change.subject} leads elsewhere: {', '.join(lost)} -> {', '.join(got)}"


def _path(change: Change[Named]) -> str:
    was, now = (_stands(one) for one in (change.before, change.after) if one is not None)
    return f"{change.subject}: was {was}, is {now}"


def _stands(one: Named) -> str:
    if one.kind == "none":
        return "not there"
    if one.kind in ("dangling", "unreadable"):
        return f"a link that {one.real}"
    what = "something else" if one.kind == "other" else f"a {one.kind}"
    return f"{what} at {one.real}" if one.real else what


def _device(change: Change[Any]) -> str:
    name = f"{'interface' if change.kind == 'interface' else 'network adapter'} {change.subject}"
    if change.before is None or change.after is None:
        return f"{name} is {'new' if change.before is None else 'gone'}"
    pairs = ((key, was, getattr(change.after, key)) for key, was in vars(change.before).items())
    return f"{name}: {', '.join(f'{key} {known(was)} -> {known(now)}' for key, was, now in pairs if was != now)}"


def _kernel_config(change: Change[BootConfig]) -> str:
    was, now = change.before or BootConfig(), change.after or BootConfig()
    if now.options is None:
        wanted = now.path or "a file for an unknown kernel"
        there = ", ".join(now.there) or "none is"
        return f"kernel configuration: {was.path} -> {wanted}, which is not there ({there})"
    if change.subject != now.path:
        return f"kernel configuration moved: {was.path} -> {now.path}"
    old, new = (", ".join(map("=".join, sorted((one.options or {}).items()))) or "none" for one in (was, now))
    return f"kernel options for DMA-BUF in {now.path}: {old} -> {new}"


def _image(change: Change[ImageFile]) -> str:
    path, was, now = change.subject, change.was, change.now
    if was is None or now is None:
        said = f"image gone: {path}" if now is None else f"new image: {path}"
        return said if path in (was, now) else f"{said} (-> {was or now})"
    if was == now:
        return f"image replaced under its name: {path}"
    return f"image alias {path} leads elsewhere: {was} -> {now}"


def _library(change: Change[LoadedFile]) -> str:
    was, now = change.before or LoadedFile("", 0), change.after or LoadedFile("", 0)
    if was.path != now.path:
        return f"{change.subject}: {was.path} -> {now.path}"
    sizes = f"{was.size_bytes} -> {now.size_bytes} bytes"
    if was.size_bytes == now.size_bytes:
        sizes = f"other content of the same size, sha256 {(was.sha256 or '')[:12]} -> {(now.sha256 or '')[:12]}"
    return f"{change.subject}: another file under the same name, {was.path} ({sizes})"


def _gone(change: Change[LoadedFile]) -> str:
    was = change.before or LoadedFile("", 0)
    needed = f"; {change.subject} is needed by {', '.join(was.needed_by)}, and the node has none"
    return f"library gone: {change.subject} (was {was.path}){needed if was.needed_by else ''}"


def _default(change: Change[str]) -> str:
    link = f"{change.subject}/default" if change.subject.startswith("/") else f"default {change.subject}"
    return f"{link}: {change.was or 'none'} -> {change.now or 'none'}"


def _driver(change: Change[Any]) -> str:
    anew = "; built anew" if change.was == change.now else ""
    return f"GPU driver: {change.was or 'none'} -> {change.now or 'none'}{anew}"


#: Where nothing was, where nothing is, and where something else is.
_Forms: TypeAlias = tuple[str, str, str]
_ANOTHER = "{subject}: {was} -> {now}"


def _forms(now: str, was: str) -> _Forms:
    return now, was, now


#: What is said of a change: one form, one of three, or, where no form does, what a function says. `was` and `now` are
#: texts, `before` and `after` the values.
_SAID: Mapping[Kind, str | _Forms | Callable[[Any], str]] = {
    **dict.fromkeys(("gpu-count", "gpu-place", "release", "os", "kernel", "glibc", "slurm"), _ANOTHER),
    "product": (
        "{name}: new directory, {now}",
        "{name}: directory gone, {was}",
        "{name}: directory renamed, {was} -> {now}",
    ),
    "default": _default,
    "soname": "{stem}: SONAME changed, {was} -> {now}",
    "library-gone": _gone,
    "library-new": "new library: {subject} ({after.path})",
    "damaged": _forms("{subject}: {now}", "{subject} can be loaded again; it was: {was}"),
    "library": _library,
    "needs": _needs,
    "wants": (
        "{subject} wants {after} (before: none)",
        "{subject} wants no {before.group} now",
        "{subject} wants {after} (before: {before.version})",
    ),
    "gives": _gives,
    "missing": _forms(
        "{subject} is needed by {now}, and the node has none",
        "{subject} was needed by {was} and not there; nothing lacks it now",
    ),
    "dangling": _forms("dangling link: {subject} {now}", "link mended: {subject} {was} no more"),
    "path": _path,
    "driver": _driver,
    "rocm": "ROCm on the host: {was} -> {now}",
    "cpe": "CPE on the host: {was} -> {now}",
    "gpu-bus": lambda change: f"GPU bus ids: {moved_buses(change)}",
    "interface": _device,
    "nic": _device,
    "kernel-config": _kernel_config,
    "image": _image,
    "edited": (
        "{subject} was added to the deployed release {after.release}",
        "{subject} was removed from the deployed release {before.release}",
        "{subject} was edited by hand in the deployed release {after.release}",
    ),
    "runtime": "container runtime: {was} -> {now}",
    "cpus": "CPUs by L3@NUMA: {was} -> {now}",
    "unreadable": _forms("users cannot read {subject} ({now})", "users can read {subject} again"),
    "module-default": f"default version of the modules in {_ANOTHER}",
    "slurm-conf": f"Slurm's {_ANOTHER}",
    "links": _links,
}


# The text for users

CHANGED, REBUILD, SCRIPTS = "What changed", "What you must rebuild", "What to look at in job scripts"
_TITLES: Mapping[Kind, str] = {
    "os": "Operating system",
    "kernel": "Kernel",
    "slurm": "Slurm",
    "glibc": "glibc",
    "rocm": "ROCm on the host",
    "cpe": "Cray programming environment",
    "runtime": "Container runtime",
}


def user_lines(changes: Iterable[tuple[Change[Any], bool]], context: Context) -> tuple[str, ...]:
    """Write the text, ready to be sent. With each change comes whether it touches anything; users read all that do."""
    site = context.site
    found: dict[str, list[str]] = {CHANGED: [], REBUILD: [], SCRIPTS: []}
    replaced: dict[str, None] = {}
    for change, touches in changes:
        own = list(_for_users(change, context))
        for title, line in own:
            found[title].append(line)
        if touches and change.kind in ("library", "needs"):
            replaced[change.subject] = None
        elif touches and not own:
            shut = f"{change.subject} can be read by users {'again' if change.after is None else 'no more'}"
            found[CHANGED].append(f"{shut if change.kind == 'unreadable' else words(change)}.")
    if replaced:
        found[CHANGED].append(f"Libraries of the host that images take are other files now: {', '.join(replaced)}.")
    if context.updated is not None and context.leaving:
        supported = f"the new GPU driver supports {context.updated.driver_rocm}"
        found[REBUILD].append(f"Images with ROCm {', '.join(context.leaving)}: {supported}.")
    support = f"Support: {site.support.name}, {site.support.contact}"
    if not any(found.values()):
        return (f"Nothing changed on {site.title} that containers depend on.", "", support)
    found[REBUILD] = found[REBUILD] or ["Nothing that we know of."]
    modules = [name for name, module in site.modules.items() if module.helper] or [*site.modules]
    found[SCRIPTS] += [f"Load {name} anew in each job; do not set its variables by hand." for name in modules[:1]]
    lines = [f"{site.title} was updated. This is what it means for containers.", ""]
    wrap = textwrap.TextWrapper(
        78, initial_indent="- ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
    for title, entries in found.items():
        if entries:
            lines += [title, *(line for entry in dict.fromkeys(entries) for line in wrap.wrap(entry)), ""]
    return (*lines, support)


def _for_users(change: Change[Any], context: Context) -> Iterator[tuple[str, str]]:
    """Give what users read of a change, each line with the title that it stands below."""
    name, was, now = change.subject, change.was, change.now
    match change.kind:
        case kind if kind in _TITLES:
            yield CHANGED, f"{_TITLES[kind]}: {' -> '.join(_states(change))}."
        case "product" if was:
            if now:
                yield CHANGED, f"{posixpath.basename(name)}: {posixpath.basename(was)} -> {posixpath.basename(now)}."
            instead = f" (now {now})" if now else ""
            yield REBUILD, f"Images and job scripts that name {was}{instead}: the directory is gone."
        case "soname" | "library-gone":
            has = f"has {now} instead" if now else "has it no more"
            gone = change.before or () if change.kind == "soname" else [name]
            yield REBUILD, f"Images that take {was} from the host: the host {has}.{_families(context, gone)}"
        case "gives" if was:
            cannot = f"Images and libraries that need {was} of the host's {name}: it has that no more."
            yield REBUILD, f"{cannot}{_families(context, [name])}"
        case "wants" if now:
            cannot = f"Images without {now} that take libraries from the host: these cannot be loaded."
            yield REBUILD, f"{cannot}{_families(context, [name])}"
        case "missing" if now:
            yield REBUILD, f"Nothing yet: {name} is missing on the host, and we are at it."
        case "interface" if now is None:
            yield SCRIPTS, f"The network interface {name} is gone: do not name it (NCCL_SOCKET_IFNAME)."
        case "gpu-place":
            masks = "CPU masks that are written into scripts are wrong"
            yield SCRIPTS, f"GPUs are nearer to other cores than before: {masks}."
        case "cpus":
            yield SCRIPTS, "CPUs are grouped in another way: CPU masks that are written into scripts may be wrong."
        case "gpu-bus":
            yield CHANGED, f"The PCI bus ids of GPUs: {moved_buses(change)}."
            yield SCRIPTS, "PCI bus ids of GPUs that are written into scripts are wrong."
        case "image" if was == now:
            yield CHANGED, f"{name} was replaced by another image."
        case "image" if was:
            yield CHANGED, f"{name} now leads to {now}." if now else f"{name} is gone."
            yield from _stay(name, was, context)


def _families(context: Context, sonames: Iterable[str]) -> str:
    names = [name for name, _ in families_borrowing(context, sonames)]
    return f" This concerns {', '.join(names)}." if names else ""


def _stay(name: str, was: str, context: Context) -> Iterator[tuple[str, str]]:
    """Say how to go on with the image that a name led to."""
    images = context.after.images.items()
    there = {one.target or f"{folder}/{image}" for folder, found in images for image, one in found.items()}
    family = family_by_path(context.site, was, name)
    advice = f"name {was}" if was in there else f"nothing is left: {was} is gone"
    if was != name:
        yield SCRIPTS, f"To stay with the image that {name} was{f' (family {family})' if family else ''}: {advice}."
