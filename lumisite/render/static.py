"""What can be said of a module in a file that nothing runs: known before any step, or said to be lost.

Sources: of EDFs docs/software/container-engine/edf.md of eth-cscs/cscs-docs (80abed1, 2026-08-20); of the modules of
podman-hpc podman_hpc/siteconfig.py and hook_tool.py of NERSC/podman-hpc (01b02d6, 2026-04-24). One engine reads `$${`
as `${`, another (src/common.rs of sarus-suite/raster, 20f75bd, 2026-06-12) gives each text to a shell: so a text with
a sign that means something there is not said at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from lumisite.errors import ResolveError
from lumisite.findings.catalogue import make_finding
from lumisite.findings.writers import message
from lumisite.render.modules import ModulePlan
from lumisite.site.entries import HostPath, Setting
from lumisite.site.ledger import Situation, decide, decided_by_image, describe_action
from lumisite.site.library_path import library_path
from lumisite.site.model import Site
from lumisite.site.scalars import TASK
from lumisite.site.selection import Selection
from lumisite.site.software import Runtime, prefix_of

#: The templates of what is no modulefile, and the files that they become.
STATIC: Mapping[str, tuple[str, str]] = {
    "edf": ("edf.toml.j2", "edf/{}.toml"),
    "podman-hpc": ("podman-hpc.yaml.j2", "podman-hpc/modules.d/{}.yaml"),
}
#: What some consumer would take for more than itself.
_EXPANDED = {"edf": re.compile(r'[$`"\\;]'), "podman-hpc": re.compile(r"[$*?\[~]")}


@dataclass(frozen=True)
class StaticModule:
    """What one file says, found by its `name`: `lost` is what it cannot say.

    `environment` has the values, `None` for a variable to take away; `passed` are variables that the task prolog sets
    on the node. `binds` are as the consumer takes them. `others` are the names of the module's other files.
    """

    module: ModulePlan
    runtime: Runtime
    binds: tuple[str, ...]
    environment: Mapping[str, str | None]
    passed: tuple[str, ...]
    lost: tuple[str, ...]
    name: str = ""
    others: tuple[str, ...] = ()

    @property
    def arguments(self) -> list[str]:
        """What podman-hpc adds to its command."""
        values = self.environment.items()
        options = [f"--unsetenv={name}" if value is None else f"--env={name}={value}" for name, value in values]
        return [*self.runtime.arguments, *options, *(f"--env={name}" for name in self.passed)]


def static_files(site: Site, selection: Selection, plans: Sequence[ModulePlan]) -> dict[str, tuple[str, StaticModule]]:
    """Return template and content of EDFs and of modules of single runtimes, by path.

    `plans` have each default version first.
    Raises `ResolveError` where two files would have one name.
    """
    found: dict[str, tuple[str, StaticModule]] = {}
    for emit, (template, path) in STATIC.items():
        of_module: dict[str, list[StaticModule]] = {}
        for plan in plans if emit in site.emitters else ():
            default = plan.name not in of_module
            of_module.setdefault(plan.name, []).extend(_of_version(site, selection, plan, emit, default=default))
        for content, names in (
            (content, [other.name for other in many]) for many in of_module.values() for content in many
        ):
            file = path.format(content.name)
            if file in found:
                other = found[file][1].module.full_name
                raise ResolveError(make_finding("file-taken", file, module=content.module.full_name, other=other))
            found[file] = template, replace(content, others=tuple(name for name in names if name != content.name))
    return found


def _of_version(
    site: Site, selection: Selection, plan: ModulePlan, emit: str, *, default: bool
) -> Iterator[StaticModule]:
    """Yield what a version says, by all of its names; for one node and for several, where nothing on the node tells."""
    chosen = next(combination for combination in selection.combinations if combination.name == plan.stack)
    kinds = {bool(kind.gpus) for kind in site.node_kinds.values()}
    # A version that names a release of what images bring is for images of it: no wrapper looks into them here.
    stacks = (*site.host_stacks, *site.modules[plan.name].version)
    releases = {stack: release for stack, release in chosen.releases.items() if stack in stacks}
    known = Situation(chosen.platform, releases, gpus=kinds.pop() if len(kinds) == 1 else None)
    names = [plan.name] * default + [f"{plan.name}-{version}" for version in (plan.version, *plan.old_names)]
    if emit == "podman-hpc":
        content = _static_module(site, plan, emit, known)
        # click, which reads its options, takes a name of lower-case letters, digits and -.
        yield from (replace(content, name=re.sub(r"[^a-z0-9]+", "-", name.lower())) for name in names)
        return
    single, several = (_static_module(site, plan, emit, replace(known, nodes=nodes)) for nodes in ("one", "several"))
    yield from (replace(single, name=name) for name in names)
    if single.environment != several.environment:
        yield from (replace(several, name=f"{name}-several") for name in names)


def _static_module(site: Site, plan: ModulePlan, emit: str, known: Situation) -> StaticModule:
    itself, *needed = site.loaded_with([plan.name])
    loaded = [*needed, itself]  # as a load goes
    helper = any(site.modules[name].helper for name in loaded)
    places = [*loaded, TASK] if helper else loaded
    decision = decide(site, known)
    lost = dict.fromkeys(["CPU masks of tasks"] if helper else [])
    environment: dict[str, str | None] = {}
    passed: dict[str, None] = {}
    undecided: set[str] = set()
    applying = (candidate for candidate in decision.settings if candidate.applies and candidate.entry.where in places)
    for verdict in (candidate for candidate in applying if not prefix_of(candidate.entry.name)):
        setting, is_open = verdict.entry, verdict.outcome == "may win" or verdict.entry.name in undecided
        if setting.name in passed:
            continue
        if emit == "podman-hpc" and _is_set_by_the_prolog(site, setting, is_open=is_open):
            passed[setting.name] = None
        elif setting.leave:
            undecided.update([setting.name] if is_open else [])
        elif is_open or setting.directory or setting.computed or (emit == "edf" and not _is_literal(setting.value)):
            reason = f" ({message(verdict.reason)})" if verdict.outcome == "may win" else ""
            lost[f"{setting.name} {describe_action(setting)}{reason}"] = None
            undecided.add(setting.name)
        else:
            environment[setting.name] = setting.value
    lost.update(dict.fromkeys(_library_paths(site, known.platform, loaded)))
    binds = []
    for bind in chain.from_iterable(map(decision.bound_by, places)):
        mount, cannot = _bind(bind, emit)
        binds += [mount] if mount else []
        lost.update(dict.fromkeys([cannot] if cannot else []))
    runtime = site.emitters[emit]
    return StaticModule(plan, runtime, tuple(binds), environment, tuple(passed), tuple(lost))


def _library_paths(site: Site, platform: str, loaded: Sequence[str]) -> Iterator[str]:
    """Yield, for the families whose binds are loaded, what their loader would have to search first.

    A container has one LD_LIBRARY_PATH: to set it here would take away the image's own.
    """
    for name, family in site.families.items():
        if family.library_path and family.activation != "tykky" and set(family.modules) <= set(loaded):
            yield f"LD_LIBRARY_PATH = {':'.join(library_path(site, platform, name))} (where family is {name})"


def _is_set_by_the_prolog(site: Site, setting: Setting, *, is_open: bool) -> bool:
    """Return whether a container gets a variable from the task, whose prolog has set it on the node."""
    at_node = setting.where == TASK and not decided_by_image(site, setting)
    return (
        at_node and not setting.directory and (setting.computed is not None or (is_open and setting.value is not None))
    )


def _is_literal(value: str | None) -> bool:
    """Return whether an EDF can set a value: it takes an empty one for none."""
    return value is None or (value != "" and not _EXPANDED["edf"].search(value))


def _bind(bind: HostPath, emit: str) -> tuple[str, str]:
    """Return SOURCE:DESTINATION, with the flags that an EDF may have, and what is lost."""
    source, target, options, *_ = *bind.spec.split(":", 2), "", ""
    if _EXPANDED[emit].search(source + target):
        return "", f"the bind {bind.spec}, which would be expanded"
    requested = list(filter(None, options.split(",")))
    flags = [flag for flag in requested if emit == "edf" and flag in ("ro", "rw")][:1]
    lost = ",".join(flag for flag in requested if flag not in flags)
    return ":".join([source, target or source, *flags]), f"{lost} of the bind {bind.spec}" if lost else ""
