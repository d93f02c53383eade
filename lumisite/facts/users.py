"""The text for users after a maintenance: what changed for containers, what they must rebuild, whom to ask."""

from __future__ import annotations

import posixpath
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from lumisite.facts.compare import Change, Kind
from lumisite.facts.site import Context, families_borrowing
from lumisite.facts.words import moved_buses, texts
from lumisite.site.images import family_by_path

Lines = Iterator[str]
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
    changed = _unique(_changed, changes, context)
    rebuild = [*_unique(_rebuild, changes, context), *_leaving(context)]
    scripts = _unique(_scripts, changes, context)
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


def _unique(
    rule: Callable[[Change[Any], Context], Lines], changes: Iterable[Change[Any]], context: Context
) -> list[str]:
    return list(dict.fromkeys(line for change in changes for line in rule(change, context)))


def _load_again(context: Context) -> Lines:
    modules = [name for name, module in context.site.modules.items() if module.helper] or list(context.site.modules)
    if modules:
        yield f"Load {modules[0]} anew in each job; do not set its variables by hand."


def _changed(change: Change[Any], context: Context) -> Lines:
    name, (was, now) = change.subject, texts(change)
    if change.kind in _TITLES:
        yield f"{_TITLES[change.kind]}: {was or 'none'} -> {now or 'none'}."
    elif change.kind == "product" and was and now:
        yield f"{posixpath.basename(name)}: {posixpath.basename(was)} -> {posixpath.basename(now)}."
    elif change.kind == "gpu-bus":
        yield f"The PCI bus ids of GPUs: {moved_buses(change)}."
    elif change.kind == "image" and was and was != now:
        yield f"{name} now leads to {now}." if now else f"{name} is gone."
    elif change.kind == "image" and was:
        yield f"{name} was replaced by another image."


def _rebuild(change: Change[Any], context: Context) -> Lines:
    name, (was, now) = change.subject, texts(change)
    if change.kind == "product" and was:
        more = f" (now {now})" if now else ""
        yield f"Images and job scripts that name {was}{more}: the directory is gone."
    elif change.kind in ("soname", "library-gone"):
        instead = f"has {now} instead" if now else "has it no more"
        gone = change.before or () if change.kind == "soname" else [name]
        yield f"Images that take {was} from the host: the host {instead}.{_families(context, gone)}"
    elif change.kind == "wants" and now:
        concerned = _families(context, [name])
        yield f"Images without {now} that take libraries from the host: these cannot be loaded.{concerned}"
    elif change.kind == "missing" and now:
        yield f"Nothing yet: {name} is missing on the host, and we are at it."


def _families(context: Context, sonames: Iterable[str]) -> str:
    names = [name for name, _ in families_borrowing(context, sonames)]
    return f" This concerns {', '.join(names)}." if names else ""


def _leaving(context: Context) -> Lines:
    if context.updated is not None and context.leaving:
        supported = context.updated.driver_rocm
        yield f"Images with ROCm {', '.join(context.leaving)}: the new GPU driver supports {supported}."


def _scripts(change: Change[Any], context: Context) -> Lines:
    name, (was, now) = change.subject, texts(change)
    if change.kind == "interface" and now is None:
        yield f"The network interface {name} is gone: do not name it (NCCL_SOCKET_IFNAME)."
    elif change.kind == "image" and was and was not in (name, now):
        family = family_by_path(context.site, name)
        images = context.after.images.items()
        there = {one.target or f"{folder}/{image}" for folder, found in images for image, one in found.items()}
        advice = f"name {was}" if was in there else f"nothing is left: {was} is gone"
        yield f"To stay with the image that {name} was{f' (family {family})' if family else ''}: {advice}."
    elif change.kind == "gpu-place":
        yield "GPUs are nearer to other cores than before: CPU masks that are written into scripts are wrong."
    elif change.kind == "gpu-bus":
        yield "PCI bus ids of GPUs that are written into scripts are wrong."
