"""What the site says of two captures: the platforms that they fit, and the parts that name a path or a library."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from lumisite.facts.change import Touched, borrows
from lumisite.facts.facts import Facts
from lumisite.machine.tree import is_under
from lumisite.site.images import parse_release
from lumisite.site.library_path import host_path
from lumisite.site.model import Module, Platform, Site
from lumisite.site.plans import LoadedPlan
from lumisite.site.scalars import full_pci_bus
from lumisite.site.selection import combinations, module_version
from lumisite.site.versions import Version, parse_version
from lumisite.text import listed
from lumisite.vendors import software_of
from lumisite.vendors.model import Software

#: The key of the runtime, which has facts of its own.
RUNTIME = "runtime.executable"


@dataclass(frozen=True)
class Context:
    """The site beside two captures. `was` is the platform before; `now` the one that the node is now, if known.

    `plans` are the stored plans for `was`: those for other platforms did nothing on this node.
    """

    site: Site
    before: Facts
    after: Facts
    was: str
    now: str | None
    plans: tuple[LoadedPlan, ...] = ()

    @property
    def old(self) -> Platform:
        """The platform before."""
        return self.site.platforms[self.was]

    @property
    def stated(self) -> Platform:
        """The platform after, where it is known, else the one before."""
        return self.site.platforms[self.now or self.was]

    @property
    def kinds_like_node(self) -> list[str]:
        """The node kinds with as many GPUs as the node had, or has."""
        counts = {len(self.before.gpus), len(self.after.gpus)}
        return [name for name, kind in self.site.node_kinds.items() if len(kind.gpus) in counts]

    @property
    def gpu_kinds(self) -> list[str]:
        """Those of them that have GPUs."""
        return [name for name in self.kinds_like_node if self.site.node_kinds[name].gpus]

    @property
    def driven(self) -> str | None:
        """The stack of which a driver decides what runs, where the platform is known to have it."""
        return self.site.gpu_stack if self.site.gpu_stack in self.stated.stacks else None

    def stack_of(self, title: str) -> str:
        """Return the site's stack for software on the host, by its title there; empty where the site has none."""
        known = ((stack, self.software(stack)) for stack in self.site.stacks)
        return next((stack for stack, software in known if software is not None and software.title == title), "")

    def software(self, stack: str) -> Software | None:
        """Return what a stack of the site is, where that is known."""
        return software_of(stack, self.site.stacks[stack].gpu)

    def loses(self, stack: str, release: Version | None) -> bool:
        """Return whether the new driver no longer supports a release that the old one did."""
        old, new = self.old.stacks.get(stack), self.stated.stacks.get(stack)
        if release is None or old is None or new is None:
            return False
        return old.in_range(release) and not new.in_range(release)

    def lost_releases(self, stack: str) -> tuple[str, ...]:
        """Return the releases of the site that the new driver no longer supports, as far as that is known."""
        return tuple(release for release in self.site.releases(stack) if self.loses(stack, parse_release(release)))

    def versions_with(self, module: Module, stack: str, release: str) -> Iterator[str]:
        """Yield the versions of a module that have a release of a driven stack."""
        hosts = {name: self.old.stacks[name].supported for name in self.site.host_stacks if name in self.old.stacks}
        images = {name: (version,) for name, version in self.old.defaults.items() if name == self.site.gpu_stack}
        chosen = {**hosts, **images, stack: (parse_version(release),)}
        ordered = {name: chosen[name] for name in self.site.stacks if name in chosen}
        for combination in combinations(self.site, self.was, ordered):
            yield module_version(self.site, module, combination)

    # Parts of the site that name something

    def keys_naming(self, path: str) -> Iterator[Touched]:
        """Yield the keys of the site description whose value is a path, or is below it."""
        for key, stated in stated_paths(self.site):
            if is_under(stated, path):
                yield Touched("site", key, f"names {path}")

    def settings_holding(self, name: str) -> Iterator[Touched]:
        """Yield the settings whose value contains a path or a name."""
        whole = re.compile(rf"(?<![\w.-]){re.escape(name)}(?![\w-])")
        for setting in self.site.settings:
            if setting.value and whole.search(setting.value):
                yield Touched("setting", setting.name, f"its value contains {name}")

    def settings_called(self, pattern: str, subject: str) -> Iterator[Touched]:
        """Yield the settings whose names match a pattern, for a change of a subject."""
        for setting in self.site.settings:
            if re.search(pattern, setting.name):
                yield Touched("setting", setting.name, f"depends on {subject}")

    def modules_binding(self, path: str) -> Iterator[Touched]:
        """Yield the modules that bind a path, a folder above it or something below it, and those that load these."""
        found: dict[str, Touched] = {}
        for bind in self.site.host_paths.values():
            module = str(bind.where)
            if module in self.site.modules and (is_under(path, bind.path) or is_under(bind.path, path)):
                found.setdefault(module, Touched("module", module, f"binds {bind.path}"))
        for name, module_entry in self.site.modules.items():
            if name not in found and (loaded := tuple(other for other in module_entry.loads if other in found)):
                found[name] = Touched("module", name, f"loads {listed(loaded)}")
        yield from found.values()

    def all_naming(self, path: str) -> Iterator[Touched]:
        """Yield everything that names a path: keys, modules, settings, stored plans."""
        yield from self.keys_naming(path)
        yield from self.modules_binding(path)
        yield from self.settings_holding(path)
        yield from self.plans_under(path)

    def families_borrowing(self, sonames: Iterable[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield the families whose images borrow one of these libraries from the host, with those libraries.

        A family borrows its own libraries and all that these needed before the maintenance, or need now.
        """
        changed = set(sonames)
        for name, borrowed in self._borrowed.items():
            if changed & borrowed:
                yield name, tuple(sorted(changed & borrowed))

    @cached_property
    def _borrowed(self) -> dict[str, set[str]]:
        families = self.site.families.items()
        return {
            name: _needed(self.before, one.libraries) | _needed(self.after, one.libraries) for name, one in families
        }

    def plans_with(self, sonames: Collection[str]) -> Iterator[Touched]:
        """Yield the plans that these libraries are in: by family, and the stored ones."""
        for family, libraries in self.families_borrowing(sonames):
            yield Touched("plan", family, borrows(libraries))
        for stored in self.plans:
            if hits := tuple(sorted({line.library for line in stored.plan.lines}.intersection(sonames))):
                yield stored_plan(stored, f"decides about {listed(hits)}")

    def plans_under(self, path: str) -> Iterator[Touched]:
        """Yield the stored plans that bind, or have on the library path, a path or what is below it."""
        for stored in self.plans:
            bound = (line.source for line in stored.plan.lines if line.decision == "bind" and line.source is not None)
            searched = (host_path(self.site, folder) for folder in stored.plan.library_path)
            hits = tuple(str(at) for at in dict.fromkeys((*searched, *bound)) if is_under(at, path))
            if hits:
                yield stored_plan(stored, f"names {listed(hits)}")

    def binds_of(self, sonames: Collection[str]) -> Iterator[Touched]:
        """Yield the binds of single libraries, with their modules."""
        for key, bind in self.site.host_paths.items():
            if posixpath.basename(bind.path) in sonames:
                yield Touched("site", f"{key}.path", f"names {bind.path}")
                if bind.where in self.site.modules:
                    yield Touched("module", str(bind.where), f"binds {bind.path}")

    def sonames_under(self, path: str) -> list[str]:
        """Return the SONAMEs that one of the captures loads from below a path."""
        return [name for facts in (self.before, self.after) for name, at in facts.loads.items() if is_under(at, path)]


def stored_plan(stored: LoadedPlan, why: str) -> Touched:
    """Return a stored plan, with the images that it is for."""
    return Touched("plan", stored.file, f"plan for {listed(stored.plan.paths)}: {why}")


def make_context(site: Site, before: Facts, after: Facts, plans: Iterable[LoadedPlan] = ()) -> Context:
    """Find the platforms that two captures are of; the one in force stands for a capture that fits none."""
    was = platform_of(site, before) or site.platform
    stored = tuple(loaded for loaded in plans if loaded.plan.platform == was)
    return Context(site, before, after, was, platform_of(site, after), stored)


def platform_of(site: Site, facts: Facts) -> str | None:
    """Return the platform that agrees with most of a capture and contradicts none of it."""
    scores = {name: list(_agreements(platform, facts)) for name, platform in site.platforms.items()}
    fitting = {name: len(answers) for name, answers in scores.items() if answers and all(answers)}
    return max(fitting, key=lambda name: fitting[name], default=None)


def _agreements(platform: Platform, facts: Facts) -> Iterator[bool]:
    """Yield for each thing that a platform states and a capture has whether they agree."""
    for path in platform.libraries.values():
        if path in facts.paths:
            yield facts.paths[path].kind == "directory"
    if platform.slurm is not None and facts.slurm is not None:
        yield str(platform.slurm) == facts.slurm
    if platform.kernel is not None and facts.kernel is not None:
        yield platform.kernel == facts.kernel
    buses = [gpu.bus for gpu in facts.gpus]
    if buses and platform.gpu_bus_ids:
        yield any(buses == [full_pci_bus(bus) for bus in stated] for stated in platform.gpu_bus_ids.values())


def stated_paths(site: Site) -> Iterator[tuple[str, str]]:
    """Yield every host path that the site description states, with its key there."""
    yield from stated_libraries(site)
    yield from ((f"{key}.path", entry.path) for key, entry in site.host_paths.items())
    if site.runtime.executable is not None:
        yield RUNTIME, site.runtime.executable
    if site.validation is not None:
        yield "validation.image", site.validation.image
    yield "root", site.root


def stated_libraries(site: Site) -> Iterator[tuple[str, str]]:
    """Yield the folders of libraries that the site description states, with their keys there."""
    for name, platform in site.platforms.items():
        yield from ((f"platforms.{name}.libraries.{what}", path) for what, path in platform.libraries.items())
    for stack, described in site.stacks.items():
        for name, release in described.releases.items():
            key = f"stacks.{stack}.releases.{name}.libraries"
            yield from ((f"{key}.{what}", path) for what, path in release.libraries.items())


def stated_devices(site: Site) -> Iterator[tuple[str, str | None]]:
    """Yield every interface and adapter that the site description states, with its key there."""
    fabric = {"interfaces": site.fabric.interfaces, "management": site.fabric.management}
    for key, names in {**fabric, "adapters": site.fabric.adapters}.items():
        yield from ((f"fabric.{key}", str(name)) for name in names)
    for kind, node in site.node_kinds.items():
        yield from ((f"node_kinds.{kind}.nics", nic.interface) for nic in node.nics)
        yield from ((f"node_kinds.{kind}.adapters", name) for name in node.adapters or ())
        yield from ((f"node_kinds.{kind}.gpus", gpu.adapter) for gpu in node.gpus)


def _needed(facts: Facts, roots: Iterable[str]) -> set[str]:
    """Return libraries with all that they need, and these need."""
    known: set[str] = set()
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        if name not in known:
            known.add(name)
            library = facts.libraries.get(facts.loads.get(name, ""))
            waiting += library.needed if library else ()
    return known
