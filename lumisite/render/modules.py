"""What each modulefile says: choices are made here, the templates only write them down."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from lumisite.errors import ResolveError
from lumisite.images.container import covers
from lumisite.render.manifest import ModuleSummary
from lumisite.site.decode import suggestion
from lumisite.site.entries import HostPath, Setting
from lumisite.site.evidence import rank, remark
from lumisite.site.model import Module, Site
from lumisite.site.scalars import TASK
from lumisite.site.selection import Selection, Stack
from lumisite.site.settings import Decision, Verdict, describe_action


@dataclass(frozen=True, repr=False, eq=False)
class OldName:
    """An old version name: a hidden modulefile that says so and loads `full_name`.

    A `.modulerc.lua` alone cannot say anything, and Lmod (8.6 and 8.7) tells a modulefile only the name that an
    alias leads to.
    """

    version: str
    origin: str
    full_name: str
    notice: str
    help: str

    @property
    def file(self) -> str:
        """Version of the hidden modulefile: Lmod hides what starts with a dot."""
        return f".{self.version}"


@dataclass(frozen=True, repr=False, eq=False)
class ModulePlan:
    """Everything that a modulefile's template needs; the names are those that templates use."""

    name: str
    version: str
    origin: str
    template: str
    help: str
    whatis: tuple[str, ...]
    conflicts: tuple[str, ...]
    loads: tuple[str, ...]
    notices: tuple[str, ...]
    old_names: tuple[OldName, ...]
    binds: tuple[str, ...]
    bind_variable: str
    marker: str
    memory: str
    settings: tuple[Setting, ...]
    helper: bool
    stack: str
    root: str
    release: str
    provides: tuple[str, ...]

    @property
    def full_name(self) -> str:
        """Name and version, as users type it."""
        return f"{self.name}/{self.version}"

    @property
    def summary(self) -> ModuleSummary:
        """What the manifest tells of the module."""
        return ModuleSummary(
            binds=self.binds,
            provides=self.provides,
            loads=self.loads,
            conflicts=self.conflicts,
            environment={str(setting.name): str(setting.value) for setting in self.settings},
        )


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
    known = [
        name.partition("/")[2].removesuffix(".lua.j2") for name in templates if name.startswith("modulefiles_src/")
    ]
    known = [name for name in known if not name.startswith(("_", "."))]
    plans = []
    for name, module in site.modules.items():
        if module.template not in known:
            raise ResolveError(
                f"{site_file}: modules.{name}.template: there is no {module.template}.lua.j2 in modulefiles_src/ "
                f"({suggestion(module.template, known)})"
            )
        plans += [
            _plan(site, selection, decisions[stack.name], name, stack, site_file, release)
            for stack in _stacks(selection, module)
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


def _plan(
    site: Site, selection: Selection, decision: Decision, name: str, stack: Stack, site_file: str, release: str
) -> ModulePlan:
    module = site.modules[name]
    version = module_version(module, stack)
    versions = [module_version(module, other) for other in _stacks(selection, module)]
    old_names = [old for old in module.old_versions if version == versions[0] and old not in versions]
    binds, settings = decision.bound_by(name), decision.set_by(name)
    provides = _provides(site, stack, binds)
    loads = tuple(f"{other}/{module_version(site.modules[other], stack)}" for other in module.loads)
    return ModulePlan(
        name=name,
        version=version,
        origin=f"modulefiles_src/{module.template}.lua.j2 and {site_file}",
        template=module.template,
        help=_help(site, decision, name, stack, provides, loads),
        whatis=_whatis(site, name, version, module),
        conflicts=module.conflicts,
        loads=loads,
        notices=_notices(site, name, module, stack),
        old_names=tuple(_old_name(site, name, old, version, site_file) for old in old_names),
        binds=tuple(bind.spec for bind in binds),
        bind_variable=f"{site.runtime.prefix}_BINDPATH",
        marker=bind_marker(name),
        memory=f"LUMISITE_SETS_{_variable_part(name)}",
        settings=settings,
        helper=module.helper,
        stack=stack.name,
        root=site.root,
        release=release,
        provides=tuple(path for _, path in provides),
    )


def _old_name(site: Site, name: str, old: str, version: str, site_file: str) -> OldName:
    notice = f"{name}/{old} is an old name of {name}/{version}, which is loaded instead."
    return OldName(
        version=old,
        origin=f"modulefiles_src/_old_name.lua.j2 and {site_file}",
        full_name=f"{name}/{version}",
        notice=notice,
        help=f"{_paragraph(notice)}\n\n{_support(site)}\n",
    )


def _variable_part(name: str) -> str:
    return "".join(c if c.isascii() and c.isalnum() else "_" for c in name).upper()


def bind_marker(name: str) -> str:
    """The variable that remembers which binds a module (or `task`) has added."""
    return f"LUMISITE_BINDS_{_variable_part(name)}"


def _provides(site: Site, stack: Stack, binds: Iterable[HostPath]) -> list[tuple[str, str]]:
    """Library directories of the platform and the CPE release that some bind makes visible."""
    roots = [bind.path for bind in binds]
    libraries = {**site.platforms[stack.platform].libraries, **site.cpe[str(stack.cpe)].libraries}
    return [(what, path) for what, path in libraries.items() if any(covers(root, path) for root in roots)]


def _whatis(site: Site, name: str, version: str, module: Module) -> tuple[str, ...]:
    lines = [f"Name: {name}", f"Version: {version}", f"Description: {module.summary}"]
    if module.keywords:
        lines.append(f"Keywords: {', '.join(module.keywords)}")
    return (*lines, f"Support: {site.support.name}, {site.support.contact}")


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


def _help(
    site: Site,
    decision: Decision,
    name: str,
    stack: Stack,
    provides: Iterable[tuple[str, str]],
    loads: Iterable[str],
) -> str:
    """What `module help` prints: each bind and setting with its reason, and whom to ask."""
    module, settings = site.modules[name], decision.set_by(name)
    sections = [
        f"{name}/{module_version(module, stack)} for {site.title}, platform {stack.platform}",
        _paragraph(f"{module.summary}."),
        *map(_paragraph, _notices(site, name, module, stack)),
        _listing(
            f"Appends to {site.runtime.prefix}_BINDPATH:", ((bind.spec, bind.why) for bind in decision.bound_by(name))
        ),
        _listing("Host libraries behind these binds:", ((path, what) for what, path in provides)),
        _listing("Loads:", ((full_name, site.modules[full_name.split("/")[0]].summary) for full_name in loads)),
        _listing("Sets, unless you have set it:", ((f"{s.name} {describe_action(s)}", s.why) for s in settings)),
    ]
    if module.helper:
        sections += _helper_help(site, decision)
    else:
        sections.append(_paragraph(f"Unload it before `{site.runtime.name} build`, which fails on binds."))
    sections.append(_support(site))
    return "\n\n".join(section for section in sections if section) + "\n"


def _support(site: Site) -> str:
    return f"Support: {site.support.name}\n  {site.support.contact}"


def _helper_help(site: Site, decision: Decision) -> list[str]:
    """Say what a task gets, what jobs need first."""
    given = [
        verdict
        for verdict in decision.settings
        if verdict.applies and verdict.setting.where == TASK and not verdict.setting.leave
    ]
    entries = [
        (f"{one.setting.name} {describe_action(one.setting)}", _reason(one))
        for one in sorted(given, key=lambda one: rank(one.setting))
    ]
    return [
        _paragraph(
            "Switches the srun helper on (SLURM_TASK_PROLOG). In each task of a job step it does the following. What "
            "depends on the image (its ROCm release, its family, its plugin) is decided by the image that runs, "
            "whatever the version of this module."
        ),
        _listing("Binds, where the node has it:", ((bind.spec, bind.why) for bind in decision.bound_by(TASK))),
        _listing("Sets, unless you have set it, what jobs need first:", entries),
        *map(_paragraph, _mpi_notes(site)),
        _paragraph("LUMISITE=off switches the helper off, LUMISITE_VERBOSE=1 makes it say what it does."),
    ]


def _mpi_notes(site: Site) -> Iterator[str]:
    """Say what MPI in images needs of srun, which no module sets: it would reach steps without such an image too."""
    for family in site.families.values():
        if family.mpi:
            yield (
                f"MPI inside {family.title} needs `srun --mpi={family.mpi}`. No module sets that, since it would reach "
                "programs outside of containers too."
            )


def _reason(verdict: Verdict) -> str:
    notes = [verdict.reason if verdict.outcome == "may win" else "", remark(verdict.setting)]
    said = "; ".join(note for note in notes if note)
    return f"{verdict.setting.why} ({said})" if said else str(verdict.setting.why)


def _paragraph(text: str) -> str:
    return textwrap.fill(text, width=78, break_long_words=False, break_on_hyphens=False)


def _listing(title: str, entries: Iterable[tuple[str, str]]) -> str:
    lines = []
    for entry, why in entries:
        lines += [
            f"  {entry}",
            textwrap.fill(
                why,
                width=78,
                initial_indent=" " * 6,
                subsequent_indent=" " * 6,
                break_long_words=False,
                break_on_hyphens=False,
            ),
        ]
    return "\n".join([title, *lines]) if lines else ""
