"""The ledger's table in the manifest: what the helper does to tasks, entry by entry. `diff` compares this, not scripts.

An entry has a group (a key of `--json`), a name, and its value as text.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from lumisite.machine.masks import mask_tables
from lumisite.machine.topology import topology_of
from lumisite.render.helper_settings import names_left_alone
from lumisite.render.modules import Rendering
from lumisite.site.images import plugin_by_name
from lumisite.site.ledger import Decision, conditions_of, describe_action, describe_conditions
from lumisite.site.library_path import library_path
from lumisite.site.node_recognition import fingerprint_of
from lumisite.site.plans import PlanLine
from lumisite.site.scalars import TASK

#: Entries: their groups, names and values.
Entries = Iterator[tuple[str, str, str]]
_PLUGIN = {None: "unknown", True: "yes", False: "no"}


def ledger_table(of: Rendering) -> dict[str, dict[str, str]]:
    """Return all entries by group, without empty ones; of two with one name the first counts, as in the scripts."""
    found: dict[str, dict[str, str]] = {}
    for entries in (_binds(of), _settings(of.decisions), _steps(of), _families(of), _images(of), _plans(of)):
        for group, name, value in entries:
            if value:
                found.setdefault(group, {}).setdefault(name, value)
    return found


def _binds(of: Rendering) -> Entries:
    """Yield each bind of modules and of tasks, with when it is bound and by what."""
    for item in of.site.host_paths.values():
        combinations = [name for name, decision in of.decisions.items() if item in decision.bound_by(str(item.where))]
        if combinations:
            value = f"{item.where}, {describe_conditions(item.when)}{', required' if item.required else ''}"
            group = "binds" if item.where == TASK else "module_binds"
            yield group, item.spec + _in(combinations, of.decisions), value


def _settings(decisions: Mapping[str, Decision]) -> Entries:
    """Yield what is done with each variable under each condition, in all combinations or in those that do it so."""
    combinations: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for combination, decision in decisions.items():
        seen = set()
        for verdict in decision.settings:
            setting, is_conditional = verdict.entry, bool(conditions_of(verdict.entry.when))
            name = setting.name + (f" ({describe_conditions(setting.when)})" if is_conditional else "")
            does_nothing = setting.leave and not is_conditional
            if setting.where == TASK and verdict.applies and not does_nothing and name not in seen:
                seen.add(name)
                below = f" with {' '.join(setting.with_directories)}" if setting.with_directories else ""
                action = describe_action(setting).removeprefix("= ") + below
                combinations[name, action].append(combination)
    for (name, action), names in combinations.items():
        yield "settings", name + _in(names, decisions), action


def _in(combinations: list[str], everything: Mapping[str, object]) -> str:
    return "" if len(combinations) == len(everything) else f" in {' '.join(combinations)}"


def _steps(of: Rendering) -> Entries:
    """Yield what decides where a step is: places for caches, partitions, node kinds with their CPUs, runtimes."""
    site = of.site
    for number, place in enumerate(site.private_places, start=1):
        yield "places", place.path, f"number {number}"
    for name, partition in site.partitions.items():
        nodes = "whole nodes" if partition.whole_nodes else "parts of nodes"
        yield "partitions", name, f"{partition.node_kind}, {nodes}"
    for name, kind in site.node_kinds.items():
        yield "node_kinds", f"{name}: GPUs", fingerprint_of(site, name).gpus
        for (tasks, threads), masks in mask_tables(topology_of(name, kind)).items():
            yield "cpus", f"{name}: tasks={tasks}, threads={threads}", " ".join(str(mask.cpus) for mask in masks)
    for name, runtime in site.runtimes.items():
        yield "runtimes", name, str(runtime.executable or "PATH")
    if site.fabric.host_suffix:
        yield "runtimes", "MASTER_ADDR", f"ends with {site.fabric.host_suffix}"


def _families(of: Rendering) -> Entries:
    for name, family in of.site.families.items():
        values = {
            "paths": " ".join(family.paths),
            "modules": " ".join(family.modules),
            "prepend_path": ":".join(family.prepend_path),
            "library_path": ":".join(library_path(of.site, of.selection.platform, name)),
            "plugin": _PLUGIN[plugin_by_name(of.site, name)],
            "mpi": family.mpi or "",
        }
        for key, value in values.items():
            yield "families", f"{name}: {key}", value


def _images(of: Rendering) -> Entries:
    """Yield what a lock says of each image."""
    if of.lock is None:
        return
    from lumisite.images.lock import holds_by_lock  # with the readers of images, which a lock alone needs

    for path, image in of.lock.lock.images.items():
        if not image.fault and image.versions:
            holds = holds_by_lock(of.site, path, image, of.selection.platform)
            releases = (f"{stack} {release}" for stack, release in holds.stacks.items())
            facts = [holds.family or "no family", *releases, f"plugin {_PLUGIN[holds.plugin]}"]
            left_alone = names_left_alone(of.site, of.selection.platform, holds)
            facts += [f"leaves {' '.join(left_alone)} alone"] if left_alone else []
            yield "images", image.target or path, ", ".join(facts)


def _plans(of: Rendering) -> Entries:
    for loaded in of.plans:
        if loaded.plan.platform == of.selection.platform:
            yield "plans", f"{loaded.file}: images", " ".join(loaded.plan.paths)
            yield "plans", f"{loaded.file}: library path", ":".join(loaded.plan.library_path)
            for line in loaded.plan.lines:
                yield "plans", f"{loaded.file}: {line.library}", _plan_line(line)


def _plan_line(line: PlanLine) -> str:
    if line.spec is not None:
        return f"{line.spec}, by {line.by or 'the plan'}"
    return f"{line.decision}{f', without {line.without}' if line.without else ''}"
