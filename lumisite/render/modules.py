"""What each modulefile says: choices are made here, the templates only write them down."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from lumisite.errors import ResolveError
from lumisite.images.container import covers
from lumisite.render.manifest import ModuleSummary
from lumisite.render.module_help import help_text
from lumisite.site.decode import suggestion
from lumisite.site.ledger import Decision
from lumisite.site.model import Module, Site
from lumisite.site.selection import Selection, Stack

#: How the names of its templates end, by module system.
TEMPLATES: Mapping[str, str] = {"lmod": "lua", "tcl": "tcl"}


@dataclass(frozen=True, repr=False, eq=False)
class ModulePlan:
    """Everything that a modulefile's template needs, by the names that templates use; `summary` is what it does."""

    name: str
    version: str
    template: str
    systems: tuple[str, ...]
    help: str
    whatis: tuple[str, ...]
    notices: tuple[str, ...]
    old_names: tuple[str, ...]
    bind_variable: str
    marker: str
    memory: str
    helper: bool
    stack: str
    root: str
    release: str
    summary: ModuleSummary

    @property
    def full_name(self) -> str:
        """Name and version, as users type it."""
        return f"{self.name}/{self.version}"


def plan_modules(
    site: Site,
    selection: Selection,
    decisions: Mapping[str, Decision],
    site_file: str,
    templates: Iterable[str],
    release: str,
) -> list[ModulePlan]:
    """Plan every modulefile of a selection, each module's default version first; `decisions` are by stack.

    Raises `ResolveError` when the site names a template that is not there.
    """
    known = [text[1] for name in templates if (text := re.fullmatch(r"modulefiles_src/([^_.].*)\.j2", name))]
    plans = []
    for name, module in site.modules.items():
        for system in module.systems:
            wanted = f"{module.template}.{TEMPLATES[system]}"
            if wanted not in known:
                alike = [one.rpartition(".")[0] for one in known if one.endswith(f".{TEMPLATES[system]}")]
                raise ResolveError(
                    f"{site_file}: modules.{name}.template: there is no {wanted}.j2 in modulefiles_src/ "
                    f"({suggestion(module.template, alike)})"
                )
        plans += [
            _plan(site, selection, decisions[stack.name], name, stack, release) for stack in _stacks(selection, module)
        ]
    return plans


def module_version(module: Module, stack: Stack) -> str:
    """The version that a module has in a stack."""
    if module.version == "platform":
        return stack.platform
    return str(stack.cpe) if module.version == "cpe" else stack.name


def _stacks(selection: Selection, module: Module) -> list[Stack]:
    """One stack for each version that the module has; what a version does not tell is the default's."""
    cpes = selection.cpe[:1] if module.version == "platform" else selection.cpe
    rocms = selection.rocm if module.version == "cpe-rocm" else selection.rocm[:1]
    return [Stack(selection.platform, cpe, rocm) for cpe in cpes for rocm in rocms]


def _plan(site: Site, selection: Selection, decision: Decision, name: str, stack: Stack, release: str) -> ModulePlan:
    module = site.modules[name]
    version = module_version(module, stack)
    versions = [module_version(module, other) for other in _stacks(selection, module)]
    binds = decision.bound_by(name)
    notices = _notices(site, name, module, stack)
    # Library directories of the platform and the CPE release that some bind makes visible.
    libraries = {**site.platforms[stack.platform].libraries, **site.cpe[str(stack.cpe)].libraries}
    provides = [(what, at) for what, at in libraries.items() if any(covers(bind.path, at) for bind in binds)]
    loads = tuple(f"{other}/{module_version(site.modules[other], stack)}" for other in module.loads)
    title = f"{name}/{version} for {site.title}, platform {stack.platform}"
    return ModulePlan(
        name=name,
        version=version,
        template=module.template,
        systems=module.systems,
        help=help_text(site, decision, name, title, notices, provides, loads),
        whatis=(
            f"Name: {name}",
            f"Version: {version}",
            f"Description: {module.summary}",
            *([f"Keywords: {', '.join(module.keywords)}"] if module.keywords else []),
            f"Support: {site.support.name}, {site.support.contact}",
        ),
        notices=notices,
        old_names=tuple(old for old in module.old_versions if version == versions[0] and old not in versions),
        bind_variable=f"{site.runtime.prefix}_BINDPATH",
        marker=bind_marker(name),
        memory=f"LUMISITE_SETS_{_variable_part(name)}",
        helper=module.helper,
        stack=stack.name,
        root=site.root,
        release=release,
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


def _notices(site: Site, name: str, module: Module, stack: Stack) -> tuple[str, ...]:
    """What users read on load: that the module, or the CPE release behind it, is on its way out."""
    notices = []
    if module.deprecated is not None:
        notices.append(f"{name} is deprecated: {module.deprecated.reason} Use {module.deprecated.successor} instead.")
    platform = site.platforms[stack.platform]
    if module.version != "platform" and stack.cpe in platform.cpe_leftover:
        successor = module_version(module, replace(stack, cpe=platform.cpe))
        notices.append(
            f"{name}/{module_version(module, stack)} is deprecated: CPE {stack.cpe} is no longer supported "
            f"since {platform.since}. Use {name}/{successor} instead."
        )
    return tuple(notices)
