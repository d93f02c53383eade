"""Releases: what is installed of products, which is the default, and where links lead."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterator

from lumisite.facts.change import Change, Touched, joined, listed, only_in
from lumisite.facts.context import Context, stated_paths
from lumisite.facts.facts import Facts, Releases
from lumisite.facts.kind import FAULT, INFO, ChangeKind, Differences, compare_texts, only_in_order, texts_of
from lumisite.facts.kinds.paths import path_touches
from lumisite.machine.tree import Tree, is_under, names_of, resolve
from lumisite.site.model import Site
from lumisite.vendors import all_software, all_vendors

_RELEASE_FOLDER = re.compile(r"(/\S*?/[0-9]+(?:\.[0-9]+)+[^/]*)(?:/|$)")


# Products: folders with one folder for each release


def compare_products(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change for each folder of a release; one that went and one that came are one change."""
    for path, old, new in _products(before, after):
        gone, come = ([f"{path}/{name}" for name in names] for names in only_in_order(old.versions, new.versions))
        if len(gone) == len(come) == 1:
            was, now = gone[0], come[0]
            users: tuple[tuple[str, str], ...] = (
                ("changed", f"{posixpath.basename(path)}: {posixpath.basename(was)} -> {posixpath.basename(now)}."),
                ("rebuild", f"Images and job scripts that name {was} (now {now}): the directory is gone."),
            )
            yield Change(path, was, now, paths=(was, now), users=users)
        else:
            for folder in gone:
                users = (("rebuild", f"Images and job scripts that name {folder}: the directory is gone."),)
                yield Change(path, folder, None, paths=(folder,), users=users)
            yield from (Change(path, None, folder, paths=(folder,)) for folder in come)


def _products(before: Facts, after: Facts) -> Iterator[tuple[str, Releases, Releases]]:
    """Yield each folder of a product with its releases, but those that are compared as stacks."""
    stacks = {software.folders[0].rstrip("/") for _, software in all_software()}
    for path in sorted((before.products.keys() | after.products.keys()) - stacks):
        yield path, before.products.get(path, Releases()), after.products.get(path, Releases())


def product_touches(change: Change, context: Context) -> Iterator[Touched]:
    """Yield what names the folder that went, what lacks the one that came, and what binds either."""
    site, gone = context.site, change.before
    if gone is not None:
        yield from context.keys_naming(gone)
        yield from context.settings_holding(gone)
        yield from context.plans_under(gone)
        yield from _families_searching(context, gone)
        yield from context.plans_with(context.sonames_under(gone))
    if change.after is not None and not any(is_under(path, change.after) for _, path in stated_paths(site)):
        yield Touched("site", "platforms", f"does not name {change.after}")
    yield from context.modules_binding(gone or change.after or "")


def _families_searching(context: Context, folder: str) -> Iterator[Touched]:
    platforms = context.site.platforms.values()
    libraries = {name for platform in platforms for name, path in platform.libraries.items() if is_under(path, folder)}
    for name, family in context.site.families.items():
        if used := tuple(sorted(libraries.intersection(family.library_path))):
            yield Touched("family", name, f"LD_LIBRARY_PATH of its images has {listed(used)}")


# Stacks: software whose releases modules and images are made for


def compare_stacks(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change for each stack of which other releases are installed."""
    for _, software in all_software():
        old, new = (facts.stacks.get(software.name, Releases()).versions for facts in (before, after))
        if old != new:
            gone, come = only_in(old, new)
            folders = tuple(folder for name in (*gone, *come) for folder in software.tops(name))
            was, now = joined(old) or "none", joined(new) or "none"
            users = (("changed", f"{software.on_host}: {was} -> {now}." if old else f"{software.on_host}: {now}."),)
            message, values = f"installed releases {was} -> {now}", {"gone": gone, "come": come}
            yield Change(software.title, joined(old), joined(new), message, values, folders, users=users)


def stack_touches(change: Change, context: Context) -> Iterator[Touched]:
    """Yield what needs a release that went, and where one that came is not described."""
    if not (stack := context.stack_of(change.subject)):
        return
    for release in change.names("gone"):
        if context.site.stacks[stack].gpu is None:
            yield from _gone_for_modules(context, stack, release)
        else:
            yield from _gone_for_images(context, stack, release)
    for release in change.names("come"):
        if release not in context.site.releases(stack):
            yield Touched("site", f"stacks.{stack}.releases", f"does not name {release}")


def _gone_for_modules(context: Context, stack: str, release: str) -> Iterator[Touched]:
    """Yield what names a release that only the host has."""
    stated = context.old.stacks.get(stack)
    if stated is None:
        return
    if release in map(str, stated.installed):
        key = f"platforms.{context.was}.stacks.{stack}.supported"
        yield Touched("site", key, f"states {release}")
    title = context.site.stacks[stack].title
    for name, module in context.site.modules.items():
        if stack in module.version:
            yield Touched("module", f"{name}/{release}*", f"{title} {release} is gone")


def _gone_for_images(context: Context, stack: str, release: str) -> Iterator[Touched]:
    """Yield what takes a release from the host that images bring too."""
    entry, software = context.site.releases(stack).get(release), context.software(stack)
    if entry is not None and entry.found != "image":
        yield Touched("site", f"stacks.{stack}.releases.{release}", f"states {entry.found}")
    for folder in software.tops(release) if software else ():
        yield from context.keys_naming(folder)
        yield from context.plans_with(context.sonames_under(folder))
        yield from context.plans_under(folder)


# Defaults


def compare_defaults(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change for each stack and each product whose default release differs."""
    for _, software in all_software():
        old, new = (facts.stacks.get(software.name, Releases()).default for facts in (before, after))
        if old != new:
            folders = tuple(folder for name in (old, new) if name for folder in software.tops(name))
            yield Change(software.title, old, new, paths=folders)
    for path, was, now in _products(before, after):
        if was.default is not None and was.default != now.default:
            yield Change(path, was.default, now.default)


def default_follows(change: Change, differences: Differences) -> bool:
    """Follow from a link that is broken now, or from the folder of the default that has another name."""
    if f"{change.subject}/default" in differences.subjects("dangling"):
        return True
    folders = (f"{change.subject}/{change.before}", f"{change.subject}/{change.after}")
    return any((product.before, product.after) == folders for product in differences.by_kind.get("product", ()))


def default_touches(change: Change, context: Context) -> Iterator[Touched]:
    """Yield the plans with libraries that come from another release now, and what follows the default."""
    stack, after = context.stack_of(change.subject), context.after
    kept = {soname: path for soname, path in context.before.loads.items() if path in after.libraries}
    yield from context.plans_with([soname for soname, path in kept.items() if after.loads.get(soname, path) != path])
    stated = context.old.defaults.get(stack)
    if stated is None:
        yield from context.all_naming(f"{change.subject}/default")
        return
    key = f"platforms.{context.was}.stacks.{stack}.default"
    yield Touched("site", key, f"states {stated}")
    for name, module in context.site.modules.items():
        if stack in module.version:
            yield Touched("module", name, f"its default version follows the default {change.subject}")


# Folders of links to libraries of default releases, which images have on their LD_LIBRARY_PATH


def read_links(tree: Tree, _: Site) -> dict[str, str]:
    """Return where each folder is, and to how many files of which release its links lead."""
    found: dict[str, str] = {}
    for folder in (folder for vendor in all_vendors() for folder in vendor.linked):
        top, counts = resolve(tree, folder), Counter[str]()
        for name in names_of(tree, folder):
            target = resolve(tree, f"{folder}/{name}")
            if target.links and target.path.isprintable():
                release = _RELEASE_FOLDER.match(target.path)
                origin = release[1] if release else posixpath.dirname(target.path)
                counts["nothing" if target.entry is None else origin] += 1
        itself = [top.path if top.entry is not None else "nothing"] if top.links else []
        if text := joined([*itself, *(f"{path} ({count} links)" for path, count in sorted(counts.items()))]):
            found[folder] = text
    return found


def compare_links(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change for each folder whose links lead elsewhere."""
    yield from compare_texts(*texts_of("links", before, after))


_RENDER = "and render again"
KINDS = (
    ChangeKind(
        "product",
        compare_products,
        product_touches,
        f"correct the folder in the site description {_RENDER}",
        (FAULT, FAULT, INFO),
        "release folder",
    ),
    ChangeKind("stack", compare_stacks, stack_touches, "correct the releases in the site description"),
    ChangeKind(
        "default",
        compare_defaults,
        default_touches,
        f"correct the default in the site description {_RENDER}",
        what="default",
        follows=default_follows,
    ),
    ChangeKind(
        "links",
        compare_links,
        path_touches,
        "test an image that has the folder on its LD_LIBRARY_PATH",
        read=read_links,
    ),
)
