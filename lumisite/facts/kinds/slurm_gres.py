"""The generic resources of a node: the first device of a file has the number 0, unless slurmd finds them by itself.

Sources: gres.conf(5) of Slurm 26.05, and src/interfaces/gres.c for the numbers of GPUs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice

from lumisite.facts.change import Change, Touched
from lumisite.facts.context import Context
from lumisite.facts.kind import helper_touches
from lumisite.facts.kinds.slurm import conf_entries, conf_folder, is_closed
from lumisite.facts.kinds.slurm_node import LISTED, host_name, is_named, normalized_cpus
from lumisite.machine.tree import Tree
from lumisite.site.cpus import CpusetError, parse_number_list
from lumisite.site.model import Site

_MOST_DEVICES = 1024


def read_gres(tree: Tree, _: Site) -> dict[str, str] | None:
    """Return the devices of gres.conf, those of one kind in the order of their numbers, and how slurmd finds others."""
    folder, host = conf_folder(tree, "gres.conf"), host_name(tree)
    if folder is None or is_closed(tree):
        return None
    found, detected = list[str](), ""
    for entry in conf_entries(tree, f"{folder}/gres.conf"):
        if "nodename" in entry and not is_named(host, entry["nodename"]):
            continue
        detected = entry.get("autodetect", detected).lower()
        room = max(0, _MOST_DEVICES - len(found))
        for device in islice(_devices(entry), room) if "name" in entry else ():
            found.append(" ".join((entry["name"].lower(), device, *_details(entry))))
    # The number of a device is its place, unless slurmd finds the devices by itself.
    found = [f"AutoDetect {detected}", *sorted(found)] if detected not in ("", "off") else _by_name(found)
    return {"gres.conf": ", ".join(found)} if found else {}


def _by_name(devices: list[str]) -> list[str]:
    """Return the devices of each kind together, in their order."""
    return sorted(devices, key=lambda device: device.partition(" ")[0])


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


def gres_touches(change: Change, context: Context) -> Iterator[Touched]:
    """Yield the GPUs of the node kinds with their masks, settings that choose a GPU, and the task prolog."""
    yield from helper_touches("spank/task_prolog")(change, context)
    for name in context.gpu_kinds:
        yield Touched("site", f"node_kinds.{name}.gpus", "states what changed")
        yield Touched("mask", name, f"masks are made from {change.subject}")
    for setting in context.site.settings:
        if setting.computed == "one-gpu":
            yield Touched("setting", setting.name, f"depends on {change.subject}")
