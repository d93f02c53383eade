"""Which versions an image carries, and what of that settings depend on."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from functools import cached_property

from lumisite.images.contents import (
    LIBFABRIC,
    Contents,
    StatedVersion,
    banner,
    collectives_of,
)
from lumisite.images.environment import UNKNOWN, variables_of
from lumisite.images.network import PluginSearch, holds_of, libfabric_release, search_libfabric
from lumisite.machine.tree import Tree, text_of
from lumisite.site.images import Holds
from lumisite.site.model import Site
from lumisite.text import printable
from lumisite.vendors import gpu_of, software_of

_TORCH = re.compile(r"^__version__\s*(?::[^=]*)?=\s*['\"]([\w.+!-]{1,100})['\"]", re.M)
_PKG_CONFIG = re.compile(r"^Version:\s*(\d[\w.+-]{0,60})\s*$", re.M)
#: What the plugin says of itself (PACKAGE_STRING in its log lines).
_PLUGIN = re.compile(rb"aws-ofi-[a-z]{0,8}ccl (\d+\.\d+[\w.+-]{0,40})")
_NOT_KNOWN = "not known"


class ReadImage(Contents):
    """What a site reads in an image, once; properties raise a `LumisiteError` for an image that is damaged there."""

    def __init__(self, site: Site, tree: Tree) -> None:
        super().__init__(tree)
        self.site = site

    @cached_property
    def releases(self) -> Mapping[str, StatedVersion]:
        """For each stack of the site that images bring, the release that programs get."""
        found = {name: self._release(name, stack.gpu) for name, stack in self.site.stacks.items() if stack.gpu}
        return {name: version for name, version in found.items() if version is not None}

    def _release(self, name: str, gpu: str) -> StatedVersion | None:
        """Return the release of PyTorch's own library for collectives and of the system's; several where they differ.

        That of the system counts where a program may get its library. Settings are right for one release, so several
        joined are none that is known.
        """
        software, library = software_of(name, gpu), gpu_of(gpu).collectives
        if software is None:
            return None
        copies = {path: self.packages_with(path) for path in self.copies_of(library)}
        system = self.stated(software.images)
        stated: dict[str, str] = {}
        for packages in self.packages:
            text = text_of(self.tree, f"{packages}/torch/version.py") or ""
            release = library.torch.version(text) if library.torch is not None else None
            if packages in copies.values() or (release is not None and system is None):
                stated[release or _NOT_KNOWN] = f"{packages}/torch/version.py"
        if system is not None and (None in copies.values() or not stated):
            stated[system.value] = system.of
        if not stated:
            return None
        if len({tuple(release.split(".")[:2]) for release in stated}) > 1:
            return StatedVersion(", ".join(stated), ", ".join(stated.values()))
        longest = max(stated, key=len)
        return StatedVersion(longest, stated[longest])

    @cached_property
    def versions(self) -> Mapping[str, StatedVersion]:
        """The version of each thing that is found: of the site's stacks, PyTorch, and what carries the traffic."""
        libfabric, plugin = self.network.libfabric or self.find(LIBFABRIC), self.plugin
        found = {**self.releases, "torch": _torch(self)}
        for library in collectives_of(self.site):
            found[library.name] = self.stated(library.images) or next(map(_file, self.copies_of(library)), None)
        if libfabric is not None:
            found["libfabric"] = _libfabric(self.tree, libfabric) or _file(libfabric)
        if plugin is not None:
            found["ofi_plugin"] = banner(_PLUGIN, self.tree, plugin) or _file(plugin)
        return {name: version for name, version in found.items() if version is not None}

    @cached_property
    def network(self) -> PluginSearch:
        """What the plugin finds of libfabric; nothing without a plugin."""
        return PluginSearch() if self.plugin is None else search_libfabric(self, self.plugin)

    @cached_property
    def sets(self) -> Mapping[str, str]:
        """The variables of the site's ledger that the image sets itself."""
        of_image, names = variables_of(self.tree), {setting.name for setting in self.site.settings}
        return {
            name: printable(value.replace(UNKNOWN, "")) for name, value in of_image.items() if value and name in names
        }

    def holds(self, family: str | None, platform: str | None = None) -> Holds:
        """Return what settings depend on, for an image of a family on a platform (default: the current one)."""
        versions = {name: version.value for name, version in self.versions.items()}
        return holds_of(self.site, platform or self.site.platform, family, versions, self.network, self.sets)


def title_of(site: Site, name: str) -> str:
    """Return the name that people have for what has a version."""
    titles = {library.name: library.title for library in collectives_of(site)} | {"ofi_plugin": "OFI plugin"}
    return site.stacks[name].title if name in site.stacks else titles.get(name, name)


def version_lines(site: Site, versions: Mapping[str, StatedVersion]) -> Iterator[str]:
    """Write versions for people, as `PyTorch 2.9.1` would be."""
    for name, version in versions.items():
        yield f"{title_of(site, name)} {version.value}"


def _torch(contents: Contents) -> StatedVersion | None:
    """Join what the environments of an image have; one that has the same adds nothing."""
    seen: dict[str, str] = {}
    for path in (f"{folder}/torch/version.py" for folder in contents.packages):
        if match := _TORCH.search(text_of(contents.tree, path) or ""):
            seen.setdefault(match[1], path)
    return StatedVersion(", ".join(seen), ", ".join(seen.values())) if seen else None


def _file(path: str) -> StatedVersion:
    """Return the name of a library's file, which has its number: `libx.so.1.5.0`."""
    return StatedVersion(posixpath.basename(path), path)


def _libfabric(tree: Tree, path: str) -> StatedVersion | None:
    """Return the release of libfabric where its own files state it; the number of its file is another one."""
    settings = f"{posixpath.dirname(path)}/pkgconfig/libfabric.pc"
    if match := _PKG_CONFIG.search(text_of(tree, settings) or ""):
        return StatedVersion(match[1], settings)
    release = libfabric_release(path)
    return None if release is None else StatedVersion(release, path)
