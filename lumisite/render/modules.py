"""What each modulefile says: choices are made here, the templates only write them down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from lumisite.machine.tree import is_under
from lumisite.render.manifest import ModuleSummary
from lumisite.render.module_help import help_text
from lumisite.site.ledger import Decision, decide_combinations, default_family
from lumisite.site.load import LoadedSite, description_name
from lumisite.site.model import Module, Site
from lumisite.site.plans import LoadedPlan
from lumisite.site.selection import PLATFORM, Combination, Selection, combinations, module_version, with_release
from lumisite.vendors import gpu_of

if TYPE_CHECKING:
    from lumisite.images.lock import LoadedLock


@dataclass(frozen=True)
class Rendering:
    """What is rendered, under the id of the tree: a site's selection of releases, by templates.

    `plans` are the reviewed plans of images, `lock` says what images hold that have none.
    """

    loaded: LoadedSite
    selection: Selection
    release: str
    templates: Mapping[str, str]
    plans: Sequence[LoadedPlan] = ()
    lock: LoadedLock | None = None

    @property
    def site(self) -> Site:
        """The site."""
        return self.loaded.site

    @property
    def description(self) -> str:
        """What files call the description, whatever its own name is."""
        return description_name(self.site)

    @cached_property
    def decisions(self) -> dict[str, Decision]:
        """What applies in each combination of releases, the default first."""
        return decide_combinations(self.site, self.selection)

    @property
    def modules(self) -> dict[str, tuple[str, ...]]:
        """By combination, the modules that its images need where no family recognises them."""
        site = self.site
        return {
            combination.name: site.families[default_family(site, combination.releases)].modules
            for combination in self.selection.combinations
        }


@dataclass(frozen=True, repr=False, eq=False)
class ModulePlan:
    """Everything that a modulefile's template needs, by the names that templates use; `summary` is what it does."""

    name: str
    version: str
    template: str
    help: str
    whatis: tuple[str, ...]
    notices: tuple[str, ...]
    bind_variable: str
    marker: str
    memory: str
    helper: bool
    caching: str
    stack: str
    root: str
    release: str
    summary: ModuleSummary

    @property
    def full_name(self) -> str:
        """Name and version, as users type it."""
        return f"{self.name}/{self.version}"


def plan_modules(of: Rendering) -> list[ModulePlan]:
    """Plan every modulefile, each module's default version first."""
    site, plans = of.site, []
    for name, module in site.modules.items():
        several = _combinations(site, of.selection, module)
        versions = [
            (module_version(site, module, combination), _releases(site, module, combination)) for combination in several
        ]
        if versions[1:]:
            versions[0] = versions[0][0], f"{versions[0][1]} (the default)"
        plans += [_plan(of, name, combination, versions) for combination in several]
    return plans


def _releases(site: Site, module: Module, chosen: Combination) -> str:
    """Return what a version stands for: releases, and the libraries of the host that come with them."""
    stacks = [stack for stack in module.version if stack != PLATFORM]
    named = [f"{site.stacks[stack].title} {chosen.releases[stack]}" for stack in stacks]
    for stack in stacks:
        release = site.releases(stack)[str(chosen.releases[stack])]
        named += [f"{what} {path.rpartition('/')[2]}" for what, path in release.libraries.items()]
    return ", ".join(named)


def _combinations(site: Site, selection: Selection, module: Module) -> list[Combination]:
    """One combination for each version that the module has; what a version does not tell is the default's."""
    releases = {stack: all_ if stack in module.version else all_[:1] for stack, all_ in selection.stacks.items()}
    return list(combinations(site, selection.platform, releases))


def _plan(of: Rendering, name: str, chosen: Combination, meanings: Sequence[tuple[str, str]]) -> ModulePlan:
    site, decision = of.site, of.decisions[chosen.name]
    module = site.modules[name]
    version = module_version(site, module, chosen)
    binds = decision.bound_by(name)
    notices = _notices(site, name, module, chosen)
    # Library directories of the platform and of its releases that some bind makes visible.
    libraries = site.libraries(chosen.platform, chosen.releases)
    provides = [(what, at) for what, at in libraries.items() if any(is_under(at, bind.path) for bind in binds)]
    loads = tuple(f"{other}/{module_version(site, site.modules[other], chosen)}" for other in module.loads)
    title = f"{name}/{version} for {site.title}, platform {chosen.platform}"
    caching = filter(None, (gpu_of(stack.gpu).caching for stack in site.stacks.values() if stack.gpu))
    return ModulePlan(
        name=name,
        version=version,
        template=module.template,
        help=help_text(site, decision, name, title, notices, meanings),
        whatis=(
            f"Name: {name}",
            f"Version: {version}",
            f"Description: {module.summary}",
            *([f"Keywords: {', '.join(module.keywords)}"] if module.keywords else []),
            f"Support: {site.support.name}, {site.support.contact}",
        ),
        notices=notices,
        bind_variable=f"{site.runtime.prefix}_BINDPATH",
        marker=bind_marker(name),
        memory=f"LUMISITE_SETS_{_variable_part(name)}",
        helper=module.helper,
        caching="".join(f" and {text}" for text in dict.fromkeys(caching)),
        stack=chosen.name,
        root=site.root,
        release=of.release,
        summary=ModuleSummary(
            binds=tuple(bind.spec for bind in binds),
            provides=tuple(path for _, path in provides),
            loads=loads,
            conflicts=module.conflicts,
            environment={str(setting.name): str(setting.value) for setting in decision.set_by(name)},
        ),
    )


def _variable_part(name: str) -> str:
    return "".join(c if c.isascii() and c.isalnum() else "_" for c in name).upper()


def bind_marker(name: str) -> str:
    """The variable that remembers which binds a module (or `task`) has added."""
    return f"LUMISITE_BINDS_{_variable_part(name)}"


def _notices(site: Site, name: str, module: Module, chosen: Combination) -> tuple[str, ...]:
    """What users read on load: that the module, or a release behind it, is on its way out."""
    notices = []
    if module.deprecated is not None:
        notices.append(f"{name} is deprecated: {module.deprecated.reason} Use {module.deprecated.successor} instead.")
    platform, version = site.platforms[chosen.platform], module_version(site, module, chosen)
    for stack in (stack for stack in module.version if stack != PLATFORM):
        offered, release = platform.stacks[stack], chosen.releases[stack]
        if release in offered.leftover:
            successor = module_version(site, module, with_release(site, chosen, stack, offered.default))
            notices.append(
                f"{name}/{version} is deprecated: {site.stacks[stack].title} {release} is no longer supported "
                f"since {platform.since}. Use {name}/{successor} instead."
            )
    return tuple(notices)
