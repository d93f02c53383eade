"""The text for users after a maintenance: what changed for containers, what they must rebuild, whom to ask."""

from __future__ import annotations

import posixpath
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from lumisite.facts.compare import Change, Kind
from lumisite.facts.site import Context, families_borrowing
from lumisite.facts.words import moved_buses, texts
from lumisite.site.images import family_by_path

CHANGED, REBUILD, SCRIPTS = "What changed", "What you must rebuild", "What to look at in job scripts"
_TITLES: Mapping[Kind, str] = {
    "os": "Operating system",
    "slurm": "Slurm",
    "glibc": "glibc",
    "driver": "GPU driver",
    "rocm": "ROCm on the host",
    "cpe": "Cray programming environment",
    "runtime": "Container runtime",
}


def user_lines(changes: Sequence[Change[Any]], context: Context) -> tuple[str, ...]:
    """Write the text, ready to be sent; what does not concern users is left out."""
    site = context.site
    found: dict[str, list[str]] = {CHANGED: [], REBUILD: [], SCRIPTS: []}
    for change in changes:
        for title, line in _told(change, context):
            found[title].append(line)
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


def _told(change: Change[Any], context: Context) -> Iterator[tuple[str, str]]:
    """Give what users read of a change, each line with the title that it stands below."""
    name, (was, now) = change.subject, texts(change)
    match change.kind:
        case kind if kind in _TITLES:
            yield CHANGED, f"{_TITLES[kind]}: {was or 'none'} -> {now or 'none'}."
        case "product" if was:
            if now:
                yield CHANGED, f"{posixpath.basename(name)}: {posixpath.basename(was)} -> {posixpath.basename(now)}."
            instead = f" (now {now})" if now else ""
            yield REBUILD, f"Images and job scripts that name {was}{instead}: the directory is gone."
        case "soname" | "library-gone":
            has = f"has {now} instead" if now else "has it no more"
            gone = change.before or () if change.kind == "soname" else [name]
            yield REBUILD, f"Images that take {was} from the host: the host {has}.{_families(context, gone)}"
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
    family = family_by_path(context.site, name)
    advice = f"name {was}" if was in there else f"nothing is left: {was} is gone"
    if was != name:
        yield SCRIPTS, f"To stay with the image that {name} was{f' (family {family})' if family else ''}: {advice}."
