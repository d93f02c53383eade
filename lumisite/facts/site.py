"""The site that two captures are of: its platforms before and after, its families that borrow a library, its parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from lumisite.facts.facts import Facts, Releases
from lumisite.site.images import told_release
from lumisite.site.model import Module, Platform, Site
from lumisite.site.plans import LoadedPlan
from lumisite.site.scalars import full_pci_bus
from lumisite.site.selection import combinations, module_version
from lumisite.site.versions import Version, parse_version
from lumisite.vendors import software_of
from lumisite.vendors.model import Software

What = Literal["site", "setting", "module", "family", "plan", "mask", "image", "helper"]


@dataclass(frozen=True)
class Touch:
    """A part that a change touches: a key of the site description, a setting, a module, a family, a plan of binds.

    A `plan` is called by the family that it is for, or, if it is stored, by its file.
    """

    what: What
    name: str
    why: str


@dataclass(frozen=True)
class Context:
    """What consequences are drawn from. `was` is the platform before; `now` the one that the node is now, if known.

    `old` is the platform before; `stated` the one after, where it is known, else the one before; `updated` the one
    after, where it is known and another one. `plans` are the stored plans for `was`: those for other platforms did
    nothing on this node.
    """

    site: Site
    before: Facts
    after: Facts
    was: str
    now: str | None
    old: Platform
    stated: Platform
    updated: Platform | None
    plans: tuple[LoadedPlan, ...] = ()

    @property
    def driven(self) -> tuple[str, ...]:
        """The stacks of which a driver decides what runs, as far as a platform is known to have them."""
        return tuple(stack for stack in self.site.gpu_stacks if stack in self.stated.stacks)

    def stack_of(self, title: str) -> str:
        """Give the site's stack for software on the host, by its title there; empty where the site has none."""
        known = ((stack, self.software(stack)) for stack in self.site.stacks)
        return next((stack for stack, one in known if one is not None and one.title == title), "")

    def software(self, stack: str) -> Software | None:
        """Give what a stack of the site is, where that is known."""
        return software_of(stack, self.site.stacks[stack].gpu)

    def on_host(self, stack: str) -> Releases:
        """Give what the node has of a stack now."""
        software = self.software(stack)
        return Releases() if software is None else self.after.stacks.get(software.name, Releases())

    def leaves(self, stack: str, release: Version | None) -> bool:
        """Tell whether the new driver no longer supports a release that the old one did."""
        old, new = self.old.stacks.get(stack), self.updated.stacks.get(stack) if self.updated else None
        if release is None or old is None or new is None:
            return False
        return old.in_range(release) and not new.in_range(release)

    def leaving(self, stack: str) -> tuple[str, ...]:
        """Give the releases of the site that the new driver no longer supports, as far as that is known."""
        return tuple(release for release in self.site.releases(stack) if self.leaves(stack, told_release(release)))

    def versions_with(self, module: Module, stack: str, release: str) -> Iterator[str]:
        """Give the versions of a module that have a release of a driven stack, for each installed supported one."""
        hosts = {name: self.old.stacks[name].supported for name in self.site.host_stacks if name in self.old.stacks}
        images = {name: (self.old.defaults[name],) for name in self.site.gpu_stacks if name in self.old.stacks}
        chosen = {**hosts, **images, stack: (parse_version(release),)}
        ordered = {name: chosen[name] for name in self.site.stacks if name in chosen}
        yield from (module_version(self.site, module, one) for one in combinations(self.site, self.was, ordered))


def make_context(site: Site, before: Facts, after: Facts, plans: Iterable[LoadedPlan] = ()) -> Context:
    """Find the platforms that two captures are of; the one in force stands for a capture that fits none."""
    was, now = platform_of(site, before) or site.platform, platform_of(site, after)
    old, stated = site.platforms[was], site.platforms[now or was]
    stored = tuple(one for one in plans if one.plan.platform == was)
    return Context(site, before, after, was, now, old, stated, None if now in (None, was) else stated, stored)


def platform_of(site: Site, facts: Facts) -> str | None:
    """Give the platform that agrees with most of a capture and contradicts none of it."""
    scores = {name: list(_agreements(platform, facts)) for name, platform in site.platforms.items()}
    fitting = {name: len(answers) for name, answers in scores.items() if answers and all(answers)}
    return max(fitting, key=lambda name: fitting[name], default=None)


def _agreements(platform: Platform, facts: Facts) -> Iterator[bool]:
    """Say for each thing that a platform states and a capture has whether they agree."""
    for path in platform.libraries.values():
        if path in facts.paths:
            yield facts.paths[path].kind == "directory"
    if platform.slurm is not None and facts.slurm is not None:
        yield str(platform.slurm) == facts.slurm
    if platform.kernel is not None and facts.kernel.release is not None:
        yield platform.kernel == facts.kernel.release
    buses = [gpu.bus for gpu in facts.gpus]
    if buses and platform.gpu_bus_ids:
        yield any(buses == [full_pci_bus(one) for one in stated] for stated in platform.gpu_bus_ids.values())


def families_borrowing(context: Context, sonames: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Give the families whose images borrow one of these libraries from the host, with the library.

    A family borrows its own libraries and all that these needed before the maintenance, or need now.
    """
    wanted = set(sonames)
    for name, family in context.site.families.items():
        borrowed = _closure(context.before, family.libraries) | _closure(context.after, family.libraries)
        if wanted & borrowed:
            yield name, ", ".join(sorted(wanted & borrowed))


def _closure(facts: Facts, roots: Iterable[str]) -> set[str]:
    known: set[str] = set()
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        if name not in known:
            known.add(name)
            library = facts.libraries.get(facts.loads.get(name, ""))
            waiting += library.needed if library else ()
    return known
