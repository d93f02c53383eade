"""The text for users after a maintenance: what changed for containers, what they must rebuild, whom to ask."""

from __future__ import annotations

import posixpath
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from lumisite.release.changes_compare import Change
from lumisite.release.changes_site import Context, families_borrowing, families_of_image, leaving

Rule = Callable[[Change, Context], Iterator[str]]


def user_lines(changes: Sequence[Change], context: Context) -> tuple[str, ...]:
    """Write the text, ready to be sent; what does not concern users is left out."""
    changed = _unique(_CHANGED, changes, context)
    rebuild = [*_unique(_REBUILD, changes, context), *_leaving(context)]
    scripts = _unique(_SCRIPTS, changes, context)
    support = f"Support: {context.site.support.name}, {context.site.support.contact}"
    if not (changed or rebuild or scripts):
        return (f"Nothing changed on {context.site.title} that containers depend on.", "", support)
    lines = [f"{context.site.title} was updated. This is what it means for containers.", ""]
    lines += [*_section("What changed", changed), *_section("What you must rebuild", rebuild or [_NOTHING])]
    lines += _section("What to look at in job scripts", [*scripts, *_modules(context)])
    return (*lines, support)


_NOTHING = "Nothing that we know of."


def _section(title: str, entries: Iterable[str]) -> list[str]:
    kept = list(entries)
    wrapped = [
        textwrap.fill(
            entry, 78, initial_indent="- ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        )
        for entry in kept
    ]
    return [title, *(line for text in wrapped for line in text.splitlines()), ""] if kept else []


def _unique(rules: Mapping[str, Rule], changes: Iterable[Change], context: Context) -> list[str]:
    found = (line for change in changes if change.kind in rules for line in rules[change.kind](change, context))
    return list(dict.fromkeys(found))


def _modules(context: Context) -> list[str]:
    modules = [name for name, module in context.site.modules.items() if module.helper] or list(context.site.modules)
    return [f"Load {modules[0]} anew in each job; do not set its variables by hand."] if modules else []


def _simple(words: str) -> Rule:
    def rule(change: Change, context: Context) -> Iterator[str]:
        yield f"{words}: {change.before or 'none'} -> {change.after or 'none'}."

    return rule


def _product(change: Change, context: Context) -> Iterator[str]:
    if change.before and change.after:
        name = posixpath.basename(change.subject)
        yield f"{name}: {posixpath.basename(change.before)} -> {posixpath.basename(change.after)}."


def _buses(change: Change, context: Context) -> Iterator[str]:
    yield f"The PCI bus ids of GPUs: {change.what.partition(': ')[2]}."


def _image_moved(change: Change, context: Context) -> Iterator[str]:
    if change.before and change.after != change.before:
        yield f"{change.subject} now leads to {change.after}." if change.after else f"{change.subject} is gone."
    elif change.before:
        yield f"{change.subject} was replaced by another image."


def _gone_directory(change: Change, context: Context) -> Iterator[str]:
    if change.before:
        more = f" (now {change.after})" if change.after else ""
        yield f"Images and job scripts that name {change.before}{more}: the directory is gone."


def _gone_library(change: Change, context: Context) -> Iterator[str]:
    yield f"Images that take {change.before} from the host: the host {_instead(change)}.{_families(change, context)}"


def _instead(change: Change) -> str:
    return f"has {change.after} instead" if change.after else "has it no more"


def _too_new(change: Change, context: Context) -> Iterator[str]:
    if change.after and change.after.startswith(("GLIBC", "CXXABI")):
        concerned = _families(change, context)
        yield f"Images without {change.after} that take libraries from the host: these cannot be loaded.{concerned}"


def _missing(change: Change, context: Context) -> Iterator[str]:
    if change.after:
        yield f"Nothing yet: {change.subject} is missing on the host, and we are at it."


def _families(change: Change, context: Context) -> str:
    names = [name for name, _ in families_borrowing(context, [change.subject])]
    return f" This concerns {', '.join(names)}." if names else ""


def _leaving(context: Context) -> list[str]:
    releases, supported = leaving(context)
    if not releases:
        return []
    return [f"Images with ROCm {', '.join(releases)}: the new GPU driver supports {supported}."]


def _interface(change: Change, context: Context) -> Iterator[str]:
    if change.after is None:
        yield f"The network interface {change.subject} is gone: do not name it (NCCL_SOCKET_IFNAME)."


def _pin(change: Change, context: Context) -> Iterator[str]:
    if change.before and change.before != change.subject and change.after != change.before:
        family = next(families_of_image(context.site, change.subject), None)
        more = f" (family {family})" if family else ""
        there = change.before in _images_of(context)
        advice = f"name {change.before}" if there else f"nothing is left: {change.before} is gone"
        yield f"To stay with the image that {change.subject} was{more}: {advice}."


def _images_of(context: Context) -> set[str]:
    return {
        image.target or f"{directory}/{name}"
        for directory, images in context.after.images.items()
        for name, image in images.items()
    }


def _places(change: Change, context: Context) -> Iterator[str]:
    yield "GPUs are nearer to other cores than before: CPU masks that are written into scripts are wrong."


def _bus_scripts(change: Change, context: Context) -> Iterator[str]:
    yield "PCI bus ids of GPUs that are written into scripts are wrong."


_CHANGED: Mapping[str, Rule] = {
    "product": _product,
    "os": _simple("Operating system"),
    "slurm": _simple("Slurm"),
    "glibc": _simple("glibc"),
    "driver": _simple("GPU driver"),
    "rocm": _simple("ROCm on the host"),
    "cpe": _simple("Cray programming environment"),
    "runtime": _simple("Container runtime"),
    "gpu-bus": _buses,
    "image": _image_moved,
}
_REBUILD: Mapping[str, Rule] = {
    "product": _gone_directory,
    "soname": _gone_library,
    "library-gone": _gone_library,
    "wants": _too_new,
    "missing": _missing,
}
_SCRIPTS: Mapping[str, Rule] = {
    "interface": _interface,
    "image": _pin,
    "gpu-place": _places,
    "gpu-bus": _bus_scripts,
}
