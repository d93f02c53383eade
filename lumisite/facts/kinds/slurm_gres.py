"""The generic resources of a node: the first device of a file has the number 0, unless slurmd finds them by itself.

Sources: gres.conf(5) of Slurm 26.05, and src/interfaces/gres.c for the numbers of GPUs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice

from lumisite.facts.change import Change, Touched, joined
from lumisite.facts.context import Context
from lumisite.facts.facts import Facts
from lumisite.facts.kind import ChangeKind, helper_touches, texts_of
from lumisite.facts.kinds.slurm import conf_entries, conf_folder, is_closed
from lumisite.facts.kinds.slurm_node import LISTED, host_name, is_named, normalized_cpus
from lumisite.machine.tree import Tree
from lumisite.site.cpus import CpusetError, parse_number_list
from lumisite.site.model import Site

_MOST_DEVICES, _DIGITS = 1024, 4


def read_gres(tree: Tree, _: Site) -> dict[str, str] | None:
    """Return each device of gres.conf by its kind and number, and how slurmd finds devices."""
    folder, host = conf_folder(tree, "gres.conf"), host_name(tree)
    if folder is None or is_closed(tree):
        return None
    found, counts = dict[str, str](), dict[str, int]()
    for entry in conf_entries(tree, f"{folder}/gres.conf"):
        if "nodename" in entry and not is_named(host, entry["nodename"]):
            continue
        if "autodetect" in entry:
            found["AutoDetect"] = entry["autodetect"].lower()
        room = max(0, _MOST_DEVICES - len(found))
        for device in islice(_devices(entry), room) if "name" in entry else ():
            name, details = entry["name"].lower(), _details(entry)
            number = counts[name] = counts.get(name, -1) + 1
            found[f"{name} {number}"] = " ".join((device, *details))
    return found


def _devices(entry: Mapping[str, str]) -> Iterator[str]:
    """Yield the files of a line in their order, else how many there are."""
    files = entry.get("file") or entry.get("multiplefiles")
    if files is None:
        yield f"count {entry.get('count', '1')}"
        return
    for name in re.findall(LISTED, files):
        begin, bracket, rest = name.partition("[")
        numbers, _, end = rest.partition("]")
        try:
            listed = map(str, parse_number_list(numbers, limit=_MOST_DEVICES)) if bracket else [""]
        except CpusetError:
            listed = [f"[{numbers}]"]
        yield from (f"{begin}{number}{end}" for number in listed)


def _details(entry: Mapping[str, str]) -> Iterator[str]:
    for key in ("type", "cores", "cpus", "flags", "links"):
        if key in entry:
            yield f"{key}={normalized_cpus(entry[key]) if key in ('cores', 'cpus') else entry[key].lower()}"


def compare_gres(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield one change where devices differ, or how slurmd finds them; else one for each kind in another order."""
    old, new = map(_by_name, texts_of("slurm-gres", before, after))
    gone, come = (
        tuple(f"{name} {device}" for name in side for device in side[name] if device not in other.get(name, ()))
        for side, other in ((old, new), (new, old))
    )
    if gone or come:
        yield Change("slurm-gres-changed", "gres.conf", joined(gone), joined(come), {"gone": gone, "come": come})
        return
    for name in sorted(old.keys() & new.keys()) if "AutoDetect" not in old else ():
        pairs = zip(old[name], new[name], strict=False)
        if moved := tuple(f"{at}: {was} -> {now}" for at, (was, now) in enumerate(pairs) if was != now):
            yield Change(
                "slurm-gres-order", f"gres.conf {name}", joined(old[name]), joined(new[name]), {"moved": moved}
            )


def _by_name(side: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the devices of each kind in their order."""
    found: dict[str, list[str]] = {}
    for key in sorted(side, key=lambda key: key.partition(" ")[2].zfill(_DIGITS)):
        if side[key] != "off":  # of `AutoDetect`, the default
            found.setdefault(key.partition(" ")[0], []).append(side[key])
    return found


def gres_touches(change: Change, context: Context) -> Iterator[Touched]:
    """Yield the GPUs of the node kinds with their masks, settings that choose a GPU, and the task prolog."""
    yield from helper_touches("spank/task_prolog")(change, context)
    if not change.subject.endswith((".conf", " gpu")):
        return
    for name in context.gpu_kinds:
        yield Touched("site", f"node_kinds.{name}.gpus", "affected-key-value", {"value": None})
        yield Touched("mask", name, "affected-mask", {"name": change.subject})
    for setting in context.site.settings:
        if setting.computed == "one-gpu":
            yield Touched("setting", setting.name, "affected-setting-rule", {"name": change.subject})


KINDS = (ChangeKind("slurm-gres", compare_gres, gres_touches, read=read_gres),)
