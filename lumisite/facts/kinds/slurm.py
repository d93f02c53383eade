"""Slurm: its version, and what of its files reaches a job.

Sources: slurm.conf(5), cgroup.conf(5), gres.conf(5), spank(8) of Slurm 26.05.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping

from lumisite.facts.change import Change, Touched
from lumisite.facts.context import Context
from lumisite.facts.kind import Differences, Read, helper_touches, parts_of, platform_touches, value_kind
from lumisite.facts.kinds.reading import file_mark, lines_of, pairs_of, printable_only, script_mark
from lumisite.machine.tree import Tree, first_line, resolve, small_text
from lumisite.site.cpus import CpusetError, format_cpu_list, parse_number_list
from lumisite.site.model import Site

#: Where Slurm looks for its files: its own folder, then what slurmd keeps where it gets them from the controller.
_FOLDERS = ("/etc/slurm", "/run/slurm/conf", "/var/spool/slurmd/conf-cache", "/etc/slurm-llnl", "/opt/slurm/etc")
_PLUGIN_FOLDERS = (
    "/usr/lib64/slurm", "/usr/lib/slurm", "/usr/lib/x86_64-linux-gnu/slurm-wlm", "/opt/slurm/lib64/slurm",
)  # fmt: skip
_SCRIPTS = ("TaskProlog", "TaskEpilog", "SrunProlog")
_KEYS = (
    *_SCRIPTS, "CliFilterPlugins", "DefCpuPerGPU", "DefMemPerCPU", "DefMemPerGPU", "DefMemPerNode", "Epilog",
    "GresTypes", "JobAcctGatherParams", "JobContainerType", "KillOnBadExit", "LaunchParameters", "MpiDefault",
    "MpiParams", "PlugStackConfig", "ProctrackType", "Prolog", "PrologFlags", "PropagateResourceLimits",
    "PropagateResourceLimitsExcept", "SelectType", "SelectTypeParameters", "SlurmdParameters", "SlurmdSpoolDir",
    "SwitchParameters", "SwitchType", "TaskPlugin", "TaskPluginParam", "UsePAM",
)  # fmt: skip
#: Keys whose values are words without an order, in any case.
_WORDS = (
    "GresTypes", "JobAcctGatherParams", "LaunchParameters", "PrologFlags", "PropagateResourceLimits",
    "PropagateResourceLimitsExcept", "SelectTypeParameters", "SlurmdParameters", "SwitchParameters", "TaskPlugin",
    "TaskPluginParam",
)  # fmt: skip
#: The file of cli_filter/lua beside slurm.conf, and what stands before a file that it runs.
_FILTER, _CALLS = "cli_filter.lua", "runs "
_SPOOL = "/var/spool/slurmd"
_DEFAULTS = {
    "KillOnBadExit": "no", "MpiDefault": "none", "PropagateResourceLimits": "ALL", "SlurmdSpoolDir": _SPOOL,
    "UsePAM": "no",
}  # fmt: skip
#: What a flag of `PrologFlags` sets too.
_IMPLIED = {
    "contain": "alloc", "deferbatch": "alloc", "nohold": "alloc", "forcerequeueonfail": "alloc",
    "x11": "contain alloc", "runinjob": "contain alloc",
}  # fmt: skip
_SWITCHES = {"yes": "yes", "true": "yes", "up": "yes", "1": "yes", "no": "no", "false": "no", "down": "no", "0": "no"}
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
_NODE = "NodeName"
#: A name with several ranges is in this many parts.
_MOST_PARTS = 9
#: A name with ranges in a list of names.
_LISTED = r"(?:[^,\[]|\[[^\[\]]*\])+"


def slurm_touches(change: Change, context: Context) -> Iterator[Touched]:
    """Yield the key of the platform, and what Slurm runs of the helper."""
    yield from platform_touches("slurm")(change, context)
    yield from helper_touches("spank/task_prolog", "spank/cli_filter.lua")(change, context)


# Its files


def conf_folder(tree: Tree, *others: str) -> str | None:
    """Return the folder of Slurm's files, by slurm.conf or one of `others`."""
    files = [f"{folder}/{name}" for folder in _FOLDERS for name in ("slurm.conf", *others)]
    return next((posixpath.dirname(path) for path in files if resolve(tree, path).entry is not None), None)


def meaning(name: str, value: str | None) -> str:
    """Return what the value of a key means: order, case and spelling do not count where they mean nothing.

    >>> meaning("PrologFlags", "X11") == meaning("PrologFlags", "contain,Alloc,x11")
    True
    """
    text = (value or _DEFAULTS.get(name, "")).strip('"').rstrip("/")
    if name in _WORDS:
        words = {word.strip().lower().removeprefix("task/") for word in text.split(",")} - {""}
        if name == "PrologFlags":
            words |= {implied for word in words for implied in _IMPLIED.get(word, "").split()}
        return ",".join(sorted(words - {"none"} if name == "TaskPlugin" else words))
    return _SWITCHES.get(text.lower(), text)


def normalized_cpus(value: str) -> str:
    """Return a list of CPUs with its ranges in order; a text that is no such list unchanged."""
    try:
        return format_cpu_list(parse_number_list(value))
    except CpusetError:
        return value


def _unless_closed(read: Read) -> Read:
    """Return a reader that has `None` where a folder of Slurm's files, or a file there, turns out to be closed."""

    def readable(tree: Tree, site: Site) -> Mapping[str, str] | None:
        found = read(tree, site)
        closed = [f"{path.rstrip('/')}/" for path in getattr(tree, "unreadable", {})]
        folders = [f"{path}/" for path in (*_FOLDERS, *_PLUGIN_FOLDERS)]
        is_closed = any(path.startswith(folder) or folder.startswith(path) for path in closed for folder in folders)
        return None if is_closed else found

    return readable


def _global_keys(tree: Tree, folder: str) -> dict[str, str]:
    """Return the keys of slurm.conf that are for all nodes."""
    stated: dict[str, str] = {}
    for entry in pairs_of(tree, f"{folder}/slurm.conf"):
        if not entry.keys() & {"nodename", "partitionname", "nodeset", "downnodes"}:
            stated |= entry
    return stated


@_unless_closed
def read_slurm_conf(tree: Tree, site: Site) -> dict[str, str] | None:
    """Return the keys of slurm.conf that are for all nodes, with the digests of scripts."""
    folder = conf_folder(tree)
    if folder is None:
        return {}
    stated = _global_keys(tree, folder)
    found = {name: meaning(name, stated.get(name.lower())) for name in _KEYS}
    for key in _SCRIPTS:
        if found[key] and not found[key].startswith(f"{site.root}/"):  # what is deployed is known by its digest
            mark = script_mark(tree, found[key])
            found[key] += f" ({mark})" if mark else ""
    found[_FILTER] = _filter_text(tree, site, f"{folder}/{_FILTER}")
    return printable_only(found)


def _filter_text(tree: Tree, site: Site, path: str) -> str:
    """Return which files of the deployment root the site's own cli_filter runs, with its digest."""
    mark = script_mark(tree, path, "--")
    code = re.sub(r"--.*", "", small_text(tree, path) or "")
    called = sorted(set(re.findall(rf"{re.escape(site.root)}/[\w./-]+", code)))
    return ", ".join([*(f"{_CALLS}{name}" for name in called), mark]) if mark else ""


def no_longer_calls(was: str | None, now: str | None) -> bool:
    """Return whether the site's cli_filter ran a file of the deployment root, and does not any more."""
    called = {part for part in parts_of(was) if part.startswith(_CALLS)}
    return bool(called.difference(parts_of(now)))


def _mark(tree: Tree, paths: Iterable[str]) -> str:
    """Return the digest of a file, the first of `paths` that is there."""
    return next((f" ({mark})" for path in paths if (mark := file_mark(tree, path))), "")


@_unless_closed
def read_plugstack(tree: Tree, _: Site) -> dict[str, str] | None:
    """Return the plugins of plugstack.conf in their order, each with its digest."""
    folder = conf_folder(tree, "plugstack.conf")
    if folder is None:
        return None
    found = []
    for line in lines_of(tree, [_global_keys(tree, folder).get("plugstackconfig", f"{folder}/plugstack.conf")]):
        kind, plugin, *rest = [*line.split(), ""]
        mark = _mark(tree, (posixpath.join(top, plugin) for top in _PLUGIN_FOLDERS))
        found.append(" ".join(filter(None, (kind.lower(), plugin, *rest))) + mark)
    return printable_only({"plugstack.conf": ", ".join(found)})


@_unless_closed
def read_cgroup(tree: Tree, _: Site) -> dict[str, str] | None:
    """Return the keys of cgroup.conf with their defaults."""
    folder = conf_folder(tree, "cgroup.conf")
    if folder is None:
        return None
    stated: dict[str, str] = {}
    for entry in pairs_of(tree, f"{folder}/cgroup.conf"):
        stated |= entry
    values = {key: meaning(key, stated.get(key.lower()) or default) for key, default in _CGROUP_KEYS.items()}
    return printable_only({"cgroup.conf": ", ".join(f"{key}={value}" for key, value in values.items())})


@_unless_closed
def read_gres(tree: Tree, _: Site) -> dict[str, str] | None:
    """Return the lines of gres.conf that are for this node, in their order, which numbers the devices."""
    folder, host = conf_folder(tree, "gres.conf"), host_name(tree)
    if folder is None:
        return None
    entries = (entry for entry in pairs_of(tree, f"{folder}/gres.conf") if is_named(host, entry.pop("nodename", host)))
    lines = (" ".join(f"{key}={_gres_value(key, entry[key])}" for key in sorted(entry)) for entry in entries)
    return printable_only({"gres.conf": ", ".join(filter(None, lines))})


def _gres_value(key: str, value: str) -> str:
    return value if key.endswith(("file", "files")) else normalized_cpus(value.lower())


@_unless_closed
def read_node(tree: Tree, _: Site) -> dict[str, str] | None:
    """Return what slurm.conf says of this node, over the defaults above: its own line, else the only one."""
    folder = conf_folder(tree)
    if folder is None:
        return None
    host, defaults, others = host_name(tree), dict[str, str](), list[dict[str, str]]()
    for entry in pairs_of(tree, f"{folder}/slurm.conf"):
        names = entry.pop("nodename", "")
        if names.lower() == "default":
            defaults |= entry
        elif names and is_named(host, names):
            return printable_only({_NODE: _node_text(defaults | entry)})
        elif names:
            others.append(defaults | entry | {"nodename": names})
    return printable_only({f"{_NODE} {one['nodename']}": _node_text(one) for one in others}) if len(others) == 1 else {}


def _node_text(entry: dict[str, str]) -> str:
    stated = {key: entry[key.lower()] for key in _NODE_KEYS if key.lower() in entry}
    if "(" not in stated.get("Gres", "("):
        stated["Gres"] = ",".join(sorted(stated["Gres"].lower().split(",")))
    return ", ".join(f"{key}={normalized_cpus(value)}" for key, value in stated.items())


def node_follows(change: Change, differences: Differences) -> bool:
    """Return whether two captures have the lines of different nodes, which are not compared."""
    is_own = change.subject == _NODE and differences.before.host == differences.after.host
    return None in (change.before, change.after) and not is_own


def host_name(tree: Tree) -> str:
    """Return the name of the node without its domain."""
    name = first_line(tree, "/proc/sys/kernel/hostname") or first_line(tree, "/etc/hostname") or ""
    return name.partition(".")[0]


def is_named(host: str, names: str) -> bool:
    """Return whether a host is in one of Slurm's lists of hosts; a range has numbers as wide as its begin.

    >>> [is_named(host, "nid[001000-001999,3],login1") for host in ("nid001500", "nid1500", "nid3", "login1")]
    [True, False, True, True]
    """
    for name in re.findall(_LISTED, names):
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


# What they touch


def conf_touches(change: Change, context: Context) -> Iterator[Touched]:
    """Yield the task prolog, and what names the folder of slurmd."""
    yield from helper_touches(f"spank/{_FILTER if change.subject == _FILTER else 'task_prolog'}")(change, context)
    if change.subject == "SlurmdSpoolDir":
        yield from context.all_naming(spool_folder(change.before))


def node_touches(change: Change, context: Context) -> Iterator[Touched]:
    """Yield what node kinds say of the keys that changed, and their masks."""
    yield from helper_touches("spank/task_prolog")(change, context)
    changed = {part.partition("=")[0] for part in (*parts_of(change.before), *parts_of(change.after))}
    stated = {_NODE_KEYS[key] for key in changed & _NODE_KEYS.keys()}
    for name in context.kinds_like_node:
        for key in sorted(stated):
            yield Touched("site", f"node_kinds.{name}.{key}", "states what changed")
        if stated & {"l3", "reserved"}:
            yield Touched("mask", name, f"masks are made from {change.subject}")


def devices_touch(change: Change, context: Context) -> Iterator[Touched]:
    """Yield the task prolog, the GPUs of node kinds with the masks, and the settings that choose a GPU."""
    yield from helper_touches("spank/task_prolog")(change, context)
    for name in context.kinds_like_node:
        if name in context.gpu_kinds:
            yield Touched("site", f"node_kinds.{name}.gpus", "states what changed")
        yield Touched("mask", name, f"masks are made from {change.subject}")
    for setting in context.site.settings:
        if setting.computed == "one-gpu":
            yield Touched("setting", setting.name, f"depends on {change.subject}")


def spool_folder(value: str | None) -> str:
    """Return the folder of slurmd, up to a part that is the node's own name."""
    common, percent, _ = (value or _SPOOL).partition("%")
    return (common.rpartition("/")[0] if percent else common).rstrip("/") or _SPOOL


KINDS = (
    value_kind(
        "slurm",
        "Slurm",
        lambda facts: facts.slurm,
        slurm_touches,
        "run one job step with LUMISITE_VERBOSE=1, and render again",
    ),
)
