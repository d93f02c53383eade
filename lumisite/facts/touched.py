"""A part of the site that a change touches; and the changes that touch the same parts whatever has changed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from lumisite.facts.compare import Change
from lumisite.facts.site import Context
from lumisite.facts.tell import texts

What = Literal["site", "setting", "module", "family", "plan", "mask", "image", "helper"]


@dataclass(frozen=True)
class Touch:
    """A part that a change touches: a key of the site description, a setting, a module, a family, a plan of binds.

    A `plan` is called by the family that it is for, or, if it is stored, by its file.
    """

    what: What
    name: str
    why: str


Touches = Iterator[Touch]


def plain(change: Change[Any], context: Context) -> Touches:
    """A change that touches the same parts whatever has changed; `PLAIN` has them."""
    rows = [row for row in PLAIN if change.kind in row[0].split()]
    was, now = texts(change)
    old, variant = context.old, context.site.runtime.variant
    stated = {
        "os": old.os,
        "kernel": old.kernel,
        "slurm": old.slurm,
        "runtime": repr(variant),
        "kernel-parameter": old.kernel,
        "module-default": str(old.cpe),
    }.get(change.kind)
    said = {"was": was, "now": now, "platform": context.was, "stated": stated or "nothing"}
    for each in _names(context, rows[0][1]):
        for _, _, what, name, why in rows:
            known = {"each": each, "subject": change.subject, **said}
            yield Touch(what, name.format(**known), why.format(**known))


def _names(context: Context, loop: str) -> list[str]:
    """Give the names that one row of `PLAIN` is said of."""
    kinds = context.site.node_kinds
    counts = {len(context.before.gpus), len(context.after.gpus)} - {0}  # as many GPUs as this node had, or has
    names: dict[str, list[str]] = {
        "platform": [context.was],
        "module": [*context.site.modules],
        "kind": [*kinds],
        "kind with GPUs": [name for name, kind in kinds.items() if len(kind.gpus) in counts],
        "huge pages": [setting.name for setting in context.site.settings if re.search("HUGE|_HP$", setting.name)],
        "kind with NICs": [name for name, kind in kinds.items() if kind.nics],
    }
    return names[loop]


_BUS_IDS = "a live node is recognised by its bus ids; until they are right, reserved cores are not left out"
_L3 = "if this node is of that kind: its CPUs are grouped in another way"
#: Kinds of change, what `each` stands for in turn, and of each the part that is touched, its name, and why.
PLAIN: tuple[tuple[str, str, What, str, str], ...] = (
    ("gpu-count gpu-place", "kind with GPUs", "site", "node_kinds.{each}.gpus", "{subject}: {was} -> {now}"),
    ("gpu-count gpu-place", "kind with GPUs", "mask", "{each}", "each task's mask follows the place of its GPU"),
    ("gpu-bus", "kind with GPUs", "site", "platforms.{platform}.gpu_bus_ids.{each}", "is {was} by whole address"),
    ("gpu-bus", "kind with GPUs", "mask", "{each}", _BUS_IDS),
    ("cpus", "kind", "site", "node_kinds.{each}.l3", _L3),
    ("cpus", "kind", "mask", "{each}", "masks are made of these groups"),
    ("nic", "kind with NICs", "site", "node_kinds.{each}.nics", "{subject} is not where it was"),
    ("release", "module", "module", "{each}", "users load it from the release that `current` names"),
    ("runtime", "platform", "site", "runtime.variant", "says {stated}"),
    (
        "runtime runtime-file",
        "platform",
        "helper",
        "spank/bin",
        "the wrapper hands over to it: try one image of each family",
    ),
    ("os", "platform", "site", "platforms.{each}.os", "says {stated}"),
    ("kernel", "platform", "site", "platforms.{each}.kernel", "says {stated}"),
    ("kernel-parameter", "platform", "site", "platforms.{each}.kernel", "says {stated}, and its start is another now"),
    ("slurm", "platform", "site", "platforms.{each}.slurm", "says {stated}"),
    (
        "slurm-conf",
        "platform",
        "helper",
        "spank/task_prolog",
        "works on the same tasks: run a step with LUMISITE_VERBOSE=1",
    ),
    (
        "kernel-module",
        "platform",
        "site",
        "network.interfaces",
        "{subject} carries their traffic: run `lumisite validate`",
    ),
    ("hugepages", "huge pages", "setting", "{each}", "is about huge pages"),
    ("module-default", "platform", "site", "platforms.{each}.cpe", "says {stated}; without a version users get {now}"),
    ("slurm", "platform", "helper", "spank/task_prolog", "Slurm runs it: run one job step with LUMISITE_VERBOSE=1"),
    ("slurm", "platform", "helper", "spank/cli_filter.lua", "Slurm loads it: render it again, which checks it"),
)
