"""What the helper does to tasks, entry by entry, for the manifest: `diff` compares this, and not the scripts.

An entry has a group (a key of `--json`), a name, and its value as text.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from lumisite.images.lock import holds_by_lock
from lumisite.machine.masks import mask_tables
from lumisite.machine.topology import topology_of
from lumisite.render.helper_settings import names_left_alone
from lumisite.render.modules import Rendering
from lumisite.site.entries import Setting, When
from lumisite.site.images import plugin_by_name
from lumisite.site.kinds import fingerprint_of
from lumisite.site.ledger import Decision, conditions_of, describe_action, describe_conditions
from lumisite.site.library_path import library_path
from lumisite.site.model import Family, Site
from lumisite.site.plans import PlanLine
from lumisite.site.scalars import TASK

#: A group's entries: names with their values.
Entries = Iterator[tuple[str, str]]


def task_summary(of: Rendering) -> dict[str, dict[str, str]]:
    """Return all entries by group, without empty ones; of two with one name the first counts, as in the scripts."""
    site = of.site
    groups: dict[str, Iterable[tuple[str, str]]] = {
        "binds": _binds(of, of_modules=False),
        "module_binds": _binds(of, of_modules=True),
        "settings": _settings(of.decisions),
        "places": _places(site),
        "partitions": _partitions(site),
        "node_kinds": _node_kinds(site),
        "cpus": _cpus(site),
        "families": _families(of),
        "images": _images(of),
        "plans": _plans(of),
        "runtimes": _runtimes(site),
    }
    found: dict[str, dict[str, str]] = {}
    for group, entries in groups.items():
        for name, value in ((name, value) for name, value in entries if value):
            found.setdefault(group, {}).setdefault(name, value)
    return found


def _binds(of: Rendering, *, of_modules: bool) -> Entries:
    """Yield each bind of tasks alone, or of modules, with when it is bound and by what."""
    for item in of.site.host_paths.values():
        stacks = [stack for stack, decision in of.decisions.items() if item in decision.bound_by(str(item.where))]
        if stacks and of_modules == (item.where != TASK):
            required = ", required" if item.required else ""
            yield f"{item.spec}{_in(stacks, of.decisions)}", f"{item.where}, {describe_conditions(item.when)}{required}"
    for file_system in of.site.file_systems if not of_modules else ():
        if file_system.job_folder is not None and file_system.where is None:
            yield str(file_system.job_folder), f"{TASK}, below {file_system.path}"


def _settings(decisions: Mapping[str, Decision]) -> Entries:
    """Yield what is done with each variable under each condition, in all combinations or in those that do it so."""
    stacks_of: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for stack, decision in decisions.items():
        seen = set()
        for verdict in decision.settings:
            setting = verdict.entry
            name = setting.name + _when(setting.when)
            does_nothing = setting.leave and not conditions_of(setting.when)
            if setting.where == TASK and verdict.applies and not does_nothing and name not in seen:
                seen.add(name)
                stacks_of[name, _action(setting)].append(stack)
    for (name, action), stacks in stacks_of.items():
        yield name + _in(stacks, decisions), action


def _action(setting: Setting) -> str:
    below = f" with {' '.join(setting.with_directories)}" if setting.with_directories else ""
    return describe_action(setting).removeprefix("= ") + below


def _in(stacks: list[str], all_stacks: Mapping[str, object]) -> str:
    return "" if len(stacks) == len(all_stacks) else f" in {' '.join(stacks)}"


def _when(when: When) -> str:
    return f" ({describe_conditions(when)})" if conditions_of(when) else ""


def _places(site: Site) -> Entries:
    for number, place in enumerate(site.private_places, start=1):
        parts = [f"number {number}", *([f"the job's folder {place.job_folder}"] if place.job_folder else [])]
        yield place.path, ", ".join(parts)


def _partitions(site: Site) -> Entries:
    for name, partition in site.partitions.items():
        yield name, f"{' '.join(partition.node_kind)}, {'whole nodes' if partition.whole_nodes else 'parts of nodes'}"


def _node_kinds(site: Site) -> Entries:
    for name in site.node_kinds:
        yield f"{name}: GPUs", fingerprint_of(site, name).gpus


def _cpus(site: Site) -> Entries:
    for name, kind in site.node_kinds.items():
        for (tasks, threads), masks in mask_tables(topology_of(name, kind)).items():
            yield f"{name}: tasks={tasks}, threads={threads}", " ".join(str(mask.cpus) for mask in masks)


def _families(of: Rendering) -> Entries:
    for name, family in of.site.families.items():
        for key, value in _family(of, name, family).items():
            yield f"{name}: {key}", value


def _family(of: Rendering, name: str, family: Family) -> dict[str, str]:
    plugin = plugin_by_name(of.site, name)
    return {
        "paths": " ".join(family.paths),
        "modules": " ".join(family.modules),
        "prepend_path": ":".join(family.prepend_path),
        "library_path": ":".join(library_path(of.site, of.selection.platform, name)),
        "plugin": {None: "unknown", True: "yes", False: "no"}[plugin],
        "release_after": " ".join(family.release_after.values()),
        "mpi": family.mpi or "",
    }


def _images(of: Rendering) -> Entries:
    """Yield what a lock says of each image."""
    for path, image in of.lock.lock.images.items() if of.lock is not None else ():
        if not image.fault and image.versions:
            contents = holds_by_lock(of.site, path, image, of.selection.platform)
            releases = (f"{stack} {release}" for stack, release in contents.stacks.items() if release is not None)
            plugin = {None: "unknown", True: "yes", False: "no"}[contents.plugin]
            facts = [contents.family or "no family", *releases, f"plugin {plugin}"]
            left_alone = names_left_alone(of.site, of.selection.platform, contents)
            facts += [f"leaves {' '.join(left_alone)} alone"] if left_alone else []
            yield image.target or path, ", ".join(facts)


def _plans(of: Rendering) -> Entries:
    for loaded in of.plans:
        if loaded.plan.platform == of.selection.platform:
            yield f"{loaded.file}: images", " ".join(loaded.plan.paths)
            yield f"{loaded.file}: library path", ":".join(loaded.plan.library_path)
            for line in loaded.plan.lines:
                yield f"{loaded.file}: {line.library}", _plan_line(line)


def _plan_line(line: PlanLine) -> str:
    if line.spec is not None:
        return f"{line.spec}, by {line.by or 'the plan'}"
    return f"{line.decision}{f', without {line.without}' if line.without else ''}"


def _runtimes(site: Site) -> Entries:
    for name, runtime in site.runtimes.items():
        yield name, str(runtime.executable or "PATH")
    if site.fabric.host_suffix:
        yield "MASTER_ADDR", f"ends with {site.fabric.host_suffix}"
