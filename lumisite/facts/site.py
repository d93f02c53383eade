"""The site that two captures are of: its platforms before and after, its families that borrow a library, its parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from lumisite.facts.facts import Facts
from lumisite.machine.topology import full_pci_bus
from lumisite.site.images import told_release
from lumisite.site.model import Module, Platform, Site
from lumisite.site.plans import LoadedPlan
from lumisite.site.selection import combinations, module_version
from lumisite.site.versions import Version, parse_version

#: The stacks that a capture finds on a node, by their usual names: one on the host, and one that a driver decides on.
INSTALLED, DRIVEN = "cpe", "rocm"

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

    def leaves(self, release: Version | None) -> bool:
        """Tell whether the new driver no longer supports a release that the old one did."""
        old, new = self.old.stacks.get(DRIVEN), self.updated.stacks.get(DRIVEN) if self.updated else None
        if release is None or old is None or new is None:
            return False
        return old.in_range(release) and not new.in_range(release)

    @property
    def leaving(self) -> tuple[str, ...]:
        """The releases of the site that the new driver no longer supports, as far as that is known."""
        releases = self.site.releases(DRIVEN)
        return tuple(release for release in releases if self.leaves(told_release(release)))

    def versions_with(self, module: Module, release: str) -> Iterator[str]:
        """Give the versions of a module that have a release of the driven stack, for each installed supported one."""
        hosts = {stack: self.old.stacks[stack].supported for stack in self.site.host_stacks if stack in self.old.stacks}
        images = {stack: (self.old.defaults[stack],) for stack in self.site.gpu_stacks if stack in self.old.stacks}
        chosen = {**hosts, **images, DRIVEN: (parse_version(release),)}
        ordered = {stack: chosen[stack] for stack in self.site.stacks if stack in chosen}
        yield from (module_version(self.site, module, one) for one in combinations(self.site, self.was, ordered))

    def undescribed(self, stack: str, releases: Iterable[str]) -> Iterator[Touch]:
        """Give what the site has to describe of new releases, where it has the stack."""
        for one in releases if stack in self.site.stacks else ():
            if one not in self.site.releases(stack):
                yield Touch("site", f"stacks.{stack}.releases", f"{one} is not described")


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
