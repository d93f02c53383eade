"""Slurm on one node: how it confines jobs, and what it says of the node.

Sources: slurm.conf(5), cgroup.conf(5) of Slurm 26.05.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Set

from lumisite.facts.change import Change, Touched, joined
from lumisite.facts.context import Context
from lumisite.facts.facts import Facts
from lumisite.facts.kind import ChangeKind, helper_touches, parts_of, texts_of
from lumisite.facts.kinds.slurm import compare_keys, conf_entries, conf_folder, global_keys, is_closed, meaning
from lumisite.machine.tree import Tree, first_line
from lumisite.site.cpus import CpusetError, format_cpu_list, parse_number_list
from lumisite.site.model import Site

_KEYS = (
    "DefCpuPerGPU", "DefMemPerCPU", "DefMemPerGPU", "DefMemPerNode", "Epilog", "GresTypes", "JobAcctGatherParams",
    "KillOnBadExit", "ProctrackType", "PrologFlags", "SelectType", "SelectTypeParameters", "SlurmdParameters",
    "SlurmdSpoolDir", "UsePAM",
)  # fmt: skip
_SPOOL = "/var/spool/slurmd"
#: Keys of cgroup.conf with their defaults.
_CGROUP_KEYS = {
    "AllowedRAMSpace": "100", "AllowedSwapSpace": "0", "CgroupPlugin": "autodetect", "ConstrainCores": "no",
    "ConstrainDevices": "no", "ConstrainRAMSpace": "no", "ConstrainSwapSpace": "no", "EnableControllers": "no",
    "IgnoreSystemd": "no", "MaxRAMPercent": "100", "MaxSwapPercent": "100", "MemorySwappiness": "",
    "MinRAMSpace": "30", "SignalChildrenProcesses": "no", "TaskAffinity": "no",
}  # fmt: skip
#: Keys of a node, with the key of the node kind that says the same.
_NODE_KEYS = {
    "Boards": "l3", "CPUs": "l3", "CoreSpecCount": "reserved", "CoresPerSocket": "l3", "CpuSpecList": "reserved",
    "Gres": "gpus", "MemSpecLimit": "memory_mib", "RealMemory": "memory_mib", "Sockets": "l3",
    "SocketsPerBoard": "l3", "ThreadsPerCore": "l3",
}  # fmt: skip
_NODE = "NodeName "
#: Of which line the keys of a node are: its own, or the only one there is.
_LINE, _OWN = "NodeName", "this node"
#: A name with several ranges is in this many parts.
_MOST_PARTS = 9
#: A name with ranges in a list of names.
LISTED = r"(?:[^,\[]|\[[^\[\]]*\])+"


def read_node_conf(tree: Tree, _: Site) -> dict[str, str] | None:
    """Return keys of slurm.conf about jobs on a node and of this node; no defaults."""
    folder = conf_folder(tree, "cgroup.conf")
    if folder is None or is_closed(tree):
        return None
    found = global_keys(tree, folder, _KEYS)
    node = _node_entry(tree, f"{folder}/slurm.conf")
    return found | {_NODE + key: _plain(key, node[key.lower()]) for key in (*_NODE_KEYS, _LINE) if key.lower() in node}


def read_cgroup(tree: Tree, _: Site) -> dict[str, str] | None:
    """Return the keys of cgroup.conf with their defaults."""
    folder = conf_folder(tree, "cgroup.conf")
    if folder is None or is_closed(tree):
        return None
    stated: dict[str, str] = {}
    for entry in conf_entries(tree, f"{folder}/cgroup.conf"):
        stated |= entry
    values = {key: meaning(key, stated.get(key.lower()) or default) for key, default in _CGROUP_KEYS.items()}
    return {"cgroup.conf": ", ".join(f"{key}={value}" for key, value in values.items())}


def cgroup_touches(change: Change, context: Context) -> Iterator[Touched]:
    """Yield the task prolog and, where cores or devices are confined in another way, the node kinds."""
    yield from helper_touches("spank/task_prolog")(change, context)
    yield from _node_kinds_touched(change, context, {part.partition("=")[0] for part in parts_of(change.after)})


def _node_entry(tree: Tree, path: str) -> dict[str, str]:
    """Return what slurm.conf says of this node, over the defaults above: its own line, else the only one."""
    host, defaults, others = host_name(tree), dict[str, str](), list[dict[str, str]]()
    for entry in conf_entries(tree, path):
        names = entry.get("nodename", "")
        if names.lower() == "default":
            defaults |= entry
        elif names and is_named(host, names):
            return defaults | entry | {"nodename": _OWN}
        elif names:
            others.append(defaults | entry)
    return others[0] if len(others) == 1 else {}


def host_name(tree: Tree) -> str:
    """Return the name of the node without its domain."""
    name = first_line(tree, "/proc/sys/kernel/hostname") or first_line(tree, "/etc/hostname") or ""
    return name.partition(".")[0]


def is_named(host: str, names: str) -> bool:
    """Return whether a host is in one of Slurm's lists of hosts; a range has numbers as wide as its begin.

    >>> [is_named(host, "nid[001000-001999,3],login1") for host in ("nid001500", "nid1500", "nid3", "login1")]
    [True, False, True, True]
    """
    for name in re.findall(LISTED, names):
        parts = re.split(r"\[([^\[\]]*)\]", name)
        pattern = "".join("([0-9]{1,9})" if at % 2 else re.escape(part) for at, part in enumerate(parts))
        found = re.fullmatch(pattern, host) if len(parts) <= _MOST_PARTS else None
        if found is not None and all(map(_in_ranges, found.groups(), parts[1::2])):
            return True
    return False


def _in_ranges(number: str, ranges: str) -> bool:
    for first, _, last in (part.partition("-") for part in ranges.split(",")):
        bounds = [int(bound) for bound in (first, last or first) if re.fullmatch("[0-9]{1,9}", bound)]
        is_as_wide = len(number) == len(first) or (len(number) > len(first) and not number.startswith("0"))
        if len(bounds) == 2 and is_as_wide and bounds[0] <= int(number) <= bounds[1]:
            return True
    return False


def _plain(key: str, value: str) -> str:
    """Return a value of a node in one spelling: lists of CPUs and of resources have no order."""
    if key == "CpuSpecList":
        return normalized_cpus(value)
    return ",".join(sorted(value.lower().split(","))) if key == "Gres" and "(" not in value else value


def normalized_cpus(value: str) -> str:
    """Return a list of CPUs with its ranges in order; a text that is no such list unchanged."""
    try:
        return format_cpu_list(parse_number_list(value))
    except CpusetError:
        return value


def compare_node_conf(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change for each key for all nodes, and one for the node's own line."""
    old, new = texts_of("slurm-node", before, after)
    if old.get(_NODE + _LINE) == new.get(_NODE + _LINE):
        pairs = ({key: value for key, value in side.items() if key.startswith(_NODE)} for side in (old, new))
        changes = list(compare_keys("slurm-node-changed", *pairs))
        texts = tuple(f"{one.subject.removeprefix(_NODE)} {one.before} -> {one.after}" for one in changes)
        if texts:
            was, now = (
                joined(filter(None, side)) for side in ([one.before for one in changes], [one.after for one in changes])
            )
            yield Change("slurm-node-changed", _NODE.strip(), was, now, {"fields": texts})
    yield from compare_keys(
        "slurm-conf-changed", *({key: side[key] for key in _KEYS if key in side} for side in (old, new))
    )


def node_conf_touches(change: Change, context: Context) -> Iterator[Touched]:
    """Yield the task prolog, and what the site says of the same: node kinds, and the path of slurmd's folder."""
    yield from helper_touches("spank/task_prolog")(change, context)
    if change.subject == "SlurmdSpoolDir":
        yield from context.all_naming(spool_folder(change.before))
    yield from _node_kinds_touched(change, context, {field.partition(" ")[0] for field in change.names("fields")})


def _node_kinds_touched(change: Change, context: Context, changed: Set[str]) -> Iterator[Touched]:
    """Yield what node kinds say of keys that changed, and their masks."""
    stated = {_NODE_KEYS.get(key, "gpus" if key == "ConstrainDevices" else "") for key in changed} - {""}
    for name in context.kinds_like_node:
        for key in sorted(stated):
            yield Touched("site", f"node_kinds.{name}.{key}", "states what changed")
        if stated & {"l3", "reserved"} or {"ConstrainCores", "TaskAffinity"} & changed:
            yield Touched("mask", name, f"masks are made from {change.subject}")


def spool_folder(value: str | None) -> str:
    """Return the folder of slurmd, up to a part that is the node's own name."""
    common, percent, _ = (value or _SPOOL).partition("%")
    return (common.rpartition("/")[0] if percent else common).rstrip("/") or _SPOOL


KINDS = (ChangeKind("slurm-node", compare_node_conf, node_conf_touches, read=read_node_conf),)
