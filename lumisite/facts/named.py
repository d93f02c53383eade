"""What the site says of a path or of libraries: its keys, settings, modules and plans that name them."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterator

from lumisite.facts.capture import stated_paths
from lumisite.facts.facts import Facts
from lumisite.facts.site import Context, Touch, families_borrowing
from lumisite.machine.tree import is_under
from lumisite.site.library_path import host_path
from lumisite.site.plans import LoadedPlan

Touches = Iterator[Touch]


def keys_naming(context: Context, path: str, fault: str) -> Touches:
    """Give the keys of the site description whose value is a path, or lies below it."""
    for key, stated in stated_paths(context.site):
        if is_under(stated, path):
            yield Touch("site", key, f"names {path}, which {fault}")


def settings_holding(context: Context, text: str, fault: str = "") -> Touches:
    """Give the variables of the ledger whose value holds a path or a name."""
    whole = re.compile(rf"(?<![\w.-]){re.escape(text)}(?![\w-])")
    for setting in context.site.settings:
        if setting.value and whole.search(setting.value):
            yield Touch("setting", setting.name, f"its value names {text}{fault}")


def modules_binding(context: Context, path: str, more: str = "") -> Touches:
    """Give the modules that bind a path, a directory above it or something below it, and those that load these."""
    found: dict[str, str] = {}
    for bind in context.site.host_paths.values():
        if bind.where in context.site.modules and (is_under(path, bind.path) or is_under(bind.path, path)):
            found.setdefault(str(bind.where), f"binds {bind.path}")
    for name, module in context.site.modules.items():
        if name not in found and any(other in found for other in module.loads):
            found[name] = f"loads {', '.join(other for other in module.loads if other in found)}"
    yield from (Touch("module", name, f"{how}{more}") for name, how in found.items())


def plans_with(context: Context, sonames: Collection[str], behind: str, before: str = "") -> Touches:
    """Give the plans that these libraries are in; the reason is the library with the words `before` and `behind` it."""
    for family, hit in families_borrowing(context, sonames):
        yield Touch("plan", family, f"{before}{hit}{behind}")
    for stored in context.plans:
        hits = sorted({line.library for line in stored.plan.lines}.intersection(sonames))
        if hits:
            yield stored_plan(stored, f"decides about {', '.join(hits)}")


def plans_under(context: Context, path: str) -> Touches:
    """Give the stored plans that bind, or have on the library path, a path or what is below it."""
    for stored in context.plans:
        bound = (line.source for line in stored.plan.lines if line.decision == "bind" and line.source is not None)
        searched = (host_path(context.site, folder) for folder in stored.plan.library_path)
        hits = [str(at) for at in dict.fromkeys((*searched, *bound)) if is_under(at, path)]
        if hits:
            yield stored_plan(stored, f"names {', '.join(hits)}")


def stored_plan(stored: LoadedPlan, why: str) -> Touch:
    """Call a stored plan by its file, and say which images it is for."""
    return Touch("plan", stored.file, f"is for {', '.join(stored.plan.paths)}, and {why}")


def bound_files(context: Context, sonames: Collection[str], why: str) -> Touches:
    """Give the binds of single libraries, with their modules."""
    for key, bind in context.site.host_paths.items():
        if posixpath.basename(bind.path) in sonames:
            yield Touch("site", f"{key}.path", f"{bind.path} {why}")
            if bind.where in context.site.modules:
                yield Touch("module", str(bind.where), f"binds {bind.path}")


def sonames_under(path: str, *captures: Facts) -> list[str]:
    """Give the SONAMEs that captures load from below a path."""
    return [soname for facts in captures for soname, at in facts.loads.items() if is_under(at, path)]


def borrowed(context: Context, sonames: Collection[str], now: str) -> Touches:
    """Give the plans of images that borrow one of these libraries."""
    return plans_with(context, sonames, f" from the host, {now}", before="its images borrow ")


def named(context: Context, path: str, fault: str) -> Touches:
    """Give everything that a path is named by: keys, modules, settings."""
    yield from keys_naming(context, path, fault)
    yield from modules_binding(context, path)
    yield from settings_holding(context, path)
    yield from plans_under(context, path)
