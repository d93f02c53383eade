"""What of a site a change touches: the parts that its row names, and those that name what changed.

A part of a row is the sort of it and its name, such as `module NAME`. A name may have a word in braces, for which
all that the site and the captures have of that stand: `{gpu_kind}` are the node kinds with as many GPUs as the node had
or has. `settings` is followed by a pattern of their names.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from lumisite.facts.change import Change, Touched
from lumisite.facts.change_kinds import BY_NAME
from lumisite.facts.facts import Facts
from lumisite.facts.stated import stated_devices, stated_paths
from lumisite.machine.tree import is_under
from lumisite.site.images import family_by_path, parse_release, releases_by_name
from lumisite.site.model import Module, Platform, Site
from lumisite.site.plans import LoadedPlan
from lumisite.site.scalars import full_pci_bus
from lumisite.site.selection import combinations, module_version
from lumisite.site.versions import Version, parse_version
from lumisite.vendors import gpu_of, software_of


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
    def new(self) -> Platform:
        """The platform after, where it is known, else the one before."""
        return self.site.platforms[self.now or self.was]

    @property
    def driven(self) -> str | None:
        """The stack of which a driver decides what runs, where the platform is known to have it."""
        return self.site.gpu_stack if self.site.gpu_stack in self.new.stacks else None

    def loses(self, stack: str, release: Version | None) -> bool:
        """Return whether the new driver no longer supports a release that the old one did, as far as that is known."""
        old, new = self.old.stacks.get(stack), self.new.stacks.get(stack)
        if release is None or old is None or new is None:
            return False
        return old.in_range(release) and not new.in_range(release)

    def lost_releases(self, stack: str) -> tuple[str, ...]:
        """Return the releases of the site that the new driver no longer supports."""
        return tuple(release for release in self.site.releases(stack) if self.loses(stack, parse_release(release)))

    @cached_property
    def borrowed(self) -> dict[str, set[str]]:
        """The libraries that images of each family borrow from the host: its own, and all that these need."""
        families = self.site.families.items()
        return {
            name: _needed(self.before, family.libraries) | _needed(self.after, family.libraries)
            for name, family in families
        }


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


# What a change touches


def touches(change: Change, context: Context) -> tuple[Touched, ...]:
    """Return what a change touches, each part once."""
    found = [part for template in BY_NAME[change.kind].touches for part in parts_of(template, change, context)]
    found += (part for name in change.names for part in naming(name, context))
    if change.kind == "driver":
        found += _of_driver(change, context)
    if change.kind == "image":
        found += _of_image(change, context)
    return tuple(dict.fromkeys(found))


def parts_of(template: str, change: Change, context: Context) -> Iterator[Touched]:
    """Yield the parts of a site that a template of a row stands for."""
    what, _, name = template.partition(" ")
    if what == "settings":
        yield from (Touched("setting", each.name) for each in context.site.settings if re.search(name, each.name))
        return
    name = name.replace("{platform}", context.was).replace("{now}", context.now or context.was)
    word = re.search(r"\{(\w+)\}", name)
    for value in _values(word[1], change, context) if word else ("",):
        yield Touched(what, name.replace(word[0], value) if word else name)  # type: ignore[arg-type]


def _values(word: str, change: Change, context: Context) -> Collection[str]:
    """Return all that a word in braces stands for."""
    site, stacks = context.site, context.old.stacks
    counts = {len(context.before.gpus), len(context.after.gpus)}
    kinds = {name: kind for name, kind in site.node_kinds.items() if len(kind.gpus) in counts}
    known = {stack: software_of(stack, described.gpu) for stack, described in site.stacks.items()}
    changed = [stack for stack, software in known.items() if software is not None and software.title == change.subject]
    is_driver = site.gpu_vendor is not None and change.subject in gpu_of(site.gpu_vendor).drivers
    found: dict[str, Collection[str]] = {
        "kind": kinds,
        "gpu_kind": [name for name, kind in kinds.items() if kind.gpus],
        "nic_kind": [name for name, kind in kinds.items() if kind.nics],
        "module": site.modules,
        "runtime": [site.command],
        "borrowing": [name for name, family in site.families.items() if family.libraries],
        "host_stack": [name for name in site.host_stacks if name in stacks],
        "driven": [context.driven] if context.driven and is_driver else [],
        "stack": [stack for stack in changed if stack in stacks],
        "stack_module": [name for name, module in site.modules.items() if {*changed}.intersection(module.version)],
    }
    return found[word]


def naming(name: str, context: Context) -> Iterator[Touched]:
    """Yield the parts of a site that name a path, with what is below it, a library or a device."""
    site = context.site
    whole = re.compile(rf"(?<![\w.-]){re.escape(name)}(?![\w-])")
    yield from (Touched("setting", each.name) for each in site.settings if each.value and whole.search(each.value))
    yield from (Touched("site", key) for key, stated in stated_devices(site) if stated == name)
    sonames = {name}
    if name.startswith("/"):
        yield from (Touched("site", key) for key, stated in stated_paths(site) if is_under(stated, name))
        yield from _modules_binding(name, site)
        for facts in (context.before, context.after):
            sonames |= {soname for soname, path in facts.loads.items() if is_under(path, name)}
    yield from (Touched("plan", family) for family, borrowed in context.borrowed.items() if borrowed & sonames)
    for stored in context.plans:
        sources = {str(line.source) for line in stored.plan.lines if line.source is not None}
        if sonames & {line.library for line in stored.plan.lines} or any(is_under(path, name) for path in sources):
            yield Touched("plan", stored.file)


def _modules_binding(path: str, site: Site) -> Iterator[Touched]:
    """Yield the modules that bind a path, a folder above it or something below it, and those that load these."""
    binding = {
        str(bind.where)
        for bind in site.host_paths.values()
        if bind.where in site.modules and (is_under(path, bind.path) or is_under(bind.path, path))
    }
    for name, module in site.modules.items():
        if name in binding or binding.intersection(module.loads):
            yield Touched("module", name)


def _of_driver(change: Change, context: Context) -> Iterator[Touched]:
    """Yield the modules and the images whose release the new driver does not support."""
    stack = context.driven
    if stack is None or not _values("driven", change, context):
        return
    series = {version.minor: str(version) for version in map(parse_release, context.lost_releases(stack)) if version}
    for name, module in context.site.modules.items():
        for release in series.values() if stack in module.version else ():
            yield from (Touched("module", f"{name}/{version}") for version in _versions_with(context, module, release))
    for folder, images in context.after.images.items():
        for name, file in images.items():
            image = f"{folder}/{name}"
            if context.loses(stack, releases_by_name(context.site, file.target or image, image).get(stack)):
                yield Touched("image", image)


def _versions_with(context: Context, module: Module, release: str) -> Iterator[str]:
    """Yield the versions of a module that have a release of the driven stack."""
    site, old = context.site, context.old
    hosts = {name: old.stacks[name].supported for name in site.host_stacks if name in old.stacks}
    chosen = {**hosts, str(context.driven): (parse_version(release),)}
    ordered = {name: chosen[name] for name in site.stacks if name in chosen}
    for combination in combinations(site, context.was, ordered):
        yield module_version(site, module, combination)


def _of_image(change: Change, context: Context) -> Iterator[Touched]:
    """Yield the family that recognises an image, its modules, and the stored plans that were made for it."""
    site = context.site
    for path in change.names:
        family = family_by_path(site, path, *change.inside)
        if family is not None:
            yield Touched("family", family)
            yield from (Touched("module", module) for module in site.families[family].modules)
            if site.families[family].libraries:
                yield Touched("plan", family)
        for stored in context.plans:
            if any(fnmatch.fnmatchcase(path, pattern) for pattern in stored.plan.paths):
                yield Touched("plan", stored.file)
