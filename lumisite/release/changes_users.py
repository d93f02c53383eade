"""The text for users after a maintenance: what changed for containers, what they must rebuild, whom to ask."""

from __future__ import annotations

import posixpath
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from lumisite.node.facts import ImageFile, Interface
from lumisite.release.changes_compare import Change, Kind, LoadedFile, SymbolVersion
from lumisite.release.changes_site import Context, families_borrowing
from lumisite.release.changes_words import moved_buses, texts
from lumisite.site.images import family_by_path

Lines = Iterator[str]
Rules = Mapping[Kind, Callable[[Any, Context], Lines]]


def user_lines(changes: Sequence[Change[Any]], context: Context) -> tuple[str, ...]:
    """Write the text, ready to be sent; what does not concern users is left out."""
    site = context.site
    changed = _unique(_CHANGED, changes, context)
    rebuild = [*_unique(_REBUILD, changes, context), *_leaving(context)]
    scripts = _unique(_SCRIPTS, changes, context)
    support = f"Support: {site.support.name}, {site.support.contact}"
    if not (changed or rebuild or scripts):
        return (f"Nothing changed on {site.title} that containers depend on.", "", support)
    lines = [f"{site.title} was updated. This is what it means for containers.", ""]
    lines += _section("What changed", changed)
    lines += _section("What you must rebuild", rebuild or ["Nothing that we know of."])
    lines += _section("What to look at in job scripts", [*scripts, *_load_again(context)])
    return (*lines, support)


def _section(title: str, entries: Sequence[str]) -> list[str]:
    wrap = textwrap.TextWrapper(
        78, initial_indent="- ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
    return [title, *(line for entry in entries for line in wrap.fill(entry).splitlines()), ""] if entries else []


def _unique(rules: Rules, changes: Iterable[Change[Any]], context: Context) -> list[str]:
    found = (line for change in changes if change.kind in rules for line in rules[change.kind](change, context))
    return list(dict.fromkeys(found))


def _load_again(context: Context) -> Lines:
    modules = [name for name, module in context.site.modules.items() if module.helper] or list(context.site.modules)
    if modules:
        yield f"Load {modules[0]} anew in each job; do not set its variables by hand."


_TITLES: Mapping[Kind, str] = {
    "os": "Operating system",
    "slurm": "Slurm",
    "glibc": "glibc",
    "driver": "GPU driver",
    "rocm": "ROCm on the host",
    "cpe": "Cray programming environment",
    "runtime": "Container runtime",
}


def _title(change: Change[Any], context: Context) -> Lines:
    was, now = texts(change)
    yield f"{_TITLES[change.kind]}: {was or 'none'} -> {now or 'none'}."


def _product(change: Change[str], context: Context) -> Lines:
    if change.before and change.after:
        name, was, now = map(posixpath.basename, (change.subject, change.before, change.after))
        yield f"{name}: {was} -> {now}."


def _buses(change: Change[tuple[str, ...]], context: Context) -> Lines:
    yield f"The PCI bus ids of GPUs: {moved_buses(change)}."


def _image_moved(change: Change[ImageFile], context: Context) -> Lines:
    was, now = texts(change)
    if was and was != now:
        yield f"{change.subject} now leads to {now}." if now else f"{change.subject} is gone."
    elif was:
        yield f"{change.subject} was replaced by another image."


def _gone_directory(change: Change[str], context: Context) -> Lines:
    if change.before:
        more = f" (now {change.after})" if change.after else ""
        yield f"Images and job scripts that name {change.before}{more}: the directory is gone."


def _soname(change: Change[tuple[str, ...]], context: Context) -> Lines:
    was, now = texts(change)
    concerned = _families(context, change.before or ())
    yield f"Images that take {was} from the host: the host has {now} instead.{concerned}"


def _library_gone(change: Change[LoadedFile], context: Context) -> Lines:
    concerned = _families(context, [change.subject])
    yield f"Images that take {change.subject} from the host: the host has it no more.{concerned}"


def _too_new(change: Change[SymbolVersion], context: Context) -> Lines:
    if change.after:
        concerned = _families(context, [change.subject])
        yield f"Images without {change.after} that take libraries from the host: these cannot be loaded.{concerned}"


def _missing(change: Change[tuple[str, ...]], context: Context) -> Lines:
    if change.after:
        yield f"Nothing yet: {change.subject} is missing on the host, and we are at it."


def _families(context: Context, sonames: Iterable[str]) -> str:
    names = [name for name, _ in families_borrowing(context, sonames)]
    return f" This concerns {', '.join(names)}." if names else ""


def _leaving(context: Context) -> Lines:
    if context.updated is not None and context.leaving:
        supported = context.updated.driver_rocm
        yield f"Images with ROCm {', '.join(context.leaving)}: the new GPU driver supports {supported}."


def _interface(change: Change[Interface], context: Context) -> Lines:
    if change.after is None:
        yield f"The network interface {change.subject} is gone: do not name it (NCCL_SOCKET_IFNAME)."


def _pin(change: Change[ImageFile], context: Context) -> Lines:
    was, now = texts(change)
    if was and was != change.subject and now != was:
        family = family_by_path(context.site, change.subject)
        more = f" (family {family})" if family else ""
        images = context.after.images.items()
        there = {one.target or f"{folder}/{name}" for folder, found in images for name, one in found.items()}
        advice = f"name {was}" if was in there else f"nothing is left: {was} is gone"
        yield f"To stay with the image that {change.subject} was{more}: {advice}."


def _gpu_places(change: Change[Any], context: Context) -> Lines:
    yield "GPUs are nearer to other cores than before: CPU masks that are written into scripts are wrong."


def _bus_scripts(change: Change[Any], context: Context) -> Lines:
    yield "PCI bus ids of GPUs that are written into scripts are wrong."


_CHANGED: Rules = {
    **dict.fromkeys(_TITLES, _title),
    "product": _product,
    "gpu-bus": _buses,
    "image": _image_moved,
}
_REBUILD: Rules = {
    "product": _gone_directory,
    "soname": _soname,
    "library-gone": _library_gone,
    "wants": _too_new,
    "missing": _missing,
}
_SCRIPTS: Rules = {
    "interface": _interface,
    "image": _pin,
    "gpu-place": _gpu_places,
    "gpu-bus": _bus_scripts,
}
