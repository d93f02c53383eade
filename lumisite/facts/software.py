"""Compare what is installed: system, releases of products and their defaults, links, paths, the deployed release."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterator

from lumisite.facts.change import Change, difference, joined, known_difference, only_in
from lumisite.facts.facts import Facts, Named, Program, Releases
from lumisite.facts.reading import Texts
from lumisite.machine.tree import Tree, names_of, resolve
from lumisite.paths import current
from lumisite.site.model import Site
from lumisite.vendors import all_software, all_vendors

_RELEASE_FOLDER = re.compile(r"(/\S*?/[0-9]+(?:\.[0-9]+)+[^/]*)(?:/|$)")


# The system


def compare_os(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change where the operating system is another one, with the kernel and glibc that came with it."""
    if before.os != after.os:
        pairs = {"kernel": (before.kernel, after.kernel), "glibc": (before.glibc, after.glibc)}
        parts = tuple(f"{name} {was} -> {now}" for name, (was, now) in pairs.items() if was and now and was != now)
        message = ", with ".join(filter(None, (known_difference(before.os, after.os), ", ".join(parts))))
        yield Change("operating system", before.os, after.os, message, {"parts": parts})


def compare_kernel(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change where the kernel is another release."""
    yield from _compare_release("kernel", before.kernel, after.kernel)


def compare_glibc(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change where glibc is another release."""
    yield from _compare_release("glibc", before.glibc, after.glibc)


def compare_slurm(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change where Slurm is another release."""
    yield from _compare_release("Slurm", before.slurm, after.slurm)


def _compare_release(subject: str, old: str | None, new: str | None) -> Iterator[Change]:
    if old != new:
        yield Change(subject, old, new, known_difference(old, new))


def compare_runtime(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change where the container runtime is another one; what a capture could not read does not count."""
    old, new = before.runtime, after.runtime
    same_digest = old.sha256 == new.sha256 or None in (old.sha256, new.sha256)
    is_same = (old.real, old.size_bytes, old.package) == (new.real, new.size_bytes, new.package) and same_digest
    if not is_same:
        yield Change(new.real or old.real or "", _program(old), _program(new))


def _program(program: Program) -> str | None:
    if program.real is None:
        return None
    name = program.package or f"{program.real}, {program.size_bytes} bytes"
    return f"{name}, sha256 {program.sha256[:12]}" if program.sha256 else name


# Releases


def compare_products(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change for each folder of a release; one that went and one that came are one change."""
    for path, old, new in _products(before, after):
        gone, come = ([f"{path}/{name}" for name in names] for names in only_in(old.versions, new.versions))
        if len(gone) == len(come) == 1:
            was, now = gone[0], come[0]
            names = f"{posixpath.basename(was)} -> {posixpath.basename(now)}"
            text = (
                f"{posixpath.basename(path)}: {names}. Correct images and job scripts that name {was}: it is {now} now."
            )
            yield Change(path, was, now, paths=(was, now), users=(text,))
        else:
            for folder in gone:
                users = (f"Correct images and job scripts that name {folder}: the directory is gone.",)
                yield Change(path, folder, None, paths=(folder,), users=users)
            yield from (Change(path, None, folder, paths=(folder,)) for folder in come)


def _products(before: Facts, after: Facts) -> Iterator[tuple[str, Releases, Releases]]:
    """Yield each folder of a product with its releases, but those that are compared as stacks."""
    stacks = {software.folders[0].rstrip("/") for _, software in all_software()}
    for path in sorted((before.products.keys() | after.products.keys()) - stacks):
        yield path, before.products.get(path, Releases()), after.products.get(path, Releases())


def compare_stacks(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change for each software of which other releases are installed."""
    for _, software in all_software():
        old, new = (facts.stacks.get(software.name, Releases()).versions for facts in (before, after))
        if old != new:
            gone, come = only_in(old, new)
            folders = tuple(folder for name in (*gone, *come) for folder in software.tops(name))
            change, values = f"{joined(old) or 'none'} -> {joined(new) or 'none'}", {"gone": gone, "come": come}
            users, message = (f"{software.on_host}: {change}.",), f"installed releases {change}"
            yield Change(software.title, joined(old), joined(new), message, values, folders, users=users)


def compare_defaults(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change for each software and each product whose default release differs."""
    for _, software in all_software():
        old, new = (facts.stacks.get(software.name, Releases()).default for facts in (before, after))
        if old != new:
            folders = tuple(folder for name in (old, new) if name for folder in software.tops(name))
            yield Change(software.title, old, new, paths=folders)
    for path, was, now in _products(before, after):
        if was.default is not None and was.default != now.default:
            yield Change(path, was.default, now.default)


def read_links(tree: Tree, _: Site) -> Texts:
    """Return where folders of links to default releases are, and to how many files of which release they lead."""
    found: Texts = {}
    for folder in (folder for vendor in all_vendors() for folder in vendor.linked):
        top, counts = resolve(tree, folder), Counter[str]()
        for name in names_of(tree, folder):
            target = resolve(tree, f"{folder}/{name}")
            if target.links:
                release = _RELEASE_FOLDER.match(target.path)
                origin = release[1] if release else posixpath.dirname(target.path)
                counts["nothing" if target.entry is None else origin] += 1
        found[folder] = [top.path if top.entry is not None else "nothing"] if top.links else []
        found[folder] += [f"{path} ({count} links)" for path, count in sorted(counts.items())]
    return found


# Paths


def compare_paths(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change for each path that both captures looked for, and where something else is now."""
    for path in sorted(before.paths.keys() & after.paths.keys()):
        old, new = before.paths[path], after.paths[path]
        # Where a library's link leads is reported with the library; whether a folder is a release, with the product.
        is_library = ".so" in posixpath.basename(path) and old.kind == new.kind == "file"
        if old != new and not is_library and posixpath.dirname(path) not in {**before.products, **after.products}:
            was, now = (
                None if named.kind == "none" else " ".join(filter(None, (named.kind, named.real)))
                for named in (old, new)
            )
            values = {"real": (old.real or path, new.real or path)}
            yield Change(path, _target(old), _target(new), difference("", was, now), values)


def _target(named: Named) -> str | None:
    return None if named.kind == "none" else named.real or named.kind


def compare_broken_links(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change for each link that is broken now, or no more."""
    for path in sorted(before.dangling.keys() | after.dangling.keys()):
        old, new = before.dangling.get(path), after.dangling.get(path)
        if old != new:
            message = f"broken link to {new}" if new else f"link is no longer broken; it led to {old}"
            yield Change(path, old, new, message)


def compare_closed(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield what users may read no more, or may read again; captures by root and by a user count alike."""
    old, new = before.closed, after.closed
    for path in sorted(old.keys() ^ new.keys()):
        message = "users can read it again" if path in old else "users can no longer read it"
        yield Change(path, old.get(path), new.get(path), message, advice=new.get(path, ""))


# The deployed release


def compare_release(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change where another release is deployed, with the versions of modules that went with the old one."""
    old, new = before.deployed, after.deployed
    if old.release != new.release:
        gone = (name for name, module in sorted(old.names.items()) if module == name != new.names.get(name))
        # The module's default version, which users get in its place.
        instead = {name: new.names.get(name.rpartition("/")[0], "") or "nothing" for name in gone}
        users = tuple(f"{name} is gone: {other} has its place." for name, other in instead.items())
        root = old.root or new.root
        paths = (current(root),) if root else ()
        yield Change("deployed release", old.release, new.release, paths=paths, users=users)


def compare_edited(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change for each file of the release that is not as before."""
    old, new = before.deployed, after.deployed
    for path in sorted(old.files.keys() | new.files.keys()) if old.release == new.release else ():
        was, now = old.files.get(path), new.files.get(path)
        if was != now:
            how = "added to" if was is None else "removed from" if now is None else "edited in"
            yield Change(path, was, now, f"{how} the deployed release {new.release}")
