"""Which releases of software are installed on a node, by their folders and what these state, and which are default."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterator, Mapping

from lumisite.facts.change import Words
from lumisite.facts.facts import Facts, Releases
from lumisite.facts.reading import Texts
from lumisite.machine.library_names import in_order
from lumisite.machine.tree import Tree, content_of, names_of, resolve, small_text
from lumisite.site.images import parse_release
from lumisite.site.model import Site
from lumisite.site.versions import parse_version
from lumisite.vendors import all_software, all_vendors
from lumisite.vendors.model import Software

#: What names of folders of releases are.
VERSION = re.compile(r"[0-9]+(\.[0-9]+)+([-_+.][\w.]+)?")
_SERIES = re.compile(r"[0-9]+\.[0-9]+", re.ASCII)
_RELEASE_FOLDER = re.compile(r"(/\S*?/[0-9]+(?:\.[0-9]+)+[^/]*)(?:/|$)")
_PACKAGES = "/var/lib/dpkg/status"
_LARGEST_LIST_BYTES = 64 * 1024 * 1024


def installed_releases(tree: Tree, software: Software) -> Releases:
    """Return the releases of software on a node, and the one that the first link of defaults leads to."""
    folders = dict(_folders(tree, software))
    ordered = in_order(folders)
    for path in software.defaults:
        top = resolve(tree, path).path
        if default := [release for release in ordered if folders[release] == top]:
            return Releases(tuple(ordered), default[-1])
    return Releases(tuple(ordered))


def versions_below(tree: Tree, folder: str, prefix: str = "") -> Iterator[str]:
    """Return the releases that have a folder: packages leave empty ones behind when they are removed."""
    names = (name.removeprefix(prefix) for name in names_of(tree, folder) if name.startswith(prefix))
    named = (name for name in names if VERSION.fullmatch(name))
    return (name for name in named if names_of(tree, f"{folder}/{prefix}{name}"))


def _folders(tree: Tree, software: Software) -> Iterator[tuple[str, str]]:
    """Return each release with its real folder; a link to a folder of a series is no release of its own."""
    for start in (*software.folders, *software.series):
        folder, prefix = posixpath.split(start)
        for name in versions_below(tree, folder, prefix):
            top = resolve(tree, f"{start}{name}").path
            shared = next((top.removeprefix(begin) for begin in software.series if top.startswith(begin)), "")
            yield _stated(tree, software, top, shared) if _SERIES.fullmatch(shared) else name, top


def _stated(tree: Tree, software: Software, top: str, series: str) -> str:
    """Return the release in a folder of a series: as a file in it or the list of packages states it, else its name."""
    if software.stated is None:
        return series
    package = package_version(tree, f"{software.package}{series}")
    for text in (small_text(tree, f"{top}/{software.stated.paths}"), package):
        release = software.stated.version(text or "")
        version = parse_release(release)
        if release is not None and version is not None and version.within(parse_version(series)):
            return release
    return series


def package_version(tree: Tree, name: str) -> str | None:
    """Return the version of an installed package by dpkg's list, the only one that is text."""
    status = content_of(tree, _PACKAGES, _LARGEST_LIST_BYTES) or b""
    found = re.search(rf"^Package: {re.escape(name)}\n((?:.+\n)*)".encode(), status, re.MULTILINE)
    if found is None or b"Status: install ok installed\n" not in found[1]:
        return None
    version = re.search(rb"^Version: ([!-~]+)$", found[1], re.MULTILINE)
    return version[1].decode() if version else None


def installed_stacks(tree: Tree) -> dict[str, Releases]:
    """Return the releases of all software that vendors know, by its name."""
    found = {software.name: installed_releases(tree, software) for _, software in all_software()}
    return {name: releases for name, releases in found.items() if releases.versions}


def installed_products(tree: Tree, stated: Collection[str]) -> dict[str, Releases]:
    """Return the folders that have one folder for each release of a product: vendors' and those of `stated` paths."""
    tops = product_folders()
    parents = {posixpath.dirname(path) for path in stated if VERSION.fullmatch(posixpath.basename(path))}
    parents |= {f"{top}/{name}" for top in tops for name in names_of(tree, top)}
    found = {}
    for path in sorted(parents - tops):
        if versions := tuple(in_order(versions_below(tree, path))):
            link = resolve(tree, f"{path}/default")
            default = posixpath.basename(link.path) if link.links and link.entry else None
            found[path] = Releases(versions, default)
    return found


def product_folders() -> set[str]:
    """Return the folders in which vendors have a folder for each product."""
    return {top for vendor in all_vendors() for top in vendor.products}


def read_links(tree: Tree, _: Site) -> Texts:
    """Return to which releases the links of folders lead that have libraries of default releases."""
    found: Texts = {}
    for folder in (folder for vendor in all_vendors() for folder in vendor.linked):
        top, origins = resolve(tree, folder), set[str]()
        for name in names_of(tree, folder):
            target = resolve(tree, f"{folder}/{name}")
            if target.links:
                release = _RELEASE_FOLDER.match(target.path)
                origin = release[1] if release else posixpath.dirname(target.path)
                origins.add("nothing" if target.entry is None else origin)
        found[folder] = [top.path if top.entry is not None else "nothing"] if top.links else []
        found[folder] += sorted(origins)
    return found


# What is compared


def stacks_of(facts: Facts) -> Mapping[str, Words]:
    """Return the releases of the software that decides what images run, by its title."""
    software = (software for _, software in all_software() if software.name in facts.stacks)
    return {each.title: facts.stacks[each.name].versions for each in software}


def products_of(facts: Facts) -> Mapping[str, Words]:
    """Return the releases in each folder of a product, but for software that decides what images run."""
    return {path: releases.versions for path, releases in _products(facts).items()}


def defaults_of(facts: Facts) -> Mapping[str, Words]:
    """Return the default release of software by its title, and of each other product by its folder."""
    software = {each.title: facts.stacks[each.name] for _, each in all_software() if each.name in facts.stacks}
    return {name: (found.default,) for name, found in {**software, **_products(facts)}.items() if found.default}


def _products(facts: Facts) -> dict[str, Releases]:
    """Return the releases in each folder of a product that is compared as such."""
    compared = {software.folders[0].rstrip("/") for _, software in all_software()}
    return {path: releases for path, releases in facts.products.items() if path not in compared}


def release_folders(subject: str, releases: Words) -> Words:
    """Return the folders of releases, of a product by its folder or of software by its title."""
    if subject.startswith("/"):
        return tuple(f"{subject}/{release}" for release in releases)
    software = [software for _, software in all_software() if software.title == subject]
    return tuple(top for release in releases for each in software for top in each.tops(release))


def default_links(subject: str, gone: Words, come: Words) -> Words:
    """Return the links to a default release, of a product by its folder or of software by its title."""
    links = tuple(link for _, software in all_software() if software.title == subject for link in software.defaults)
    return links or (f"{subject}/default", *release_folders(subject, (*gone, *come)))
