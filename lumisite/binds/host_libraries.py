"""The host's folders of libraries: those of the site's releases, and those where its loader does not look by itself."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from lumisite.findings.finding import Finding, Severity
from lumisite.machine.ldcache import glob
from lumisite.machine.library_names import in_order, numbers_in
from lumisite.machine.loader import Loader, cpu_levels, read_rules
from lumisite.machine.tree import Tree, names_of, opened_by, resolve
from lumisite.site.model import Site
from lumisite.site.versions import Version
from lumisite.text import some
from lumisite.vendors import all_software, all_vendors, software_of

#: What every x86-64 server of the last ten years has, where a captured tree has no /proc/cpuinfo.
ASSUMED_LEVELS = ("x86-64-v3", "x86-64-v2")
#: Where a library keeps its files below its own directory. Images are built with GCC, so its builds come first.
_FOLDERS = (
    "lib64",
    "lib",
    "gtl/lib",
    "ofi/gnu/*/lib",
    "ofi/gnu/*/lib-abi-mpich",
    "ofi/*/*/lib",
    "ofi/*/*/lib-abi-mpich",
)


def library_folders(
    site: Site, platform: str, releases: Mapping[str, Version], host: Tree
) -> tuple[tuple[str, ...], tuple[Finding, ...]]:
    """Return the host's folders with the site's libraries, and findings on those that the host lacks."""
    found: dict[str, None] = {}
    lacking = []
    for name, path in site.libraries(platform, releases).items():
        resolved = resolve(host, path)
        if resolved.entry is None and not opened_by(host, posixpath.dirname(resolved.path)):
            beside = tuple(in_order(names_of(host, path.rpartition("/")[0] or "/")))
            message = f"{name} by the site description, which the host lacks"
            if beside:
                message += f" (it has {some(beside, between=', ')} there)"
            advice = "if the system was updated, describe its platform"
            lacking.append(Finding("plan-note", Severity.INFO, message, advice, path))
            continue
        # One that is closed to this user stays, so that the search reports it.
        found.update(dict.fromkeys((*folders_below(host, path), path)))
    return tuple(found), tuple(lacking)


def folders_below(host: Tree, path: str) -> Iterator[str]:
    """Yield the folders of libraries in a library's own directory, and the directory itself, where it exists."""
    for folder in _FOLDERS:
        yield from sorted(glob(host, f"{path}/{folder}"), key=numbers_in, reverse=True)
    yield from glob(host, path)


def loader_of_host(site: Site, platform: str, host: Tree, folders: Sequence[str]) -> Loader:
    """Return the loader of the host: it looks in the site's folders first, then where else the site has some."""
    rules = read_rules(host, cpu_levels(host, ASSUMED_LEVELS), folders, captured=True)
    defaults = {}
    for stack, version in site.platforms[platform].defaults.items():
        if software := software_of(stack, site.stacks[stack].gpu):
            defaults[software.name] = software.tops(str(version))
    everywhere = dict.fromkeys((*rules.directories, *more_folders(site, host, defaults)))
    return Loader(host, replace(rules, directories=tuple(everywhere)))


def more_folders(site: Site, host: Tree, defaults: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """Yield folders with libraries where a host's own loader does not look.

    They are those from which the site binds a single library, those of software that a module puts on LD_LIBRARY_PATH
    (the folders of `defaults` first, then the newest), and of products with a folder of their own, such as a plugin.
    """
    for bind in site.binds:
        if ".so" in posixpath.basename(bind.path):
            yield posixpath.dirname(bind.path)
    patterns = []
    for _, software in all_software():
        first = defaults.get(software.name, ())
        tops = (*first, *(f"{start}*" for start in (*software.series, *software.folders)))
        patterns += [f"{top}/{folder}" for top in tops for folder in software.libraries]
    for maker in all_vendors():
        patterns += maker.host_libraries
    for pattern in patterns:
        yield from sorted(glob(host, pattern), key=numbers_in, reverse=True)
